// What a command writes where -o says: a file that is replaced as a whole, or standard output.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hone::cli {

// "-" stands for standard output.
bool IsStandardOutput(std::string_view path);

// The file itself where `path` is a link to one, so that the link stays; "-" as it is. kInvalid for "", for a
// directory, for a link to nothing, and for what is no regular file (a file would take the place of /dev/null). kIo.
Result<std::string> OutputFile(const std::string& path);

// To standard output, or to what OutputFile said: readers see the old or the new contents. A file that is
// replaced leaves its mode; that of a new one is what the umask leaves. kIo, kLimit where the disk is full.
Result<void> WriteOutput(const std::string& file, std::string_view bytes);

}  // namespace hone::cli
