// What there is to tell of the cache's records, and to do with them.
#include <algorithm>
#include <chrono>
#include <utility>

#include "backends/processes/check_sizes.h"
#include "backends/registry.h"
#include "daemon/inspect/record_facts.h"
#include "daemon/routes.h"
#include "ir/language/parse.h"
#include "ir/schedule/schedule.h"

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

// Where a walk through the records is. It holds nothing of the cache while its client reads.
struct ListWalk {
  ListRequest request;
  bool for_others = false;
  std::string place{};
};
struct VerifyWalk {
  VerifyRequest request;
  std::string place{};
  bool has_looked = false;  // at the store as a whole
  uint64_t records = 0, without_artifact = 0;
};

Result<ListReply> NextOfList(Admin& admin, ListWalk& walk, const std::stop_token& stop) {
  ListReply part;
  PartBudget budget;
  Result<void> read;
  const bool at_end = HONE_TRY(admin.cache.ForEachRecordAfter(walk.place, [&](const Record& record) {
    budget.AddRead(BytesOf(record));
    // A name that somebody gave to a kernel is not for others, who could find it letter by letter.
    if (walk.for_others ? walk.request.class_prefix.empty() : record.label.starts_with(walk.request.class_prefix)) {
      Result<KernelUse> use = admin.cache.UseOf(record.key.fingerprint);
      if (!use) {
        read = use.error();
        return false;
      }
      RecordRow row = walk.for_others ? RowForOthers(record) : RowOf(record, *use);
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

VerifyRow VerifyRecord(Admin& admin, const Record& record, bool run) {
  VerifyRow row;
  row.fingerprint = record.key.fingerprint.Hex();
  row.class_name = record.label;
  row.target = record.key.target;
  auto check = [&]() -> Result<void> {
    std::optional<std::vector<std::byte>> artifact = HONE_TRY(admin.cache.Artifact(record));
    if (!artifact) return Error{ErrorKind::kCorrupt, "its artifact is gone or damaged", ""};
    const Target target = HONE_TRY(ParseTarget(record.key.target));
    HONE_TRY(HONE_TRY(BackendOf(target))->OpenArtifact(*artifact, record.artifact_bytes));
    if (!run || !IsChecked(target)) return {};
    if (!admin.path.devices().Choose(record.key.target)) return {};  // a device checked it that is not here
    auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    auto reference = HONE_TRY(admin.own.Prepare(record.key.canonical, target, deadline));
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
Result<VerifyReply> NextOfVerify(Admin& admin, VerifyWalk& walk, const std::stop_token& stop) {
  VerifyReply part;
  part.more = true;
  if (!walk.has_looked) {
    VerifyReport report = HONE_TRY(admin.cache.Verify(stop));
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
    const bool at_end = HONE_TRY(admin.cache.ForEachRecordAfter(walk.place, [&](const Record& record) {
      budget.AddRead(BytesOf(record) + record.artifact_bytes);
      if (record.artifact_digest) {
        VerifyRow row = VerifyRecord(admin, record, walk.request.run);
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

}  // namespace

NextPart<ListReply> AnswerList(Admin& admin, const ListRequest& request) {
  return
      [&admin, walk = ListWalk{request}](const std::stop_token& stop) mutable { return NextOfList(admin, walk, stop); };
}

NextPart<ListReply> AnswerForOthers(Admin& admin, const ListRequest& request) {
  return [&admin, walk = ListWalk{request, true}](const std::stop_token& stop) mutable {
    return NextOfList(admin, walk, stop);
  };
}

NextPart<VerifyReply> AnswerVerify(Admin& admin, const VerifyRequest& request) {
  return [&admin, walk = VerifyWalk{request}](const std::stop_token& stop) mutable {
    return NextOfVerify(admin, walk, stop);
  };
}

Result<ShowReply> AnswerShow(Admin& admin, const ShowRequest& request) {
  Record record = HONE_TRY(admin.FindRecord(request.fingerprint));
  ShowReply reply;
  reply.row = RowOf(record, HONE_TRY(admin.cache.UseOf(record.key.fingerprint)));
  reply.canonical = record.key.canonical;
  reply.schedule = InWordsOfToday(record.schedule);
  reply.facts = FactsOf(record);
  reply.reasons = admin.ReasonsFor(record);
  return reply;
}

Result<ShowReply> AnswerForOthers(Admin& admin, const ShowRequest& request) {
  const Record record = HONE_TRY(admin.FindRecord(request.fingerprint));
  ShowReply reply;
  reply.row = RowForOthers(record);
  reply.canonical = record.key.canonical;
  return reply;
}

Result<EditReply> AnswerEdit(Admin& admin, const EditRequest& request) {
  if (admin.facts.inspects) {
    return Error{ErrorKind::kUnsupported, "a cache is only inspected with --cache; leave it out to ask the daemon",
                 admin.facts.cache};
  }
  Fingerprint fingerprint = HONE_TRY(admin.cache.Resolve(request.fingerprint));
  if (request.action == EditAction::kRemove) {
    HONE_TRY(admin.cache.Remove(fingerprint));
  } else {
    HONE_TRY(admin.cache.Pin(fingerprint, request.action == EditAction::kPin));
  }
  if (request.action != EditAction::kUnpin && admin.end_search) admin.end_search(fingerprint);
  admin.loop.Post([&admin, fingerprint] { admin.forget(fingerprint); });  // before the reply, which is posted later
  return EditReply{fingerprint.Hex()};
}

}  // namespace hone
