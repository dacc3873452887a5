#include "cache/rocks_store.h"

#include <fmt/format.h>

#include <atomic>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "cache/memory_store.h"
#include "cache/rocks_options.h"

namespace hone {
namespace {

rocksdb::Slice AsSlice(std::string_view text) { return {text.data(), text.size()}; }

class RocksIterator : public StoreIterator {
 public:
  explicit RocksIterator(std::unique_ptr<rocksdb::Iterator> iterator) : iterator_(std::move(iterator)) {}
  void Seek(std::string_view key) override { iterator_->Seek(AsSlice(key)); }
  void Next() override { iterator_->Next(); }
  bool Valid() const override { return iterator_->Valid(); }
  std::string_view key() const override { return iterator_->key().ToStringView(); }
  std::string_view value() const override { return iterator_->value().ToStringView(); }
  Result<void> status() const override { return FromStatus(iterator_->status(), "iterate"); }

 private:
  std::unique_ptr<rocksdb::Iterator> iterator_;
};

class RocksStore : public Store {
 public:
  RocksStore(std::unique_ptr<rocksdb::DB> db, std::vector<rocksdb::ColumnFamilyHandle*> handles, RocksSettings settings,
             RocksMode mode)
      : settings_(std::move(settings)), db_(std::move(db)), handles_(std::move(handles)), mode_(mode) {}

  ~RocksStore() override {
    // Nothing is left for the next opening to replay.
    if (writable() && !failed_)
      if (Result<void> flushed = Flush(); !flushed) LogWarn("cache_flush", {{"error", flushed.error().Text()}});
    for (rocksdb::ColumnFamilyHandle* handle : handles_) db_->DestroyColumnFamilyHandle(handle);
    rocksdb::Status closed = db_->Close();
    if (!closed.ok()) LogWarn("cache_close", {{"error", closed.ToString()}});
  }

  Result<std::optional<std::string>> Get(Family family, std::string_view key) const override {
    std::string value;
    rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), HandleOf(family), AsSlice(key), &value);
    if (status.IsNotFound()) return std::nullopt;
    HONE_TRY(FromStatus(status, "read"));
    return value;
  }

  Result<void> Write(const StoreBatch& batch, SyncMode sync) override {
    rocksdb::WriteBatch out;
    for (const StoreBatch::Operation& operation : batch.operations()) {
      rocksdb::ColumnFamilyHandle* handle = HandleOf(operation.family);
      rocksdb::Status added =
          operation.value ? out.Put(handle, operation.key, *operation.value) : out.Delete(handle, operation.key);
      HONE_TRY(FromStatus(added, "batch"));
    }
    rocksdb::WriteOptions options;
    options.sync = sync == SyncMode::kSync;
    HONE_TRY(CheckAlive());
    return Note(db_->Write(options, &out), "write");
  }

  std::unique_ptr<StoreIterator> Iterate(Family family) const override {
    rocksdb::ReadOptions options;
    options.fill_cache = false;  // a walk through everything must not push out what lookups need
    options.readahead_size = 256 << 10;
    return std::make_unique<RocksIterator>(
        std::unique_ptr<rocksdb::Iterator>(db_->NewIterator(options, HandleOf(family))));
  }

  Result<void> SyncLog() override {
    HONE_TRY(CheckAlive());
    // A synced write of nothing, and not SyncWAL: that one does not look whether an earlier write failed (see failed_).
    rocksdb::WriteBatch nothing;
    nothing.PutLogData("sync");
    rocksdb::WriteOptions options;
    options.sync = true;
    return Note(db_->Write(options, &nothing), "sync the log");
  }

  Result<void> Flush() override {
    HONE_TRY(CheckAlive());
    return Note(db_->Flush(rocksdb::FlushOptions(), handles_), "flush");
  }

  Result<void> Compact(Family family, double blob_share) override {
    rocksdb::CompactRangeOptions options;
    options.exclusive_manual_compaction = false;
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
    if (family == Family::kArtifacts) {
      options.blob_garbage_collection_policy = rocksdb::BlobGarbageCollectionPolicy::kForce;
      options.blob_garbage_collection_age_cutoff = blob_share;
    }
    HONE_TRY(CheckAlive());
    HONE_TRY(FromStatus(db_->CompactRange(options, HandleOf(family), nullptr, nullptr), "compact"));
    // Deletes what the compaction replaced now, and not when a background thread gets to it: the caller counts bytes.
    HONE_TRY(FromStatus(db_->DisableFileDeletions(), "compact"));
    return FromStatus(db_->EnableFileDeletions(/*force=*/false), "compact");
  }

  Result<MendedFiles> Mend() override {
    return MendRocksFiles(*db_, rocksdb::Options(settings_.db, settings_.records));
  }

  bool failed() const override { return failed_; }

  Result<void> CatchUp() override {
    if (mode_ != RocksMode::kSecondary) return {};
    return FromStatus(db_->TryCatchUpWithPrimary(), "catch up");
  }

  FamilySize SizeOf(Family family) const override {
    return {Property(family, rocksdb::DB::Properties::kEstimateNumKeys),
            Property(family, rocksdb::DB::Properties::kLiveSstFilesSize) +
                Property(family, rocksdb::DB::Properties::kLiveBlobFileSize)};
  }

  uint64_t MemoryUsage() const override {
    uint64_t bytes = settings_.block_cache->GetUsage();
    for (size_t i = 0; i < kFamilies; ++i) {
      bytes += Property(static_cast<Family>(i), rocksdb::DB::Properties::kCurSizeAllMemTables);
      bytes += Property(static_cast<Family>(i), rocksdb::DB::Properties::kEstimateTableReadersMem);
    }
    return bytes;
  }

  bool writable() const override { return mode_ == RocksMode::kReadWrite; }

 private:
  rocksdb::ColumnFamilyHandle* HandleOf(Family family) const { return handles_[1 + static_cast<size_t>(family)]; }

  uint64_t Property(Family family, const std::string& name) const {
    uint64_t value = 0;
    return db_->GetIntProperty(HandleOf(family), name, &value) ? value : 0;
  }

  // The log hides its failures from RocksDB: see cache/rocks_env.h.
  Result<void> Note(const rocksdb::Status& status, std::string_view what) {
    const rocksdb::IOStatus log = settings_.log_fate->first();
    Result<void> result = FromStatus(status.ok() ? log : status, what);
    if (!result) failed_ = true;
    return result;
  }
  Result<void> CheckAlive() const {
    if (!failed_) return {};
    return Error{ErrorKind::kIo, "an earlier write failed", ""};
  }

  // After a failed write only reading and closing are safe: the log has a hole then.
  std::atomic<bool> failed_{false};
  RocksSettings settings_;  // outlives the database
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;  // "default", then the families in order
  const RocksMode mode_;
};

// An iterator with the store it walks through.
class OwningIterator : public StoreIterator {
 public:
  OwningIterator(std::unique_ptr<Store> store, Family family)
      : store_(std::move(store)), entries_(store_->Iterate(family)) {}
  void Seek(std::string_view key) override { entries_->Seek(key); }
  void Next() override { entries_->Next(); }
  bool Valid() const override { return entries_->Valid(); }
  std::string_view key() const override { return entries_->key(); }
  std::string_view value() const override { return entries_->value(); }
  Result<void> status() const override { return entries_->status(); }

 private:
  std::unique_ptr<Store> store_;
  std::unique_ptr<StoreIterator> entries_;
};

// A secondary whose artifacts are read through a read-only instance: RocksDB 7.8's secondaries crash on blobs (their
// VersionSet keeps references to temporaries). That instance sees the database as of its opening, so it is opened again
// when an artifact is not found.
class SecondaryStore : public Store {
 public:
  SecondaryStore(std::unique_ptr<Store> secondary, RocksOptions options)
      : secondary_(std::move(secondary)), options_(std::move(options)) {
    options_.mode = RocksMode::kReadOnly;
  }

  Result<std::optional<std::string>> Get(Family family, std::string_view key) const override {
    if (family != Family::kArtifacts) return secondary_->Get(family, key);
    MutexLock lock(mutex_);
    if (artifacts_) {
      Result<std::optional<std::string>> value = artifacts_->Get(family, key);
      if (value && *value) return value;
      if (std::chrono::steady_clock::now() - opened_ < kRefresh) return value;
    }
    HONE_TRY(OpenArtifacts());
    return artifacts_->Get(family, key);
  }

  std::unique_ptr<StoreIterator> Iterate(Family family) const override {
    if (family != Family::kArtifacts) return secondary_->Iterate(family);
    Result<std::unique_ptr<Store>> reader = OpenRocksStore(options_);
    if (!reader) return MemoryStore().Iterate(family);
    return std::make_unique<OwningIterator>(*std::move(reader), family);
  }

  Result<void> Write(const StoreBatch&, SyncMode) override { return LookingOnly(); }
  Result<void> SyncLog() override { return LookingOnly(); }
  Result<void> Flush() override { return LookingOnly(); }
  Result<void> Compact(Family, double) override { return LookingOnly(); }
  Result<MendedFiles> Mend() override { return LookingOnly(); }
  bool failed() const override { return false; }
  bool writable() const override { return false; }
  Result<void> CatchUp() override { return secondary_->CatchUp(); }
  FamilySize SizeOf(Family family) const override { return secondary_->SizeOf(family); }
  uint64_t MemoryUsage() const override { return secondary_->MemoryUsage(); }

 private:
  static constexpr std::chrono::seconds kRefresh{1};

  Error LookingOnly() const { return Error{ErrorKind::kUnsupported, "open for looking only", options_.path}; }

  Result<void> OpenArtifacts() const HONE_REQUIRES(mutex_) {
    artifacts_ = HONE_TRY(OpenRocksStore(options_));
    opened_ = std::chrono::steady_clock::now();
    return {};
  }

  const std::unique_ptr<Store> secondary_;
  RocksOptions options_;
  mutable Mutex mutex_;
  mutable std::unique_ptr<Store> artifacts_ HONE_GUARDED_BY(mutex_);
  mutable MonotonicTime opened_ HONE_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<Store>> OpenRocksStore(const RocksOptions& options) {
  RocksSettings settings = MakeRocksSettings(options);
  std::vector<rocksdb::ColumnFamilyDescriptor> families = DescribeFamilies(settings);
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  rocksdb::Status status;
  switch (options.mode) {
    case RocksMode::kReadWrite: status = rocksdb::DB::Open(settings.db, options.path, families, &handles, &db); break;
    case RocksMode::kReadOnly:
      status = rocksdb::DB::OpenForReadOnly(settings.db, options.path, families, &handles, &db);
      break;
    case RocksMode::kSecondary:  // its second path is for a log of its own, which ours replaces: nothing is written
      status = rocksdb::DB::OpenAsSecondary(settings.db, options.path, options.path, families, &handles, &db);
      break;
  }
  std::unique_ptr<rocksdb::DB> owned(db);
  Result<void> opened = FromStatus(status, "open");
  if (!opened) {
    opened.error().where = options.path;
    return std::move(opened).error();
  }
  HONE_CHECK(handles.size() == families.size());
  auto store = std::make_unique<RocksStore>(std::move(owned), std::move(handles), std::move(settings), options.mode);
  if (options.mode != RocksMode::kSecondary) return store;
  HONE_TRY(store->CatchUp());
  return std::make_unique<SecondaryStore>(std::move(store), options);
}

}  // namespace hone
