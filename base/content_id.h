// What a program's or library's file holds, in a word.
#pragma once

#include <string>

#include "base/result.h"

namespace hone {

// The GNU build id that the linker wrote into it (hexadecimal; a hash of all that was linked), else a hash of all
// bytes: reading a compiler of 100 MB whole would cost each start a tenth of a second. kNotFound, kIo; kLimit: more
// than 1 GiB without a build id.
Result<std::string> ContentId(const std::string& path);

}  // namespace hone
