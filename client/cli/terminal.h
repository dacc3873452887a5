// How large the terminal is that a command writes to.
#pragma once

#include <cstddef>

namespace hone::cli {

struct TerminalSize {
  size_t columns = 80;
  size_t rows = 24;
};

// Of standard output. Where that is no terminal: $COLUMNS, else 80, so that what goes into a pipe or a file is the same
// whoever looks.
TerminalSize SizeOfTerminal();

// Whether that is a terminal on which lines can be drawn over: not where $TERM is "dumb", or missing.
bool CanDrawOn(int descriptor);

}  // namespace hone::cli
