// The cache behind cache/schedule_cache.h: serving in schedule_cache.cc, the rest in merge_twins.cc, upkeep.cc,
// pins.cc, eviction.cc, trial_log.cc, verify.cc.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "base/secret.h"
#include "cache/keys.h"
#include "cache/layered_store.h"
#include "cache/schedule_cache.h"
#include "cache/use_counts.h"

namespace hone {

class CacheImpl final : public ScheduleCache {
 public:
  CacheImpl(CacheOptions options, std::unique_ptr<LayeredStore> store, const SecretKey& key);
  ~CacheImpl() override;

  Result<std::optional<CacheHit>> Lookup(const CacheKey& key, Counting counting) override;
  Result<std::optional<std::vector<std::byte>>> Artifact(const Record& record) override;
  bool IsCheckedHere(const Record& record) const override;
  ArtifactCheck CheckOf(const Record& record) const override;
  void Distrust(std::optional<std::set<Digest256>> keys) override HONE_EXCLUDES(distrust_mutex_);
  Result<void> Put(const NewRecord& entry, Durability durability) override;
  void NoteUse(const Fingerprint& fingerprint, const Fingerprint& class_fingerprint, uint64_t calls) override;
  Result<KernelUse> UseOf(const Fingerprint& fingerprint) override;
  Result<void> Pin(const Fingerprint& fingerprint, bool pinned) override;
  Result<void> Remove(const Fingerprint& fingerprint) override;
  Result<std::vector<Fingerprint>> FindByPrefix(std::string_view hex_digits, size_t limit) override;
  Result<std::vector<Record>> RecordsOf(const Fingerprint& fingerprint) override;
  Result<void> ForEachRecord(const std::optional<Fingerprint>& class_fingerprint,
                             const std::function<bool(const Record&)>& visit) override;
  Result<bool> ForEachRecordAfter(std::string& place, const std::function<bool(const Record&)>& visit) override;
  Result<std::vector<ClassSummary>> Classes() override;
  Result<std::optional<std::string>> GetMeta(std::string_view name) override;
  Result<void> PutMeta(std::string_view name, std::string_view value, Durability durability) override;
  Result<std::optional<std::string>> GetNote(const CacheKey& key, std::string_view name) override;
  Result<void> PutNote(const CacheKey& key, std::string_view name, std::string_view value, Durability durability,
                       std::optional<WallTime> created) override;
  Result<void> AppendTrials(const CacheKey& key, std::span<const TrialRecord> trials,
                            std::optional<WallTime> created) override;
  Result<void> ForEachTrial(const CacheKey& key, const std::function<bool(const TrialRecord&)>& visit) override;
  Result<std::optional<std::string>> GetModel(std::string_view name) override;
  Result<void> PutModel(std::string_view name, std::string_view sealed) override;
  CacheStats Stats() override;
  Result<VerifyReport> Verify(std::stop_token stop) override;
  Result<EvictionReport> EvictTo(uint64_t bytes, std::stop_token stop) override;
  Result<void> Flush() override;

 private:
  struct Found {
    std::string key;
    Record record;
    CacheLayer layer;
  };
  // A record's value in one layer: decoded, or a mark that hides lower layers (kTaken without a record), or of no use:
  // damaged, which is noted, or a newer hone's.
  struct Opened {
    Take take;
    std::optional<Record> record;
    std::optional<Error> damage;
  };
  Opened Open(Family family, std::string_view key, std::string_view value, CacheLayer layer);
  // Walks the visible records under a prefix of their keys, from `from` on.
  void ScanRecords(std::string_view prefix, const std::function<bool(Found&&)>& visit, std::string_view from = {});
  // `unreadable`: set if there may be one that damage hides.
  std::optional<Found> FindRecord(const std::string& key, bool* unreadable = nullptr);
  // A newer hone wrote the user's value, a record or a kernel's use: a miss, over which nothing is written.
  bool HasNewer(Family family, const std::string& key);
  std::optional<KernelUse> StoredUse(const Fingerprint& fingerprint);
  std::vector<Found> FindKernel(const Fingerprint& fingerprint);
  std::string ClassTextOf(const Fingerprint& class_fingerprint);  // "" if unknown
  bool InSystemLayer(const std::string& record_key);
  std::optional<std::string> ReadMeta(const std::string& key);
  Result<void> WriteMeta(std::string key, std::string_view value, Durability durability);
  // kNotFound if there is none of this key that was created then. Under the store's write mutex.
  Result<void> CheckIsThere(const CacheKey& key, WallTime created);
  void DeleteNotes(std::string_view record_key, StoreBatch& batch);
  uint64_t DeleteTrials(std::string_view key_prefix, StoreBatch& batch);
  // With its artifact and notes; one of the system layer is hidden.
  void DeleteRecord(const std::string& key, StoreBatch& batch);

  // Queues a damaged value for being moved away by the upkeep thread: whoever met it does not wait for that.
  // `value`: what was read, nullopt if not even that was possible.
  void SetAside(Family family, std::string_view key, std::optional<std::string_view> value, CacheLayer layer,
                const Error& reason) HONE_EXCLUDES(notes_mutex_);
  void LogOnce(std::string_view event, Family family, std::string_view key, const Error& reason)
      HONE_EXCLUDES(notes_mutex_);
  // A bundle brought it that a key signed which is not to be trusted (any more).
  bool IsDistrusted(const Record& record) const HONE_EXCLUDES(distrust_mutex_);
  // Of a record that was changed here. `check`: what is known of its artifact.
  std::string Encoded(Record& record, ArtifactCheck check) const;
  // What a record's first write brings with it: its class's row, its kernel's.
  void AddIndexRows(const Record& record, std::string_view class_text, StoreBatch& batch);

  // upkeep.cc
  void Upkeep(std::stop_token stop);
  Result<void> WriteUses();
  Result<void> MoveDamaged();
  uint64_t StoredQuarantineCount();
  void KeepLosses() HONE_EXCLUDES(notes_mutex_);
  void ReadLosses() HONE_EXCLUDES(notes_mutex_);
  void WriteLosses() HONE_EXCLUDES(notes_mutex_);
  void RebuildIndex(std::stop_token stop);

  // merge_twins.cc
  using Renamed = std::unordered_map<Fingerprint, Fingerprint, FingerprintHash>;
  void MergeTwins();
  Result<void> MergeTwin(const std::string& twin_key);
  Result<void> RenameDonor(const std::string& recipient, const Renamed& renamed);
  void MoveUse(const Fingerprint& from, const Fingerprint& to, StoreBatch& batch);
  void MoveEntries(Family family, const std::string& from, const std::string& to, StoreBatch& batch);

  // pins.cc; all under the store's write mutex
  static uint64_t PinnedCost(const Record& record, CacheLayer layer);
  uint64_t PinnedBytes();
  Result<void> CheckRoomForPinned(uint64_t more, const std::string& label);
  void NotePinned(uint64_t more, uint64_t less);

  // eviction.cc
  struct Candidate {
    WallTime worth;  // when it was used last, or later if it was used often
    Fingerprint fingerprint, class_fingerprint;
  };
  std::vector<Candidate> LeastWorthFirst();
  enum class Evicts : uint8_t { kTrials, kArtifacts, kRecords };
  uint64_t EvictKernel(const Candidate& candidate, Evicts what, StoreBatch& batch);
  Result<void> Reclaim(Evicts what, uint64_t bytes, const std::stop_token& stop);
  Result<uint64_t> KeptBytes();
  struct Evicted {
    uint64_t removed = 0;
    bool suffices = false;
  };
  Result<Evicted> EvictPass(Evicts what, uint64_t bytes, const std::stop_token& stop);
  void AwaitDeletions(uint64_t bytes, const std::stop_token& stop) const;

  // What damage took, since the cache was made; `unseen`: what no Verify has told of yet.
  struct Losses {
    uint64_t count = 0;
    std::vector<std::string> unseen;
  };

  const CacheOptions options_;
  const SecretKey key_;
  std::unique_ptr<LayeredStore> store_;
  UseCounts uses_;
  std::atomic<uint64_t> hits_{0}, misses_{0}, collisions_{0}, quarantined_{0};
  std::atomic<uint64_t> evicted_artifacts_{0}, evicted_records_{0};
  uint64_t newest_trial_ = 0;  // number in the log of trials, 0: not read yet. Under the store's write mutex

  std::optional<uint64_t> pinned_bytes_;  // nullopt: to be counted. Under the store's write mutex

  struct Damaged {
    Family family;
    std::string key;
    std::optional<std::string> value;
    CacheLayer layer;
    Error reason;
  };
  Mutex notes_mutex_;
  std::unordered_set<std::string> said_ HONE_GUARDED_BY(notes_mutex_);  // keys that were logged
  std::vector<Damaged> damaged_ HONE_GUARDED_BY(notes_mutex_);          // waiting to be moved away
  Losses losses_ HONE_GUARDED_BY(notes_mutex_);
  std::atomic<bool> rebuild_index_{false};  // rows of the index were lost
  mutable Mutex distrust_mutex_;            // held for a moment only
  // null: all keys.
  std::shared_ptr<const std::set<Digest256>> distrusted_ HONE_GUARDED_BY(distrust_mutex_) =
      std::make_shared<const std::set<Digest256>>();
  Mutex evict_mutex_;  // one eviction at a time

  std::jthread upkeep_;  // last: stops before anything it uses goes
};

}  // namespace hone
