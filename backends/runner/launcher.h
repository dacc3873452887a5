// Who runs candidates for a runner, on whatever kind of device: in another process, which cannot reach the runner's
// memory and so no reference value either.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// How a candidate's rehearsal ended, and what it said of itself.
struct Rehearsal {
  LaunchOutcome outcome;
  RunStage stage = RunStage::kSetup;
  std::string error;
};

// In order; nullopt: nothing is known of that one.
using Rehearsals = std::vector<std::optional<Rehearsal>>;

std::string EncodeRehearsals(const Rehearsals& rehearsals);
Result<Rehearsals> DecodeRehearsals(std::string_view body);

// One thread.
class Launcher {
 public:
  virtual ~Launcher() = default;

  // The manifest of an artifact that may be run here: as Backend::OpenArtifact.
  virtual Result<Manifest> Admit(const SealedMemfd& artifact) const = 0;

  // Runs one candidate to its end, with its operands in that arena. kUnavailable: who runs them died. kBusy: the system
  // has no process for it.
  virtual Result<LaunchOutcome> Run(const CandidateSpec& spec, const SealedMemfd& artifact, int arena_fd) = 0;

  // Has a device's driver compile some candidates for the same arena, `at_once` side by side in processes of their own,
  // and runs each once with its inputs, since some drivers compile only then. Outputs stay as they are in the arena.
  // From then on Run finds their code compiled. Errors as Run's. REQUIRES: at most kMostRehearsed, as many specs.
  virtual Result<Rehearsals> Rehearse(std::span<const CandidateSpec>, std::span<const SealedMemfd> artifacts,
                                      [[maybe_unused]] int arena_fd, [[maybe_unused]] int at_once) {
    return Rehearsals(artifacts.size());
  }

  // Whether one process runs candidate after candidate. Renew ends it; another one runs the next. Errors as Run's.
  virtual bool IsResident() const { return false; }
  virtual Result<void> Renew() { return {}; }

  virtual const Confinement& confinement() const = 0;  // of who runs them
};

}  // namespace hone
