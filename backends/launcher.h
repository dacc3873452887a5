// The fork server of a runner. It is forked off before the runner has seen any kernel, so the candidates that it forks
// in turn hold nothing of the runner's memory: no reference value is within their reach, whatever they do.
#pragma once

#include <sys/types.h>

#include <string>

#include "backends/candidate.h"
#include "backends/child_channel.h"
#include "base/result.h"
#include "base/subprocess.h"

namespace hone {

struct LaunchOutcome {
  bool timed_out = false;  // killed after spec.limit_ns
  ExitStatus status;
};

// One thread.
class Launcher {
 public:
  // Forks the server. REQUIRES: the process has one thread.
  static Result<Launcher> Start();

  // Runs one candidate to its end, with its operands in that arena. kUnavailable: the server died.
  Result<LaunchOutcome> Run(const CandidateSpec& spec, int artifact_fd, int arena_fd);

 private:
  explicit Launcher(ChildChannel channel) : channel_(std::move(channel)) {}
  ChildChannel channel_;
  uint64_t next_id_ = 1;
};

}  // namespace hone
