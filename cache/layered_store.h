// The cache's stores, one over the other: what could not be written yet (memory), the user's directory, the system's.
// Decides where a write goes, says once when the disk refuses it, tries again, and repairs the user's directory under a
// running cache.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "cache/cache_directory.h"
#include "cache/memory_store.h"
#include "cache/schedule_cache.h"
#include "cache/store.h"

namespace hone {

// What a reader says to the value of one layer.
enum class Take : uint8_t {
  kTaken,         // go on with the next key
  kTryNextLayer,  // this value is of no use: show what lies under it
  kStop,          // the whole walk ends
};

// Thread-safe. Reads never wait for writes or repairs.
class LayeredStore {
 public:
  using Reader = std::function<Take(std::string_view key, std::string_view value, CacheLayer layer)>;

  static Result<std::unique_ptr<LayeredStore>> Open(const CacheOptions& options);
  ~LayeredStore();

  // Shows the key's values, nearest layer first, until one is taken. A layer that cannot be read is passed over; false
  // if that was for damage in the user's.
  bool Read(Family family, std::string_view key, const Reader& reader) const;
  // The same for every key with the prefix, in key order.
  // `gaps`: how many stretches were passed over because they cannot be read. `from`: the least key to be shown, if not
  // all with the prefix are.
  void Scan(Family family, std::string_view prefix, const Reader& reader, uint64_t* gaps = nullptr,
            std::string_view from = {}) const;

  // Held across reading a value and writing what follows from it.
  Mutex& write_mutex() HONE_RETURN_CAPABILITY(write_mutex_) { return write_mutex_; }

  // To the user's directory; if that refuses, to memory, with the reason logged once: kSynced then fails, kSoon does
  // not.
  Result<void> Write(const StoreBatch& batch, Durability durability) HONE_REQUIRES(write_mutex_);

  // What Write left un-synced, and what waits in memory if the disk is back. Called a few times a second.
  void Sync() HONE_EXCLUDES(write_mutex_);
  // Everything into tables, synced.
  Result<void> Flush() HONE_EXCLUDES(write_mutex_);
  // If reading met damage: sets right what flipped in the user's files; if that was not all, copies what can be read of
  // them and puts the copy in their place. Reads go on meanwhile, writes wait in memory. True if it did either.
  bool RepairIfDamaged(const std::stop_token& stop) HONE_EXCLUDES(write_mutex_);

  // The first half of that, at once, for who is about to write over something that cannot be read. True if something
  // was set right. At most once a minute.
  bool Mend() const HONE_EXCLUDES(mend_mutex_);

  bool inspecting() const { return options_.inspect; }
  // Null while there is none. An inspected one is brought up to its writer, at most once a second.
  std::shared_ptr<Store> user() const;
  bool has_pending() const { return pending_used_; }
  uint64_t pending_records() const { return pending_.SizeOf(Family::kRecords).entries; }
  uint64_t bytes_written() const { return bytes_written_; }  // since it was opened
  std::string not_persisting() const;
  std::string repaired() const;
  // What was lost since this was last asked, one line each.
  std::vector<std::string> TakeLosses();
  // What is wrong with where the layers are: a disk of another machine's, a system layer that is left out; "": nothing.
  const std::string& place_problem() const { return place_problem_; }
  const std::string& directory() const { return options_.directory; }

 private:
  explicit LayeredStore(const CacheOptions& options) : options_(options) {}

  Result<void> WriteUser(const StoreBatch& batch, Durability durability) HONE_REQUIRES(write_mutex_);
  void KeepInMemory(const StoreBatch& batch) HONE_REQUIRES(write_mutex_);
  Error Refused() const HONE_REQUIRES(write_mutex_);
  Result<void> Recover() HONE_EXCLUDES(write_mutex_, recover_mutex_);
  Result<void> DrainPending() HONE_REQUIRES(write_mutex_);
  Result<void> Replace(std::shared_ptr<Store> store, std::shared_ptr<Store> next);
  void ReopenForWriting() HONE_REQUIRES(recover_mutex_);
  void Adopt(CacheDirectory opened);
  void NoteRefused(const Error& error);
  void NotePersisting();
  void NoteDamage(Family family, std::string_view key, const Error& error) const;
  void NoteUnreadable(Family family, const Error& error) const;
  bool TakeCopy(std::shared_ptr<Store> store);
  MendedFiles MendFiles() const HONE_REQUIRES(mend_mutex_);
  DirectoryOptions UserDirectory() const;

  const CacheOptions options_;
  MemoryStore pending_;
  std::atomic<bool> pending_used_{false};
  std::shared_ptr<Store> system_;                  // set once, in Open
  std::string place_problem_;                      // so, too
  mutable std::atomic<bool> damaged_{false};       // tables
  mutable std::atomic<bool> blob_damaged_{false};  // a blob: mended if that is possible, else its reader gives it up
  std::atomic<uint64_t> bytes_written_{0};
  std::atomic<bool> dirty_{false};  // something was written without a sync

  Mutex write_mutex_;
  bool said_full_ HONE_GUARDED_BY(write_mutex_) = false;
  // While a copy is made and until it has taken the store's place, nothing may be written that the copy lacks.
  bool repairing_ HONE_GUARDED_BY(write_mutex_) = false;

  // For whoever calls Sync and RepairIfDamaged: one thread.
  std::optional<SalvageReport> copied_;  // what the finished copy kept and lost; nullopt while there is none
  MonotonicTime next_repair_{}, next_attempt_{};

  mutable Mutex mend_mutex_;  // one look through all files at a time
  mutable MonotonicTime next_mend_ HONE_GUARDED_BY(mend_mutex_){};

  Mutex recover_mutex_;  // held while the user's store is closed and opened again; before write_mutex_

  mutable Mutex state_mutex_;  // held for a moment only
  UniqueFd lock_ HONE_GUARDED_BY(state_mutex_);
  std::shared_ptr<Store> user_ HONE_GUARDED_BY(state_mutex_);
  mutable MonotonicTime caught_up_ HONE_GUARDED_BY(state_mutex_){};
  std::string not_persisting_ HONE_GUARDED_BY(state_mutex_);
  mutable std::string repaired_ HONE_GUARDED_BY(state_mutex_);
  std::vector<std::string> losses_ HONE_GUARDED_BY(state_mutex_);
  mutable std::set<std::string> said_ HONE_GUARDED_BY(state_mutex_);  // reading errors that were logged
};

}  // namespace hone
