// The fork server of a runner. It is forked off before the runner has seen any kernel, so the candidates that it forks
// in turn hold nothing of the runner's memory: no reference value is within their reach, whatever they do.
#pragma once

#include <sys/types.h>

#include <string>

#include "backends/candidate.h"
#include "backends/child_channel.h"
#include "backends/sandbox.h"
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
  // Forks the server, which locks itself in. kIo. REQUIRES: the process has one thread.
  static Result<Launcher> Start();

  // Runs one candidate to its end, with its operands in that arena. kUnavailable: the server died.
  Result<LaunchOutcome> Run(const CandidateSpec& spec, int artifact_fd, int arena_fd);

  const Confinement& confinement() const { return confinement_; }  // of the server

 private:
  Launcher(ChildChannel channel, Confinement confinement)
      : channel_(std::move(channel)), confinement_(std::move(confinement)) {}
  ChildChannel channel_;
  Confinement confinement_;
  uint64_t next_id_ = 1;
};

}  // namespace hone
