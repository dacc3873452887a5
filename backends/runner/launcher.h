// Who runs candidates for a runner, on whatever kind of device: in another process, which cannot reach the runner's
// memory and so no reference value either.
#pragma once

#include <string>
#include <string_view>

#include "backends/runner/candidate_spec.h"
#include "backends/sandbox/sandbox.h"
#include "base/result.h"
#include "base/sealed_memfd.h"
#include "base/subprocess.h"
#include "ir/manifest.h"

namespace hone {

struct LaunchOutcome {
  bool timed_out = false;  // killed after spec.limit_ns
  ExitStatus status;
};

std::string EncodeOutcome(const LaunchOutcome& outcome);
Result<LaunchOutcome> DecodeOutcome(std::string_view body);

// One thread.
class Launcher {
 public:
  virtual ~Launcher() = default;

  // The manifest of an artifact that may be run here: as Backend::OpenArtifact.
  virtual Result<Manifest> Admit(const SealedMemfd& artifact) const = 0;

  // Runs one candidate to its end, with its operands in that arena. kUnavailable: who runs them died. kBusy: the system
  // has no process for it.
  virtual Result<LaunchOutcome> Run(const CandidateSpec& spec, const SealedMemfd& artifact, int arena_fd) = 0;

  virtual const Confinement& confinement() const = 0;  // of who runs them
};

}  // namespace hone
