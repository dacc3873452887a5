// A search and what becomes of it:
//
//   Refine:   look up → what is served now → Search → Promote
//   Promote:  the fastest trials once more, in turns → full comparison with the reference → head to head with what is
//             served → store, synced → forget the old code, tell who holds it
#include "daemon/refine/tuning.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "cache/tuning_gain.h"
#include "ir/language/parse.h"
#include "tuner/head_to_head.h"
#include "tuner/recording.h"

namespace hone {
namespace {

constexpr int kFinalRounds = 5;  // among the fastest trials
constexpr int kRounds = 15;      // of a head-to-head
constexpr std::chrono::minutes kFullCheck{5};
constexpr size_t kMostSeeds = 6;  // neighbours' schedules that a search begins with

std::chrono::nanoseconds Nanoseconds(double us) { return std::chrono::nanoseconds(static_cast<int64_t>(us * 1000)); }

// What was built before. A builder that dies meanwhile is no fault of it: asked again, once.
Result<BuiltArtifact> BuildAgain(Evaluator& evaluator, const std::string& schedule) {
  Result<BuiltArtifact> built = evaluator.Build(schedule);
  if (built || built.error().kind == ErrorKind::kUnavailable) return built;
  return evaluator.Build(schedule);
}

}  // namespace

// What `now` and EndSearchOf know of the search that runs, until it is over, however it ends.
class Tuning::Underway {
 public:
  Underway(Tuning& tuning, const std::string& kernel, const Fingerprint& fingerprint, bool by_request, int wanted,
           const std::stop_token& stop)
      : tuning_(tuning), caller_(stop), with_caller_(stop, [this] { end_.request_stop(); }) {
    MutexLock lock(tuning_.now_mutex_);
    tuning_.now_ = {kernel, by_request, wanted, {}};
    tuning_.searched_ = fingerprint;
    tuning_.end_search_ = end_;
  }
  ~Underway() {
    MutexLock lock(tuning_.now_mutex_);
    tuning_.now_ = {};
  }
  std::stop_token stop() const { return end_.get_token(); }  // the caller's, or EndSearchOf's
  bool is_of_no_use() const { return end_.stop_requested() && !caller_.stop_requested(); }

 private:
  Tuning& tuning_;
  const std::stop_token caller_;
  std::stop_source end_;
  std::stop_callback<std::function<void()>> with_caller_;
};

Result<Tuning::Outcome> Tuning::Refine(const KernelRequest& ask, SearchOptions options, WorkerPools& pools,
                                       const SearchWatcher& watcher, std::stop_token asked_to_stop,
                                       std::optional<std::stop_token> keep_until, Unfinished* unfinished) {
  MutexLock turn(turn_);
  LookUpResult found = HONE_TRY(path_.LookUp(ask, Counting::kNot));
  const ResolvedKernel& identity = found.identity;
  if (unfinished != nullptr && unfinished->created) {
    std::optional<CacheHit> there = HONE_TRY(cache_.Lookup(identity.key, Counting::kNot));
    if (!there || there->record.created != *unfinished->created)
      return Error{ErrorKind::kNotFound, "it was removed meanwhile", identity.label};
  }
  Underway underway(*this, ask.kernel, identity.key.fingerprint, keep_until.has_value(), options.trials, asked_to_stop);
  const std::stop_token stop = underway.stop();
  if (!IsChecked(identity.target))
    return Error{ErrorKind::kUnsupported, "there is no such device here to measure on", identity.key.target};
  // What is served until then: what is found is compared with it.
  if (!found.code) HONE_TRY(path_.Compile(found, {.stop = stop, .pools = &pools}));
  std::optional<CacheHit> served = HONE_TRY(cache_.Lookup(identity.key, Counting::kNot));
  if (!served) return Error{ErrorKind::kInternal, "the kernel's record is gone", identity.label};
  if (served->record.pinned) {
    return Error{ErrorKind::kUnsupported, "pinned, so it stays as it is; `hone unpin` it to have it refined",
                 identity.label};
  }
  if (unfinished != nullptr) unfinished->created = served->record.created;

  const bool is_dynamic = !IsStatic(HONE_TRY(ParseKernel(identity.key.canonical)));
  if (options.seed == 0) options.seed = ++searches_;
  options.group = SampleGroup(identity.key);
  options.workers = identity.key.threads;
  if (std::string choices = ChoicesOf(served->record.schedule); !choices.empty()) options.known.push_back(choices);
  // Neighbours' schedules, too: those that may have become better since this kernel was served. (What fits a dynamic
  // kernel as a whole fits none of its cases.)
  if (transfers_ != nullptr && !is_dynamic) {
    if (Result<TransferPlan> plan = transfers_->Plan(identity.key, identity.target, Reach::kWide)) {
      for (size_t i = 0; i < std::min(plan->order.size(), kMostSeeds); ++i)
        options.seeds.push_back(plan->transfers[plan->order[i]].candidate);
    }
  }
  SearchWatcher counted = watcher;
  counted.on_trial = [&](const Trial& trial) {
    ++metrics_.trials;
    if (trial.verdict != Verdict::kTimed) ++metrics_.trials_failed;
    ++metrics_.trials_by_verdict.at(static_cast<size_t>(trial.verdict));
    if (trial.verdict != Verdict::kTimed && trial.verdict != Verdict::kDisturbed) {  // it is the candidate's fault
      LogInfo("trial_failed", {{"fingerprint", identity.key.fingerprint.Hex()},
                               {"how", VerdictName(trial.verdict)},
                               {"why", trial.why},
                               {"schedule", trial.candidate.schedule}});
    }
    // Those of a dynamic kernel's cases are about other sizes each: nothing that one log could compare.
    if (is_dynamic) {
      if (watcher.on_trial) watcher.on_trial(trial);
      return;
    }
    // At once: what dies now costs the trial in hand. A log that cannot be written costs the next daemon some
    // knowledge, and nobody an answer.
    const TrialRecord record = RecordOf(trial);
    (void)cache_.AppendTrials(identity.key, std::span(&record, 1), served->record.created);
    if (watcher.on_trial) watcher.on_trial(trial);
  };
  counted.on_round = [&](const SearchProgress& progress) {
    {
      MutexLock lock(now_mutex_);
      now_.progress = progress;
    }
    if (watcher.on_round) watcher.on_round(progress);
  };
  bool has_learnt = false;
  counted.at_end = [&] { has_learnt |= model_.LearnAnew(identity.target.kind(), stop); };
  if (is_dynamic) {
    CasesState* state = unfinished != nullptr ? &unfinished->cases : nullptr;
    Result<Outcome> outcome = RefineCases(found, served->record, options, pools, counted, stop, keep_until, state);
    if (has_learnt) model_.Keep(identity.target.kind());
    return outcome;
  }
  Space space = HONE_TRY(Space::Open(identity.key.canonical, identity.target));
  std::unique_ptr<Evaluator> evaluator = HONE_TRY(pools.MakeEvaluator(identity.key.canonical, identity.target));
  Outcome outcome;
  outcome.fingerprint = identity.key.fingerprint;
  outcome.origin = served->record.origin;
  Result<SearchResult> searched =
      hone::Search(space, *evaluator, model_.ToTeach(identity.target.kind(), stop_.get_token()), options, counted, stop,
                   unfinished != nullptr ? &unfinished->search : nullptr);
  if (has_learnt) model_.Keep(identity.target.kind());
  outcome.search = HONE_TRY(std::move(searched));
  if (underway.is_of_no_use()) {
    outcome.search.stopped = "it was removed or pinned meanwhile";
    return outcome;
  }
  bool in_time = !stop_.stop_requested() && (keep_until || !stop.stop_requested());
  if (!outcome.search.top.empty() && in_time) {
    if (stop.stop_requested()) outcome.search.top.resize(1);  // there is no time to choose among the best
    const std::stop_token until = keep_until.value_or(stop);
    Result<void> promoted = Promote(found, served->record, *evaluator, until, keep_until.has_value(), outcome);
    if (!promoted && !until.stop_requested()) return promoted.error();
  }
  LogInfo("refined", {{"fingerprint", outcome.fingerprint.Hex()},
                      {"trials", outcome.search.progress.trials},
                      {"ratio", outcome.ratio},
                      {"why", outcome.search.stopped}});
  return outcome;
}

void Tuning::EndSearchOf(const Fingerprint& kernel) {
  std::stop_source end;
  {
    MutexLock lock(now_mutex_);
    if (now_.kernel.empty() || searched_ != kernel) return;
    end = end_search_;
  }
  end.request_stop();  // without the lock: what stops has work to do
}

Tuning::Now Tuning::now() const {
  MutexLock lock(now_mutex_);
  return now_;
}

Result<void> Tuning::Promote(const LookUpResult& found, const Record& before, Evaluator& evaluator,
                             std::stop_token stop, bool by_request, Outcome& outcome) {
  const ResolvedKernel& identity = found.identity;
  BuiltArtifact old_code = HONE_TRY(BuildAgain(evaluator, before.schedule));
  std::vector<BuiltArtifact> codes;
  std::vector<const SealedMemfd*> files;
  for (const Trial& trial : outcome.search.top)
    codes.push_back(HONE_TRY(BuildAgain(evaluator, trial.candidate.schedule)));
  for (const BuiltArtifact& code : codes) files.push_back(&code.object);
  size_t first = 0;
  if (files.size() > 1) first = Fastest(evaluator, files, identity.key.threads, kFinalRounds, stop).value_or(0);
  const BuiltArtifact& new_code = codes[first];
  const Trial& best = outcome.search.top[first];
  if (old_code.digest == new_code.digest) return {};
  CheckOptions check;
  check.workers = identity.key.threads;
  check.full = true;
  check.run_limit = kFullCheck;
  Result<CheckReport> checked = evaluator.Check(new_code.object, check);
  if (!checked && checked.error().kind == ErrorKind::kBusy) {
    outcome.search.stopped += "; what it found could not be checked in full: " + checked.error().message;
    return {};
  }
  CheckReport report = HONE_TRY(std::move(checked));
  if (report.failure) {
    // A few elements were right in the search, another is not: never served.
    LogWarn("refined_code_wrong", {{"fingerprint", identity.key.fingerprint.Hex()}, {"why", report.failure->Text()}});
    return {};
  }
  Result<HeadToHead> compared =
      Compare(evaluator, old_code.object, new_code.object, identity.key.threads, kRounds, stop);
  if (!compared && (compared.error().kind == ErrorKind::kBusy || compared.error().kind == ErrorKind::kTimeout)) {
    outcome.search.stopped += "; what it found could not be compared with what is served: " + compared.error().message;
    return {};
  }
  HeadToHead duel = HONE_TRY(std::move(compared));
  outcome.served_us = duel.old_us;
  if (duel.low <= 1) return {};

  Record record = before;
  record.schedule = WithChoices(best.candidate.schedule, PrintChoices(best.candidate.choices));
  record.check = {report.max_rel_err, report.samples, report.full};
  record.expected.reset();
  record.measured = Timing{.time = Nanoseconds(duel.new_us),
                           .noise = Nanoseconds(best.noise_us),
                           .temperature = CacheTemperature::kWarm,
                           .statistic = TimeStatistic::kMedian,
                           .threads = identity.key.threads,
                           .repeats = kRounds};
  return StoreRefined(found, before, std::move(record), new_code, duel.ratio, by_request, outcome);
}

Result<void> Tuning::StoreRefined(const LookUpResult& found, const Record& before, Record record,
                                  const BuiltArtifact& new_code, double ratio, bool by_request, Outcome& outcome) {
  const ResolvedKernel& identity = found.identity;
  outcome.ratio = ratio;
  outcome.origin = record.origin = Origin::kTuned;
  record.source.reset();
  record.key = identity.key;
  Digest256 digest{};
  HONE_CHECK(new_code.digest.size() == digest.size());
  std::copy(new_code.digest.begin(), new_code.digest.end(), digest.begin());
  record.artifact_digest = digest;
  record.artifact_bytes = new_code.object.size();
  ReadOnlyMapping bytes = HONE_TRY(new_code.object.Map());
  Result<void> stored = cache_.Put({.record = record,
                                    .class_text = identity.class_text,
                                    .artifact = bytes.bytes(),
                                    .admits = IfStill(StateOf(before))},
                                   Durability::kSynced);
  if (!stored && (stored.error().kind == ErrorKind::kUnsupported || stored.error().kind == ErrorKind::kNotFound)) {
    outcome.ratio = 0;
    outcome.origin = before.origin;
    outcome.search.stopped += "; what it found is not kept: " + stored.error().message;
    return {};
  }
  if (!stored) {
    // A disk that refuses it: kept in memory, served, and written when the disk is back.
    Result<std::optional<CacheHit>> kept = cache_.Lookup(identity.key, Counting::kNot);
    if (!kept || !*kept || (*kept)->record.artifact_digest != record.artifact_digest) return stored.error();
    LogWarn("refined_not_on_disk", {{"fingerprint", identity.key.fingerprint.Hex()}, {"why", stored.error().Text()}});
    outcome.search.stopped += "; what it found is served, and not on disk yet: " + stored.error().message;
  }
  ++metrics_.refined;
  NoteTuningGain(cache_, record, before.origin == Origin::kTuned, ratio, !by_request);
  loop_.Post([this, record = std::move(record)] { on_better_(record); });
  return {};
}

}  // namespace hone
