#include "tuner/measure.h"

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "base/parallel.h"

namespace hone {
namespace {

// A candidate whose first warm call takes this many times the best is not timed on.
constexpr double kClearlyWorse = 2.5;

Verdict VerdictOf(const Error& error) {
  switch (error.kind) {
    case ErrorKind::kWrongResult: return Verdict::kWrong;
    case ErrorKind::kTimeout: return Verdict::kTimedOut;
    case ErrorKind::kBusy: return Verdict::kDisturbed;
    default: return Verdict::kCrashed;
  }
}

std::chrono::milliseconds RunLimit(double best_us) {
  return best_us <= 0 ? std::chrono::milliseconds(5'000)
                      : std::chrono::milliseconds(static_cast<int64_t>(std::clamp(best_us / 1000 * 20, 50.0, 5'000.0)));
}

// Of a rehearsal: what takes longer is checked by itself, unless something better is known by then.
constexpr std::chrono::milliseconds kLongestRehearsal{1'000};

CheckOptions Checking(const MeasureOptions& options) {
  CheckOptions check;
  check.workers = options.workers;
  check.run_limit = RunLimit(options.best_us);
  return check;
}

// At a pace that is known. What fails is the trial's.
Result<void> TimeAt(double pace, Evaluator& evaluator, const BuiltArtifact& built, const MeasureOptions& options,
                    Trial& trial) {
  TimeOptions time = TrialTiming(options.workers);
  time.contender_us = options.best_us * pace;
  time.give_up_us = kClearlyWorse * time.contender_us;
  Result<RunTiming> timing = evaluator.Time(built.object, time);
  if (!timing) {
    if (IsEvaluatorFailure(timing.error())) return timing.error();
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
Result<void> Run(Evaluator& evaluator, const BuiltArtifact& built, const MeasureOptions& options, Trial& trial) {
  Stopwatch watch;
  Result<CheckReport> report = evaluator.Check(built.object, Checking(options));
  trial.check_us += watch.Microseconds();
  if (!report && IsEvaluatorFailure(report.error())) return report.error();
  std::optional<Error> failure = report ? report->failure : std::optional(report.error());
  if (failure) {
    trial.verdict = VerdictOf(*failure);
    trial.why = failure->Text();
    return {};
  }
  DriftReference* drift_reference = options.drift_reference;
  double pace = drift_reference != nullptr ? HONE_TRY(drift_reference->Pace(evaluator, options.workers)) : 1;
  watch.Restart();
  HONE_TRY(TimeAt(pace, evaluator, built, options, trial));
  // Of hundreds of noisy times the least is the luckiest, its own or the drift_reference's: what seems to be the
  // fastest is timed again, and the slower time counts.
  if (trial.verdict == Verdict::kTimed && trial.time_us < options.best_us) {
    if (drift_reference != nullptr) pace = HONE_TRY(drift_reference->NewPace(evaluator, options.workers));
    Trial again;
    HONE_TRY(TimeAt(pace, evaluator, built, options, again));
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

// If the trial timed the drift_reference's program for the first time.
Result<void> LetDriftReference(Evaluator& evaluator, SealedMemfd code, const MeasureOptions& options, Trial& trial) {
  DriftReference* drift_reference = options.drift_reference;
  if (drift_reference == nullptr || drift_reference->is_timed() || trial.verdict != Verdict::kTimed) return {};
  if (trial.candidate.program != drift_reference->program()) return {};
  trial.time_us = HONE_TRY(drift_reference->Adopt(evaluator, options.workers, std::move(code), trial.time_us));
  return {};
}

}  // namespace

Result<std::vector<Trial>> MeasureBatch(Evaluator& evaluator, std::vector<Candidate> candidates, MeasureOptions options,
                                        std::stop_token stop, const std::function<void(const Trial&)>& on_trial) {
  const size_t count = candidates.size();
  std::vector<std::optional<Result<BuiltArtifact>>> built(count);
  std::vector<Trial> trials(count);
  ForEachIndex(count, evaluator.builders(), [&](size_t i) {
    if (stop.stop_requested()) return;
    Stopwatch watch;
    built[i] = evaluator.Build(candidates[i].schedule);
    trials[i].build_us = watch.Microseconds();
  });
  Stopwatch watch;
  CheckOptions rehearsal = Checking(options);
  rehearsal.run_limit = std::min(rehearsal.run_limit, kLongestRehearsal);
  std::vector<const SealedMemfd*> files;
  std::vector<size_t> places;
  for (size_t i = 0; i < count; ++i)
    if (built[i] && *built[i]) files.push_back(&(*built[i])->object), places.push_back(i);
  std::vector<std::optional<Error>> failures(count);
  if (!stop.stop_requested() && files.size() > 1) {
    std::vector<std::optional<Error>> told = evaluator.Rehearse(files, rehearsal);
    for (size_t i = 0; i < places.size(); ++i) failures[places[i]] = std::move(told[i]);
    for (size_t place : places) trials[place].check_us = watch.Microseconds() / static_cast<double>(files.size());
  }
  size_t done = 0;
  for (; done < count && built[done] && !stop.stop_requested(); ++done) {
    Trial& trial = trials[done];
    trial.candidate = std::move(candidates[done]);
    Result<BuiltArtifact>& code = *built[done];
    // A lost candidate, though it might be right: its process would have to be killed a second time.
    const bool has_lost = options.best_us > 0 && RunLimit(options.best_us) <= rehearsal.run_limit;
    if (failures[done] && failures[done]->kind == ErrorKind::kTimeout && !has_lost) failures[done].reset();
    if (failures[done]) {
      trial.verdict = VerdictOf(*failures[done]);
      trial.why = failures[done]->Text();
    } else if (code) {
      Result<void> run = Run(evaluator, *code, options, trial);
      if (run) run = LetDriftReference(evaluator, std::move(code->object), options, trial);
      // Whoever stops may take the processes away: what was measured until then is kept.
      if (!run && stop.stop_requested()) break;
      HONE_TRY(std::move(run));
      if (trial.verdict == Verdict::kTimed && (options.best_us <= 0 || trial.time_us < options.best_us))
        options.best_us = trial.time_us;
    } else if (!IsEvaluatorFailure(code.error())) {
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

}  // namespace hone
