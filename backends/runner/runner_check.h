// The runner's work on one artifact: gate, run, verdict.
#pragma once

#include <optional>
#include <vector>

#include "backends/processes/runner_pool.h"
#include "backends/runner/launcher.h"
#include "backends/runner/workload.h"
#include "base/result.h"
#include "base/sealed_memfd.h"

namespace hone {

// Runs the artifact and compares. What is wrong with the artifact is in the report; an Error is about the attempt.
// kBusy: it was killed from outside, or there was no process, thread or memory to start it, and so it was when it was
// run again. REQUIRES: workload.ComputeReference was called, placement kAtGuards.
Result<CheckReport> CheckCandidate(Workload& workload, Arena& arena, Launcher& launcher, const SealedMemfd& artifact,
                                   const CheckOptions& options);

// Has the launcher rehearse artifacts, `at_once` side by side, fewer where they would take much of the free memory. Why
// each must not be used; nullopt: that is for CheckCandidate to say, and so it is of kTimeout where that much time is
// too little: beside others one may take longer. REQUIRES: as CheckCandidate; at most kMostRehearsed.
Result<std::vector<std::optional<Error>>> RehearseCandidates(Workload& workload, Arena& arena, Launcher& launcher,
                                                             std::vector<SealedMemfd> artifacts,
                                                             const CheckOptions& options, int at_once);

// Measures. kBusy also for want of a quiet machine. REQUIRES: placement kAligned.
Result<RunTiming> TimeCandidate(Workload& workload, Arena& arena, Launcher& launcher, const SealedMemfd& artifact,
                                const TimeOptions& options);

}  // namespace hone
