// Child processes that cannot outlive us and cannot surprise us: own process group, death signal, resource limits set
// before exec, no inherited descriptors but the listed ones, the end of standard error kept for messages.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HONE_SHADOW_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HONE_SHADOW_MEMORY 1
#endif
#endif

namespace hone {

// Sanitizers reserve terabytes of address space: no limit on it can hold.
#ifdef HONE_SHADOW_MEMORY
inline constexpr bool kShadowMemory = true;
#else
inline constexpr bool kShadowMemory = false;
#endif

struct SubprocessLimits {
  int64_t address_space = 0;  // bytes; 0: unlimited. Ignored where kShadowMemory
  int64_t file_size = 0;      // bytes of any file it writes, memfds included; 0: unlimited
  int open_files = 64;
  int nice = 0;                 // added to ours
  bool idle = false;            // SCHED_IDLE, and after other sessions: runs when nobody else wants to
  std::string idle_group = {};  // IdleGroup's entrance; "": none
};

struct SubprocessOptions {
  std::string executable = {};              // a path; PATH is not searched
  std::vector<std::string> arguments = {};  // without argv[0]
  std::vector<std::pair<int, int>> fds =
      {};  // our descriptor -> its number in the child (3 or more); the rest is closed
  std::vector<std::string> environment = {};  // NAME=value; nothing is inherited
  SubprocessLimits limits = {};
};

// How a process ended.
struct ExitStatus {
  int code = 0;              // of exit, if signal is 0
  int signal = 0;            // that killed it; 0: it exited
  std::string Text() const;  // "exit status 3", "killed by signal 6 (Aborted)"
};

// One child, in a process group of its own. Destroying the object kills the group and reaps the child.
// Not thread-safe, but objects may move between threads.
class Subprocess {
 public:
  // Starts the program. The child dies with this process even if we are killed with -9: it is forked by a thread that
  // lives as long as the process, because Linux ties the death signal to the forking thread. kIo: could not be started;
  // kBusy: for want of a process or a thread.
  static Result<Subprocess> Start(const SubprocessOptions& options);

  Subprocess(Subprocess&&) noexcept;
  Subprocess& operator=(Subprocess&&) noexcept;
  ~Subprocess();

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable once it has ended

  // Waits at most until `deadline`; nullopt if it still runs. After it has ended always gives the status at once.
  std::optional<ExitStatus> Wait(MonotonicTime deadline);
  bool HasEnded();

  // For how long its first thread could have run and had no processor. Zero where the kernel does not say, or once the
  // child has been reaped.
  std::chrono::nanoseconds TimeQueued() const;

  // SIGKILL to the whole group, then reaps the child. Returns how it ended (its own way, if that came first).
  ExitStatus Kill();

  // Processor time it may still use from now on, in whole seconds (it gets SIGXCPU, then dies); 0: no limit.
  void LimitCpu(int seconds);

  // What it wrote to standard error since the last ClearErrors, the last `max_bytes` of it, on one line.
  std::string ErrorTail(size_t max_bytes = 600) const;
  void ClearErrors();

 private:
  Subprocess(pid_t pid, UniqueFd pidfd, UniqueFd errors);
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  UniqueFd errors_;  // a memfd that the child appends to: never blocks it, needs no reader
  std::optional<ExitStatus> ended_;
};

// Path of a program of ours ("hone-builder"): beside the running executable, else in ../libexec/hone of it. kNotFound.
Result<std::string> FindOwnProgram(const std::string& name);

}  // namespace hone
