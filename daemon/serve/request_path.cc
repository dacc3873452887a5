// The steps of a request, in the order in which they happen:
//
//   LookUp:   parse → canonical form → fingerprint → cache (→ artifact): most requests end here
//   Compile:  neighbours' schedules, ranked (→ measured, where there is time) → reference values in a runner ∥ build in
//             a builder → check in the runner → store → reply. Code that came in a bundle is there already: it is only
//             checked
#include "daemon/serve/request_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backends/processes/check_sizes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/generated_code.h"
#include "base/log.h"
#include "codegen/rules/choices.h"
#include "ir/language/canonical.h"
#include "ir/language/fingerprint.h"
#include "ir/language/parse.h"
#include "ir/language/without_comments.h"
#include "tuner/recording.h"

namespace hone {
namespace {

using std::chrono::steady_clock;

// Timed calls after the checked one, so that the reply can say what a warm call costs: only where they are cheap.
constexpr double kTimedFlops = 2e8;  // some milliseconds on any machine
constexpr int64_t kTimedBytes = int64_t{32} << 20;
constexpr int kTimedRuns = 3;

// With at least so much time, guesses are measured before one is served; for so much of it.
constexpr std::chrono::milliseconds kTimeToMeasure{300};
constexpr double kMeasuringShare = 0.7;
constexpr int kMostFailedGuesses = 2;  // then the default

// Collects the steps' times for the reply and for `hone stats`.
class Steps {
 public:
  explicit Steps(std::vector<StepTime> before = {}) : steps_(std::move(before)) {}
  void Done(std::string name, Histogram& histogram) {
    double us = stopwatch_.Microseconds();
    histogram.Add(us);
    steps_.push_back({std::move(name), us});
    stopwatch_.Restart();
  }
  void Add(std::string name, double us) { steps_.push_back({std::move(name), us}); }
  std::vector<StepTime> Take() { return std::move(steps_); }

 private:
  std::vector<StepTime> steps_;
  Stopwatch stopwatch_;
};

// Runs the code and compares what it computes; a few more calls where they are cheap.
Result<CheckReport> Check(const ResolvedKernel& identity, const std::string& schedule,
                          WorkerPools::Reference& reference, const SealedMemfd& object, const CompileRequest& options) {
  CheckOptions check;
  check.workers = identity.key.threads;
  bool cheap = identity.flops <= kTimedFlops && identity.operand_bytes <= kTimedBytes;
  check.timed_runs = cheap ? kTimedRuns : 0;
  const auto deadline = steady_clock::now() + options.limits.check;
  return CheckAllSizes(HONE_TRY(ParseKernel(identity.key.canonical)), schedule, check,
                       [&](const CheckOptions& each) { return reference.Check(object, each, deadline); });
}

double ExpectedUs(const Record& record) {
  auto us = [](std::chrono::nanoseconds time) { return std::chrono::duration<double, std::micro>(time).count(); };
  if (record.measured) return us(record.measured->time);
  return record.expected ? us(*record.expected) : 0;
}

int64_t OperandBytes(const Kernel& kernel) {
  int64_t bytes = 0;
  for (TensorId operand : kernel.operands) {
    int64_t size = ByteSize(kernel.tensors[operand].dtype);
    for (const Expr& extent : kernel.tensors[operand].shape) size *= UpperExtent(kernel, extent);
    bytes += size;
  }
  return bytes;
}

// What the check's calls took, as a first idea of the kernel's speed. Tuning measures properly.
void NoteTime(const CheckReport& report, int threads, Record& record) {
  if (record.source && std::exchange(record.source->times_elsewhere, false)) record.measured.reset();
  auto ns = [](double us) { return std::chrono::nanoseconds(static_cast<int64_t>(us * 1000)); };
  if (report.time_us > 0) {
    record.measured = Timing{.time = ns(report.time_us),
                             .noise = ns(std::max(0.0, report.first_run_us - report.time_us)),
                             .temperature = CacheTemperature::kWarm,
                             .statistic = TimeStatistic::kMinimum,
                             .threads = threads,
                             .repeats = kTimedRuns};
  } else {
    record.expected = ns(report.first_run_us);
  }
}

}  // namespace

RequestPath::RequestPath(ScheduleCache& cache, WorkerPools& pools, Metrics& metrics, Devices devices)
    : cache_(cache), pools_(pools), metrics_(metrics), devices_(std::move(devices)) {}

Result<ResolvedKernel> RequestPath::Identify(const KernelRequest& ask) const {
  ResolvedKernel identity;
  Devices::Choice choice = HONE_TRY(devices_.Choose(ask.target));
  identity.target = std::move(choice.target);
  identity.device = choice.device;
  Kernel kernel = HONE_TRY(ParseKernel(ask.kernel));
  int threads = kernel.options.threads > 0 ? kernel.options.threads : ask.threads;
  if (threads <= 0) threads = identity.target.cores();
  kernel.options.threads = ThreadsToSay(threads, identity.target.cores());
  Canonical canonical = Canonicalize(kernel);
  identity.key = MakeCacheKey(canonical, identity.target, threads,
                              CodeKey(identity.device->compiler, HONE_ABI_VERSION, identity.target));
  identity.name = fmt::format("{} {}", identity.key.fingerprint.Hex(), identity.key.target);
  identity.class_text = std::move(canonical.class_text);
  identity.shape = std::move(canonical.shape);
  identity.label = kernel.name;
  identity.request = WithoutComments(ask.kernel);
  identity.operand_bytes = OperandBytes(kernel);
  identity.is_dynamic = !IsStatic(kernel);
  for (Size& size : kernel.sizes) size.lo = size.hi;
  identity.flops = FlopCount(kernel);
  return identity;
}

Result<LookUpResult> RequestPath::LookUp(const KernelRequest& ask, Counting counting) {
  Steps steps;
  LookUpResult found;
  found.identity = HONE_TRY(Identify(ask));
  steps.Done("parse", metrics_.parse);

  std::optional<CacheHit> hit = HONE_TRY(cache_.Lookup(found.identity.key, counting));
  if (hit && hit->artifact_current) {
    std::optional<std::vector<std::byte>> artifact = HONE_TRY(cache_.Artifact(hit->record));
    if (artifact) {
      Result<Manifest> manifest = found.identity.device->backend->OpenArtifact(*artifact, artifact->size());
      if (manifest) {
        SealedMemfd file = HONE_TRY(SealedMemfd::Create(*artifact));
        found.code = MakeCode(found.identity, hit->record, std::move(file), EncodeManifest(*manifest));
      } else {
        LogWarn("artifact_refused",
                {{"fingerprint", found.identity.key.fingerprint.Hex()}, {"why", manifest.error().Text()}});
      }
    }
  }
  if (hit && !found.code) {
    found.is_to_check = hit->artifact_to_check;
    found.known = std::move(hit->record);
  }
  steps.Done("lookup", metrics_.lookup);
  found.steps = steps.Take();
  return found;
}

Result<Compiled> RequestPath::Compile(const LookUpResult& found, const CompileRequest& options) {
  if (found.is_to_check && IsChecked(found.identity.target)) {
    Result<Compiled> checked = CheckImported(found, options);
    const bool is_passing =
        !checked && (checked.error().kind == ErrorKind::kUnavailable || checked.error().kind == ErrorKind::kBusy);
    if (checked || is_passing) return checked;
    ++metrics_.imported_refused;
    LogError("imported_code_refused", {{"fingerprint", found.identity.key.fingerprint.Hex()},
                                       {"bundle", found.known->source ? found.known->source->bundle : ""},
                                       {"why", checked.error().Text()},
                                       {"then", "its schedule is compiled here"}});
  }
  if (found.known) {
    Result<Compiled> compiled = CompileWith(found, found.known->schedule, options);
    bool schedule_is_stale =
        !compiled && compiled.error().kind != ErrorKind::kUnavailable && compiled.error().kind != ErrorKind::kBusy;
    if (!schedule_is_stale) return compiled;
    LogWarn("schedule_stale",
            {{"fingerprint", found.identity.key.fingerprint.Hex()}, {"why", compiled.error().Text()}});
    return CompileWith(found, "", options);
  }
  return CompileTransferred(found, options);
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
            WorkerPoolsOf(options).MakeEvaluator(identity.key.canonical, identity.target, options.stop)) {
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
    if (compiled.error().kind == ErrorKind::kUnavailable || compiled.error().kind == ErrorKind::kBusy) return compiled;
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

Result<Compiled> RequestPath::CheckImported(const LookUpResult& found, const CompileRequest& options) {
  const ResolvedKernel& identity = found.identity;
  std::optional<std::vector<std::byte>> artifact = HONE_TRY(cache_.Artifact(*found.known));
  if (!artifact) return Error{ErrorKind::kCorrupt, "its code is gone or damaged", ""};
  const Manifest manifest = HONE_TRY(identity.device->backend->OpenArtifact(*artifact, artifact->size()));
  auto reference = HONE_TRY(WorkerPoolsOf(options).Prepare(identity.key.canonical, identity.target,
                                                           steady_clock::now() + options.limits.check, options.stop));
  SealedMemfd object = HONE_TRY(SealedMemfd::Create(*artifact));
  Stopwatch watch;
  CheckReport report = HONE_TRY(Check(identity, found.known->schedule, *reference, object, options));
  metrics_.check.Add(watch.Microseconds());
  if (report.failure) return std::move(*report.failure).Context("the code from a bundle failed its check");

  Record record = *found.known;
  record.check = {report.max_rel_err, report.samples, report.full};
  NoteTime(report, identity.key.threads, record);
  if (Result<void> stored = cache_.Put({record, identity.class_text, *artifact}, Durability::kSoon); !stored)
    LogError("store_failed", {{"why", stored.error().Text()}});
  ++metrics_.imported_checked;
  Compiled compiled;
  compiled.code = MakeCode(identity, record, std::move(object), EncodeManifest(manifest));
  compiled.was_here = true;
  return compiled;
}

Result<Compiled> RequestPath::CompileWith(const LookUpResult& found, const std::string& schedule,
                                          const CompileRequest& options) {
  const ResolvedKernel& identity = found.identity;
  WorkerPools& pools = WorkerPoolsOf(options);
  Steps steps(found.steps);
  // The runner computes the reference while the builder builds.
  const bool is_checked = IsChecked(identity.target);
  std::unique_ptr<WorkerPools::Reference> reference;
  if (is_checked) {
    reference = HONE_TRY(pools.Prepare(identity.key.canonical, identity.target,
                                       steady_clock::now() + options.limits.check, options.stop));
    steps.Done("runner", metrics_.reference);
  }

  BuildRequest request{identity.key.canonical, schedule, identity.target};
  BuiltArtifact built = HONE_TRY(pools.Build(request, steady_clock::now() + options.limits.build, options.stop));
  steps.Add("schedule", built.times.schedule);
  steps.Add("lower", built.times.lower);
  steps.Add("emit", built.times.emit);
  steps.Add("optimize", built.times.optimize);
  steps.Add("codegen", built.times.codegen);
  steps.Add("link", built.times.link);
  steps.Done("build", metrics_.build);

  CheckReport report;
  if (is_checked) {
    report = HONE_TRY(Check(identity, built.schedule, *reference, built.object, options));
    steps.Done("check", metrics_.check);
  }
  if (report.failure) return std::move(*report.failure).Context("the code that was built failed its check");

  Record record = found.known.value_or(Record{});
  record.key = identity.key;
  record.shape = identity.shape;
  if (record.request.empty()) record.request = identity.request;
  record.label = identity.label;
  if (schedule.empty()) {
    record.origin = Origin::kDefault;
    record.source.reset();
  }
  // The builder gives back the steps alone; what was decided about them stays with them.
  const std::string choices = ChoicesOf(schedule);
  record.schedule = ChoicesOf(built.schedule) == choices ? built.schedule : WithChoices(built.schedule, choices);
  record.check = {report.max_rel_err, report.samples, report.full};
  if (is_checked) NoteTime(report, identity.key.threads, record);
  Digest256 digest{};
  HONE_CHECK(built.digest.size() == digest.size());
  std::copy(built.digest.begin(), built.digest.end(), digest.begin());
  record.artifact_digest = digest;
  record.artifact_bytes = built.object.size();

  ReadOnlyMapping bytes = HONE_TRY(built.object.Map());
  // A pinned record stays as it is, even when what it names cannot be built any more.
  const bool replaces_pinned = record.pinned && schedule.empty();
  Result<void> stored;
  if (!replaces_pinned) stored = cache_.Put({record, identity.class_text, bytes.bytes()}, Durability::kSoon);
  // Code that cannot be kept is served all the same.
  if (!stored) LogError("store_failed", {{"why", stored.error().Text()}});
  steps.Done("store", metrics_.store);

  Compiled compiled;
  compiled.code = MakeCode(identity, record, std::move(built.object), EncodeManifest(built.manifest));
  compiled.steps = steps.Take();
  return compiled;
}

HotCodePtr RequestPath::MakeCode(const ResolvedKernel& identity, const Record& record, SealedMemfd artifact,
                                 std::string manifest) {
  auto code = std::make_shared<HotCode>();
  code->key = identity.name;
  code->fingerprint = identity.key.fingerprint;
  code->class_fingerprint = identity.key.class_fingerprint;
  code->reply = ReplyFrom(record);
  code->reply.hit = true;
  code->reply.confidence = record.origin == Origin::kTuned ? 1 : 0;
  if (record.origin == Origin::kTransferred || record.origin == Origin::kDefault)
    if (std::optional<TransferProvenance> provenance = ProvenanceOf(cache_, record.key))
      code->reply.confidence = provenance->confidence;
  code->reply.size = artifact.size();
  code->reply.manifest = std::move(manifest);
  code->hit_body = EncodeBody(code->reply);
  code->artifact = std::move(artifact);
  return code;
}

NewerNotice NoticeOf(const Record& record) {
  GetReply reply = ReplyFrom(record);
  return {std::move(reply.fingerprint), std::move(reply.target), std::move(reply.digest)};
}

GetReply ReplyFrom(const Record& record) {
  GetReply reply;
  reply.fingerprint = record.key.fingerprint.Hex();
  reply.class_name = record.label;
  reply.target = record.key.target;
  reply.pinned = record.pinned;
  reply.origin = OriginName(record.origin);
  reply.expected_us = ExpectedUs(record);
  if (record.artifact_digest) {
    reply.digest.assign(reinterpret_cast<const char*>(record.artifact_digest->data()), record.artifact_digest->size());
  }
  reply.size = record.artifact_bytes;
  return reply;
}

}  // namespace hone
