#include "base/log.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <iterator>

#include "base/mutex.h"

namespace hone {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"?", "error", "warn", "info", "debug"};

std::atomic<LogLevel> level_now{LogLevel::kInfo};
std::atomic<int> fd_now{STDERR_FILENO};

// Keeps a line whole when the kernel takes it in two writes. Leaked on purpose: threads may log while the process
// exits.
Mutex& WriteMutex() {
  static Mutex& mutex = *new Mutex;
  return mutex;
}

using Buffer = fmt::memory_buffer;

bool IsPlain(std::string_view text) {
  if (text.empty()) return false;
  for (char c : text)
    if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '\\' || c == '=' || c == 127) return false;
  return true;
}

void AppendText(Buffer& line, std::string_view text) {
  if (IsPlain(text)) return line.append(text);
  line.push_back('"');
  for (char c : text) {
    if (c == '"' || c == '\\') {
      line.push_back('\\');
      line.push_back(c);
    } else if (c == '\n') {
      line.append(std::string_view("\\n"));
    } else if (static_cast<unsigned char>(c) < ' ' || c == 127) {
      fmt::format_to(std::back_inserter(line), "\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      line.push_back(c);
    }
  }
  line.push_back('"');
}

void AppendTime(Buffer& line) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  fmt::format_to(std::back_inserter(line), "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                 utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1'000'000);
}

void WriteLine(std::string_view line) {
  MutexLock lock(WriteMutex());
  int fd = fd_now.load();
  while (!line.empty()) {
    ssize_t written = ::write(fd, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    line.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

std::string_view LogLevelName(LogLevel level) {
  size_t index = static_cast<size_t>(level);
  return index < kNames.size() ? kNames[index] : kNames[0];
}

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (size_t i = 1; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  return std::nullopt;
}

void SetLogLevel(LogLevel level) { level_now = level; }
LogLevel GetLogLevel() { return level_now.load(std::memory_order_relaxed); }
void SetLogFd(int fd) { fd_now = fd; }

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (!LogEnabled(level)) return;
  int saved_errno = errno;  // logging between a failing call and the look at its errno must not disturb it
  Buffer line;
  AppendTime(line);
  fmt::format_to(std::back_inserter(line), " {} {}", LogLevelName(level), event);
  for (const LogField& field : fields) {
    fmt::format_to(std::back_inserter(line), " {}=", field.key);
    if (auto* text = std::get_if<std::string_view>(&field.value))
      AppendText(line, *text);
    else if (auto* real = std::get_if<double>(&field.value))
      fmt::format_to(std::back_inserter(line), "{:.6g}", *real);
    else if (auto* whole = std::get_if<int64_t>(&field.value))
      fmt::format_to(std::back_inserter(line), "{}", *whole);
    else
      fmt::format_to(std::back_inserter(line), "{}", std::get<uint64_t>(field.value));
  }
  line.push_back('\n');
  WriteLine({line.data(), line.size()});
  errno = saved_errno;
}

}  // namespace hone
