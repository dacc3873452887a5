// What a builder may do once it has started: compute, and talk over the channel it was given. LLVM is a large body of
// code fed with what clients wrote.
#pragma once

#include "base/result.h"

namespace hone {

// No network, no other program, no new process, no writing of files, no code made at run time, and with Landlock
// (Linux 5.13) no reading of files either: only memfds of its own through /proc/self/fd, as lld wants them. Without
// Landlock files that the user can read stay readable. kIo if the kernel has no seccomp: then nothing is built.
Result<void> EnterBuilderSandbox();

}  // namespace hone
