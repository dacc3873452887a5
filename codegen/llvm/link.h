// lld as a library: one relocatable object in memory -> a shared object in memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/target.h"

namespace hone {

// Links `object` alone into a shared object that exports its default-visibility symbols and needs nothing.
// Deterministic. Runs lld in this process and on this thread; lld keeps global state, so one call at a time per
// process, and while it runs file descriptor 1 is lld's output.
//
// System calls beyond malloc's: memfd_create, write, fcntl(F_DUPFD_CLOEXEC), dup2, close, newfstatat and pread64 on its
// own descriptors; openat of /proc/self/fd/N (read-only) and mmap of it (private, read-only); access("-") (may fail);
// rt_sigaction and rt_sigprocmask (crash recovery); sched_getaffinity. It creates no file, directory or thread.
//
// kBuildFailed with lld's messages: an undefined symbol, a malformed object. kInternal: lld crashed; it must not be
// called again in this process. kIo: no memory file could be made.
Result<std::vector<std::byte>> LinkSharedObject(std::span<const std::byte> object, Isa isa);

}  // namespace hone
