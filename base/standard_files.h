// The three descriptors that a program counts on: a caller may have closed them.
#pragma once

namespace hone {

// /dev/null for each of standard input, output and error that is closed. Without it the next file or socket that is
// opened would get its number, and with that what is read or printed. To be called first in main().
void OpenStandardFiles();

}  // namespace hone
