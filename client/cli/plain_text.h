// Texts of anybody's on their way to a terminal: kernels, names of files, what a model or a bundle says. What a
// terminal would take for a command, and what is no UTF-8, is shown as it stands: \x1b.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hone::cli {

// Bytes of the UTF-8 character at the front; 0: it is none, or a control character other than a tab or the end of a
// line (C0 but for \t and \n, DEL, C1). REQUIRES: text is not empty.
size_t PlainCharacter(std::string_view text);

// Every other byte as \x and two hexadecimal digits.
std::string Plain(std::string_view text);
// The same without ends of lines and tabs, which become blanks.
std::string PlainLine(std::string_view text);

}  // namespace hone::cli
