// A search and what becomes of it:
//
//   Refine:   look up → what is served now → Search → Promote
//   Promote:  the fastest trials once more, in turns → full comparison with the reference → head to head with what is
//             served → store, synced → forget the old code, tell who holds it
#include "daemon/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "cache/won.h"
#include "ir/parse.h"
#include "tuner/recording.h"
#include "tuner/xgb_model.h"

namespace hone {
namespace {

constexpr size_t kMostWaiting = 64;
constexpr uint32_t kRetryMs = 1000;
constexpr uint32_t kMostTrials = 100'000;
constexpr uint32_t kDefaultTrials = 256;
constexpr int kPatience = 128;   // trials without a better one, where nobody said how many to make
constexpr int kFinalRounds = 5;  // among the fastest trials
constexpr int kRounds = 15;      // of a head-to-head
constexpr std::chrono::minutes kFullCheck{5};
constexpr std::string_view kModelName = "cpu";
constexpr size_t kLearnEvery =
    512;  // samples, or a quarter of those there are: learning takes as long as they are many
constexpr size_t kFewestToLearn = 16;
constexpr size_t kMostSamples = 8192;  // taken from the log at the first search: seconds …
constexpr size_t kFewestOfOne = 24;    // … of each kernel as many, since many kernels teach more than many trials
constexpr size_t kMostOfOne = 512;
constexpr size_t kMostSeeds = 6;  // neighbours' schedules that a search begins with

std::chrono::nanoseconds Nanoseconds(double us) { return std::chrono::nanoseconds(static_cast<int64_t>(us * 1000)); }

// Kernel, target and threads: what times may be compared within.
uint64_t GroupOf(const CacheKey& key) {
  Digest64 hash = Hash64(fmt::format("{} {} {}", key.fingerprint.Hex(), key.threads, key.target));
  uint64_t group;
  std::memcpy(&group, hash.data(), sizeof group);
  return group;
}

// What was built before. A builder that dies meanwhile is no fault of it: asked again, once.
Result<BuiltArtifact> BuildAgain(Rig& rig, const std::string& schedule) {
  Result<BuiltArtifact> built = rig.Build(schedule);
  if (built || built.error().kind == ErrorKind::kUnavailable) return built;
  return rig.Build(schedule);
}

size_t NextLearning(size_t samples) { return samples + std::max(kLearnEvery, samples / 4); }

}  // namespace

Tuning::Tuning(EventLoop& loop, ScheduleCache& cache, Workshop& workshop, RequestPath& path, Metrics& metrics,
               std::function<void(const Record&)> on_better)
    : loop_(loop),
      cache_(cache),
      workshop_(workshop),
      path_(path),
      metrics_(metrics),
      on_better_(std::move(on_better)),
      queue_(1, "hone-tune") {}

Tuning::~Tuning() { Close(); }

void Tuning::Close() {
  stop_.request_stop();
  queue_.Close();
}

void Tuning::Handle(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body) {
  if (queue_.waiting() >= kMostWaiting) {
    ++metrics_.busy;
    return peer->ReplyError(
        header.request_id, {ErrorKind::kBusy, fmt::format("too many searches wait, retry in {} ms", kRetryMs), "honed"},
        kRetryMs);
  }
  Result<TuneRequest> request = DecodeBody<TuneRequest>(body);
  if (!request) {
    ++metrics_.bad_frames;
    return peer->ReplyError(header.request_id, request.error());
  }
  on_work_();  // takes its turn from idle time
  queue_.Push([this, job = Job{&loop_, peer, header.request_id}, request = *std::move(request)] {
    Result<TuneReply> reply = Tune(request, job);
    if (!reply) return job.AnswerError(reply.error());
    job.Answer(TuneReply::kType, EncodeBody(*reply));
  });
}

Result<TuneReply> Tuning::Tune(const TuneRequest& request, const Job& job) {
  SearchOptions options;
  options.trials = static_cast<int>(request.trials > 0 ? std::min(request.trials, kMostTrials) : kDefaultTrials);
  options.patience = request.trials > 0 ? 0 : kPatience;
  options.time = std::chrono::milliseconds(std::min<uint64_t>(request.time_us / 1000, uint64_t{7} * 24 * 3600 * 1000));
  options.seed = request.seed;
  auto reply_of = [&](const SearchProgress& progress) {
    TuneReply reply;
    reply.trials = static_cast<uint32_t>(progress.trials);
    reply.valid = static_cast<uint32_t>(progress.valid);
    reply.wanted = static_cast<uint32_t>(options.trials);
    reply.elapsed_s = progress.elapsed_s;
    reply.start_us = progress.start_us;
    reply.best_us = progress.best_us;
    return reply;
  };
  std::stop_source stop;
  std::stop_callback with_us(stop_.get_token(), [&] { stop.request_stop(); });
  SearchWatcher watcher;
  watcher.on_round = [&](const SearchProgress& progress) {
    TuneReply reply = reply_of(progress);
    reply.more = true;
    // Who does not listen any more does not want the rest; what was found is kept.
    if (!job.Part(reply)) stop.request_stop();
  };
  Ask ask{request.kernel, request.target, static_cast<int>(std::min(request.threads, 4096u))};
  Outcome outcome = HONE_TRY(Refine(ask, options, workshop_, watcher, stop.get_token(), true));
  TuneReply reply = reply_of(outcome.search.progress);
  reply.fingerprint = outcome.fingerprint.Hex();
  reply.origin = OriginName(outcome.origin);
  reply.stopped = outcome.search.stopped;
  reply.served_us = outcome.served_us;
  reply.ratio = outcome.ratio;
  return reply;
}

Result<void> Tuning::SearchFor(const Ask& ask, std::chrono::milliseconds time) {
  SearchOptions options;
  options.trials = kMostTrials;
  options.patience = kPatience;
  options.time = time;
  HONE_TRY(Refine(ask, options, workshop_, {}, stop_.get_token(), true));
  return {};
}

Result<Tuning::Outcome> Tuning::Refine(const Ask& ask, SearchOptions options, Workshop& workshop,
                                       const SearchWatcher& watcher, std::stop_token stop, bool keep_when_stopped) {
  MutexLock turn(turn_);
  LoadModel();
  Found found = HONE_TRY(path_.LookUp(ask));
  const Identity& identity = found.identity;
  // What is served until then: what is found is compared with it.
  if (!found.code) HONE_TRY(path_.Compile(found, {}));
  std::optional<CacheHit> served = HONE_TRY(cache_.Lookup(identity.key));
  if (!served) return Error{ErrorKind::kInternal, "the kernel's record is gone", identity.label};
  if (served->record.pinned) {
    return Error{ErrorKind::kUnsupported, "pinned, so it stays as it is; `hone unpin` it to have it refined",
                 identity.label};
  }

  const bool is_dynamic = !IsStatic(HONE_TRY(ParseKernel(identity.key.canonical)));
  if (options.seed == 0) options.seed = ++searches_;
  options.group = GroupOf(identity.key);
  options.workers = identity.key.threads;
  if (std::string choices = ChoicesOf(served->record.schedule); !choices.empty()) options.known.push_back(choices);
  // Neighbours' schedules, too: those that may have become better since this kernel was served.
  if (transfers_ != nullptr) {
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
    // Those of a dynamic kernel's cases are about other sizes each: nothing that one log could compare.
    if (is_dynamic) {
      if (watcher.on_trial) watcher.on_trial(trial);
      return;
    }
    // At once: what dies now costs the trial in hand. A log that cannot be written costs the next daemon some
    // knowledge, and nobody an answer.
    const TrialRecord record = RecordOf(trial);
    (void)cache_.AppendTrials(identity.key, std::span(&record, 1));
    if (watcher.on_trial) watcher.on_trial(trial);
  };
  {
    MutexLock lock(now_mutex_);
    now_ = {ask.kernel, keep_when_stopped, options.trials, {}};
    asked_ = model_;
  }
  struct Over {  // however it ends
    Tuning& tuning;
    ~Over() {
      MutexLock lock(tuning.now_mutex_);
      tuning.now_ = {};
    }
  } over{*this};
  counted.on_round = [&](const SearchProgress& progress) {
    {
      MutexLock lock(now_mutex_);
      now_.progress = progress;
    }
    if (watcher.on_round) watcher.on_round(progress);
  };
  if (is_dynamic) {
    Outcome outcome = HONE_TRY(RefineCases(found, served->record, options, workshop, counted, stop, keep_when_stopped));
    LearnAnew();
    return outcome;
  }
  Space space = HONE_TRY(Space::Open(identity.key.canonical, identity.target));
  std::unique_ptr<Rig> rig = HONE_TRY(workshop.MakeRig(identity.key.canonical, identity.target));
  Outcome outcome;
  outcome.fingerprint = identity.key.fingerprint;
  outcome.origin = served->record.origin;
  outcome.search = HONE_TRY(Search(space, *rig, model_.get(), options, counted, stop));
  LearnAnew();
  bool in_time = !stop_.stop_requested() && (keep_when_stopped || !stop.stop_requested());
  if (!outcome.search.top.empty() && in_time) {
    std::stop_token until = keep_when_stopped ? stop_.get_token() : stop;
    Result<void> promoted = Promote(found, served->record, *rig, until, keep_when_stopped, outcome);
    if (!promoted && !until.stop_requested()) return promoted.error();
  }
  LogInfo("refined", {{"fingerprint", outcome.fingerprint.Hex()},
                      {"trials", outcome.search.progress.trials},
                      {"ratio", outcome.ratio},
                      {"why", outcome.search.stopped}});
  return outcome;
}

Tuning::Now Tuning::now() const {
  MutexLock lock(now_mutex_);
  return now_;
}

Result<std::shared_ptr<const CostModel>> Tuning::ModelToAsk() {
  MutexLock lock(now_mutex_);
  if (!asked_) {
    std::optional<std::string> saved = HONE_TRY(cache_.GetModel(kModelName));
    if (!saved)
      return Error{
          ErrorKind::kNotFound,
          "there is no cost model yet: it learns from searches; `hone tune` some kernels, or leave the machine "
          "idle for a while",
          "model"};
    Result<std::unique_ptr<CostModel>> loaded = LoadXgbModel(*saved);
    if (!loaded)
      return Error{ErrorKind::kNotFound,
                   fmt::format("the stored cost model is of no use: {}; the next search (`hone tune`) trains another",
                               loaded.error().Text()),
                   "model"};
    asked_ = *std::move(loaded);
  }
  return asked_;
}

Result<PredictReply> Tuning::Predict(const PredictRequest& request) {
  Found found = HONE_TRY(path_.LookUp({request.kernel, "", static_cast<int>(std::min(request.threads, 4096u))}));
  const Identity& identity = found.identity;
  std::shared_ptr<const CostModel> model = HONE_TRY(ModelToAsk());
  Space space = HONE_TRY(Space::Open(identity.key.canonical, identity.target));
  PredictReply reply;
  reply.fingerprint = identity.key.fingerprint.Hex();
  reply.class_name = identity.label;
  reply.flops = space.flops();
  auto estimate = [&](const Candidate& candidate) -> Result<Estimate> {
    std::optional<Latency> latency = HONE_TRY(model->Predict(candidate.features));
    if (!latency)
      return Error{ErrorKind::kNotFound, "the cost model has seen too few searches to say how long a kernel takes",
                   "model"};
    return Estimate{latency->expected_us, latency->low_us, latency->high_us};
  };
  Candidate standard = HONE_TRY(space.Default());
  reply.by_default = HONE_TRY(estimate(standard));
  std::vector<Record> records = HONE_TRY(cache_.RecordsOf(identity.key.fingerprint));
  for (const Record& record : records) {
    if (record.key.target != identity.key.target || record.key.threads != identity.key.threads) continue;
    reply.origin = OriginName(record.origin);
    if (record.measured) reply.measured_us = std::chrono::duration<double, std::micro>(record.measured->time).count();
    std::string choices = ChoicesOf(record.schedule);
    Result<Candidate> served = choices.empty() ? standard : space.Parse(choices);
    if (served) reply.served = HONE_TRY(estimate(*served));
  }
  return reply;
}

void Tuning::LoadModel() {
  if (model_) return;
  bool is_of_no_use = false;
  Result<std::optional<std::string>> saved = cache_.GetModel(kModelName);
  if (saved && *saved) {
    Result<std::unique_ptr<CostModel>> loaded = LoadXgbModel(**saved);
    if (loaded) {
      model_ = *std::move(loaded);
    } else {
      LogWarn("model_left_out", {{"why", loaded.error().Text()}});
      is_of_no_use = true;
    }
  }
  const bool is_new = !model_;
  if (is_new) model_ = MakeXgbModel();
  // Trials of this machine's records, until there are enough to learn from.
  const std::string target = PrintTarget(path_.host());
  size_t searched = 0;
  (void)cache_.ForEachRecord(std::nullopt, [&](const Record& record) {
    searched += record.key.target == target && record.origin == Origin::kTuned ? 1 : 0;
    return true;
  });
  const size_t of_one = std::clamp(kMostSamples / std::max<size_t>(1, searched), kFewestOfOne, kMostOfOne);
  size_t left = kMostSamples;
  (void)cache_.ForEachRecord(std::nullopt, [&](const Record& record) {
    if (record.key.target != target) return true;
    Result<Space> space = Space::Open(record.key.canonical, path_.host());
    if (!space) return true;
    uint64_t group = GroupOf(record.key);
    std::vector<Sample> samples;
    const Result<Candidate> standard = space->Default();
    (void)cache_.ForEachTrial(record.key, [&](const TrialRecord& trial) {
      if (trial.verdict != static_cast<uint8_t>(Verdict::kTimed) || trial.time.count() <= 0) return true;
      Result<Candidate> candidate = space->Parse(trial.choices);
      // Rules may have changed since: what another program took says nothing about this one.
      if (candidate && candidate->program == trial.program)
        samples.push_back({candidate->features, static_cast<double>(trial.time.count()) / 1e3, group,
                           standard && candidate->program == standard->program});
      return samples.size() < of_one && samples.size() < left;
    });
    left -= samples.size();
    if (Result<void> added = model_->Add(samples); !added) LogWarn("samples_refused", {{"why", added.error().Text()}});
    return left > 0 && !stop_.stop_requested();
  });
  // What takes the place of a model that was there does not wait for as many samples again.
  learn_at_ = is_of_no_use ? kFewestToLearn : is_new ? kLearnEvery : NextLearning(model_->SampleCount());
}

// Every few hundred trials the model of all kernels learns from all of them, and is kept.
void Tuning::LearnAnew() {
  if (model_->SampleCount() < learn_at_) return;
  if (Result<void> trained = model_->Retrain(); !trained)
    return LogWarn("model_not_trained", {{"why", trained.error().Text()}});
  learn_at_ = NextLearning(model_->SampleCount());
  Result<std::string> saved = model_->Save();
  if (saved)
    (void)cache_.PutModel(kModelName, *saved);
  else
    LogWarn("model_not_kept", {{"why", saved.error().Text()}});
}

Result<void> Tuning::Promote(const Found& found, Record record, Rig& rig, std::stop_token stop, bool by_request,
                             Outcome& outcome) {
  const Identity& identity = found.identity;
  BuiltArtifact old_code = HONE_TRY(BuildAgain(rig, record.schedule));
  std::vector<BuiltArtifact> codes;
  std::vector<const SealedMemfd*> files;
  for (const Trial& trial : outcome.search.top) codes.push_back(HONE_TRY(BuildAgain(rig, trial.candidate.schedule)));
  for (const BuiltArtifact& code : codes) files.push_back(&code.object);
  Result<size_t> fastest = Fastest(rig, files, identity.key.threads, kFinalRounds, stop);
  const size_t first = fastest.value_or(0);
  const BuiltArtifact& new_code = codes[first];
  const Trial& best = outcome.search.top[first];
  if (old_code.digest == new_code.digest) return {};
  CheckOptions check;
  check.workers = identity.key.threads;
  check.full = true;
  check.run_limit = kFullCheck;
  CheckReport report = HONE_TRY(rig.Check(new_code.object, check));
  if (report.failure) {
    // A few elements were right in the search, another is not: never served.
    LogWarn("refined_code_wrong", {{"fingerprint", identity.key.fingerprint.Hex()}, {"why", report.failure->Text()}});
    return {};
  }
  Result<HeadToHead> compared = Compare(rig, old_code.object, new_code.object, identity.key.threads, kRounds, stop);
  if (!compared && (compared.error().kind == ErrorKind::kBusy || compared.error().kind == ErrorKind::kTimeout)) {
    outcome.search.stopped += "; what it found could not be compared with what is served: " + compared.error().message;
    return {};
  }
  HeadToHead duel = HONE_TRY(std::move(compared));
  outcome.served_us = duel.old_us;
  if (duel.low <= 1) return {};

  record.schedule = WithChoices(best.candidate.schedule, PrintChoices(best.candidate.choices));
  record.check = {report.max_rel_err, report.samples, report.full};
  record.expected.reset();
  record.measured = Timing{.time = Nanoseconds(duel.new_us),
                           .noise = Nanoseconds(best.noise_us),
                           .temperature = CacheTemperature::kWarm,
                           .statistic = TimeStatistic::kMedian,
                           .threads = identity.key.threads,
                           .repeats = kRounds};
  return StoreRefined(found, std::move(record), new_code, duel.ratio, by_request, outcome);
}

Result<void> Tuning::StoreRefined(const Found& found, Record record, const BuiltArtifact& new_code, double ratio,
                                  bool by_request, Outcome& outcome) {
  const Identity& identity = found.identity;
  outcome.ratio = ratio;
  const Origin before = record.origin;
  outcome.origin = record.origin = Origin::kTuned;
  record.key = identity.key;
  Digest256 digest{};
  HONE_CHECK(new_code.digest.size() == digest.size());
  std::copy(new_code.digest.begin(), new_code.digest.end(), digest.begin());
  record.artifact_digest = digest;
  record.artifact_bytes = new_code.object.size();
  ReadOnlyMapping bytes = HONE_TRY(new_code.object.Map());
  Result<void> stored = cache_.Put(
      {.record = record, .class_text = identity.class_text, .artifact = bytes.bytes(), .spares_pinned = true},
      Durability::kSynced);
  if (!stored && stored.error().kind == ErrorKind::kUnsupported) {
    outcome.ratio = 0;
    outcome.origin = before;
    outcome.search.stopped += "; it was pinned meanwhile, so it stays as it was";
    return {};
  }
  if (!stored) {
    // A disk that refuses it: kept in memory, served, and written when the disk is back.
    Result<std::optional<CacheHit>> kept = cache_.Lookup(identity.key);
    if (!kept || !*kept || (*kept)->record.artifact_digest != record.artifact_digest) return stored.error();
    LogWarn("refined_not_on_disk", {{"fingerprint", identity.key.fingerprint.Hex()}, {"why", stored.error().Text()}});
    outcome.search.stopped += "; what it found is served, and not on disk yet: " + stored.error().message;
  }
  ++metrics_.refined;
  NoteWon(cache_, record, before == Origin::kTuned, ratio, !by_request);
  loop_.Post([this, record = std::move(record)] { on_better_(record); });
  return {};
}

}  // namespace hone
