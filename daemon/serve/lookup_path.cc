#include "daemon/serve/lookup_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backends/processes/check_sizes.h"
#include "base/clock.h"
#include "base/generated_code.h"
#include "base/log.h"
#include "daemon/serve/steps.h"
#include "ir/language/canonical.h"
#include "ir/language/fingerprint.h"
#include "ir/language/parse.h"
#include "ir/language/without_comments.h"

namespace hone {
namespace {

using std::chrono::steady_clock;

// Timed calls after the checked one, so that the reply can say what a warm call costs: only where they are cheap.
constexpr double kTimedFlops = 2e8;  // some milliseconds on any machine
constexpr int64_t kTimedBytes = int64_t{32} << 20;
constexpr int kTimedRuns = 3;

// On a device the first call may compile or load, which says nothing about the next: there one more is worth it.
int TimedRuns(const ResolvedKernel& identity) {
  const bool is_cheap = identity.flops <= kTimedFlops && identity.operand_bytes <= kTimedBytes;
  return is_cheap ? kTimedRuns : identity.target.device() != nullptr ? 1 : 0;
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

}  // namespace

LookupPath::LookupPath(ScheduleCache& cache, WorkerPools& pools, Metrics& metrics, Devices devices)
    : cache_(cache), pools_(pools), metrics_(metrics), devices_(std::move(devices)) {}

Result<CheckReport> LookupPath::Check(const ResolvedKernel& identity, const std::string& schedule,
                                      WorkerPools::Reference& reference, const SealedMemfd& object,
                                      const CompileRequest& options) {
  CheckOptions check;
  check.workers = identity.key.threads;
  check.timed_runs = TimedRuns(identity);
  const auto deadline = steady_clock::now() + options.limits.check;
  return CheckAllSizes(HONE_TRY(ParseKernel(identity.key.canonical)), schedule, check,
                       [&](const CheckOptions& each) { return reference.Check(object, each, deadline); });
}

void LookupPath::NoteTime(const CheckReport& report, const ResolvedKernel& identity, Record& record) {
  if (record.source && std::exchange(record.source->times_elsewhere, false)) record.measured.reset();
  auto ns = [](double us) { return std::chrono::nanoseconds(static_cast<int64_t>(us * 1000)); };
  if (report.time_us > 0) {
    record.measured = Timing{.time = ns(report.time_us),
                             .noise = ns(std::max(0.0, report.first_run_us - report.time_us)),
                             .temperature = CacheTemperature::kWarm,
                             .statistic = TimeStatistic::kMinimum,
                             .threads = identity.key.threads,
                             .repeats = TimedRuns(identity)};
  } else if (report.first_run_us > 0) {  // else nobody knows: it ran on an emulator
    record.expected = ns(report.first_run_us);
  }
}

Result<ResolvedKernel> LookupPath::Identify(const KernelRequest& ask) const {
  ResolvedKernel identity;
  Devices::Choice choice = ask.on ? Devices::Choice{ask.on->target, devices_.OfKind(ask.on->target.kind())}
                                  : HONE_TRY(devices_.Choose(ask.target));
  identity.on = ask.on;
  identity.target = std::move(choice.target);
  identity.device = choice.device;
  Kernel kernel = HONE_TRY(ParseKernel(ask.kernel));
  constexpr int kMostThreads = ParseLimits{}.threads;
  if (ask.threads > kMostThreads)
    return Error{ErrorKind::kInvalid,
                 fmt::format("saw threads={}, wanted a number from 0 to {}", ask.threads, kMostThreads), "request"};
  int threads = kernel.options.threads > 0 ? kernel.options.threads : static_cast<int>(ask.threads);
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

Result<LookUpResult> LookupPath::LookUp(const KernelRequest& ask, Counting counting) {
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
  if (hit) found.there = StateOf(hit->record);
  if (hit && !found.code) {
    found.is_to_check = hit->artifact_to_check;
    found.known = std::move(hit->record);
  }
  steps.Done("lookup", metrics_.lookup);
  found.steps = steps.Take();
  return found;
}

Result<Compiled> LookupPath::CheckImported(const LookUpResult& found, const CompileRequest& options) {
  const ResolvedKernel& identity = found.identity;
  std::optional<std::vector<std::byte>> artifact = HONE_TRY(cache_.Artifact(*found.known));
  if (!artifact) return Error{ErrorKind::kCorrupt, "its code is gone or damaged", ""};
  const Manifest manifest = HONE_TRY(identity.device->backend->OpenArtifact(*artifact, artifact->size()));
  auto reference = HONE_TRY(
      WorkerPoolsOf(identity, options)
          .Prepare(identity.key.canonical, identity.target, steady_clock::now() + options.limits.check, options.stop));
  SealedMemfd object = HONE_TRY(SealedMemfd::Create(*artifact));
  Stopwatch watch;
  CheckReport report = HONE_TRY(Check(identity, found.known->schedule, *reference, object, options));
  metrics_.check.Add(watch.Microseconds());
  if (report.failure) return std::move(*report.failure).Context("the code from a bundle failed its check");
  if (cache_.CheckOf(*found.known) == ArtifactCheck::kNone)
    return Error{ErrorKind::kInvalid, "the key that signed it was revoked meanwhile", ""};

  Record record = *found.known;
  record.check = {report.max_rel_err, report.samples, report.full};
  NoteTime(report, identity, record);
  Store(found, record, *artifact);
  ++metrics_.imported_checked;
  Compiled compiled;
  compiled.code = MakeCode(identity, record, std::move(object), EncodeManifest(manifest));
  compiled.was_here = true;
  return compiled;
}

void LookupPath::Store(const LookUpResult& found, const Record& record, std::span<const std::byte> artifact) {
  NewRecord entry{record, found.identity.class_text, artifact};
  entry.admits = IfStill(found.there);
  Result<void> stored = cache_.Put(entry, Durability::kSoon);
  if (stored) return;
  if (stored.error().kind == ErrorKind::kUnsupported || stored.error().kind == ErrorKind::kNotFound)
    LogInfo("not_stored", {{"kernel", found.identity.name}, {"why", stored.error().Text()}});
  else
    LogError("store_failed", {{"why", stored.error().Text()}});
}

HotCodePtr LookupPath::MakeCode(const ResolvedKernel& identity, const Record& record, SealedMemfd artifact,
                                std::string manifest) {
  auto code = std::make_shared<HotCode>();
  code->key = identity.name;
  code->fingerprint = identity.key.fingerprint;
  code->class_fingerprint = identity.key.class_fingerprint;
  code->reply = ReplyFrom(record);
  code->reply.class_name = identity.label;  // as this client calls it; the record says what the first one did
  code->reply.hit = true;
  code->reply.confidence = ConfidenceIn(record);
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
