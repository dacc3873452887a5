// One run of foreign code for the CPU: what the fork server's child does. The child maps
// the artifact and its buffers, starts its threads, gives up every right that it has, and only then calls.
#pragma once

#include <cstdint>

#include "backends/runner/candidate_spec.h"

namespace hone {

// A sample is disturbed if the process was preempted meanwhile, or its thread was off the processor for a while that it
// did not ask for. In a sample of milliseconds some preemption is usual, and its tens of microseconds do not show.
bool IsDisturbed(int64_t wall_ns, int64_t processor_ns, int64_t preemptions);

// What all candidates need and can inherit. To be called in the process that forks them.
void PrepareForCandidates();

// Runs in a fresh fork of a single-threaded process. Never returns: the process ends with one of the codes above, or
// by a signal.
[[noreturn]] void RunCandidate(const CandidateSpec& spec, int artifact_fd, int arena_fd);

}  // namespace hone
