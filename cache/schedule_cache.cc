// Serving: lookups and writes. Every read goes through the layers; a value that does not decode is set aside and
// the next layer asked.
#include "cache/schedule_cache.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/envelope.h"
#include "base/file.h"
#include "base/log.h"
#include "cache/cache_impl.h"
#include "ir/schedule/schedule.h"

namespace hone {
namespace {

constexpr uint8_t kArtifactVersion = 1;
constexpr uint8_t kMetaVersion = 1;
constexpr uint8_t kHiddenVersion = 1;
constexpr size_t kMostSaid = 100;  // lines about damaged values
constexpr size_t kMostWaiting = 1'000;

bool SameIdentity(const CacheKey& a, const CacheKey& b) {
  return a.canonical == b.canonical && a.target == b.target && a.threads == b.threads;
}

bool HasTimesElsewhere(const Record& record) { return record.source && record.source->times_elsewhere; }

// What was measured and compared here of a schedule, in the place of what another machine says of the same one.
void KeepOwnFindings(const Record& old, Record& record) {
  if (!HasTimesElsewhere(record) || HasTimesElsewhere(old) || (!old.measured && !old.expected)) return;
  record.measured = old.measured;
  record.expected = old.expected;
  record.check = old.check;
  record.source->times_elsewhere = false;
}

// A newer hone wrote the value.
template <typename Value>
bool IsNewer(const Result<Value>& decoded) {
  return !decoded && decoded.error().kind == ErrorKind::kUnsupported;
}

Error NoSuchKernel(const Fingerprint& fingerprint) {
  return Error{ErrorKind::kNotFound, fmt::format("no record of kernel {}; see `hone ls`", fingerprint.Hex()), ""};
}

}  // namespace

Result<std::unique_ptr<ScheduleCache>> ScheduleCache::Open(CacheOptions options) {
  std::unique_ptr<LayeredStore> store = HONE_TRY(LayeredStore::Open(options));
  Result<SecretKey> key = RandomSecretKey();
  if (!options.directory.empty()) key = OpenSecretKey(store->directory(), !options.inspect);
  if (!key && !options.inspect)
    LogWarn("cache_key", {{"error", key.error().Text()}, {"then", "code is compiled again after each start"}});
  return std::make_unique<CacheImpl>(std::move(options), std::move(store), key ? *key : RandomSecretKey());
}

CacheImpl::CacheImpl(CacheOptions options, std::unique_ptr<LayeredStore> store, const SecretKey& key)
    : options_(std::move(options)), key_(key), store_(std::move(store)) {
  quarantined_ = StoredQuarantineCount();
  ReadLosses();
  KeepLosses();
  MergeTwins();
  if (!options_.inspect) upkeep_ = std::jthread([this](std::stop_token stop) { Upkeep(std::move(stop)); });
}

CacheImpl::~CacheImpl() {
  upkeep_.request_stop();
  if (upkeep_.joinable()) upkeep_.join();
  if (!options_.inspect) (void)WriteUses();
}

void CacheImpl::LogOnce(std::string_view event, Family family, std::string_view key, const Error& reason) {
  bool last = false;
  {
    MutexLock lock(notes_mutex_);
    if (said_.size() >= kMostSaid || !said_.emplace(key).second) return;
    last = said_.size() == kMostSaid;
  }
  LogWarn(event, {{"family", NameOf(family)}, {"key", HexOf(key)}, {"reason", reason.message}});
  if (last) LogWarn(event, {{"further", "are counted, and not logged"}});
}

void CacheImpl::SetAside(Family family, std::string_view key, std::optional<std::string_view> value, CacheLayer layer,
                         const Error& reason) {
  if (reason.kind == ErrorKind::kUnsupported) return LogOnce("cache_newer", family, key, reason);
  LogOnce("cache_quarantine", family, key, reason);
  if (layer == CacheLayer::kSystem || options_.inspect) return;
  MutexLock lock(notes_mutex_);
  for (const Damaged& waiting : damaged_)
    if (waiting.family == family && waiting.key == key) return;
  if (damaged_.size() >= kMostWaiting) return;  // met again later
  std::optional<std::string> copy;
  if (value) copy.emplace(*value);
  damaged_.push_back({family, std::string(key), std::move(copy), layer, reason});
}

CacheImpl::Opened CacheImpl::Open(Family family, std::string_view key, std::string_view value, CacheLayer layer) {
  Result<ValueType> type = SealedType(value);
  if (type && *type == ValueType::kHidden && Unseal(ValueType::kHidden, kHiddenVersion, value))
    return {Take::kTaken, {}, {}};
  Result<Record> record = DecodeRecord(value);
  if (record && RecordKey(record->key) != key)
    record = Error{ErrorKind::kCorrupt, "the record belongs under another key", ""};
  if (record) return {Take::kTaken, *std::move(record), {}};
  if (record.error().kind == ErrorKind::kUnsupported) {
    LogOnce("cache_newer", family, key, record.error());
    return {Take::kTryNextLayer, {}, {}};
  }
  SetAside(family, key, value, layer, record.error());
  return {Take::kTryNextLayer, {}, std::move(record).error()};
}

bool CacheImpl::HasNewer(Family family, const std::string& key) {
  bool is_newer = false;
  store_->Read(family, key, [&](std::string_view, std::string_view value, CacheLayer layer) {
    is_newer = layer != CacheLayer::kSystem &&
               (family == Family::kRecords ? IsNewer(DecodeRecord(value)) : IsNewer(DecodeKernelUse(value)));
    return Take::kTaken;
  });
  return is_newer;
}

std::optional<CacheImpl::Found> CacheImpl::FindRecord(const std::string& key, bool* unreadable) {
  std::optional<Found> found;
  const bool sound =
      store_->Read(Family::kRecords, key, [&](std::string_view, std::string_view value, CacheLayer layer) {
        Opened opened = Open(Family::kRecords, key, value, layer);
        if (opened.record) found = Found{key, *std::move(opened.record), layer};
        return opened.take;
      });
  if (unreadable) *unreadable = !sound && !found;
  return found;
}

Result<std::optional<CacheHit>> CacheImpl::Lookup(const CacheKey& key, Counting counting) {
  std::optional<Found> found = FindRecord(RecordKey(key));
  if (found && !SameIdentity(found->record.key, key)) {
    ++collisions_;
    LogOnce("cache_collision", Family::kRecords, found->key,
            Error{ErrorKind::kInternal, "equal fingerprints of different kernels; served as a miss", ""});
    found.reset();
  }
  if (!found) {
    ++misses_;
    return std::nullopt;
  }
  ++hits_;
  if (counting == Counting::kAsUse) NoteUse(key.fingerprint, key.class_fingerprint, 1);
  const ArtifactCheck check = found->record.key.code == key.code ? CheckOf(found->record) : ArtifactCheck::kNone;
  return CacheHit{std::move(found->record), found->layer, check == ArtifactCheck::kHere,
                  check == ArtifactCheck::kTrusted};
}

Result<std::optional<std::vector<std::byte>>> CacheImpl::Artifact(const Record& record) {
  std::optional<std::vector<std::byte>> artifact;
  if (!record.artifact_digest) return artifact;
  std::string key = RecordKey(record.key);
  bool sound = store_->Read(Family::kArtifacts, key, [&](std::string_view, std::string_view value, CacheLayer layer) {
    // The digest is checked; the checksum then tells whether the value is damaged or belongs to another version.
    Result<std::string_view> body = UnsealUnchecked(ValueType::kArtifact, kArtifactVersion, value);
    bool matches = body && Hash256(*body) == *record.artifact_digest;
    if (!matches && body) body = Unseal(ValueType::kArtifact, kArtifactVersion, value);
    if (!body) {
      if (body.error().kind == ErrorKind::kUnsupported)
        LogOnce("cache_newer", Family::kArtifacts, key, body.error());
      else
        SetAside(Family::kArtifacts, key, value, layer, body.error());
      return Take::kTryNextLayer;
    }
    if (!matches) return Take::kTryNextLayer;
    std::span<const std::byte> bytes = AsBytes(*body);
    artifact.emplace(bytes.begin(), bytes.end());
    return Take::kTaken;
  });
  if (!sound && !artifact)
    SetAside(Family::kArtifacts, key, std::nullopt, CacheLayer::kUser,
             Error{ErrorKind::kCorrupt, "the artifact's bytes cannot be read", ""});
  return artifact;
}

void CacheImpl::Distrust(std::optional<std::set<Digest256>> keys) {
  auto distrusted = keys ? std::make_shared<const std::set<Digest256>>(*std::move(keys)) : nullptr;
  MutexLock lock(distrust_mutex_);
  distrusted_ = std::move(distrusted);
}

bool CacheImpl::IsDistrusted(const Record& record) const {
  if (!record.source || !record.source->key) return false;
  std::shared_ptr<const std::set<Digest256>> distrusted;
  {
    MutexLock lock(distrust_mutex_);
    distrusted = distrusted_;
  }
  return distrusted == nullptr || distrusted->contains(*record.source->key);
}

bool CacheImpl::IsCheckedHere(const Record& record) const {
  return record.artifact_digest && IsMarkedBy(record, key_) && !IsDistrusted(record);
}

ArtifactCheck CacheImpl::CheckOf(const Record& record) const {
  if (IsCheckedHere(record)) return ArtifactCheck::kHere;
  if (IsDistrusted(record)) return ArtifactCheck::kNone;
  const bool is_trusted = record.artifact_digest && IsMarkedToCheckBy(record, key_);
  return is_trusted ? ArtifactCheck::kTrusted : ArtifactCheck::kNone;
}

std::string CacheImpl::Encoded(Record& record, ArtifactCheck check) const {
  record.mark.reset();
  if (check == ArtifactCheck::kHere && record.artifact_digest) Mark(record, key_);
  if (check == ArtifactCheck::kTrusted && record.artifact_digest) MarkToCheck(record, key_);
  return EncodeRecord(record);
}

void CacheImpl::AddIndexRows(const Record& record, std::string_view class_text, StoreBatch& batch) {
  auto present = [&](const std::string& key, bool has_text) {
    bool found = false;
    store_->Read(Family::kKernels, key, [&](std::string_view, std::string_view value, CacheLayer layer) {
      found = layer != CacheLayer::kSystem;  // the system layer may go away
      if (const Result<ClassInfo> info = DecodeClass(value); has_text && info) found &= !info->class_text.empty();
      return Take::kTaken;
    });
    return found;
  };
  if (std::string key = ClassKey(record.key.class_fingerprint); !present(key, !class_text.empty()))
    batch.Put(Family::kKernels, key,
              EncodeClass({record.key.class_fingerprint, record.label, std::string(class_text)}));
  if (std::string key = UseKey(record.key.fingerprint); !present(key, false))
    batch.Put(Family::kKernels, key, EncodeKernelUse({record.key.class_fingerprint, 0, options_.clock->WallNow()}));
}

Result<void> CacheImpl::Put(const NewRecord& entry, Durability durability) {
  HONE_TRY(CheckRecord(entry.record));
  Record record = entry.record;
  std::string key = RecordKey(record.key);
  StoreBatch batch;
  MutexLock lock(store_->write_mutex());
  bool unreadable = false;
  std::optional<Found> found = FindRecord(key, &unreadable);
  // What damage hides may be better than a served miss, or pinned: it stays if it can be had back.
  if (unreadable && store_->Mend()) {
    found = FindRecord(key);
    if (found && SameIdentity(found->record.key, record.key) && durability == Durability::kSoon) return {};
  }
  if ((!found || found->layer == CacheLayer::kSystem) && HasNewer(Family::kRecords, key))
    return Error{ErrorKind::kUnsupported, "a newer hone's record is in its place, and stays: upgrade hone",
                 record.label};
  const Record* old = found && SameIdentity(found->record.key, record.key) ? &found->record : nullptr;
  if (entry.admits) HONE_TRY(entry.admits(old));
  record.updated = options_.clock->WallNow();
  if (old)
    record.created = old->created;
  else if (record.created == WallTime())
    record.created = record.updated;
  record.pinned |= old && old->pinned;
  if (old && IsSameSchedule(old->schedule, record.schedule)) KeepOwnFindings(*old, record);
  if (IsDistrusted(record)) record.source->key.reset();  // what is known of its code now, this cache found out
  ArtifactCheck check = entry.artifact ? entry.check : ArtifactCheck::kNone;
  if (entry.artifact) {
    record.artifact_digest = Hash256(*entry.artifact);
    record.artifact_bytes = entry.artifact->size();
    batch.Put(Family::kArtifacts, key, Seal(ValueType::kArtifact, kArtifactVersion, AsText(*entry.artifact)));
  } else if (old && IsSameSchedule(old->schedule, record.schedule) && old->key.code == record.key.code) {
    record.artifact_digest = old->artifact_digest;
    record.artifact_bytes = old->artifact_bytes;
    check = CheckOf(*old);
  } else {
    record.artifact_digest = std::nullopt;
    record.artifact_bytes = 0;
    if (found) batch.Delete(Family::kArtifacts, key);
  }
  batch.Put(Family::kRecords, key, Encoded(record, check));
  AddIndexRows(record, entry.class_text, batch);
  const uint64_t pinned_before = old && old->pinned ? PinnedCost(*old, found->layer) : 0;
  const uint64_t pinned_now = record.pinned ? PinnedCost(record, CacheLayer::kUser) : 0;
  if (pinned_now > pinned_before) HONE_TRY(CheckRoomForPinned(pinned_now - pinned_before, record.label));
  NotePinned(pinned_now, pinned_before);
  return store_->Write(batch, durability);
}

void CacheImpl::NoteUse(const Fingerprint& fingerprint, const Fingerprint& class_fingerprint, uint64_t calls) {
  if (!options_.inspect) uses_.Add(fingerprint, {class_fingerprint, calls, options_.clock->WallNow()});
}

std::optional<KernelUse> CacheImpl::StoredUse(const Fingerprint& fingerprint) {
  std::optional<KernelUse> use;
  std::string key = UseKey(fingerprint);
  store_->Read(Family::kKernels, key, [&](std::string_view, std::string_view value, CacheLayer layer) {
    Result<KernelUse> decoded = DecodeKernelUse(value);
    if (!decoded) {
      SetAside(Family::kKernels, key, value, layer, decoded.error());
      return Take::kTryNextLayer;
    }
    use = *decoded;
    return Take::kTaken;
  });
  return use;
}

Result<KernelUse> CacheImpl::UseOf(const Fingerprint& fingerprint) {
  KernelUse use = uses_.Of(fingerprint);
  if (std::optional<KernelUse> stored = StoredUse(fingerprint)) UseCounts::Merge(use, *stored);
  return use;
}

Result<void> CacheImpl::Pin(const Fingerprint& fingerprint, bool pinned) {
  MutexLock lock(store_->write_mutex());
  std::vector<Found> records = FindKernel(fingerprint);
  if (records.empty()) return NoSuchKernel(fingerprint);
  StoreBatch batch;
  uint64_t bytes = 0;
  for (Found& found : records) {
    if (found.record.pinned == pinned) continue;
    bytes += PinnedCost(found.record, found.layer);
    const ArtifactCheck check = CheckOf(found.record);
    found.record.pinned = pinned;
    found.record.updated = options_.clock->WallNow();
    batch.Put(Family::kRecords, found.key, Encoded(found.record, check));
    AddIndexRows(found.record, ClassTextOf(found.record.key.class_fingerprint), batch);
  }
  if (pinned) HONE_TRY(CheckRoomForPinned(bytes, records[0].record.label));
  NotePinned(pinned ? bytes : 0, pinned ? 0 : bytes);
  return store_->Write(batch, Durability::kSynced);
}

Result<void> CacheImpl::Remove(const Fingerprint& fingerprint) {
  MutexLock lock(store_->write_mutex());
  std::vector<Found> records = FindKernel(fingerprint);
  if (records.empty()) return NoSuchKernel(fingerprint);
  StoreBatch batch;
  for (const Found& found : records) {
    if (found.record.pinned) NotePinned(0, PinnedCost(found.record, found.layer));
    DeleteRecord(found.key, batch);
  }
  batch.Delete(Family::kKernels, UseKey(fingerprint));
  uses_.Forget(fingerprint);
  return store_->Write(batch, Durability::kSynced);
}

void CacheImpl::DeleteRecord(const std::string& key, StoreBatch& batch) {
  batch.Delete(Family::kArtifacts, key);
  if (InSystemLayer(key))
    batch.Put(Family::kRecords, key, Seal(ValueType::kHidden, kHiddenVersion, ""));
  else
    batch.Delete(Family::kRecords, key);
  DeleteNotes(key, batch);
  DeleteTrials(key, batch);
}

std::optional<std::string> CacheImpl::ReadMeta(const std::string& key) {
  std::optional<std::string> found;
  store_->Read(Family::kMeta, key, [&](std::string_view, std::string_view value, CacheLayer layer) {
    if (layer == CacheLayer::kSystem) return Take::kTaken;  // a daemon's own, not to be inherited
    Result<std::string_view> body = Unseal(ValueType::kMeta, kMetaVersion, value);
    if (body)
      found = std::string(*body);
    else if (body.error().kind != ErrorKind::kUnsupported)
      SetAside(Family::kMeta, key, value, layer, body.error());
    return Take::kTaken;
  });
  return found;
}

Result<void> CacheImpl::WriteMeta(std::string key, std::string_view value, Durability durability) {
  StoreBatch batch;
  batch.Put(Family::kMeta, std::move(key), Seal(ValueType::kMeta, kMetaVersion, value));
  MutexLock lock(store_->write_mutex());
  return store_->Write(batch, durability);
}

void CacheImpl::DeleteNotes(std::string_view record_key, StoreBatch& batch) {
  store_->Scan(Family::kMeta, NotePrefix(record_key), [&](std::string_view key, std::string_view, CacheLayer layer) {
    if (layer != CacheLayer::kSystem) batch.Delete(Family::kMeta, std::string(key));
    return Take::kTaken;
  });
}

Result<std::optional<std::string>> CacheImpl::GetMeta(std::string_view name) { return ReadMeta(MetaKey(name)); }

Result<void> CacheImpl::PutMeta(std::string_view name, std::string_view value, Durability durability) {
  return WriteMeta(MetaKey(name), value, durability);
}

Result<std::optional<std::string>> CacheImpl::GetNote(const CacheKey& key, std::string_view name) {
  return ReadMeta(NotePrefix(RecordKey(key)).append(name));
}

Result<void> CacheImpl::PutNote(const CacheKey& key, std::string_view name, std::string_view value,
                                Durability durability, std::optional<WallTime> created) {
  StoreBatch batch;
  batch.Put(Family::kMeta, NotePrefix(RecordKey(key)).append(name), Seal(ValueType::kMeta, kMetaVersion, value));
  MutexLock lock(store_->write_mutex());
  if (created) HONE_TRY(CheckIsThere(key, *created));
  return store_->Write(batch, durability);
}

Result<void> CacheImpl::CheckIsThere(const CacheKey& key, WallTime created) {
  const std::optional<Found> found = FindRecord(RecordKey(key));
  if (found && SameIdentity(found->record.key, key) && found->record.created == created) return {};
  return Error{ErrorKind::kNotFound, "the record was removed meanwhile", key.fingerprint.Hex()};
}

namespace {

constexpr uint64_t kCounted = 4'096;

// Estimates count what was written twice as two: few records are counted one by one.
uint64_t RecordsIn(const Store& store, uint64_t estimated) {
  if (estimated > kCounted) return estimated;
  uint64_t records = 0;
  const std::unique_ptr<StoreIterator> entries = store.Iterate(Family::kRecords);
  for (entries->Seek(""); entries->Valid(); entries->Next()) ++records;
  return records;
}

}  // namespace

CacheStats CacheImpl::Stats() {
  CacheStats stats;
  stats.hits = hits_;
  stats.misses = misses_;
  stats.collisions = collisions_;
  stats.quarantined = quarantined_;
  stats.evicted_artifacts = evicted_artifacts_;
  stats.evicted_records = evicted_records_;
  if (std::shared_ptr<Store> store = store_->user()) {
    for (size_t i = 0; i < kFamilies; ++i) {
      FamilySize size = store->SizeOf(static_cast<Family>(i));
      if (static_cast<Family>(i) == Family::kRecords) size.entries = RecordsIn(*store, size.entries);
      stats.families.push_back({std::string(kFamilyNames[i]), size.entries, size.bytes});
    }
    stats.memory_bytes = store->MemoryUsage();
  }
  stats.pending_records = store_->pending_records();
  if (!options_.directory.empty()) stats.disk_bytes = CacheBytes(options_.directory);
  stats.size_cap = options_.size_cap;
  stats.not_persisting = store_->not_persisting();
  stats.repaired = store_->repaired();
  stats.problem = store_->place_problem();
  MutexLock lock(notes_mutex_);
  stats.losses = losses_.count;
  if (!losses_.unseen.empty())
    stats.problem = losses_.unseen.back() + "; `hone verify` looks through everything and tells of each loss once";
  return stats;
}

Result<void> CacheImpl::Flush() {
  HONE_TRY(MoveDamaged());
  HONE_TRY(WriteUses());
  return store_->Flush();
}

}  // namespace hone
