#include "client/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace hone::cli {

TerminalSize SizeOfTerminal() {
  constexpr size_t kWidest = 10'000;
  TerminalSize size;
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) {
    size.columns = window.ws_col;
    if (window.ws_row > 0) size.rows = window.ws_row;
    return size;
  }
  const char* given = getenv("COLUMNS");
  const std::string_view text = given ? given : "";
  size_t columns = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), columns);
  if (code == std::errc() && end == text.data() + text.size() && columns > 0 && columns <= kWidest)
    size.columns = columns;
  return size;
}

bool CanDrawOn(int descriptor) {
  const char* terminal = getenv("TERM");
  return isatty(descriptor) != 0 && terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

}  // namespace hone::cli
