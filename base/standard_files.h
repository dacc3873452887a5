// The three descriptors that a program counts on: a caller may have closed them.
#pragma once

namespace hone {

// /dev/null for each of standard input, output and error that is closed. Without it the next file or socket that is
// opened would get its number, and with that what is read or printed. To be called first in main().
void OpenStandardFiles();

// The exit status of a program that has printed all it had to: 0, or 1 with a line on standard error where not all of
// it has arrived, as on a full disk.
int EndOfPrinting(const char* program);

}  // namespace hone
