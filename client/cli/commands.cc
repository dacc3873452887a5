#include <charconv>

#include "client/cli/command.h"

namespace hone::cli {

// A row a command, in the order of the help: what XCommand() in its own file returns.
#define HONE_COMMANDS(X) \
  X(Status)              \
  X(Get)                 \
  X(Run)                 \
  X(Check)               \
  X(Warm)                \
  X(Missing)             \
  X(Tune)                \
  X(Top)                 \
  X(Predict)             \
  X(List)                \
  X(Show)                \
  X(Explain)             \
  X(Schedule)            \
  X(Code)                \
  X(Pin)                 \
  X(Unpin)               \
  X(Remove)              \
  X(Verify)              \
  X(Export)              \
  X(Contribute)          \
  X(Import)              \
  X(Bundle)              \
  X(Keygen)              \
  X(Report)              \
  X(Stats)               \
  X(Completion)

#define HONE_DECLARE(name) Command name##Command();
HONE_COMMANDS(HONE_DECLARE)
#undef HONE_DECLARE

const std::vector<Command>& Commands() {
#define HONE_MAKE(name) name##Command(),
  static const std::vector<Command> commands = {HONE_COMMANDS(HONE_MAKE)};
#undef HONE_MAKE
  return commands;
}

const std::vector<Option>& GlobalOptions() {
  static const std::vector<Option> options = {
      {"--socket", "PATH", "the daemon's socket (default: $HONE_SOCKET, else your own honed's)"},
      {"--cache", "DIR",
       "read this cache without a daemon; for get, run and warm: the cache of the honed that is started"},
      {"--no-start", "", "fail if no daemon listens, instead of starting one"},
      {"--json", "", "print one JSON object, or one per line, instead of text"}};
  return options;
}

std::string Arguments::Text(std::string_view name) const {
  auto found = values_.find(name);
  return found == values_.end() || found->second.empty() ? "" : found->second.back();
}

std::vector<std::string> Arguments::Texts(std::string_view name) const {
  auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

Result<int64_t> Arguments::Number(std::string_view name, int64_t standard, int64_t least, int64_t most) const {
  if (!Has(name)) return standard;
  std::string text = Text(name);
  int64_t value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return Error{
        ErrorKind::kInvalid,
        "saw \"" + text + "\", wanted a whole number from " + std::to_string(least) + " to " + std::to_string(most),
        std::string(name)};
  }
  return value;
}

Result<std::chrono::microseconds> Arguments::Duration(std::string_view name, std::chrono::microseconds standard) const {
  if (!Has(name)) return standard;
  std::string text = Text(name);
  double value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  double factor = unit == "us" ? 1 : unit == "ms" ? 1e3 : unit == "s" ? 1e6 : unit == "min" ? 60e6 : 0;
  constexpr double kDay = 24 * 3600e6;
  if (code != std::errc() || factor == 0 || !(value * factor >= 1) || value * factor > kDay) {
    return Error{ErrorKind::kInvalid, "saw \"" + text + "\", wanted a time such as 500us, 50ms, 2s or 1min",
                 std::string(name)};
  }
  return std::chrono::microseconds(static_cast<int64_t>(value * factor));
}

}  // namespace hone::cli
