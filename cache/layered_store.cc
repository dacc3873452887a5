#include "cache/layered_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "cache/scan.h"

namespace hone {
namespace {

constexpr std::chrono::seconds kRetryInterval{2};
constexpr std::chrono::seconds kRepairInterval{60};
constexpr std::chrono::seconds kCatchUpInterval{1};
constexpr size_t kMostSaid = 1000;

std::string Absolute(const std::string& path) {
  std::error_code failed;
  std::filesystem::path absolute = std::filesystem::absolute(path, failed);
  std::string normal = path.empty() || failed ? path : absolute.lexically_normal().string();
  // "cache/" is "cache": what lies beside it is named after it (base/secret).
  while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  return normal;
}

bool SameDirectory(const std::string& a, const std::string& b) { return !a.empty() && a == b; }

}  // namespace

Result<std::unique_ptr<LayeredStore>> LayeredStore::Open(const CacheOptions& options) {
  CacheOptions absolute = options;
  absolute.directory = Absolute(options.directory);
  std::unique_ptr<LayeredStore> store(new LayeredStore(absolute));
  if (!options.directory.empty()) {
    CacheDirectory opened = HONE_TRY(OpenCacheDirectory(store->UserDirectory()));
    if (!opened.not_writable.empty()) store->NoteRefused(Error{ErrorKind::kIo, opened.not_writable, ""});
    if (std::string_view network = NetworkFileSystem(store->options_.directory); !network.empty()) {
      store->place_problem_ = fmt::format(
          "the cache is on another machine's disk ({}), whose locks and syncs honed cannot vouch for: choose a "
          "directory of this machine with --cache or cache.directory",
          network);
      LogWarn("cache_on_network", {{"directory", store->options_.directory}, {"problem", store->place_problem_}});
    }
    store->Adopt(std::move(opened));
  }
  if (!options.system_directory.empty() && !SameDirectory(options.directory, options.system_directory)) {
    DirectoryOptions system{Absolute(options.system_directory), DirectoryMode::kRead, options.memory_bytes / 4,
                            options.env};
    Result<CacheDirectory> opened = OpenCacheDirectory(system);
    if (opened)
      store->system_ = std::move(opened->store);
    else if (opened.error().kind != ErrorKind::kNotFound) {
      store->place_problem_ = "the system layer is left out: " + opened.error().Text();
      LogError("cache_system_layer", {{"error", opened.error().Text()}});
    }
  }
  return store;
}

LayeredStore::~LayeredStore() {
  if (options_.inspect) return;
  if (copied_) TakeCopy(user());
  if (Result<void> flushed = Flush(); !flushed) LogWarn("cache_close", {{"error", flushed.error().Text()}});
}

DirectoryOptions LayeredStore::UserDirectory() const {
  DirectoryMode mode = options_.inspect ? DirectoryMode::kInspect : DirectoryMode::kWrite;
  return {options_.directory, mode, options_.memory_bytes, options_.env};
}

void LayeredStore::Adopt(CacheDirectory opened) {
  MutexLock lock(state_mutex_);
  lock_ = std::move(opened.lock);
  user_ = std::move(opened.store);
  if (opened.lost) losses_.push_back(opened.repaired);
  if (!opened.repaired.empty()) repaired_ = std::move(opened.repaired);
}

std::shared_ptr<Store> LayeredStore::user() const {
  std::shared_ptr<Store> store;
  {
    MutexLock lock(state_mutex_);
    if (!options_.inspect) return user_;
    MonotonicTime now = std::chrono::steady_clock::now();
    if (now - caught_up_ < kCatchUpInterval) return user_;
    caught_up_ = now;
    store = user_;
  }
  if (Result<void> caught_up = store->CatchUp(); !caught_up) NoteUnreadable(Family::kMeta, caught_up.error());
  return store;
}

std::string LayeredStore::not_persisting() const {
  MutexLock lock(state_mutex_);
  return not_persisting_;
}

std::string LayeredStore::repaired() const {
  MutexLock lock(state_mutex_);
  return repaired_;
}

std::vector<std::string> LayeredStore::TakeLosses() {
  MutexLock lock(state_mutex_);
  return std::exchange(losses_, {});
}

void LayeredStore::NoteRefused(const Error& error) {
  std::string reason = error.Text();
  {
    MutexLock lock(state_mutex_);
    bool known = !std::exchange(not_persisting_, reason).empty();
    if (known) return;
  }
  LogError("cache_not_persisting", {{"directory", options_.directory}, {"reason", reason}});
}

void LayeredStore::NotePersisting() {
  {
    MutexLock lock(state_mutex_);
    if (std::exchange(not_persisting_, "").empty()) return;
  }
  LogInfo("cache_persisting", {{"directory", options_.directory}});
}

// Damage below the level of values: blocks whose checksum fails.
void LayeredStore::NoteDamage(Family family, std::string_view key, const Error& error) const {
  bool known = damaged_.exchange(true);
  if (known) return;
  std::string name = HexOf(std::span(reinterpret_cast<const uint8_t*>(key.data()), key.size()));
  LogError("cache_damage", {{"family", NameOf(family)}, {"key", name}, {"error", error.message}});
}

void LayeredStore::NoteUnreadable(Family family, const Error& error) const {
  {
    MutexLock lock(state_mutex_);
    if (said_.size() >= kMostSaid || !said_.insert(error.message).second) return;
  }
  LogWarn("cache_read", {{"family", NameOf(family)}, {"error", error.Text()}});
}

bool LayeredStore::Read(Family family, std::string_view key, const Reader& reader) const {
  bool damaged = false;
  if (pending_used_) {
    std::optional<MemoryStore::Entry> entry = pending_.Find(family, key);
    if (entry && !entry->value) return true;  // deleted; what hides the system layer is written as a value
    if (entry && reader(key, *entry->value, CacheLayer::kPending) != Take::kTryNextLayer) return true;
  }
  for (auto& [store, layer] : {std::pair{user(), CacheLayer::kUser}, {system_, CacheLayer::kSystem}}) {
    if (!store) continue;
    Result<std::optional<std::string>> value = store->Get(family, key);
    if (!value) {
      // A file that is gone counts as damaged, too; a failing read of one that is there does not.
      bool lost = value.error().kind == ErrorKind::kCorrupt || value.error().kind == ErrorKind::kNotFound;
      damaged |= lost && layer == CacheLayer::kUser;
      // One artifact's blob is the caller's to give up; damaged tables are ours to repair.
      if (lost && layer == CacheLayer::kUser && family == Family::kArtifacts) blob_damaged_ = true;
      if (lost && layer == CacheLayer::kUser && family != Family::kArtifacts)
        NoteDamage(family, key, value.error());
      else
        NoteUnreadable(family, value.error());
      continue;
    }
    if (*value && reader(key, **value, layer) != Take::kTryNextLayer) return true;
  }
  return !damaged;
}

void LayeredStore::Scan(Family family, std::string_view prefix, const Reader& reader, uint64_t* gaps,
                        std::string_view from) const {
  struct Source {
    std::shared_ptr<Store> store;  // outlives the iterator
    CacheLayer layer;
    std::unique_ptr<ResilientIterator> entries;
  };
  std::vector<Source> sources;
  auto add = [&](std::shared_ptr<Store> store, const Store* raw, CacheLayer layer) {
    if (raw == nullptr) return;
    auto entries = std::make_unique<ResilientIterator>([raw, family] { return raw->Iterate(family); },
                                                       std::string(prefix), std::string(from));
    sources.push_back({std::move(store), layer, std::move(entries)});
  };
  if (pending_used_) add(nullptr, &pending_, CacheLayer::kPending);
  std::shared_ptr<Store> user_store = user();
  add(user_store, user_store.get(), CacheLayer::kUser);
  add(system_, system_.get(), CacheLayer::kSystem);

  bool going = true;
  while (going) {
    std::optional<std::string> least;
    for (Source& source : sources)
      if (source.entries->Valid() && (!least || source.entries->key() < *least)) least = source.entries->key();
    if (!least) break;
    bool settled = false;
    if (pending_used_)
      if (std::optional<MemoryStore::Entry> entry = pending_.Find(family, *least)) settled = !entry->value;
    for (Source& source : sources) {
      if (!source.entries->Valid() || source.entries->key() != *least) continue;
      if (!settled) {
        Take take = reader(*least, source.entries->value(), source.layer);
        settled = take != Take::kTryNextLayer;
        going = take != Take::kStop;
      }
      source.entries->Next();
    }
  }
  for (Source& source : sources) {
    uint64_t ranges = source.entries->damaged_ranges();
    if (gaps) *gaps += ranges;
    if (source.layer == CacheLayer::kUser && ranges > 0)
      NoteDamage(family, prefix, Error{ErrorKind::kCorrupt, "blocks that cannot be read were passed over", ""});
  }
}

Result<void> LayeredStore::Write(const StoreBatch& batch, Durability durability) {
  if (options_.inspect)
    return Error{ErrorKind::kUnsupported, "the cache is open for looking only; ask the daemon", options_.directory};
  if (batch.empty()) return {};
  if (options_.directory.empty()) {
    pending_used_ = true;
    return pending_.Write(batch, SyncMode::kNoSync);
  }
  // While the disk refuses, nothing is tried here: Sync does that, so that nobody who serves waits for it.
  Result<void> written = pending_used_ ? Result<void>(Refused()) : WriteUser(batch, durability);
  if (written) return {};
  KeepInMemory(batch);
  if (durability == Durability::kSynced) return std::move(written).error();
  return {};
}

Result<void> LayeredStore::WriteUser(const StoreBatch& batch, Durability durability) {
  if (repairing_) return Error{ErrorKind::kBusy, "the cache is being repaired; try again in a few seconds", ""};
  std::shared_ptr<Store> store = user();
  if (!store || !store->writable())
    return Error{ErrorKind::kIo, "the cache cannot be written: " + not_persisting(), ""};
  bool sync = durability == Durability::kSynced;
  Result<void> written = store->Write(batch, sync ? SyncMode::kSync : SyncMode::kNoSync);
  if (!written) {
    NoteRefused(written.error());
    if (written.error().kind == ErrorKind::kCorrupt) NoteDamage(Family::kRecords, "", written.error());
    return written;
  }
  bytes_written_ += batch.bytes();
  if (!sync) dirty_ = true;
  return {};
}

void LayeredStore::KeepInMemory(const StoreBatch& batch) {
  if (pending_.bytes() + batch.bytes() > options_.pending_bytes) {
    if (!std::exchange(said_full_, true))
      LogError("cache_dropping", {{"reason", "the disk refuses writes and memory for waiting records is full"},
                                  {"limit_bytes", options_.pending_bytes}});
    return;
  }
  (void)pending_.Write(batch, SyncMode::kNoSync);
  pending_used_ = true;
}

Error LayeredStore::Refused() const {
  if (repairing_) return Error{ErrorKind::kBusy, "the cache is being repaired; try again in a few seconds", ""};
  return Error{ErrorKind::kIo, "the cache cannot be written, and tries again every few seconds: " + not_persisting(),
               options_.directory};
}

// Makes the user's store writable again: opens a reader in its place, closes it, opens it anew.
Result<void> LayeredStore::Recover() {
  MutexLock one_at_a_time(recover_mutex_);
  std::shared_ptr<Store> store = user();
  if (store && store->writable() && !store->failed()) return {};
  if (store && store->writable()) {
    std::shared_ptr<Store> reader = HONE_TRY(OpenReader(UserDirectory()));
    HONE_TRY(Replace(std::move(store), std::move(reader)));
  } else {
    store.reset();
  }
  ReopenForWriting();
  store = user();
  if (!store || !store->writable()) return Error{ErrorKind::kIo, not_persisting(), options_.directory};
  return {};
}

// Puts `next` in the store's place and closes the store. Readers hold a store for one read or one walk: kBusy, and
// nothing is changed, while a long walk goes on.
Result<void> LayeredStore::Replace(std::shared_ptr<Store> store, std::shared_ptr<Store> next) {
  {
    MutexLock state(state_mutex_);
    user_ = std::move(next);
  }
  for (int i = 0; i < 100 && store.use_count() > 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (store.use_count() == 1) return {};
  MutexLock state(state_mutex_);
  user_ = std::move(store);
  return Error{ErrorKind::kBusy, "a walk through the cache goes on", options_.directory};
}

// Writes what waits in memory, synced.
Result<void> LayeredStore::DrainPending() {
  HONE_TRY(WriteUser(pending_.Copy(), Durability::kSynced));
  pending_.Clear();
  pending_used_ = false;
  said_full_ = false;
  NotePersisting();
  return {};
}

void LayeredStore::ReopenForWriting() {
  {
    MutexLock lock(state_mutex_);
    lock_.Reset();
  }
  Result<CacheDirectory> opened = OpenCacheDirectory(UserDirectory());
  if (!opened) return NoteRefused(opened.error());
  if (!opened->not_writable.empty()) {
    NoteRefused(Error{ErrorKind::kIo, opened->not_writable, ""});
    if (user()) opened->store = user();  // the one that readers have will do
  }
  Adopt(*std::move(opened));
}

void LayeredStore::Sync() {
  if (options_.directory.empty() || options_.inspect) return;
  if (pending_used_ || !not_persisting().empty()) {
    // At most every kRetryInterval, so that a full disk is not hammered.
    MonotonicTime now = std::chrono::steady_clock::now();
    if (now < next_attempt_) return;
    next_attempt_ = now + kRetryInterval;
    if (!Recover()) return;
    MutexLock lock(write_mutex_);
    if (!DrainPending()) return;
    next_attempt_ = MonotonicTime();
  }
  if (!dirty_.exchange(false)) return;
  std::shared_ptr<Store> store = user();
  if (!store) return;
  if (Result<void> synced = store->SyncLog(); !synced) {
    dirty_ = true;
    NoteRefused(synced.error());
  }
}

Result<void> LayeredStore::Flush() {
  if (options_.directory.empty() || options_.inspect) return {};
  if (pending_used_ || !not_persisting().empty()) HONE_TRY(Recover());
  MutexLock lock(write_mutex_);
  if (pending_used_) HONE_TRY(DrainPending());
  std::shared_ptr<Store> store = user();
  if (!store || !store->writable()) return {};
  HONE_TRY(store->SyncLog());
  dirty_ = false;
  return store->Flush();
}

MendedFiles LayeredStore::MendFiles() const {
  std::shared_ptr<Store> store = user();
  if (options_.inspect || !store || !store->writable()) return {};
  next_mend_ = std::chrono::steady_clock::now() + kRepairInterval;
  MendedFiles files = store->Mend().value_or(MendedFiles{0, 1});
  if (files.mended == 0) return files;
  SalvageReport report;
  report.mended = files.mended;
  MutexLock state(state_mutex_);
  if (files.damaged == 0) repaired_ = report.Text(kMetWhileReading);
  return files;
}

bool LayeredStore::Mend() const {
  MutexLock lock(mend_mutex_);
  return std::chrono::steady_clock::now() >= next_mend_ && MendFiles().mended > 0;
}

bool LayeredStore::RepairIfDamaged(const std::stop_token& stop) {
  if ((!damaged_ && !blob_damaged_) || options_.inspect || options_.directory.empty()) return false;
  std::shared_ptr<Store> store = user();
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (!store || !store->writable() || now < next_repair_) return false;
  if (!copied_) {
    MutexLock lock(mend_mutex_);
    if (!damaged_ && now < next_mend_) return false;
    blob_damaged_ = false;
    MendedFiles files = MendFiles();
    if (files.mended > 0 && files.damaged == 0) damaged_ = false;
    if (!damaged_) return files.mended > 0;
  }
  if (!copied_) {
    MarkDamaged(options_.directory);  // should we not get to the end of this
    {
      MutexLock lock(write_mutex_);
      repairing_ = true;
    }
    Result<SalvageReport> copied = SalvageLive(UserDirectory(), *store, stop);
    if (!copied) {
      LogError("cache_repair", {{"error", copied.error().Text()}});
      next_repair_ = std::chrono::steady_clock::now() + kRepairInterval;
      MutexLock lock(write_mutex_);
      repairing_ = false;
      return false;
    }
    copied_ = *std::move(copied);
  }
  return TakeCopy(std::move(store));
}

// Puts the finished copy in the store's place; reads miss for the moments in between.
bool LayeredStore::TakeCopy(std::shared_ptr<Store> store) {
  MutexLock one_at_a_time(recover_mutex_);
  if (store && !Replace(std::move(store), nullptr)) return false;  // the next call tries again
  ReopenForWriting();
  damaged_ = false;
  {
    MutexLock state(state_mutex_);
    repaired_ = copied_->Text(kMetWhileReading);
    if (!copied_->lossless()) losses_.push_back(repaired_);
  }
  copied_.reset();
  MutexLock lock(write_mutex_);
  repairing_ = false;
  if (pending_used_) (void)DrainPending();
  return true;
}

}  // namespace hone
