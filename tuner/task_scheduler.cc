#include "tuner/task_scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hone {
namespace {

// Default schedules are this much slower than what searches find, in the middle (bench/search).
constexpr double kLikelyGain = 0.2;
constexpr double kHalfLife = 96;  // trials
constexpr double kUnknownUs = 1000;
constexpr int64_t kFairTurn = 8;

bool IsRefined(const RefineTask& task) { return task.stale >= kRefined; }

}  // namespace

double ExpectedGain(const RefineTask& task) {
  double time = task.time_us > 0 ? task.time_us : kUnknownUs;
  double share = std::max(kLikelyGain * std::exp2(-static_cast<double>(task.trials) / kHalfLife), task.last_gain / 2);
  return std::max(1.0, task.calls) * time * share;
}

std::optional<size_t> NextTask(std::span<const RefineTask> tasks, int64_t turn) {
  std::optional<size_t> next;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (IsRefined(tasks[i])) continue;
    auto rank = [&](const RefineTask& task) {
      return turn % kFairTurn == 0 ? std::pair(false, -static_cast<double>(task.last_turn))
                                   : std::pair(task.is_doubtful, ExpectedGain(task));
    };
    if (!next || rank(tasks[i]) > rank(tasks[*next])) next = i;
  }
  return next;
}

}  // namespace hone
