#include "daemon/admin.h"

#include <fmt/format.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backends/check_sizes.h"
#include "base/elf_check.h"
#include "base/generated_code.h"
#include "base/log.h"
#include "daemon/record_facts.h"
#include "ir/parse.h"
#include "ir/schedule.h"

namespace hone {
namespace {

// A part of a list ends with whatever of these comes first.
constexpr size_t kRowsPerPart = 128;
constexpr size_t kBytesPerPart = size_t{256} << 10;  // of rows, the last one aside
constexpr size_t kRecordsPerPart = 4096;             // looked at
constexpr size_t kReadPerPart = size_t{16} << 20;    // bytes of them, and of code

// Counts what a part has taken.
class PartBudget {
 public:
  void AddRead(size_t bytes) {
    ++records_;
    read_ += bytes;
  }
  void AddRow(size_t bytes) {
    ++rows_;
    bytes_ += bytes;
  }
  bool is_left() const {
    return rows_ < kRowsPerPart && bytes_ < kBytesPerPart && records_ < kRecordsPerPart && read_ < kReadPerPart;
  }

 private:
  size_t rows_ = 0, bytes_ = 0, records_ = 0, read_ = 0;
};

size_t BytesOf(const Record& record) {
  return record.key.canonical.size() + record.request.size() + record.schedule.size();
}

}  // namespace

Admin::Admin(EventLoop& loop, ScheduleCache& cache, AdminWorkshops workshops, RequestPath& path, Metrics& metrics,
             AdminFacts facts, std::function<void(const Fingerprint&)> forget)
    : loop_(loop),
      cache_(cache),
      workshops_(workshops),
      path_(path),
      metrics_(metrics),
      facts_(std::move(facts)),
      forget_(std::move(forget)),
      insight_(cache, path.host()),
      answers_(loop, metrics) {
  pthread_getcpuclockid(pthread_self(), &loop_cpu_clock_);  // made by the thread that will run the loop
}

Admin::~Admin() { Close(); }

void Admin::Close() {
  workshops_.own.Shutdown();  // ends what is asked of it
  answers_.Close();
}

template <typename Request>
std::optional<Request> Admin::Read(const PeerPtr& peer, uint64_t id, std::span<const std::byte> body) {
  Result<Request> request = DecodeBody<Request>(body);
  if (request) return *std::move(request);
  ++metrics_.bad_frames;
  peer->ReplyError(id, request.error());
  return std::nullopt;
}

template <typename Request, typename Reply>
void Admin::Once(Lane lane, const PeerPtr& peer, uint64_t id, std::span<const std::byte> body,
                 Result<Reply> (Admin::*answer)(const Request&)) {
  std::optional<Request> request = Read<Request>(peer, id, body);
  if (!request) return;
  answers_.Push(lane, peer, id, body.size(), [this, request = *std::move(request), answer](const std::stop_token&) {
    Result<Reply> reply = (this->*answer)(request);
    return reply ? AnswerPart::Of(*reply) : AnswerPart::Failed(reply.error());
  });
}

template <typename Request, typename Reply, typename Walk>
void Admin::InParts(Lane lane, const PeerPtr& peer, uint64_t id, std::span<const std::byte> body,
                    Result<Reply> (Admin::*next)(Walk&, const std::stop_token&)) {
  std::optional<Request> request = Read<Request>(peer, id, body);
  if (!request) return;
  Walk walk;
  walk.request = *std::move(request);
  answers_.Push(lane, peer, id, body.size(), [this, walk = std::move(walk), next](const std::stop_token& stop) mutable {
    Result<Reply> part = (this->*next)(walk, stop);
    return part ? AnswerPart::Of(*part, part->more) : AnswerPart::Failed(part.error());
  });
}

void Admin::Handle(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body) {
  const uint64_t id = header.request_id;
  switch (header.type) {
    case MessageType::kStatus: return Once(Lane::kQuick, peer, id, body, &Admin::Status);
    case MessageType::kHealth: return Once(Lane::kQuick, peer, id, body, &Admin::Health);
    case MessageType::kStats: return Once(Lane::kQuick, peer, id, body, &Admin::Stats);
    case MessageType::kShow: return Once(Lane::kQuick, peer, id, body, &Admin::Show);
    case MessageType::kEdit: return Once(Lane::kQuick, peer, id, body, &Admin::Edit);
    case MessageType::kTop: return Once(Lane::kQuick, peer, id, body, &Admin::Top);
    case MessageType::kList: return InParts<ListRequest>(Lane::kList, peer, id, body, &Admin::List);
    case MessageType::kVerify: return InParts<VerifyRequest>(Lane::kWork, peer, id, body, &Admin::Verify);
    case MessageType::kPredict: return Once(Lane::kWork, peer, id, body, &Admin::Predict);
    case MessageType::kExplain: return Once(Lane::kWork, peer, id, body, &Admin::Explain);
    default: break;
  }
  const bool is_code = !body.empty() && body.front() == static_cast<std::byte>(TextKind::kCode);
  if (is_code) return Once(Lane::kWork, peer, id, body, &Admin::Code);
  Once(Lane::kQuick, peer, id, body, &Admin::Schedule);
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
  reply.cache_problem = cache.not_persisting.empty() ? cache.problem : "nothing is kept: " + cache.not_persisting;
  for (const CacheStats::Family& family : cache.families) {
    if (family.name == "records") reply.records = family.entries;
  }
  reply.hits = metrics_.hits_memory + metrics_.hits_disk;
  reply.misses = metrics_.misses;
  reply.idle_state = "off";
  if (idle_facts_) std::tie(reply.idle_state, reply.tuning) = idle_facts_();
  reply.tuning = ShownText(reply.tuning);
  reply.builders = static_cast<uint32_t>(facts_.builders);
  reply.connections = metrics_.connections;
  reply.queued = metrics_.builds_queued;
  return reply;
}

Result<HealthReply> Admin::Health(const HealthRequest&) {
  HealthReply reply;
  const CacheStats cache = cache_.Stats();
  reply.losses = cache.losses;
  reply.quarantined = cache.quarantined;
  for (const Confinement& confinement : workshops_.serving.Confinements())
    reply.children.push_back({confinement.child, confinement.Text(), confinement.complete()});
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
  reply.kernel = ShownText(reply.kernel);
  for (TopTask& task : reply.tasks) task.kernel = ShownText(task.kernel);
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
  BuilderPoolStats builders = workshops_.serving.BuilderStats();
  add("builder_builds", static_cast<double>(builders.builds));
  add("builder_failed", static_cast<double>(builders.failed));
  add("builder_crashed", static_cast<double>(builders.crashed));
  add("builder_timed_out", static_cast<double>(builders.timed_out));
  add("builder_restarts", static_cast<double>(builders.restarts));
  RunnerPoolStats runners = workshops_.serving.RunnerStats();
  add("runner_checked", static_cast<double>(runners.checked));
  add("runner_refused", static_cast<double>(runners.refused));
  add("runner_restarts", static_cast<double>(runners.restarts));
  CacheStats cache = cache_.Stats();
  add("cache_hits", static_cast<double>(cache.hits));
  add("cache_misses", static_cast<double>(cache.misses));
  add("cache_collisions", static_cast<double>(cache.collisions));
  add("cache_quarantined", static_cast<double>(cache.quarantined));
  add("cache_losses", static_cast<double>(cache.losses));
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

Result<ListReply> Admin::List(ListWalk& walk, const std::stop_token& stop) {
  ListReply part;
  PartBudget budget;
  Result<void> read;
  const bool at_end = HONE_TRY(cache_.ForEachRecordAfter(walk.place, [&](const Record& record) {
    budget.AddRead(BytesOf(record));
    if (record.label.starts_with(walk.request.class_prefix)) {
      Result<KernelUse> use = cache_.UseOf(record.key.fingerprint);
      if (!use) {
        read = use.error();
        return false;
      }
      RecordRow row = RowOf(record, *use);
      row.kernel = ShownText(row.kernel);
      budget.AddRow(row.kernel.size() + row.class_name.size() + row.target.size());
      part.rows.push_back(std::move(row));
    }
    return budget.is_left() && !stop.stop_requested();
  }));
  HONE_TRY(read);
  part.more = !at_end;
  return part;
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
  reply.row = RowOf(record, HONE_TRY(cache_.UseOf(record.key.fingerprint)));
  std::vector<Fact> reasons = Reasons(record);
  reply.reasons.insert(reply.reasons.begin(), reasons.begin(), reasons.end());
  return reply;
}

std::vector<Fact> Admin::Reasons(const Record& record) const {
  ArtifactState artifact;
  artifact.is_ours = record.key.target == PrintTarget(path_.host());
  artifact.is_current = record.key.code == CodeKey(path_.compiler(), HONE_ABI_VERSION, path_.host());
  artifact.is_checked = cache_.IsCheckedHere(record);
  return ReasonsOf(record, artifact);
}

Result<ShowReply> Admin::Show(const ShowRequest& request) {
  Record record = HONE_TRY(FindRecord(request.fingerprint));
  ShowReply reply;
  reply.row = RowOf(record, HONE_TRY(cache_.UseOf(record.key.fingerprint)));
  reply.canonical = record.key.canonical;
  reply.schedule = InWordsOfToday(record.schedule);
  reply.facts = FactsOf(record);
  reply.reasons = Reasons(record);
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
    auto reference = HONE_TRY(workshops_.own.Prepare(record.key.canonical, deadline));
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

// The first part tells of the store as a whole: what cannot be read is set aside, and has no record to name it.
Result<VerifyReply> Admin::Verify(VerifyWalk& walk, const std::stop_token& stop) {
  VerifyReply part;
  part.more = true;
  if (!walk.has_looked) {
    VerifyReport report = HONE_TRY(cache_.Verify(stop));
    walk.has_looked = true;
    walk.records = report.records;
    walk.without_artifact = report.without_artifact;
    for (std::string& finding : report.findings) {
      VerifyRow row;
      row.problem = std::move(finding);
      part.rows.push_back(std::move(row));
    }
  } else {
    PartBudget budget;
    const bool at_end = HONE_TRY(cache_.ForEachRecordAfter(walk.place, [&](const Record& record) {
      budget.AddRead(BytesOf(record) + record.artifact_bytes);
      if (record.artifact_digest) {
        VerifyRow row = VerifyRecord(record, walk.request.run);
        budget.AddRow(row.problem.size() + row.class_name.size() + row.target.size());
        part.rows.push_back(std::move(row));
      }
      const bool has_run = walk.request.run && !part.rows.empty();
      return budget.is_left() && !has_run && !stop.stop_requested();
    }));
    part.more = !at_end;
  }
  part.total = walk.records;
  part.without_artifact = walk.without_artifact;
  return part;
}

Result<TextReply> Admin::Schedule(const TextRequest& request) {
  const Record record = HONE_TRY(FindRecordOf(request.name));
  return TextReply{record.key.fingerprint.Hex(), InWordsOfToday(record.schedule)};
}

Result<TextReply> Admin::Code(const TextRequest& request) {
  const Record record = HONE_TRY(FindRecordOf(request.name));
  const Target target = HONE_TRY(ParseTarget(record.key.target));
  std::string code = HONE_TRY(workshops_.own.Explain({record.key.canonical, record.schedule, target},
                                                     std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  return TextReply{record.key.fingerprint.Hex(), std::move(code)};
}

}  // namespace hone
