// Programs compared in turns, where times that were taken apart would be compared with the machine's moods.
#pragma once

#include <cstddef>
#include <stop_token>
#include <vector>

#include "base/result.h"
#include "base/sealed_memfd.h"
#include "tuner/evaluator.h"

namespace hone {

// Which of several is fastest, measured in turns: the index of the one with the least median over the rounds, of each
// round's shortest sample, since noise only adds.
// REQUIRES: at least one.
Result<size_t> Fastest(Evaluator& evaluator, const std::vector<const SealedMemfd*>& codes, int workers, int rounds,
                       std::stop_token stop);

// Ratios old/new of paired, interleaved samples; > 1: the new one is faster.
struct HeadToHead {
  double ratio = 1;  // median
  double low = 1;    // 95 % interval of the median, from order statistics
  double high = 1;
  double old_us = 0, new_us = 0;
};
// Where the new one seems to win by more than 2 % but the interval holds 1, up to four times the rounds. Stopped, it
// judges by the rounds that there are; kTimeout: fewer than five.
Result<HeadToHead> Compare(Evaluator& evaluator, const SealedMemfd& old_code, const SealedMemfd& new_code, int workers,
                           int rounds, std::stop_token stop);

}  // namespace hone
