// What goes into bundles, and what comes out of them.
#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "daemon/inspect/bundle_import.h"
#include "daemon/routes.h"
#include "ir/target.h"

namespace hone {
namespace {

// A part of an export ends with whatever of these comes first.
constexpr size_t kRowsPerPart = 256;
constexpr size_t kBytesPerPart = size_t{1} << 20;  // the last row aside
constexpr size_t kRecordsPerPart = 4096;           // looked at

bool IsSelected(const ExportRequest& request, const Record& record) {
  auto begins = [&](const std::string& beginning) {
    return record.label.starts_with(beginning) || record.key.fingerprint.Hex().starts_with(beginning);
  };
  auto is_for = [&](const std::string& text) {
    const std::string& target = record.key.target;
    if (target == text || target.starts_with(text + " ")) return true;
    if (target.starts_with(TargetInWordsOfToday(text) + " ")) return true;  // "avx512" for "cpu avx512"
    const Result<Target> same = ParseTarget(text);
    return same && target == PrintTarget(*same);
  };
  return (request.selection.empty() || std::ranges::any_of(request.selection, begins)) &&
         (request.targets.empty() || std::ranges::any_of(request.targets, is_for));
}

Result<ExportRow> RowOf(Admin& admin, Record record, const std::string& class_text, bool with_artifacts) {
  ExportRow row;
  row.class_text = class_text;
  row.calls = HONE_TRY(admin.cache.UseOf(record.key.fingerprint)).calls;
  std::optional<std::vector<std::byte>> code;
  if (with_artifacts && admin.cache.IsCheckedHere(record)) code = HONE_TRY(admin.cache.Artifact(record));
  if (code)
    row.artifact = AsText(*code);
  else
    record.artifact_digest.reset(), record.artifact_bytes = 0;
  record.mark.reset();
  record.source.reset();
  record.pinned = false;
  row.record = EncodeRecord(record);
  return row;
}

// Targets by their devices' names as their texts.
Result<ExportRequest> WithWholeTargets(const Admin& admin, ExportRequest request) {
  for (std::string& text : request.targets)
    if (std::optional<Target> named = HONE_TRY(admin.path.devices().Named(text))) text = PrintTarget(*named);
  return request;
}

struct ExportWalk {
  ExportRequest request;
  std::string place{};
  std::map<Fingerprint, std::string> class_texts{};
};

Result<ExportReply> NextOfExport(Admin& admin, ExportWalk& walk, const std::stop_token& stop) {
  ExportReply part;
  size_t bytes = 0, looked = 0;
  Result<void> read;
  if (walk.class_texts.empty())
    for (const ClassSummary& summary : HONE_TRY(admin.cache.Classes()))
      walk.class_texts.emplace(summary.info.fingerprint, summary.info.class_text);
  const bool at_end = HONE_TRY(admin.cache.ForEachRecordAfter(walk.place, [&](const Record& record) {
    ++looked;
    auto class_text = walk.class_texts.find(record.key.class_fingerprint);
    if (IsSelected(walk.request, record) && class_text != walk.class_texts.end()) {
      Result<ExportRow> row = RowOf(admin, record, class_text->second, walk.request.with_artifacts);
      if (!row) {
        read = row.error();
        return false;
      }
      bytes += row->record.size() + row->class_text.size() + row->artifact.size();
      part.rows.push_back(*std::move(row));
    }
    return part.rows.size() < kRowsPerPart && bytes < kBytesPerPart && looked < kRecordsPerPart &&
           !stop.stop_requested();
  }));
  HONE_TRY(read);
  part.more = !at_end;
  return part;
}

Result<BundleImport> OpenImport(Admin& admin, const ImportRequest& request) {
  ReadOnlyMapping bytes = HONE_TRY(admin.uploads.Take(request.upload));
  TrustedKeys keys = HONE_TRY(TrustedKeys::Read(admin.key_directories));
  if (!request.trust.empty()) keys.Add(HONE_TRY(DecodeKeyFile(request.trust, "--trust")));
  return BundleImport::Open(std::move(bytes), keys, admin.cache, admin.path.devices(), Clock::Real().WallNow());
}

// An import, part by part. What it has stored is made ready when all is in, and thus in the order of its worth; or when
// no part follows: its client has gone, or honed could not go on.
class PartedImport {
 public:
  PartedImport(Admin& admin, const ImportRequest& request) : admin_(admin), request_(request) {}
  ~PartedImport() { GetReady(); }
  PartedImport(const PartedImport&) = delete;
  PartedImport& operator=(const PartedImport&) = delete;

  Result<ImportReply> Next() {
    if (!import_) import_ = HONE_TRY(OpenImport(admin_, request_));
    const size_t before = import_->changed().size();
    Result<ImportReply> reply = import_->Next();
    // Before the reply, which is posted later.
    admin_.ForgetSoon({import_->changed().begin() + static_cast<std::ptrdiff_t>(before), import_->changed().end()});
    if (!reply || !reply->more) GetReady();
    return reply;
  }

 private:
  void GetReady() {
    if (!import_ || std::exchange(is_handed_over_, true) || !admin_.get_ready) return;
    try {
      admin_.loop.Post([&admin = admin_, all = import_->changed()] { admin.get_ready(all); });
    } catch (const std::bad_alloc&) {  // then when it is asked for
    }
  }

  Admin& admin_;
  const ImportRequest request_;
  std::optional<BundleImport> import_;
  bool is_handed_over_ = false;
};

Error OnlyInspected(const Admin& admin) {
  return {ErrorKind::kUnsupported, "a cache is only inspected with --cache; leave it out to ask the daemon",
          admin.facts.cache};
}

}  // namespace

NextPart<ExportReply> AnswerExport(Admin& admin, const ExportRequest& request) {
  return [&admin, walk = ExportWalk{request},
          is_named = false](const std::stop_token& stop) mutable -> Result<ExportReply> {
    if (!std::exchange(is_named, true)) walk.request = HONE_TRY(WithWholeTargets(admin, std::move(walk.request)));
    return NextOfExport(admin, walk, stop);
  };
}

Result<UploadReply> AnswerUpload(Admin& admin, const UploadRequest& request) {
  if (admin.facts.inspects) return OnlyInspected(admin);
  return admin.uploads.Add(request, admin.facts.cache);
}

NextPart<ImportReply> AnswerImport(Admin& admin, const ImportRequest& request) {
  // Shared, because it cannot be copied and std::function wants to.
  auto import = std::make_shared<PartedImport>(admin, request);
  return [&admin, import](const std::stop_token&) -> Result<ImportReply> {
    if (admin.facts.inspects) return OnlyInspected(admin);
    return import->Next();
  };
}

}  // namespace hone
