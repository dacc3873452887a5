// The cache: the best known schedule of each kernel on each target, and its compiled code, kept across restarts.
//
// Layers, first match wins: what could not be written yet (memory), the user's directory, a read-only system directory.
// A damaged value is a miss: set aside, counted, logged once. A disk that cannot be written is said once; the cache
// goes on serving, remembers new records in memory and writes them when the disk comes back.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cache/admission.h"
#include "cache/record.h"
#include "cache/store.h"
#include "cache/trial.h"

namespace hone {

struct CacheOptions {
  std::string directory;           // the user's layer; created if missing. "" keeps everything in memory
  std::string system_directory;    // read-only layer under it, or ""; this user's or root's; left out if it cannot be
                                   // read or others can write it, which is logged and said in CacheStats::problem
  bool inspect = false;            // look at a cache that a daemon may be writing: nothing can be changed
  uint64_t size_cap = 4ull << 30;  // bytes on disk; 0: none
  std::chrono::milliseconds flush_interval{400};   // served misses are on disk within a second
  std::chrono::milliseconds use_interval{10'000};  // use counts are written in batches this far apart
  uint64_t memory_bytes = 64ull << 20;             // block cache and write buffers
  uint64_t pending_bytes = 64ull << 20;            // records kept in memory while the disk refuses them
  const Clock* clock = &Clock::Real();             // for stamps
  rocksdb::Env* env = nullptr;                     // tests: a file system that fails or forgets
};

enum class Durability : uint8_t {
  kSoon,    // on disk within a second: served misses
  kSynced,  // on disk before the call returns: what tune, pin, rm and import acknowledge
};

enum class Counting : uint8_t {
  kAsUse,  // somebody wants the kernel
  kNot,    // honed itself looks, for searches
};

enum class CacheLayer : uint8_t { kPending, kUser, kSystem };

struct CacheHit {
  Record record;
  CacheLayer layer = CacheLayer::kUser;
  // There is an artifact, made under the key's code key, and this user checked it on this machine. If not, the record
  // is good for its schedule: a system layer, a copied directory and what an older hone wrote are compiled and checked
  // anew.
  bool artifact_current = false;
  // There is one, made so, from a bundle that a trusted key signed: to be checked here before it is served.
  bool artifact_to_check = false;
};

// What is known of an artifact that is stored.
enum class ArtifactCheck : uint8_t {
  kNone,     // nothing: only the schedule of its record is used
  kTrusted,  // whoever is trusted signed it: it may be run here, to be checked
  kHere,     // checked on this machine by this user: it may be served
};

struct NewRecord {
  Record record;
  std::string class_text;                              // Canonical::class_text
  std::optional<std::span<const std::byte>> artifact;  // nullopt: the record keeps the artifact it has, if it is the
                                                       // same schedule under the same code key; else it has none
  Admission admits{};                                  // nullptr: all
  ArtifactCheck check = ArtifactCheck::kHere;          // of `artifact`
};

struct ClassSummary {
  ClassInfo info;
  uint64_t kernels = 0;  // of all layers, each once
};

struct CacheStats {
  uint64_t hits = 0, misses = 0;                        // lookups since the cache was opened
  uint64_t collisions = 0;                              // fingerprint equal, canonical text not
  uint64_t quarantined = 0;                             // damaged values set aside since the cache was made
  uint64_t losses = 0;                                  // times that damage took more than a value, since then
  uint64_t evicted_artifacts = 0, evicted_records = 0;  // since it was opened
  struct Family {
    std::string name;
    uint64_t entries = 0;  // estimated by the store from its tables; of few records, counted
    uint64_t bytes = 0;    // on disk, compressed
  };
  std::vector<Family> families;
  uint64_t disk_bytes = 0;    // of the user's directory
  uint64_t memory_bytes = 0;  // block cache, tables and write buffers now
  uint64_t pending_records = 0;
  uint64_t size_cap = 0;
  std::string not_persisting;  // why nothing can be written at the moment; "" if all is well
  std::string repaired;        // what was repaired last since it was opened, and what was lost; "" if nothing
  std::string problem;         // the last loss that no Verify has told of yet, with its day, or that the cache is
                               // on another machine's disk, or why the system layer is left out; "" if all is well
};

struct EvictionReport {
  uint64_t trials = 0, artifacts = 0, records = 0;  // removed
  uint64_t bytes_before = 0, bytes_after = 0;
};

struct VerifyReport {
  uint64_t records = 0, artifacts = 0;  // read and found sound
  uint64_t damaged = 0;                 // set aside: records, their artifacts, stretches that could not be read
  uint64_t losses = 0;                  // earlier ones, told here for the first time
  uint64_t without_artifact = 0;        // sound, but only the schedule is there
  std::vector<std::string> findings;    // what no record names, one line each, the first hundred; losses first
};

// Thread-safe. Lookups never wait for writers, eviction or the disk's flushes.
class ScheduleCache {
 public:
  // kBusy: another process has this directory (named) open for writing. kUnsupported: a newer hone wrote it. kInvalid:
  // the directory, a part of its path or something in it is not this user's, can be written by others, or is a link. A
  // directory that cannot be written is opened for reading, one that cannot be read at all gives kIo.
  static Result<std::unique_ptr<ScheduleCache>> Open(CacheOptions options);
  virtual ~ScheduleCache() = default;  // writes and syncs everything

  // The record for this kernel on this target; nullopt if there is none, or none that can be read.
  virtual Result<std::optional<CacheHit>> Lookup(const CacheKey& key, Counting counting = Counting::kAsUse) = 0;

  // The record's compiled code, its digest checked; nullopt if it was evicted, is damaged, or belongs to another
  // version of the record. To be run as it is only if CacheHit::artifact_current.
  virtual Result<std::optional<std::vector<std::byte>>> Artifact(const Record& record) = 0;
  // The record names an artifact that this user checked on this machine: see CacheHit::artifact_current.
  virtual bool IsCheckedHere(const Record& record) const = 0;
  // What is known of the artifact that it names.
  virtual ArtifactCheck CheckOf(const Record& record) const = 0;

  // From now on nothing is known of an artifact whose record came in a bundle that one of these keys signed, whether it
  // was checked or not: the schedule is compiled and checked anew. Other keys than these are as before. nullopt: all
  // keys, as where nobody can say which were revoked.
  virtual void Distrust(std::optional<std::set<Digest256>> keys) = 0;

  // Writes record and artifact as one. REQUIRES: `check` is true: what is kHere is served without another run from now
  // on. Replaces a record of the same key, keeping its pin, its `created` and, of the same schedule, what was measured
  // and compared here instead of another machine's times. kUnsupported: a newer hone's record is there, and stays. When
  // the disk refuses: kSoon succeeds, kSynced gives kIo or kLimit (kBusy during a repair); either way the record is
  // served from memory and written when the disk is back.
  virtual Result<void> Put(const NewRecord& entry, Durability durability) = 0;

  // For callers that answer hits from memory of their own. Cheap: no I/O.
  virtual void NoteUse(const Fingerprint& fingerprint, const Fingerprint& class_fingerprint, uint64_t calls = 1) = 0;
  virtual Result<KernelUse> UseOf(const Fingerprint& fingerprint) = 0;  // zero calls if unknown

  // All targets of a kernel; kNotFound if there is no record. Synced before they return. A record of the system layer
  // is copied up by Pin and hidden by Remove. Pinned records and their code take at most half of the size cap: kLimit
  // says how much they take, and nothing changes. So does Put where a pinned record would grow beyond that.
  virtual Result<void> Pin(const Fingerprint& fingerprint, bool pinned) = 0;
  virtual Result<void> Remove(const Fingerprint& fingerprint) = 0;

  // Kernels whose hex fingerprint starts with the digits (1 to 32), in order, at most `limit`. kInvalid if not hex.
  virtual Result<std::vector<Fingerprint>> FindByPrefix(std::string_view hex_digits, size_t limit = 16) = 0;
  // The one such kernel: kNotFound, or kInvalid naming the candidates when ambiguous.
  Result<Fingerprint> Resolve(std::string_view hex_digits);
  // 1 to 32 hex digits in lower case. kInvalid: others.
  static Result<std::string> BeginningOfFingerprint(std::string_view hex_digits);

  virtual Result<std::vector<Record>> RecordsOf(const Fingerprint& fingerprint) = 0;  // one a target; may be empty
  // Every record of a class (all classes if nullopt), by class, then kernel; until `visit` returns false. Reads nothing
  // of other classes.
  virtual Result<void> ForEachRecord(const std::optional<Fingerprint>& class_fingerprint,
                                     const std::function<bool(const Record&)>& visit) = 0;
  // The same of all classes, from behind `place` on: "" is the beginning, and afterwards it is that of the last record
  // visited, for the next call. Nothing is held in between: what comes and goes meanwhile neither repeats another
  // record nor hides it. True if there are no more.
  virtual Result<bool> ForEachRecordAfter(std::string& place, const std::function<bool(const Record&)>& visit) = 0;
  virtual Result<std::vector<ClassSummary>> Classes() = 0;

  // Small values of the daemon's own, by name.
  virtual Result<std::optional<std::string>> GetMeta(std::string_view name) = 0;
  virtual Result<void> PutMeta(std::string_view name, std::string_view value, Durability durability) = 0;

  // Small values that belong to a record, by name: whoever removes or evicts the record removes them. They may come
  // before it, but for what is about one that was created then: kNotFound, and nothing changes, if it is gone.
  virtual Result<std::optional<std::string>> GetNote(const CacheKey& key, std::string_view name) = 0;
  virtual Result<void> PutNote(const CacheKey& key, std::string_view name, std::string_view value,
                               Durability durability, std::optional<WallTime> created = std::nullopt) = 0;

  // The log of trials, by record and then in the order in which they were made. Damaged entries are left out.
  // `created`: as of a note.
  virtual Result<void> AppendTrials(const CacheKey& key, std::span<const TrialRecord> trials,
                                    std::optional<WallTime> created = std::nullopt) = 0;
  virtual Result<void> ForEachTrial(const CacheKey& key, const std::function<bool(const TrialRecord&)>& visit) = 0;

  // Cost models, by name; sealed by whoever made them, and checked by whoever reads them. nullopt: none. kInvalid: one
  // without the mark that PutModel gives it with this cache's key, as an older hone or somebody else left it.
  virtual Result<std::optional<std::string>> GetModel(std::string_view name) = 0;
  virtual Result<void> PutModel(std::string_view name, std::string_view sealed) = 0;

  virtual CacheStats Stats() = 0;

  // Reads everything, checks checksums and digests, sets aside what is damaged; tells once of what was lost before.
  virtual Result<VerifyReport> Verify(std::stop_token stop) = 0;

  // Removes artifacts, then records, least recently used first, pinned ones never, until the directory is at most
  // `bytes`. Also runs by itself when the cap is exceeded.
  virtual Result<EvictionReport> EvictTo(uint64_t bytes, std::stop_token stop) = 0;

  // Everything acknowledged or not, and the use counts, synced.
  virtual Result<void> Flush() = 0;
};

}  // namespace hone
