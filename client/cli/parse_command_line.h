// The command line by CLI11, from the tables of commands and options.
#pragma once

#include <variant>

#include "client/cli/command.h"

namespace hone::cli {

struct Parsed {
  const Command* command = nullptr;
  Arguments globals;
  Arguments arguments;
};

// What to run, or the status to exit with: help was printed (0), or the usage was wrong (2, said on standard error).
std::variant<Parsed, int> ParseCommandLine(int argc, char** argv);

}  // namespace hone::cli
