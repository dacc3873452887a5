// A process with the driver (device_process.h) as its host sees it, and a candidate's run there: watched until it has
// answered, died or had its time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/processes/child_channel.h"
#include "backends/runner/candidate_spec.h"
#include "backends/runner/launcher.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/subprocess.h"

namespace hone {

// Killed with its owner. One thread.
class DeviceChild {
 public:
  DeviceChild() = default;
  ~DeviceChild() { End(std::chrono::milliseconds(0)); }
  DeviceChild(const DeviceChild&) = delete;
  DeviceChild& operator=(const DeviceChild&) = delete;

  // Forks one, locked in. `own`: the directory that drivers may write to. `others`: descriptors that it must not have.
  // kBusy: the system has no process for it. REQUIRES: the process has one thread, and none was started or it ended.
  Result<void> Start(const std::string& own, std::span<const int> others);
  bool IsAlive() const { return pid_ >= 0; }  // was started, and has not ended as far as is known
  int fd() const { return channel_.fd(); }
  ChildChannel& channel() { return channel_; }
  // How it ended: by itself within `grace`, or else it is killed now.
  ExitStatus End(std::chrono::milliseconds grace);

 private:
  ChildChannel channel_;
  pid_t pid_ = -1;
};

// One run of one candidate on one child.
class WatchedRun {
 public:
  // `status`: of the run, in memory that both have, until it is over; whole before it begins.
  WatchedRun(DeviceChild& child, uint64_t id, std::chrono::nanoseconds limit, const CandidateStatus& status)
      : child_(&child), id_(id), limit_(limit), status_(&status) {}

  // False: the child is gone.
  bool Begin(std::string_view spec, const std::vector<int>& fds);
  // When it has had its time, as far as it has come by now.
  MonotonicTime Deadline();
  // Reads the answer that has come; without one in time, or from one that died, the child is ended. One whose context
  // may be good for nothing any more is ended, too. kCorrupt: the answer is none.
  Result<LaunchOutcome> Finish();
  // It did not run: its child was lost before, to what an earlier one left behind, or to the driver.
  bool WasLostBeforeItRan(const LaunchOutcome& outcome) const;

  DeviceChild& child() const { return *child_; }

 private:
  DeviceChild* child_;
  uint64_t id_;
  std::chrono::nanoseconds limit_;
  const CandidateStatus* status_;
  MonotonicTime deadline_{};
  RunStage seen_ = RunStage::kSetup;
};

// Waits until one of them has answered, died or had its time: its place; or the number of them, when `until` has come.
// Ends this process when the other side of `owner` is gone. REQUIRES: some, all begun.
size_t AwaitOne(std::span<WatchedRun* const> runs, int owner, MonotonicTime until = MonotonicTime::max());

}  // namespace hone
