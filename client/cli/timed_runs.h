// How long something takes that is run again and again.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace hone::cli {

struct TimedRuns {
  double median_us = 0, low_us = 0, high_us = 0;  // a tenth of the runs is below, a tenth above
  int runs = 0;

  std::string Text() const;  // "3.1 ms (3.0 ms … 3.4 ms), median of 15 runs and the middle eight tenths"
};

// Runs it twice to get warm, then `repeats` times, fewer where that takes longer than half a minute. Its first error.
Result<TimedRuns> TimeRuns(const std::function<Result<void>()>& run, int repeats);

}  // namespace hone::cli
