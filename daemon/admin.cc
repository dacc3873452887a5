#include "daemon/admin.h"

#include <fmt/format.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <thread>
#include <utility>

#include "backends/check_sizes.h"
#include "base/elf_check.h"
#include "base/generated_code.h"
#include "base/hash.h"
#include "base/log.h"
#include "ir/parse.h"

namespace hone {
namespace {

constexpr size_t kMostWaiting = 256;
constexpr uint32_t kRetryMs = 200;
constexpr size_t kRowsPerPart = 128;

double Us(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::micro>(time).count(); }

std::string TimeText(WallTime time) {
  time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
  if (seconds == 0) return "unknown";
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string MeasuredText(const Timing& timing) {
  return fmt::format("{:.1f} us ± {:.1f}, {} of {}, {} cache, {} thread{}", Us(timing.time), Us(timing.noise),
                     timing.statistic == TimeStatistic::kMedian    ? "median"
                     : timing.statistic == TimeStatistic::kMinimum ? "best"
                                                                   : "mean",
                     timing.repeats, timing.temperature == CacheTemperature::kWarm ? "warm" : "cold", timing.threads,
                     timing.threads == 1 ? "" : "s");
}

std::vector<Fact> FactsOf(const Record& record) {
  std::vector<Fact> facts;
  facts.push_back({"target", record.key.target});
  facts.push_back({"threads", std::to_string(record.key.threads)});
  facts.push_back({"origin", std::string(OriginName(record.origin))});
  if (record.donor) facts.push_back({"donor", record.donor->Hex()});
  if (record.measured) facts.push_back({"measured", MeasuredText(*record.measured)});
  if (record.expected) facts.push_back({"expected", fmt::format("{:.1f} us", Us(*record.expected))});
  facts.push_back({"max_rel_err", fmt::format("{:.3g}", record.check.max_rel_err)});
  facts.push_back({"checked", record.check.full ? "every element" : fmt::format("{} elements", record.check.samples)});
  facts.push_back({"artifact", record.artifact_digest
                                   ? fmt::format("{} bytes, {}", record.artifact_bytes, HexOf(*record.artifact_digest))
                                   : "none: only the schedule is kept"});
  facts.push_back({"built_by", record.key.code});
  facts.push_back({"pinned", record.pinned ? "yes" : "no"});
  facts.push_back({"created", TimeText(record.created)});
  facts.push_back({"updated", TimeText(record.updated)});
  return facts;
}

// Why this code is what a request gets: one line per decision.
std::vector<Fact> ReasonsOf(const Record& record, const Target& host, const std::string& compiler) {
  std::vector<Fact> reasons;
  switch (record.origin) {
    case Origin::kDefault:
      reasons.push_back({"schedule", "derived from the machine's registers and caches; nothing better is known yet"});
      break;
    case Origin::kTuned: reasons.push_back({"schedule", "the best that tuning found on this machine"}); break;
    case Origin::kTransferred:
      reasons.push_back(
          {"schedule", "fitted from another kernel's" + (record.donor ? ", " + record.donor->Hex() : std::string())});
      break;
    case Origin::kImported: reasons.push_back({"schedule", "came in a bundle; compiled and checked here"}); break;
  }
  bool is_ours = record.key.target == PrintTarget(host);
  reasons.push_back({"target", is_ours ? "this machine" : "another machine; requests for this one do not get it"});
  bool is_current = is_ours && record.key.code == CodeKey(compiler, HONE_ABI_VERSION, host);
  if (!record.artifact_digest) {
    reasons.push_back({"artifact", "not kept; the next request compiles the schedule again"});
  } else if (is_ours && !is_current) {
    reasons.push_back({"artifact", "made by another compiler; the next request compiles the schedule again"});
  } else {
    reasons.push_back({"artifact", "kept; a request compiles nothing"});
  }
  reasons.push_back(
      {"check", fmt::format("compared with the reference at {}, off by at most {:.3g} of the bound's scale",
                            record.check.full ? "every element" : fmt::format("{} elements", record.check.samples),
                            record.check.max_rel_err)});
  if (record.measured) {
    reasons.push_back({"expectation", "from measured calls: " + MeasuredText(*record.measured)});
  } else if (record.expected) {
    reasons.push_back({"expectation", "from its first call, not measured yet"});
  }
  if (record.pinned)
    reasons.push_back({"pinned", "stays in the cache whatever its size, and is neither refined nor replaced"});
  return reasons;
}

}  // namespace

Admin::Admin(EventLoop& loop, ScheduleCache& cache, Workshop& workshop, RequestPath& path, Metrics& metrics,
             AdminFacts facts, std::function<void(const Fingerprint&)> forget)
    : loop_(loop),
      cache_(cache),
      workshop_(workshop),
      path_(path),
      metrics_(metrics),
      facts_(std::move(facts)),
      forget_(std::move(forget)),
      insight_(cache, path.host()),
      queue_(1, "hone-admin") {
  pthread_getcpuclockid(pthread_self(), &loop_cpu_clock_);  // made by the thread that will run the loop
}

Admin::~Admin() { Close(); }

void Admin::Close() {
  stop_.request_stop();
  queue_.Close();
}

template <typename Request, typename Reply>
void Admin::Run(Job job, std::span<const std::byte> body, Result<Reply> (Admin::*answer)(const Request&)) {
  Result<Request> request = DecodeBody<Request>(body);
  if (!request) {
    ++metrics_.bad_frames;
    return job.peer->ReplyError(job.id, request.error());
  }
  queue_.Push([this, job = std::move(job), request = *std::move(request), answer] {
    Result<Reply> reply = (this->*answer)(request);
    if (!reply) return job.AnswerError(reply.error());
    job.Answer(Reply::kType, EncodeBody(*reply));
  });
}

template <typename Request>
void Admin::Stream(Job job, std::span<const std::byte> body,
                   Result<void> (Admin::*answer)(const Request&, const Job&)) {
  Result<Request> request = DecodeBody<Request>(body);
  if (!request) {
    ++metrics_.bad_frames;
    return job.peer->ReplyError(job.id, request.error());
  }
  queue_.Push([this, job = std::move(job), request = *std::move(request), answer] {
    if (Result<void> done = (this->*answer)(request, job); !done) job.AnswerError(done.error());
  });
}

void Admin::Handle(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body) {
  if (queue_.waiting() >= kMostWaiting) {
    ++metrics_.busy;
    return peer->ReplyError(
        header.request_id,
        {ErrorKind::kBusy, fmt::format("too many commands at once, retry in {} ms", kRetryMs), "honed"}, kRetryMs);
  }
  Job job{&loop_, peer, header.request_id};
  switch (header.type) {
    case MessageType::kStatus: return Run(std::move(job), body, &Admin::Status);
    case MessageType::kStats: return Run(std::move(job), body, &Admin::Stats);
    case MessageType::kList: return Stream(std::move(job), body, &Admin::List);
    case MessageType::kShow: return Run(std::move(job), body, &Admin::Show);
    case MessageType::kEdit: return Run(std::move(job), body, &Admin::Edit);
    case MessageType::kVerify: return Stream(std::move(job), body, &Admin::Verify);
    case MessageType::kPredict: return Run(std::move(job), body, &Admin::Predict);
    case MessageType::kTop: return Run(std::move(job), body, &Admin::Top);
    case MessageType::kExplain: return Run(std::move(job), body, &Admin::Explain);
    default: return Run(std::move(job), body, &Admin::Text);
  }
}

Result<StatusReply> Admin::Status(const StatusRequest&) {
  CacheStats cache = cache_.Stats();
  StatusReply reply;
  reply.version = HONE_VERSION;
  reply.pid = getpid();
  reply.uptime_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  reply.socket = facts_.socket;
  reply.cache = facts_.cache;
  reply.targets = {PrintTarget(path_.host())};
  reply.cache_bytes = cache.disk_bytes;
  reply.cache_problem = cache.not_persisting;
  for (const CacheStats::Family& family : cache.families) {
    if (family.name == "records") reply.records = family.entries;
  }
  reply.hits = metrics_.hits_memory + metrics_.hits_disk;
  reply.misses = metrics_.misses;
  reply.idle_state = "off";
  if (idle_facts_) std::tie(reply.idle_state, reply.tuning) = idle_facts_();
  reply.builders = static_cast<uint32_t>(facts_.builders);
  reply.connections = metrics_.connections;
  reply.queued = metrics_.builds_queued;
  return reply;
}

Result<PredictReply> Admin::Predict(const PredictRequest& request) {
  const int threads = static_cast<int>(std::min(request.threads, 4096u));
  return insight_.Predict(HONE_TRY(path_.Identify({request.kernel, "", threads})));
}

Result<TopReply> Admin::Top(const TopRequest&) {
  TopReply reply;
  reply.idle_state = "off";
  if (top_) reply = top_();
  reply.all_trials = metrics_.trials;
  reply.failed_trials = metrics_.trials_failed;
  reply.refined = metrics_.refined;
  reply.interrupts = metrics_.idle_interrupts;
  return reply;
}

Result<StatsReply> Admin::Stats(const StatsRequest&) {
  StatsReply reply{metrics_.Snapshot()};
  auto add = [&](std::string name, double value) { reply.stats.push_back({std::move(name), value}); };
  timespec cpu{};
  clock_gettime(loop_cpu_clock_, &cpu);
  add("serving_cpu_us", static_cast<double>(cpu.tv_sec) * 1e6 + static_cast<double>(cpu.tv_nsec) / 1e3);
  BuilderPoolStats builders = workshop_.BuilderStats();
  add("builder_builds", static_cast<double>(builders.builds));
  add("builder_failed", static_cast<double>(builders.failed));
  add("builder_crashed", static_cast<double>(builders.crashed));
  add("builder_timed_out", static_cast<double>(builders.timed_out));
  add("builder_restarts", static_cast<double>(builders.restarts));
  RunnerPoolStats runners = workshop_.RunnerStats();
  add("runner_checked", static_cast<double>(runners.checked));
  add("runner_refused", static_cast<double>(runners.refused));
  add("runner_restarts", static_cast<double>(runners.restarts));
  CacheStats cache = cache_.Stats();
  add("cache_hits", static_cast<double>(cache.hits));
  add("cache_misses", static_cast<double>(cache.misses));
  add("cache_collisions", static_cast<double>(cache.collisions));
  add("cache_quarantined", static_cast<double>(cache.quarantined));
  add("cache_evicted_artifacts", static_cast<double>(cache.evicted_artifacts));
  add("cache_evicted_records", static_cast<double>(cache.evicted_records));
  add("cache_disk_bytes", static_cast<double>(cache.disk_bytes));
  add("cache_memory_bytes", static_cast<double>(cache.memory_bytes));
  add("cache_pending_records", static_cast<double>(cache.pending_records));
  add("cache_size_cap", static_cast<double>(cache.size_cap));
  for (const CacheStats::Family& family : cache.families) {
    add("family_" + family.name + "_entries", static_cast<double>(family.entries));
    add("family_" + family.name + "_bytes", static_cast<double>(family.bytes));
  }
  return reply;
}

Result<RecordRow> Admin::RowOf(const Record& record) {
  KernelUse use = HONE_TRY(cache_.UseOf(record.key.fingerprint));
  GetReply facts = ReplyFrom(record);
  RecordRow row;
  row.fingerprint = facts.fingerprint;
  row.class_name = facts.class_name;
  row.kernel = record.request;
  row.target = facts.target;
  row.origin = facts.origin;
  row.pinned = record.pinned;
  row.expected_us = facts.expected_us;
  row.artifact_bytes = record.artifact_digest ? record.artifact_bytes : 0;
  row.requests = use.calls;
  row.last_used_s = std::chrono::duration_cast<std::chrono::seconds>(use.last_used.time_since_epoch()).count();
  return row;
}

Result<void> Admin::List(const ListRequest& request, const Job& job) {
  ListReply part;
  bool listened = true;
  Error failure;
  bool failed = false;
  HONE_TRY(cache_.ForEachRecord(std::nullopt, [&](const Record& record) {
    if (!record.label.starts_with(request.class_prefix)) return true;
    Result<RecordRow> row = RowOf(record);
    if (!row) {
      failed = true;
      failure = row.error();
      return false;
    }
    part.rows.push_back(*std::move(row));
    if (part.rows.size() < kRowsPerPart) return true;
    part.more = true;
    listened = job.Part(part) && !stop_.stop_requested();
    part = {};
    return listened;
  }));
  if (failed) return failure;
  if (listened) job.Answer(ListReply::kType, EncodeBody(part));
  return {};
}

// The record for this machine if the kernel has one, else for another.
Result<Record> Admin::FindRecord(const std::string& fingerprint_digits) {
  Fingerprint fingerprint = HONE_TRY(cache_.Resolve(fingerprint_digits));
  std::vector<Record> records = HONE_TRY(cache_.RecordsOf(fingerprint));
  if (records.empty()) {
    return Error{ErrorKind::kNotFound, "there is no record of it; `hone ls` lists those there are", fingerprint_digits};
  }
  std::string host = PrintTarget(path_.host());
  auto ours = std::ranges::find_if(records, [&](const Record& record) { return record.key.target == host; });
  return std::move(ours != records.end() ? *ours : records.front());
}

Result<Record> Admin::FindRecordOf(const KernelName& name) {
  if (name.is_fingerprint) return FindRecord(name.kernel);
  const int threads = static_cast<int>(std::min(name.threads, 4096u));
  Identity identity = HONE_TRY(path_.Identify({.kernel = name.kernel, .target = "", .threads = threads}));
  return FindRecord(identity.key.fingerprint.Hex());
}

Result<ExplainReply> Admin::Explain(const ExplainRequest& request) {
  Record record = HONE_TRY(FindRecordOf(request.name));
  ExplainReply reply = HONE_TRY(insight_.Explain(record));
  reply.row = HONE_TRY(RowOf(record));
  std::vector<Fact> reasons = ReasonsOf(record, path_.host(), path_.compiler());
  reply.reasons.insert(reply.reasons.begin(), reasons.begin(), reasons.end());
  return reply;
}

Result<ShowReply> Admin::Show(const ShowRequest& request) {
  Record record = HONE_TRY(FindRecord(request.fingerprint));
  ShowReply reply;
  reply.row = HONE_TRY(RowOf(record));
  reply.canonical = record.key.canonical;
  reply.schedule = record.schedule;
  reply.facts = FactsOf(record);
  reply.reasons = ReasonsOf(record, path_.host(), path_.compiler());
  return reply;
}

Result<EditReply> Admin::Edit(const EditRequest& request) {
  if (facts_.inspects) {
    return Error{ErrorKind::kUnsupported, "a cache is only inspected with --cache; leave it out to ask the daemon",
                 facts_.cache};
  }
  Fingerprint fingerprint = HONE_TRY(cache_.Resolve(request.fingerprint));
  if (request.action == EditAction::kRemove) {
    HONE_TRY(cache_.Remove(fingerprint));
  } else {
    HONE_TRY(cache_.Pin(fingerprint, request.action == EditAction::kPin));
  }
  loop_.Post([this, fingerprint] { forget_(fingerprint); });  // before the reply, which is posted later
  return EditReply{fingerprint.Hex()};
}

VerifyRow Admin::VerifyRecord(const Record& record, bool run) {
  VerifyRow row;
  row.fingerprint = record.key.fingerprint.Hex();
  row.class_name = record.label;
  row.target = record.key.target;
  auto check = [&]() -> Result<void> {
    std::optional<std::vector<std::byte>> artifact = HONE_TRY(cache_.Artifact(record));
    if (!artifact) return Error{ErrorKind::kCorrupt, "its artifact is gone or damaged", ""};
    ArtifactExpectations expectations{.size = record.artifact_bytes, .digest = {}, .isa = {}, .features = {}};
    HONE_TRY(CheckArtifact(*artifact, expectations));
    if (!run) return {};
    auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    auto reference = HONE_TRY(workshop_.Prepare(record.key.canonical, deadline));
    SealedMemfd file = HONE_TRY(SealedMemfd::Create(*artifact));
    CheckOptions options;
    options.workers = record.key.threads;
    CheckReport report =
        HONE_TRY(CheckAllSizes(HONE_TRY(ParseKernel(record.key.canonical)), record.schedule, options,
                               [&](const CheckOptions& each) { return reference->Check(file, each, deadline); }));
    row.ran = true;
    row.max_rel_err = report.max_rel_err;
    if (report.failure) return *report.failure;
    return {};
  };
  Result<void> checked = check();
  row.ok = checked.has_value();
  if (!checked) row.problem = checked.error().Text();
  return row;
}

Result<void> Admin::Verify(const VerifyRequest& request, const Job& job) {
  // First the store as a whole: what cannot be read is set aside, and has no record to name it.
  VerifyReport report = HONE_TRY(cache_.Verify(stop_.get_token()));
  VerifyReply part;
  part.total = report.records;
  part.without_artifact = report.without_artifact;
  for (const std::string& finding : report.findings) {
    VerifyRow row;
    row.problem = finding;
    part.rows.push_back(std::move(row));
  }
  auto listens = [&] { return !job.peer->closed() && !stop_.stop_requested(); };
  HONE_TRY(cache_.ForEachRecord(std::nullopt, [&](const Record& record) {
    if (!record.artifact_digest) return listens();
    part.rows.push_back(VerifyRecord(record, request.run));
    if (part.rows.size() >= (request.run ? 1 : kRowsPerPart)) {
      part.more = true;
      if (!job.Part(part)) return false;
      part.rows.clear();
    }
    return listens();
  }));
  part.more = false;
  if (listens()) job.Answer(VerifyReply::kType, EncodeBody(part));
  return {};
}

Result<TextReply> Admin::Text(const TextRequest& request) {
  Record record = HONE_TRY(FindRecordOf(request.name));
  TextReply reply{record.key.fingerprint.Hex(), record.schedule};
  if (request.what == TextKind::kCode) {
    Target target = HONE_TRY(ParseTarget(record.key.target));
    reply.text = HONE_TRY(workshop_.Explain({record.key.canonical, record.schedule, target},
                                            std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  }
  return reply;
}

}  // namespace hone
