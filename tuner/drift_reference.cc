#include "tuner/drift_reference.h"

#include <algorithm>

namespace hone {
namespace {

// A pace holds for a fifth of a second, and for twenty times what it took to find: a twentieth of the time at most.
constexpr std::chrono::nanoseconds kPaceHolds = std::chrono::milliseconds(200);
constexpr int kPaceShare = 20;
constexpr double kJump = 1.05;    // a pace that rises by more is looked at twice: it may have been a moment
constexpr int kFirstTimings = 5;  // at most, until two differ by less than that: everything is told by the first pace

}  // namespace

Result<double> DriftReference::Adopt(Evaluator& evaluator, int workers, SealedMemfd code, double time_us) {
  code_ = std::move(code);
  std::optional<RunTiming> first;
  for (int timing = 0; timing < kFirstTimings; ++timing) {
    std::optional<RunTiming> now = HONE_TRY(TimeNow(evaluator, workers));
    if (!now) continue;
    const bool agrees = first && std::max(first->min_us, now->min_us) <= kJump * std::min(first->min_us, now->min_us);
    if (!first || now->min_us < first->min_us) first = std::move(now);
    if (agrees) break;
  }
  first_us_ = first ? first->min_us : time_us;
  return first ? first->median_us : time_us;
}

Result<double> DriftReference::Pace(Evaluator& evaluator, int workers) {
  if (evaluator.clock().Now() - at_ < std::max(kPaceHolds, kPaceShare * cost_)) return pace_;
  return NewPace(evaluator, workers);
}

Result<double> DriftReference::NewPace(Evaluator& evaluator, int workers) {
  if (first_us_ <= 0) return pace_;
  std::optional<RunTiming> now = HONE_TRY(TimeNow(evaluator, workers));
  if (!now) return pace_;
  double us = now->min_us;
  if (us > kJump * pace_ * first_us_)
    if (std::optional<RunTiming> again = HONE_TRY(TimeNow(evaluator, workers))) us = std::min(us, again->min_us);
  return pace_ = us / first_us_;
}

Result<std::optional<RunTiming>> DriftReference::TimeNow(Evaluator& evaluator, int workers) {
  const MonotonicTime begin = evaluator.clock().Now();
  Result<RunTiming> timing = evaluator.Time(code_, TrialTiming(workers));
  at_ = evaluator.clock().Now();
  cost_ = at_ - begin;
  if (timing) return std::optional(*std::move(timing));
  if (IsEvaluatorFailure(timing.error())) return timing.error();
  return std::optional<RunTiming>();
}

}  // namespace hone
