// The commands as the manual has them (docs/man/hone.1.in), made from the same tables as the help.
#pragma once

#include <string>
#include <vector>

#include "client/cli/command.h"

namespace hone::cli {

// roff: an entry a command, with its arguments, options and examples.
std::string ManualOf(const std::vector<Command>& commands);

}  // namespace hone::cli
