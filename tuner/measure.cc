#include "tuner/measure.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/parallel.h"

namespace hone {
namespace {

// A candidate whose first warm call takes this many times the best is not timed on.
constexpr double kClearlyWorse = 2.5;
constexpr int kSamples = 9;
constexpr double kNarrow = 0.01;
constexpr std::chrono::microseconds kMinSample{150};
constexpr std::chrono::microseconds kWarmup{500};

// A pace holds for a fifth of a second, and for twenty times what it took to find: a twentieth of the time at most.
constexpr std::chrono::nanoseconds kPaceHolds = std::chrono::milliseconds(200);
constexpr int kPaceShare = 20;
constexpr double kJump = 1.05;  // a pace that rises by more is looked at twice: it may have been a moment
constexpr int kFirstTimings = 5;  // at most, until two differ by less than that: everything is told by the first pace

Verdict VerdictOf(const Error& error) {
  switch (error.kind) {
    case ErrorKind::kWrongResult: return Verdict::kWrong;
    case ErrorKind::kTimeout: return Verdict::kTimedOut;
    case ErrorKind::kBusy: return Verdict::kDisturbed;
    default: return Verdict::kCrashed;
  }
}

// Errors that say nothing about a candidate.
bool IsOurs(const Error& error) { return error.kind == ErrorKind::kUnavailable || error.kind == ErrorKind::kInternal; }

std::chrono::milliseconds RunLimit(double best_us) {
  return best_us <= 0 ? std::chrono::milliseconds(5'000)
                      : std::chrono::milliseconds(static_cast<int64_t>(std::clamp(best_us / 1000 * 20, 50.0, 5'000.0)));
}

TimeOptions ForTrials(int workers) {
  TimeOptions options;
  options.workers = workers;
  options.samples = kSamples;
  options.max_samples = 4 * kSamples;
  options.narrow = kNarrow;
  options.min_sample = kMinSample;
  options.warmup = kWarmup;
  return options;
}

// At a pace that is known. What fails is the trial's.
Result<void> TimeAt(double pace, Rig& rig, const BuiltArtifact& built, const MeasureOptions& options, Trial& trial) {
  TimeOptions time = ForTrials(options.workers);
  time.contender_us = options.best_us * pace;
  time.give_up_us = kClearlyWorse * time.contender_us;
  Result<RunTiming> timing = rig.Time(built.object, time);
  if (!timing) {
    if (IsOurs(timing.error())) return timing.error();
    trial.verdict = VerdictOf(timing.error());
    trial.why = timing.error().Text();
    return {};
  }
  trial.verdict = Verdict::kTimed;
  trial.time_us = timing->median_us / pace;
  trial.noise_us = timing->spread_us / pace;
  trial.protocol = timing->protocol;
  return {};
}

// Checks, then times.
Result<void> Run(Rig& rig, const BuiltArtifact& built, const MeasureOptions& options, Trial& trial) {
  Stopwatch watch;
  CheckOptions check;
  check.workers = options.workers;
  check.run_limit = RunLimit(options.best_us);
  Result<CheckReport> report = rig.Check(built.object, check);
  trial.check_us = watch.Microseconds();
  if (!report && IsOurs(report.error())) return report.error();
  std::optional<Error> failure = report ? report->failure : std::optional(report.error());
  if (failure) {
    trial.verdict = VerdictOf(*failure);
    trial.why = failure->Text();
    return {};
  }
  Anchor* anchor = options.anchor;
  double pace = anchor != nullptr ? HONE_TRY(anchor->Pace(rig, options.workers)) : 1;
  watch.Restart();
  HONE_TRY(TimeAt(pace, rig, built, options, trial));
  // Of hundreds of noisy times the least is the luckiest, its own or the anchor's: what seems to be the fastest is timed
  // again, and the slower time counts.
  if (trial.verdict == Verdict::kTimed && trial.time_us < options.best_us) {
    if (anchor != nullptr) pace = HONE_TRY(anchor->NewPace(rig, options.workers));
    Trial again;
    HONE_TRY(TimeAt(pace, rig, built, options, again));
    // One that crashes the second time has crashed; one that was disturbed has its first time.
    const bool is_slower = again.verdict == Verdict::kTimed && again.time_us > trial.time_us;
    if (is_slower || (again.verdict != Verdict::kTimed && again.verdict != Verdict::kDisturbed)) {
      trial.verdict = again.verdict;
      trial.why = again.why;
      trial.time_us = again.time_us;
      trial.noise_us = again.noise_us;
      trial.protocol = again.protocol;
    }
  }
  trial.measure_us = watch.Microseconds();
  return {};
}

// Short turns, so that what disturbs one disturbs the next as well.
TimeOptions InTurns(int workers) {
  TimeOptions options;
  options.workers = workers;
  options.samples = 7;
  options.max_samples = 40;
  options.min_sample = std::chrono::microseconds(300);
  return options;
}

constexpr double kWorthMoreRounds = 1.02;  // a ratio that seems to be won, but is not beyond the noise yet

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// The median of the rounds' ratios and its interval.
HeadToHead Judge(std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  HeadToHead result;
  result.ratio = MedianOf(ratios);
  // Ranks around the median that hold it with 95 %: n/2 ± 0.98·√n (binomial, normal approximation).
  double n = static_cast<double>(ratios.size()), half = 0.98 * std::sqrt(n);
  auto rank = [&](double r) { return static_cast<size_t>(std::clamp(r, 0.0, n - 1)); };
  result.low = ratios[rank(std::floor(n / 2 - half - 0.5))];
  result.high = ratios[rank(std::ceil(n / 2 + half - 0.5))];
  return result;
}

}  // namespace

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kTimed: return "timed";
    case Verdict::kNotBuilt: return "not built";
    case Verdict::kCrashed: return "crashed";
    case Verdict::kTimedOut: return "timed out";
    case Verdict::kWrong: return "wrong";
    case Verdict::kDisturbed: return "disturbed";
  }
  return "";
}

Result<void> Anchor::Adopt(Rig& rig, int workers, SealedMemfd code, Trial& trial) {
  if (first_us_ > 0 || trial.verdict != Verdict::kTimed || trial.candidate.program != program_) return {};
  code_ = std::move(code);
  std::optional<RunTiming> first;
  for (int timing = 0; timing < kFirstTimings; ++timing) {
    std::optional<RunTiming> now = HONE_TRY(TimeNow(rig, workers));
    if (!now) continue;
    const bool agrees = first && std::max(first->min_us, now->min_us) <= kJump * std::min(first->min_us, now->min_us);
    if (!first || now->min_us < first->min_us) first = std::move(now);
    if (agrees) break;
  }
  if (first) trial.time_us = first->median_us;
  first_us_ = first ? first->min_us : trial.time_us;
  return {};
}

Result<double> Anchor::Pace(Rig& rig, int workers) {
  if (rig.clock().Now() - at_ < std::max(kPaceHolds, kPaceShare * cost_)) return pace_;
  return NewPace(rig, workers);
}

Result<double> Anchor::NewPace(Rig& rig, int workers) {
  if (first_us_ <= 0) return pace_;
  std::optional<RunTiming> now = HONE_TRY(TimeNow(rig, workers));
  if (!now) return pace_;
  double us = now->min_us;
  if (us > kJump * pace_ * first_us_)
    if (std::optional<RunTiming> again = HONE_TRY(TimeNow(rig, workers))) us = std::min(us, again->min_us);
  return pace_ = us / first_us_;
}

Result<std::optional<RunTiming>> Anchor::TimeNow(Rig& rig, int workers) {
  const MonotonicTime begin = rig.clock().Now();
  Result<RunTiming> timing = rig.Time(code_, ForTrials(workers));
  at_ = rig.clock().Now();
  cost_ = at_ - begin;
  if (timing) return std::optional(*std::move(timing));
  if (IsOurs(timing.error())) return timing.error();
  return std::optional<RunTiming>();
}

Result<std::vector<Trial>> MeasureBatch(Rig& rig, std::vector<Candidate> candidates, MeasureOptions options,
                                        std::stop_token stop, const std::function<void(const Trial&)>& on_trial) {
  const size_t count = candidates.size();
  std::vector<std::optional<Result<BuiltArtifact>>> built(count);
  std::vector<Trial> trials(count);
  ForEachIndex(count, rig.builders(), [&](size_t i) {
    if (stop.stop_requested()) return;
    Stopwatch watch;
    built[i] = rig.Build(candidates[i].schedule);
    trials[i].build_us = watch.Microseconds();
  });
  size_t done = 0;
  for (; done < count && built[done] && !stop.stop_requested(); ++done) {
    Trial& trial = trials[done];
    trial.candidate = std::move(candidates[done]);
    Result<BuiltArtifact>& code = *built[done];
    if (code) {
      Result<void> run = Run(rig, *code, options, trial);
      if (run && options.anchor != nullptr)
        run = options.anchor->Adopt(rig, options.workers, std::move(code->object), trial);
      // Whoever stops may take the processes away: what was measured until then is kept.
      if (!run && stop.stop_requested()) break;
      HONE_TRY(std::move(run));
      if (trial.verdict == Verdict::kTimed && (options.best_us <= 0 || trial.time_us < options.best_us))
        options.best_us = trial.time_us;
    } else if (!IsOurs(code.error())) {
      trial.verdict = Verdict::kNotBuilt;
      trial.why = code.error().Text();
    } else if (stop.stop_requested()) {
      break;
    } else {
      return code.error();
    }
    if (on_trial) on_trial(trial);
  }
  trials.resize(done);
  return trials;
}

Result<size_t> Fastest(Rig& rig, const std::vector<const SealedMemfd*>& codes, int workers, int rounds,
                       std::stop_token stop) {
  std::vector<std::vector<double>> times(codes.size());
  const TimeOptions options = InTurns(workers);
  for (int round = 0; round < rounds && !stop.stop_requested(); ++round) {
    for (size_t i = 0; i < codes.size(); ++i) {
      size_t turn = (i + static_cast<size_t>(round)) % codes.size();
      times[turn].push_back(HONE_TRY(rig.Time(*codes[turn], options)).min_us);
    }
  }
  if (times.back().empty()) return Error{ErrorKind::kTimeout, "stopped before anything was compared", ""};
  size_t best = 0;
  for (std::vector<double>& some : times)
    std::nth_element(some.begin(), some.begin() + static_cast<int64_t>(some.size() / 2), some.end());
  for (size_t i = 1; i < times.size(); ++i)
    if (times[i][times[i].size() / 2] < times[best][times[best].size() / 2]) best = i;
  return best;
}

Result<HeadToHead> Compare(Rig& rig, const SealedMemfd& old_code, const SealedMemfd& new_code, int workers, int rounds,
                           std::stop_token stop) {
  std::vector<double> ratios, old_times, new_times;
  const TimeOptions options = InTurns(workers);
  auto take = [&](int until) -> Result<void> {
    for (int round = static_cast<int>(ratios.size()); round < until && !stop.stop_requested(); ++round) {
      // Who goes first changes from round to round.
      const bool old_first = round % 2 == 0;
      RunTiming first = HONE_TRY(rig.Time(old_first ? old_code : new_code, options));
      RunTiming second = HONE_TRY(rig.Time(old_first ? new_code : old_code, options));
      const RunTiming &old_one = old_first ? first : second, &new_one = old_first ? second : first;
      ratios.push_back(old_one.median_us / new_one.median_us);
      old_times.push_back(old_one.median_us);
      new_times.push_back(new_one.median_us);
    }
    return {};
  };
  HONE_TRY(take(rounds));
  if (ratios.empty()) return Error{ErrorKind::kTimeout, "stopped before anything was compared", ""};
  HeadToHead result = Judge(ratios);
  for (int more : {2, 4}) {
    const bool is_open = result.low <= 1 && result.ratio > kWorthMoreRounds;
    if (!is_open || stop.stop_requested()) break;
    HONE_TRY(take(more * rounds));
    result = Judge(ratios);
  }
  result.old_us = MedianOf(old_times);
  result.new_us = MedianOf(new_times);
  return result;
}

}  // namespace hone
