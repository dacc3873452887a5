// One kernel, one record. A number of threads that is all of the target's cores was once told apart from no number at
// all: what searches won lies under the one text, and who asks comes with the other. When such a cache opens, these
// twins become one under the text of today (ThreadsToSay), with the better of the two schedules.
#include <algorithm>
#include <unordered_map>

#include "base/log.h"
#include "cache/cache_impl.h"
#include "ir/language/canonical.h"
#include "ir/target.h"

namespace hone {
namespace {

// meta: that a cache was looked through.
const std::string& TwinsMergedKey() {
  static const std::string key = "stwins_merged";
  return key;
}

// The key that the kernel is asked for with; nullopt if that is the record's own.
std::optional<CacheKey> KeyOfToday(const Record& record) {
  Result<Target> target = ParseTarget(record.key.target);
  if (!target) return std::nullopt;
  const int said = ThreadsSaidBy(record.key.canonical), to_say = ThreadsToSay(said, target->cores());
  if (to_say == said) return std::nullopt;
  CacheKey key = record.key;
  key.canonical = WithThreads(record.key.canonical, to_say);
  if (key.canonical == record.key.canonical) return std::nullopt;
  key.fingerprint = FingerprintOf(Canonical{key.canonical, {}, {}});
  return key;
}

int RankOf(Origin origin) {
  switch (origin) {
    case Origin::kTuned: return 3;
    case Origin::kImported: return 2;
    case Origin::kTransferred: return 1;
    case Origin::kDefault: return 0;
  }
  return 0;
}

// Of records of one kernel. What is pinned stays as it is, so nothing is better than that.
bool IsBetter(const Record& record, const Record& than) {
  if (record.pinned != than.pinned) return record.pinned;
  if (record.pinned) return false;
  if (record.origin != than.origin) return RankOf(record.origin) > RankOf(than.origin);
  return record.origin == Origin::kTuned && record.measured && than.measured &&
         record.measured->time < than.measured->time;
}

}  // namespace

// Each step leaves a cache that can be read, and none is missing something that a later one needs: who is interrupted
// begins again. What they wrote reaches the disk in their order, the mark at the end last.
void CacheImpl::MergeTwins() {
  std::shared_ptr<Store> user = store_->user();
  if (options_.inspect || !user || !user->writable() || ReadMeta(TwinsMergedKey())) return;
  std::vector<std::string> twins, recipients;  // keys of records
  Renamed renamed;
  ScanRecords("", [&](Found&& found) {
    if (found.layer == CacheLayer::kSystem) return true;
    if (found.record.donor) recipients.push_back(found.key);
    if (std::optional<CacheKey> key = KeyOfToday(found.record)) {
      twins.push_back(found.key);
      renamed.emplace(found.record.key.fingerprint, key->fingerprint);
    }
    return true;
  });
  // On a target with other cores the old name stays right.
  std::erase_if(renamed, [&](const auto& names) {
    return std::ranges::any_of(FindKernel(names.first),
                               [](const Found& found) { return !KeyOfToday(found.record).has_value(); });
  });
  bool done = true;
  if (!renamed.empty())
    for (const std::string& recipient : recipients) done &= RenameDonor(recipient, renamed).has_value();
  for (const std::string& twin : twins) {
    Result<void> merged = MergeTwin(twin);
    if (!merged) LogWarn("twin_not_merged", {{"why", merged.error().Text()}, {"then", "at the next start"}});
    done &= merged.has_value();
  }
  if (!twins.empty()) LogInfo("twins_merged", {{"count", twins.size()}});
  if (done && !store_->has_pending()) (void)WriteMeta(TwinsMergedKey(), "", Durability::kSoon);
}

Result<void> CacheImpl::RenameDonor(const std::string& recipient, const Renamed& renamed) {
  MutexLock lock(store_->write_mutex());
  std::optional<Found> found = FindRecord(recipient);
  if (!found || !found->record.donor) return {};
  auto names = renamed.find(*found->record.donor);
  if (names == renamed.end()) return {};
  const ArtifactCheck check = CheckOf(found->record);
  found->record.donor = names->second;
  StoreBatch batch;
  batch.Put(Family::kRecords, recipient, Encoded(found->record, check));
  return store_->Write(batch, Durability::kSoon);
}

Result<void> CacheImpl::MergeTwin(const std::string& twin_key) {
  MutexLock lock(store_->write_mutex());
  std::optional<Found> twin = FindRecord(twin_key);
  if (!twin) return {};
  std::optional<CacheKey> today = KeyOfToday(twin->record);
  if (!today) return {};
  const std::string key = RecordKey(*today);
  bool unreadable = false;
  std::optional<Found> asked = FindRecord(key, &unreadable);
  if (unreadable) return Error{ErrorKind::kCorrupt, "what is asked for cannot be read", twin->record.label};
  if (HasNewer(Family::kRecords, key))
    return Error{ErrorKind::kUnsupported, "a newer hone's record is in its place", twin->record.label};
  if (asked && asked->record.key.canonical != today->canonical) asked.reset();  // a collision: nobody can ask for it

  StoreBatch batch;
  Record merged;
  ArtifactCheck check = ArtifactCheck::kNone;
  if (!asked || IsBetter(twin->record, asked->record)) {
    merged = twin->record;
    merged.key = *today;
    // The code says itself which text it is for: it is made again.
    merged.artifact_digest.reset();
    merged.artifact_bytes = 0;
    batch.Delete(Family::kArtifacts, key);
    DeleteNotes(key, batch);
    MoveEntries(Family::kMeta, NotePrefix(twin_key), NotePrefix(key), batch);
  } else {
    merged = asked->record;
    check = CheckOf(asked->record);
  }
  if (asked) {
    merged.request = asked->record.request;
    merged.created = std::min(asked->record.created, twin->record.created);
  }
  merged.pinned |= twin->record.pinned;
  if (merged.donor == today->fingerprint) merged.donor.reset();
  batch.Put(Family::kRecords, key, Encoded(merged, check));
  AddIndexRows(merged, ClassTextOf(merged.key.class_fingerprint), batch);
  MoveUse(twin->record.key.fingerprint, today->fingerprint, batch);
  MoveEntries(Family::kTrials, twin_key, key, batch);
  DeleteRecord(twin_key, batch);
  return store_->Write(batch, Durability::kSoon);
}

// The uses of a kernel whose last record is about to go.
void CacheImpl::MoveUse(const Fingerprint& from, const Fingerprint& to, StoreBatch& batch) {
  std::optional<KernelUse> use = StoredUse(from);
  if (!use || FindKernel(from).size() > 1) return;
  if (std::optional<KernelUse> more = StoredUse(to)) UseCounts::Merge(*use, *more);
  batch.Put(Family::kKernels, UseKey(to), EncodeKernelUse(*use));
  batch.Delete(Family::kKernels, UseKey(from));
}

// The user's values, under keys that begin otherwise from now on.
void CacheImpl::MoveEntries(Family family, const std::string& from, const std::string& to, StoreBatch& batch) {
  store_->Scan(family, from, [&](std::string_view key, std::string_view value, CacheLayer layer) {
    if (layer == CacheLayer::kSystem) return Take::kTaken;
    batch.Put(family, to + std::string(key.substr(from.size())), std::string(value));
    batch.Delete(family, std::string(key));
    return Take::kTaken;
  });
}

}  // namespace hone
