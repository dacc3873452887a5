// What a command of `hone` is: its words on the command line, its help, and the function behind it. Each command has a
// file of its own; client/cli/commands.cc lists them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone::cli {

// Exit statuses, as documented.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;

struct Option {
  std::string_view name;   // "--budget"
  std::string_view value;  // "TIME"; "" for a flag
  std::string_view help;
  std::string_view letter = "";  // "-o", the same in short
  bool many = false;             // may be given several times; else the last counts
};

struct Positional {
  std::string_view name;  // "KERNEL"
  std::string_view help;
  bool required = true;
  bool many = false;
};

// What was given on the command line.
class Arguments {
 public:
  void Set(std::string name, std::vector<std::string> values) { values_[std::move(name)] = std::move(values); }

  bool Has(std::string_view name) const { return values_.find(name) != values_.end(); }
  std::string Text(std::string_view name) const;  // "" if it was not given
  std::vector<std::string> Texts(std::string_view name) const;
  // kInvalid unless it is a whole number within the bounds; `standard` if it was not given.
  Result<int64_t> Number(std::string_view name, int64_t standard, int64_t least, int64_t most) const;
  // "50ms", "2s", "100us", "1min": kInvalid otherwise.
  Result<std::chrono::microseconds> Duration(std::string_view name, std::chrono::microseconds standard) const;

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

class Context;

struct Command {
  std::string_view name;
  std::string_view summary;  // one line, for the list of commands
  std::string_view details;  // more, and examples
  std::vector<Positional> positionals;
  std::vector<Option> options;
  int (*run)(Context& context, const Arguments& arguments);
};

// In the order of the help.
const std::vector<Command>& Commands();

// Options that every command takes.
const std::vector<Option>& GlobalOptions();

}  // namespace hone::cli
