// The text of a kernel as it is kept: comments are for whoever wrote it.
#pragma once

#include <string>
#include <string_view>

namespace hone {

// The source without its comments, without the blanks that a line ends with, and without empty lines: it reads as the
// same kernel.
std::string WithoutComments(std::string_view source);

}  // namespace hone
