// The log: one line per event, greppable. `2025-03-01T12:00:00.123Z info trial key=9f3c round=7 us=41.2`
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace hone {

enum class LogLevel : uint8_t { kError = 1, kWarn = 2, kInfo = 3, kDebug = 4 };

std::string_view LogLevelName(LogLevel level);                 // "error" "warn" "info" "debug"
std::optional<LogLevel> ParseLogLevel(std::string_view name);  // nullopt if unknown

// Settable at any time from any thread. kInfo and standard error until then.
void SetLogLevel(LogLevel level);
LogLevel GetLogLevel();
void SetLogFd(int fd);  // borrowed; must stay open
// From now on entries go to the journal, with their values as fields, if it reads the descriptor above (JOURNAL_STREAM)
// and listens at `socket`; what it does not take goes to the descriptor. False if it does not read it.
bool LogToJournal(const std::string& socket = "/run/systemd/journal/socket");
inline bool LogEnabled(LogLevel level) { return level <= GetLogLevel(); }

// key=value. Holds views: lasts for the statement that logs.
struct LogField {
  template <std::integral T>
  LogField(std::string_view k, T v) : key(k), value(Integer(v)) {}
  LogField(std::string_view k, bool v) : key(k), value(std::string_view(v ? "true" : "false")) {}
  LogField(std::string_view k, double v) : key(k), value(v) {}
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(std::string_view(v)) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(std::string_view(v)) {}

  using Value = std::variant<int64_t, uint64_t, double, std::string_view>;
  template <std::integral T>
  static Value Integer(T v) {
    if constexpr (std::signed_integral<T>)
      return Value(std::in_place_type<int64_t>, v);
    else
      return Value(std::in_place_type<uint64_t>, v);
  }
  std::string_view key;
  Value value;
};

// Writes the line if the level is enabled. Thread-safe: lines never mix. Never fails: a log that cannot be written is
// dropped. Text with spaces, quotes or control characters is quoted and escaped, so that a line stays one line.
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

inline void LogError(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, event, fields);
}
inline void LogWarn(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarn, event, fields);
}
inline void LogInfo(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, event, fields);
}
inline void LogDebug(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kDebug, event, fields);
}

}  // namespace hone
