// The steps of a request, in the order in which they happen:
//
//   LookUp:   parse → canonical form → fingerprint → cache (→ artifact): most requests end here
//   Compile:  neighbours' schedules, ranked (→ measured, where there is time) → reference values in a runner ∥ build in
//             a builder → check in the runner → store → reply. Code that came in a bundle is there already: it is only
//             checked
#include "daemon/serve/request_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "codegen/rules/choices.h"
#include "daemon/serve/own_record.h"
#include "daemon/serve/steps.h"
#include "tuner/recording.h"

namespace hone {
namespace {

using std::chrono::steady_clock;

// With at least so much time, guesses are measured before one is served; for so much of it.
constexpr std::chrono::milliseconds kTimeToMeasure{300};
constexpr double kMeasuringShare = 0.7;
constexpr int kMostFailedGuesses = 2;  // then the default

// A step that its limit ended says which limit that was.
template <typename T>
Result<T> Within(std::chrono::milliseconds limit, std::string_view key, Result<T> result) {
  if (!result && result.error().kind == ErrorKind::kTimeout) {
    result.error().message +=
        fmt::format(" ({:g} s: build.{} in honed's configuration)", std::chrono::duration<double>(limit).count(), key);
  }
  return result;
}

// Another try may come to something else: the one who asks is told to try.
bool IsPassing(const Error& error) { return error.kind == ErrorKind::kUnavailable || error.kind == ErrorKind::kBusy; }

// The builder and the runner saw what is wrong with the schedule or its code. Want of time, a disk that fails or an
// error of ours say nothing about it.
bool IsOfTheSchedule(const Error& error) {
  return error.kind != ErrorKind::kTimeout && error.kind != ErrorKind::kIo && error.kind != ErrorKind::kInternal;
}

}  // namespace

Result<Compiled> RequestPath::Compile(const LookUpResult& found, const CompileRequest& options) {
  const bool is_first_run = found.known && found.known->source && found.known->source->times_elsewhere;
  Result<Compiled> compiled = CompileFound(found, options);
  if (!is_first_run || !compiled || !IsChecked(found.identity.target)) return compiled;
  return FasterOf(found, options, *std::move(compiled));
}

Result<Compiled> RequestPath::FasterOf(const LookUpResult& found, const CompileRequest& options, Compiled compiled) {
  const CacheKey& key = found.identity.key;
  std::optional<Record> own = TakeOwnRecord(cache_, key);
  const double us = compiled.code->reply.expected_us;
  if (!own || !IsSlowerThanOwn(us, *own)) return compiled;
  const Result<std::optional<CacheHit>> now = cache_.Lookup(key, Counting::kNot);
  if (!now || !*now || (*now)->record.pinned || (*now)->record.origin == Origin::kTuned) return compiled;
  LookUpResult before = found;
  before.there = StateOf((*now)->record);
  before.known = std::move(*own);
  Result<Compiled> again = CompileWith(before, before.known->schedule, options);
  if (!again) return compiled;
  LogInfo("import_was_slower", {{"fingerprint", key.fingerprint.Hex()},
                                {"bundle", found.known->source->bundle},
                                {"us", us},
                                {"then", "what was served before is served again"}});
  return again;
}

Result<Compiled> RequestPath::CompileFound(const LookUpResult& found, const CompileRequest& options) {
  if (found.is_to_check && IsChecked(found.identity.target)) {
    Result<Compiled> checked = CheckImported(found, options);
    if (checked || IsPassing(checked.error())) return checked;
    ++metrics_.imported_refused;
    LogError("imported_code_refused", {{"fingerprint", found.identity.key.fingerprint.Hex()},
                                       {"bundle", found.known->source ? found.known->source->bundle : ""},
                                       {"why", checked.error().Text()},
                                       {"then", "its schedule is compiled here"}});
  }
  if (found.known) {
    Result<Compiled> compiled = CompileWith(found, found.known->schedule, options);
    if (compiled || IsPassing(compiled.error())) return compiled;
    // A pinned record stays as it is, even when what it names cannot be built any more.
    const bool stays = found.known->pinned || !IsOfTheSchedule(compiled.error());
    LogWarn(stays ? "schedule_not_built" : "schedule_stale",
            {{"fingerprint", found.identity.key.fingerprint.Hex()}, {"why", compiled.error().Text()}});
    return CompileWith(found, "", options, stays ? Storing::kNot : Storing::kRecord);
  }
  if (std::optional<Record> record = RecordOfAnotherDriver(found.identity)) {
    LookUpResult with = found;
    with.known = *std::move(record);
    Result<Compiled> compiled = CompileWith(with, with.known->schedule, options);
    if (compiled || IsPassing(compiled.error())) return compiled;
    LogWarn("schedule_of_another_driver",
            {{"fingerprint", found.identity.key.fingerprint.Hex()}, {"why", compiled.error().Text()}});
  }
  return CompileTransferred(found, options);
}

std::optional<Record> RequestPath::RecordOfAnotherDriver(const ResolvedKernel& identity) {
  if (identity.target.device() == nullptr) return std::nullopt;
  const Result<std::vector<Record>> records = cache_.RecordsOf(identity.key.fingerprint);
  if (!records) return std::nullopt;
  const Record* newest = nullptr;
  for (const Record& record : *records) {
    if (record.key.canonical != identity.key.canonical || record.key.threads != identity.key.threads) continue;
    const Result<Target> target = ParseTarget(record.key.target);
    if (!target || target->device() == nullptr || !DifferInDriverAlone(*target->device(), *identity.target.device()))
      continue;
    if (newest == nullptr || newest->updated < record.updated) newest = &record;
  }
  if (newest == nullptr) return std::nullopt;
  Record record = *newest;
  record.measured.reset();
  record.expected.reset();
  record.created = {};
  return record;
}

Result<Compiled> RequestPath::CompileTransferred(const LookUpResult& found, const CompileRequest& options) {
  const ResolvedKernel& identity = found.identity;
  // The default schedules of a range of sizes are chosen together; a neighbour's is for one.
  if (transfers_ == nullptr || transfers_->donors().size() == 0 || identity.is_dynamic)
    return CompileWith(found, "", options);
  Stopwatch watch;
  const bool measures = options.budget >= kTimeToMeasure && IsChecked(identity.target);
  Result<TransferPlan> plan =
      transfers_->Plan(identity.key, identity.target, measures ? Reach::kWide : Reach::kNear, options.stop);
  if (!plan) return CompileWith(found, "", options);
  LookUpResult with = found;
  with.steps.push_back({"transfer", watch.Microseconds()});
  metrics_.transfer.Add(watch.Microseconds());
  if (measures && plan->order.size() > 1) {
    auto time = std::chrono::duration_cast<std::chrono::milliseconds>(options.budget * kMeasuringShare);
    Stopwatch measuring;
    if (Result<std::unique_ptr<Evaluator>> evaluator =
            WorkerPoolsOf(identity, options).MakeEvaluator(identity.key.canonical, identity.target, options.stop)) {
      // The ranking learns from what is measured here.
      auto log = [&](const Trial& trial) {
        const TrialRecord record = RecordOf(trial);
        (void)cache_.AppendTrials(identity.key, std::span(&record, 1));
      };
      Result<void> measured =
          MeasurePlan(**evaluator, identity.key.threads, identity.flops, time, *plan, log, options.stop);
      if (!measured && !options.stop.stop_requested())
        LogWarn("guesses_not_measured", {{"why", measured.error().Text()}});
    }
    with.steps.push_back({"measure", measuring.Microseconds()});
  }
  int failed = 0;
  for (size_t index : plan->order) {
    const Transfer& guess = plan->transfers[index];
    if (!guess.donor || failed == kMostFailedGuesses) break;
    with.known = Record{};
    with.known->origin = Origin::kTransferred;
    with.known->donor = guess.donor->fingerprint;
    KeepProvenance(cache_, identity.key, ProvenanceOf(*plan, index));
    const std::string schedule = WithChoices(guess.candidate.schedule, PrintChoices(guess.candidate.choices));
    Result<Compiled> compiled = CompileWith(with, schedule, options);
    if (compiled) {
      ++metrics_.transferred;
      return compiled;
    }
    if (IsPassing(compiled.error())) return compiled;
    LogWarn("guess_failed", {{"fingerprint", identity.key.fingerprint.Hex()}, {"why", compiled.error().Text()}});
    plan->transfers[index].refused = compiled.error().Text();
    ++failed;
  }
  // The default is the first of the plan's, and was the best guess, or what is left of it.
  if (failed > 0) plan->confidence = 0;
  KeepProvenance(cache_, identity.key, ProvenanceOf(*plan, 0));
  with.known.reset();
  return CompileWith(with, "", options);
}

Result<Compiled> RequestPath::CompileWith(const LookUpResult& found, const std::string& schedule,
                                          const CompileRequest& options, Storing storing) {
  const ResolvedKernel& identity = found.identity;
  WorkerPools& pools = WorkerPoolsOf(identity, options);
  Steps steps(found.steps);
  // The runner computes the reference while the builder builds.
  const bool is_checked = IsChecked(identity.target);
  std::unique_ptr<WorkerPools::Reference> reference;
  if (is_checked) {
    reference = HONE_TRY(Within(options.limits.check, "check_limit",
                                pools.Prepare(identity.key.canonical, identity.target,
                                              steady_clock::now() + options.limits.check, options.stop)));
    steps.Done("runner", metrics_.reference);
  }

  BuildRequest request{identity.key.canonical, schedule, identity.target, options.user};
  BuiltArtifact built =
      HONE_TRY(Within(options.limits.build, "build_limit",
                      pools.Build(request, steady_clock::now() + options.limits.build, options.stop)));
  steps.Add("schedule", built.times.schedule);
  steps.Add("lower", built.times.lower);
  steps.Add("emit", built.times.emit);
  steps.Add("optimize", built.times.optimize);
  steps.Add("codegen", built.times.codegen);
  steps.Add("link", built.times.link);
  steps.Done("build", metrics_.build);

  CheckReport report;
  if (is_checked) {
    report = HONE_TRY(Within(options.limits.check, "check_limit",
                             Check(identity, built.schedule, *reference, built.object, options)));
    steps.Done("check", metrics_.check);
  }
  if (report.failure) return std::move(*report.failure).Context("the code that was built failed its check");

  Record record = found.known.value_or(Record{});
  record.key = identity.key;
  record.shape = identity.shape;
  if (record.request.empty()) record.request = identity.request;
  if (record.label.empty()) record.label = identity.label;
  if (schedule.empty()) {
    record.origin = Origin::kDefault;
    record.source.reset();
    record.donor.reset();
    record.measured.reset();  // of the schedule that was to be built
    record.expected.reset();
  }
  // The builder gives back the steps alone; what was decided about them stays with them.
  const std::string choices = ChoicesOf(schedule);
  record.schedule = ChoicesOf(built.schedule) == choices ? built.schedule : WithChoices(built.schedule, choices);
  record.check = {report.max_rel_err, report.samples, report.full};
  if (is_checked) NoteTime(report, identity, record);
  Digest256 digest{};
  HONE_CHECK(built.digest.size() == digest.size());
  std::copy(built.digest.begin(), built.digest.end(), digest.begin());
  record.artifact_digest = digest;
  record.artifact_bytes = built.object.size();

  ReadOnlyMapping bytes = HONE_TRY(built.object.Map());
  if (storing == Storing::kRecord) Store(found, record, bytes.bytes());
  steps.Done("store", metrics_.store);

  Compiled compiled;
  compiled.code = MakeCode(identity, record, std::move(built.object), EncodeManifest(built.manifest));
  compiled.steps = steps.Take();
  return compiled;
}

double RequestPath::ConfidenceIn(const Record& record) const {
  if (record.origin == Origin::kTransferred || record.origin == Origin::kDefault)
    if (std::optional<TransferProvenance> provenance = ProvenanceOf(cache_, record.key)) return provenance->confidence;
  return LookupPath::ConfidenceIn(record);
}

}  // namespace hone
