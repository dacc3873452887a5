#include "client/cli/timed_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "client/cli/print_values.h"

namespace hone::cli {
namespace {

constexpr int kWarmRuns = 2;
constexpr size_t kFewestRuns = 3;
constexpr double kMostRepeatedUs = 30e6;  // for all repetitions

double At(const std::vector<double>& sorted, double quantile) {
  return sorted[static_cast<size_t>(quantile * static_cast<double>(sorted.size() - 1) + 0.5)];
}

}  // namespace

std::string TimedRuns::Text() const {
  return fmt::format("{} ({} … {}), median of {} runs and the middle eight tenths", TimeText(median_us),
                     TimeText(low_us), TimeText(high_us), runs);
}

Result<TimedRuns> TimeRuns(const std::function<Result<void>()>& run, int repeats) {
  for (int i = 0; i < kWarmRuns; ++i) HONE_TRY(run());
  std::vector<double> times;
  for (Stopwatch all; static_cast<int>(times.size()) < repeats &&
                      (times.size() < kFewestRuns || all.Microseconds() < kMostRepeatedUs);) {
    Stopwatch stopwatch;
    HONE_TRY(run());
    times.push_back(stopwatch.Microseconds());
  }
  std::sort(times.begin(), times.end());
  return TimedRuns{At(times, 0.5), At(times, 0.1), At(times, 0.9), static_cast<int>(times.size())};
}

}  // namespace hone::cli
