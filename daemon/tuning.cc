// A search and what becomes of it:
//
//   Tune:     look up → what is served now → Search → Promote
//   Promote:  build both → full comparison with the reference → head to head → store, synced → forget the old code
#include "daemon/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "tuner/xgb_model.h"

namespace hone {
namespace {

constexpr size_t kMostWaiting = 64;
constexpr uint32_t kRetryMs = 1000;
constexpr uint32_t kMostTrials = 100'000;
constexpr uint32_t kDefaultTrials = 256;
constexpr int kPatience = 128;        // trials without a better one, where nobody said how many to make
constexpr int kRounds = 15;           // of a head-to-head
constexpr std::chrono::minutes kFullCheck{5};

std::chrono::nanoseconds Nanoseconds(double us) { return std::chrono::nanoseconds(static_cast<int64_t>(us * 1000)); }

uint64_t GroupOf(const Identity& identity) {
  Digest64 hash = Hash64(identity.name);
  uint64_t group;
  std::memcpy(&group, hash.data(), sizeof group);
  return group;
}

}  // namespace

Tuning::Tuning(EventLoop& loop, ScheduleCache& cache, Workshop& workshop, RequestPath& path, Metrics& metrics,
               std::function<void(const Fingerprint&)> forget)
    : loop_(loop),
      cache_(cache),
      workshop_(workshop),
      path_(path),
      metrics_(metrics),
      forget_(std::move(forget)),
      model_(MakeXgbModel()),
      queue_(1, "hone-tune") {}

Tuning::~Tuning() { Close(); }

void Tuning::Close() {
  stop_.request_stop();
  queue_.Close();
}

void Tuning::Handle(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body) {
  if (queue_.waiting() >= kMostWaiting) {
    ++metrics_.busy;
    return peer->ReplyError(header.request_id, {ErrorKind::kBusy, fmt::format("too many searches wait, retry in {} ms", kRetryMs), "honed"}, kRetryMs);
  }
  Result<TuneRequest> request = DecodeBody<TuneRequest>(body);
  if (!request) {
    ++metrics_.bad_frames;
    return peer->ReplyError(header.request_id, request.error());
  }
  queue_.Push([this, job = Job{&loop_, peer, header.request_id}, request = *std::move(request)] {
    Result<TuneReply> reply = Tune(request, job);
    if (!reply) return job.AnswerError(reply.error());
    job.Answer(TuneReply::kType, EncodeBody(*reply));
  });
}

Result<TuneReply> Tuning::Tune(const TuneRequest& request, const Job& job) {
  Found found = HONE_TRY(path_.LookUp({request.kernel, "", static_cast<int>(std::min(request.threads, 4096u))}));
  const Identity& identity = found.identity;
  // What is served until then: what was refined is compared with it.
  if (!found.code) HONE_TRY(path_.Compile(found, {}));
  std::optional<CacheHit> served = HONE_TRY(cache_.Lookup(identity.key));
  if (!served) return Error{ErrorKind::kInternal, "the kernel's record is gone", identity.label};

  Space space = HONE_TRY(Space::Open(identity.key.canonical, identity.target));
  std::unique_ptr<Rig> rig = HONE_TRY(workshop_.MakeRig(identity.key.canonical, identity.target));
  SearchOptions options;
  options.trials = static_cast<int>(request.trials > 0 ? std::min(request.trials, kMostTrials) : kDefaultTrials);
  options.patience = request.trials > 0 ? 0 : kPatience;
  options.time = std::chrono::milliseconds(std::min<uint64_t>(request.time_us / 1000, uint64_t{7} * 24 * 3600 * 1000));
  options.seed = request.seed > 0 ? request.seed : ++searches_;
  options.group = GroupOf(identity);
  options.workers = identity.key.threads;
  if (std::string choices = ChoicesOf(served->record.schedule); !choices.empty()) options.known = {choices};

  std::stop_source stop;
  std::stop_callback with_us(stop_.get_token(), [&] { stop.request_stop(); });
  auto progress_reply = [&](const SearchProgress& progress) {
    TuneReply reply;
    reply.trials = static_cast<uint32_t>(progress.trials);
    reply.valid = static_cast<uint32_t>(progress.valid);
    reply.wanted = static_cast<uint32_t>(options.trials);
    reply.elapsed_s = progress.elapsed_s;
    reply.start_us = progress.start_us;
    reply.best_us = progress.best_us;
    return reply;
  };
  SearchWatcher watcher;
  watcher.on_trial = [&](const Trial& trial) {
    ++metrics_.trials;
    if (trial.verdict != hone::Verdict::kTimed) ++metrics_.trials_failed;
  };
  watcher.on_round = [&](const SearchProgress& progress) {
    TuneReply reply = progress_reply(progress);
    reply.more = true;
    // Who does not listen any more does not want the rest; what was found is kept.
    if (!job.Part(reply)) stop.request_stop();
  };
  SearchResult result = HONE_TRY(Search(space, *rig, model_.get(), options, watcher, stop.get_token()));
  TuneReply reply = progress_reply(result.progress);
  reply.fingerprint = identity.key.fingerprint.Hex();
  reply.origin = OriginName(served->record.origin);
  reply.stopped = result.stopped;
  if (result.best && !served->record.pinned) {
    Verdict verdict = HONE_TRY(Promote(found, served->record, *rig, *result.best));
    reply.served_us = verdict.served_us;
    reply.ratio = verdict.ratio;
    reply.origin = OriginName(verdict.origin);
  }
  LogInfo("tuned", {{"fingerprint", reply.fingerprint}, {"trials", reply.trials}, {"ratio", reply.ratio}, {"why", result.stopped}});
  return reply;
}

Result<Tuning::Verdict> Tuning::Promote(const Found& found, Record record, Rig& rig, const Trial& best) {
  const Identity& identity = found.identity;
  Verdict verdict{.origin = record.origin};
  BuiltArtifact old_code = HONE_TRY(rig.Build(record.schedule));
  BuiltArtifact new_code = HONE_TRY(rig.Build(best.candidate.schedule));
  if (old_code.digest == new_code.digest) return verdict;
  CheckOptions check;
  check.workers = identity.key.threads;
  check.full = true;
  check.run_limit = kFullCheck;
  CheckReport report = HONE_TRY(rig.Check(new_code.object, check));
  if (report.failure) {
    // A few elements were right in the search, another is not: never served.
    LogWarn("refined_code_wrong", {{"fingerprint", identity.key.fingerprint.Hex()}, {"why", report.failure->Text()}});
    return verdict;
  }
  HeadToHead duel = HONE_TRY(Compare(rig, old_code.object, new_code.object, identity.key.threads, kRounds, stop_.get_token()));
  verdict.served_us = duel.old_us;
  if (duel.low <= 1) return verdict;

  verdict.ratio = duel.ratio;
  verdict.origin = record.origin = Origin::kTuned;
  record.schedule = WithChoices(best.candidate.schedule, PrintChoices(best.candidate.choices));
  record.check = {report.max_rel_err, report.samples, report.full};
  record.expected.reset();
  record.measured = Timing{.time = Nanoseconds(duel.new_us),
                           .noise = Nanoseconds(best.noise_us),
                           .temperature = CacheTemperature::kWarm,
                           .statistic = TimeStatistic::kMedian,
                           .threads = identity.key.threads,
                           .repeats = kRounds};
  record.key = identity.key;
  Digest256 digest{};
  HONE_CHECK(new_code.digest.size() == digest.size());
  std::copy(new_code.digest.begin(), new_code.digest.end(), digest.begin());
  record.artifact_digest = digest;
  record.artifact_bytes = new_code.object.size();
  ReadOnlyMapping bytes = HONE_TRY(new_code.object.Map());
  HONE_TRY(cache_.Put({record, identity.class_text, bytes.bytes()}, Durability::kSynced));
  loop_.Post([this, fingerprint = identity.key.fingerprint] { forget_(fingerprint); });
  return verdict;
}

}  // namespace hone
