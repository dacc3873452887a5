#include "daemon/inspect/bundle_import.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/generated_code.h"
#include "base/log.h"
#include "daemon/serve/own_record.h"
#include "ir/language/canonical.h"
#include "ir/language/fingerprint.h"
#include "ir/language/parse.h"
#include "ir/schedule/schedule.h"
#include "ir/schedule/schedule_cases.h"
#include "ir/target.h"

namespace hone {
namespace {

constexpr size_t kRecordsPerPart = 256;

bool IsPrintable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

// The kernel of the record: what was asked for where that is the same kernel, or else, since what was asked for is then
// nobody's words, what its canonical text says. kInvalid: that is not canonical, or no kernel.
Result<Kernel> KernelOf(Record& record, Canonical& canonical) {
  if (record.request != record.key.canonical) {
    if (Result<Kernel> asked = ParseKernel(record.request)) {
      asked->options.threads = ThreadsSaidBy(record.key.canonical);
      canonical = Canonicalize(*asked);
      if (canonical.text == record.key.canonical) return asked;
    }
    record.request = record.key.canonical;
  }
  Kernel kernel = HONE_TRY(ParseKernel(record.key.canonical));
  canonical = Canonicalize(kernel);
  if (canonical.text != record.key.canonical) return Error{ErrorKind::kInvalid, "its text is not canonical", ""};
  return kernel;
}

// The record as this honed would have made it, whatever the bundle says: names follow from texts, texts are those of
// today. Errors: why it cannot be one of ours.
Result<void> Adopt(BundleEntry& entry) {
  Record& record = entry.record;
  Target target = HONE_TRY(ParseTarget(record.key.target));
  record.key.target = PrintTarget(target);
  Canonical canonical;
  const Kernel kernel = HONE_TRY(KernelOf(record, canonical));
  if (canonical.class_text != entry.class_text || canonical.shape != record.shape)
    return Error{ErrorKind::kInvalid, "its class or shape is not that of its text", ""};
  if (FingerprintOf(canonical) != record.key.fingerprint ||
      ClassFingerprintOf(canonical) != record.key.class_fingerprint)
    return Error{ErrorKind::kInvalid, "its fingerprint is not that of its text", ""};
  if (record.key.threads < 1 || kernel.options.threads != ThreadsToSay(record.key.threads, target.cores()))
    return Error{ErrorKind::kInvalid, "its text and its key name different numbers of threads", ""};
  if (record.schedule.empty()) return Error{ErrorKind::kInvalid, "it has no schedule", ""};
  if (IsStatic(kernel))
    HONE_TRY(ParseSchedule(record.schedule));
  else
    HONE_TRY(ParseScheduleCases(record.schedule));
  if (!IsPrintable(record.label)) record.label = "kernel";
  return {};
}

// Which of two records of one kernel is worth more; equal: the one that is there stays.
int RankOf(Origin origin) { return origin == Origin::kTuned || origin == Origin::kImported ? 1 : 0; }

// Why what is there stays; "" if it makes room.
std::string WhyKept(const Record& there, const Record& incoming) {
  if (there.pinned) return "it is pinned";
  if (there.origin == Origin::kTuned) return "it was tuned here";
  if (there.origin != Origin::kImported)
    return RankOf(incoming.source->origin) > 0 ? "" : "it was made here, and this one was not tuned either";
  if (!there.source) return "";
  const bool is_same = IsSameSchedule(there.schedule, incoming.schedule);
  if (is_same && (there.artifact_digest || !incoming.artifact_digest) && (there.source->key || !incoming.source->key))
    return "it is the same";
  if (there.source->key && !incoming.source->key) return "it came from a trusted key, and this one did not";
  if (!there.source->key && incoming.source->key) return "";
  // Of one source the newer one; of several the faster, as far as one can tell.
  if (there.source->bundle == incoming.source->bundle && there.source->key && there.source->key == incoming.source->key)
    return incoming.source->version > there.source->version ? "" : "it is newer";
  if (!there.source->times_elsewhere) return "it has run here, and this one has not";
  if (there.measured && incoming.measured && incoming.measured->time < there.measured->time) return "";
  return "nothing shows that this one is faster";
}

std::string_view VouchedName(Vouched vouched) {
  switch (vouched) {
    case Vouched::kUnsigned: return "unsigned";
    case Vouched::kUnknown: return "unknown";
    case Vouched::kKnown: return "known";
  }
  return "?";
}

}  // namespace

Result<BundleImport> BundleImport::Open(ReadOnlyMapping bytes, const TrustedKeys& keys, ScheduleCache& cache,
                                        const Devices& devices, WallTime now) {
  BundleImport import(std::move(bytes), cache, devices);
  import.bundle_ = HONE_TRY(Bundle::Open(import.bytes_.bytes()));
  import.judgement_ = HONE_TRY(keys.Judge(*import.bundle_, now));
  if (import.judgement_.vouched == Vouched::kKnown) HONE_TRY(import.FollowsLast());
  HONE_TRY(import.bundle_->CheckFrames());
  HONE_TRY(import.Read());
  return import;
}

std::string BundleImport::PredecessorName() const {
  return fmt::format("bundle {} {}", HexOf(*bundle_->signer()), bundle_->manifest().name);
}

Result<void> BundleImport::FollowsLast() const {
  std::optional<std::string> last = HONE_TRY(cache_->GetMeta(PredecessorName()));
  return last ? CheckFollows(*bundle_, HONE_TRY(DecodePredecessor(*last))) : Result<void>();
}

Result<void> BundleImport::Read() {
  const bool takes_code = judgement_.Allows(kArtifacts);
  why_left_ = judgement_.vouched == Vouched::kUnsigned  ? "the bundle is not signed"
              : judgement_.vouched == Vouched::kUnknown ? "no trusted key signed the bundle"
                                                        : "the key's roles do not include artifacts";
  planned_.reserve(bundle_->manifest().records);
  return bundle_->ForEachEntry([&](BundleEntry&& entry) -> Result<void> {
    if (takes_code && entry.record.artifact_digest) HONE_TRY(bundle_->Artifact(*entry.record.artifact_digest));
    if (Result<void> adopted = Adopt(entry); !adopted) {
      const Record& record = entry.record;
      const std::string label = IsPrintable(record.label) ? record.label : "kernel";
      planned_.emplace_back(
          ImportRow{record.key.fingerprint.Hex(), label, record.key.target, "refused", adopted.error().Text()});
      return {};
    }
    planned_.emplace_back(std::move(entry));
    return {};
  });
}

Result<ImportRow> BundleImport::Take(const BundleEntry& entry, Durability durability) {
  Record record = entry.record;
  ImportRow row{record.key.fingerprint.Hex(), record.label, record.key.target, "added", ""};
  std::optional<Digest256> key;
  if (judgement_.Allows(kSchedules)) key = judgement_.key->key;
  record.source = RecordSource{bundle_->manifest().name, bundle_->manifest().version, key, record.origin, true};
  record.origin = Origin::kImported;
  record.donor.reset();
  record.created = {};
  // Code is of use only if this honed would build it the same way.
  std::optional<std::vector<std::byte>> code;
  if (record.artifact_digest) {
    const Target target = HONE_TRY(ParseTarget(record.key.target));
    const ServedDevice* device = devices_->OfKind(target.kind());
    if (!judgement_.Allows(kArtifacts)) {
      ++artifacts_left_;
    } else if (device == nullptr) {
      ++artifacts_left_;
      why_left_ = "no device of its kind is served here";
    } else if (record.key.code != CodeKey(device->compiler, HONE_ABI_VERSION, target)) {
      ++artifacts_left_;
      why_left_ = "another version of hone built it";
    } else {
      code = HONE_TRY(bundle_->Artifact(*record.artifact_digest));
    }
    if (!code) record.artifact_digest.reset();
  }
  NewRecord stored{record, entry.class_text, std::nullopt};
  if (code) stored.artifact = *code;
  stored.check = ArtifactCheck::kTrusted;
  std::optional<Record> own;  // that has run here, and makes room
  stored.admits = [&](const Record* there) -> Result<void> {
    if (there == nullptr) return {};
    row.why = WhyKept(*there, record);
    row.fate = row.why.empty() ? "replaced" : "kept";
    if (row.why.empty() && HasRunHere(*there) && !IsSameSchedule(there->schedule, record.schedule)) own = *there;
    return row.why.empty() ? Result<void>() : Error{ErrorKind::kUnsupported, row.why, record.label};
  };
  Result<void> put = cache_->Put(stored, durability);
  if (!put && put.error().kind == ErrorKind::kUnsupported) {
    row.fate = "kept";
    row.why = put.error().message;
    return row;
  }
  HONE_TRY(std::move(put));
  if (own) KeepOwnRecord(*cache_, *std::move(own));
  artifacts_ += code ? 1 : 0;
  const auto time = record.measured ? record.measured->time : record.expected.value_or(std::chrono::nanoseconds(0));
  const double worth = (static_cast<double>(entry.calls) + 1) * (static_cast<double>(time.count()) + 1);
  changed_.push_back({record.key.fingerprint, record.key.target, worth});
  return row;
}

Result<ImportReply> BundleImport::Next() {
  ImportReply reply;
  const size_t end = std::min(planned_.size(), next_ + kRecordsPerPart);
  const size_t begin = next_;
  auto stopped = [&](Error error) {
    error.message =
        fmt::format("{} of the bundle's {} records are in, and import goes on there when it is repeated: {}", begin,
                    planned_.size(), error.message);
    return error;
  };
  for (; next_ < end; ++next_) {
    if (ImportRow* refused = std::get_if<ImportRow>(&planned_[next_])) {
      reply.rows.push_back(std::move(*refused));
      continue;
    }
    Result<ImportRow> row = Take(std::get<BundleEntry>(planned_[next_]), Durability::kSoon);
    if (!row) return stopped(std::move(row).error());
    reply.rows.push_back(*std::move(row));
  }
  reply.more = next_ < planned_.size();
  // What the part stored is on disk with this: all writes go through one log, in order.
  const BundleManifest& manifest = bundle_->manifest();
  const bool is_newest = judgement_.vouched == Vouched::kKnown && !reply.more && FollowsLast().has_value();
  Result<void> synced =
      is_newest ? cache_->PutMeta(PredecessorName(), EncodePredecessor(PredecessorOf(*bundle_)), Durability::kSynced)
                : cache_->PutMeta("importing", manifest.name, Durability::kSynced);
  if (!synced) return stopped(std::move(synced).error());
  reply.bundle = manifest.name;
  reply.version = manifest.version;
  reply.vouched = VouchedName(judgement_.vouched);
  if (judgement_.key) reply.key = judgement_.key->name;
  reply.total = manifest.records;
  reply.artifacts = artifacts_;
  reply.artifacts_left = artifacts_left_;
  if (artifacts_left_ > 0) reply.why_left = why_left_;
  if (!reply.more)
    LogInfo("imported", {{"bundle", manifest.name},
                         {"version", manifest.version},
                         {"vouched", reply.vouched},
                         {"records", manifest.records},
                         {"artifacts", artifacts_}});
  return reply;
}

}  // namespace hone
