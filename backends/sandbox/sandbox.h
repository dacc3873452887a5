// What our child processes may do once they have started: compute, and talk over the channel that they were given.
// Builders run LLVM, a large body of code fed with what clients wrote; runners read what builders made; launchers fork
// the candidates, whose own filter (candidate.cc) is narrower still.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

// What holds a child process, as it found when it had given up its rights. Its limits are read back from the kernel;
// that files cannot be opened was tried.
struct Confinement {
  std::string child;           // "builder", "runner", "launcher", "device"
  int landlock = 0;            // version that denies it all (other) files; 0: none does
  std::string no_landlock;     // why none does, and what to do
  bool is_refused = false;     // the kernel has Landlock, and something keeps it from being used
  uint64_t address_space = 0;  // bytes; 0: unlimited
  uint64_t file_size = 0;      // bytes of any memfd it writes; 0: unlimited
  uint64_t descriptors = 0;
  bool is_emulated = false;  // by a program that filters no system calls (GoOnWithoutFilters): nothing does
  bool reads_files = false;  // as drivers do their libraries; Landlock denies them to write, but below one directory

  bool complete() const { return landlock > 0 && !is_emulated; }
  // "builder: system calls filtered, no files (Landlock 7), 4096 MiB of memory, …"
  std::string Text() const;
};

// Each may be called once, in a process of one thread. kIo if the kernel installs no system-call filter: then the child
// must not go on.
//
// No network, no other program, no new process, no writing of files, no code made at run time, and no reading of files:
// only memfds of its own through /proc/self/fd, as lld wants them.
Result<Confinement> EnterBuilderSandbox();
// The same, and it opens nothing at all. In two steps: between them it starts its launcher, which has to live within
// its Landlock domain, since nobody within one reaches anybody outside with a signal, as the one that ends the launcher
// when the runner ends.
Confinement DenyRunnerFiles();
Result<void> FilterRunner();
// May fork, end its children, and map code from memfds. No network, no other program, no files.
Result<Confinement> EnterLauncherSandbox();

// For a process that starts others with a driver in them, and for these: no network, nobody else's memory, no writing
// of files but below `own`, to devices and in /proc. A driver reads its libraries, may start programs (PoCL links with
// ld) and makes code.
Result<Confinement> EnterDeviceSandbox(const std::string& own);
// For each that has the driver, when it has started: of /proc only its own threads, which NVIDIA's gives names
// (and does not start where it cannot). Does nothing where there is no Landlock.
Result<void> NarrowDeviceSandbox(const std::string& own);

// For what becomes an emulator of another machine's processor, and what runs on it: no network, nobody else's memory,
// no writing of files. An emulator makes code and maps it, and filters nothing of what it runs (GoOnWithoutFilters).
Result<Confinement> EnterEmulatorSandbox();

// For a process on a device that talks with another machine, and the runners that it starts: no network, nobody else's
// memory, no writing of files.
Result<Confinement> EnterStdioSandbox();

// The first frame that a child sends, by itself: what holds it and, of a runner, its launcher.
std::string EncodeConfinements(const std::vector<Confinement>& confinements);
Result<std::vector<Confinement>> DecodeConfinements(std::string_view body);

}  // namespace hone
