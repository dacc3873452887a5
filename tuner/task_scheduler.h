// What to refine next: the kernel from which the most time can be expected to be won.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace hone {

struct RefineTask {
  double calls = 0;          // how often it is asked for, at least 1
  double time_us = 0;        // of a call now; 0: not known
  int64_t trials = 0;        // made so far
  int64_t stale = 0;         // of them since the last better one
  double last_gain = 0;      // of the last slice: old time over new, less 1
  int64_t last_turn = 0;     // when it was refined last, counted in turns; 0: never
  bool is_doubtful = false;  // served on a guess that may be far off: comes before all that are not
};

// Trials without a better one after which a kernel is left alone: the space's gains have become noise.
inline constexpr int64_t kRefined = 512;

// calls × time × the share that is still likely to be won, µs: what searches win in the middle, halved with every 96
// trials that were made, or half of what the last slice won.
double ExpectedGain(const RefineTask& task);

// Index of the task with the largest expected gain, of the doubtful ones while there are any; every eighth turn the one
// that has waited longest, so that none starves. nullopt: all are refined. `turn` counts from 1.
std::optional<size_t> NextTask(std::span<const RefineTask> tasks, int64_t turn);

}  // namespace hone
