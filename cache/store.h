// A small ordered key-value store with families: all that the cache asks of its database. RocksDB stands behind it
// (cache/rocks_store.h), or plain memory (cache/memory_store.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rocksdb {
class Env;
}

namespace hone {

// Stored (as RocksDB's column families, by name): never rename one.
enum class Family : uint8_t { kKernels = 0, kRecords = 1, kArtifacts = 2, kTrials = 3, kModels = 4, kMeta = 5 };
inline constexpr std::array<std::string_view, 6> kFamilyNames = {"kernels", "records", "artifacts",
                                                                 "trials",  "models",  "meta"};
inline constexpr size_t kFamilies = kFamilyNames.size();
inline std::string_view NameOf(Family family) { return kFamilyNames[static_cast<size_t>(family)]; }

// Writes that happen all or none.
class StoreBatch {
 public:
  struct Operation {
    Family family;
    std::string key;
    std::optional<std::string> value;  // nullopt: delete
  };
  void Put(Family family, std::string key, std::string value) {
    bytes_ += key.size() + value.size();
    operations_.push_back({family, std::move(key), std::move(value)});
  }
  void Delete(Family family, std::string key) {
    bytes_ += key.size();
    operations_.push_back({family, std::move(key), std::nullopt});
  }
  const std::vector<Operation>& operations() const { return operations_; }
  size_t bytes() const { return bytes_; }
  bool empty() const { return operations_.empty(); }

 private:
  std::vector<Operation> operations_;
  size_t bytes_ = 0;
};

// A snapshot of one family, in key order. Not thread-safe.
class StoreIterator {
 public:
  virtual ~StoreIterator() = default;
  virtual void Seek(std::string_view key) = 0;  // to the first key ≥ this one
  virtual void Next() = 0;
  virtual bool Valid() const = 0;  // false at the end, or after a failure: see status
  virtual std::string_view key() const = 0;
  virtual std::string_view value() const = 0;
  virtual Result<void> status() const = 0;  // kCorrupt, kIo
};

struct FamilySize {
  uint64_t entries = 0;  // estimated
  uint64_t bytes = 0;    // tables and blobs on disk
};

struct MendedFiles {
  uint64_t mended = 0;   // files in which one flipped bit was set right
  uint64_t damaged = 0;  // damaged otherwise, or not to be read
};

enum class SyncMode : uint8_t { kNoSync, kSync };

// Thread-safe.
class Store {
 public:
  virtual ~Store() = default;
  virtual Result<std::optional<std::string>> Get(Family family, std::string_view key) const = 0;
  virtual Result<void> Write(const StoreBatch& batch, SyncMode sync) = 0;
  virtual std::unique_ptr<StoreIterator> Iterate(Family family) const = 0;
  virtual Result<void> SyncLog() = 0;  // what Write left un-synced is on disk afterwards
  virtual Result<void> Flush() = 0;    // write buffers into tables
  // Gives the space of deleted values back; of a blob family, rewrites the oldest `blob_share` (0 … 1) of its files.
  virtual Result<void> Compact(Family family, double blob_share) = 0;
  // Sets single flipped bits in its files right, by the checksums that it keeps of them; readers go on meanwhile. A
  // file that is damaged otherwise, or has no checksum, is left as it is.
  virtual Result<MendedFiles> Mend() = 0;
  // A write failed. Reading goes on, writing does not: open the store again.
  virtual bool failed() const = 0;
  virtual Result<void> CatchUp() = 0;  // an inspecting store: sees what the writer wrote since
  virtual FamilySize SizeOf(Family family) const = 0;
  virtual uint64_t MemoryUsage() const = 0;
  virtual bool writable() const = 0;
};

}  // namespace hone
