// Landlock: a process gives up its right to open files, and to reach other processes but its own children.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hone {

// The version of the kernel's Landlock; 0: it has none, or somebody hides it.
int LandlockAbi();

// From now on this thread, and what it starts, opens no file, creates none and changes none; nor, where the version has
// it, connects by TCP (4), nor reaches abstract sockets and signals processes outside (6). What is open stays open.
// Memfds are not under Landlock: their file system can never be mounted. Returns the version that holds it, tried by
// opening a file. Sets no_new_privs. kUnsupported: this kernel has none; kIo: it has, and it could not be used. The
// message says why, and what to do. REQUIRES: one thread.
Result<int> DenyFiles();

// The same, but for reading, which is allowed everywhere, and these files and everything below these
// directories.
Result<int> DenyWritingFiles(const std::vector<std::string>& writable);

}  // namespace hone
