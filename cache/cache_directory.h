// One cache directory on disk: who may write it, which format it has, and how it comes back after damage.
//
//   LOCK        held (flock) by the one writer
//   FORMAT      "hone cache\nformat 1\n" and a checksum, written first
//   DAMAGED     present: reading met damage; the next opening for writing salvages
//   db/         the database
//   db.rebuilt/ db.repaired/   a salvage under way, and a finished one about to take db's place
//   damaged-N/  the database before the last salvage, kept while something in it was lost
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cache/salvage.h"
#include "cache/store.h"

namespace hone {

inline constexpr int kCacheFormat = 1;

enum class DirectoryMode : uint8_t {
  kWrite,    // the one writer, if the directory can be written; else as kRead
  kRead,     // a layer that nobody writes meanwhile
  kInspect,  // beside a live writer
};

struct DirectoryOptions {
  std::string path;
  DirectoryMode mode = DirectoryMode::kWrite;
  uint64_t memory_bytes = 64ull << 20;
  rocksdb::Env* env = nullptr;
};

struct CacheDirectory {
  UniqueFd lock;                 // while it is ours to write
  std::shared_ptr<Store> store;  // null: nothing could be opened, not even for reading (kWrite only)
  std::string not_writable;      // kWrite: why it is not; "" if it is
  std::string repaired;          // kWrite: what was repaired, why, and what was lost; "" if nothing
  bool lost = false;             // kWrite: something was
};

// kBusy: another writer. kUnsupported: a newer hone's. kNotFound (kRead, kInspect): no cache there. kInvalid: somebody
// else can change it, or it is reached through a link (cache/trust.h). kCorrupt, kIo.
// kWrite never fails because of a full, read-only or forbidden directory: see not_writable.
Result<CacheDirectory> OpenCacheDirectory(const DirectoryOptions& options);

// For a running cache whose store failed: a reader to bridge the time until that is closed and opened again.
Result<std::unique_ptr<Store>> OpenReader(const DirectoryOptions& options);

// Why a running cache is repaired.
inline constexpr std::string_view kMetWhileReading = "damage was met while reading";

// For a running cache whose store met damage: copies what can be read of it, readers going on meanwhile and writers
// kept away by the caller. The copy takes the database's place at the next OpenCacheDirectory. kBusy if it was stopped.
Result<SalvageReport> SalvageLive(const DirectoryOptions& options, const Store& live, const std::stop_token& stop);

// Leaves word for the next opening. Failing to is logged and otherwise harmless.
void MarkDamaged(const std::string& path);

// Bytes on disk of the cache's own files, those with names that `counts`: what programs keep in a directory of their
// own there (client/api/disk_cache) is no part of it.
uint64_t CacheBytes(const std::string& path, const CountsFile& counts = nullptr);

// Deletes databases set aside by salvages. Returns the bytes freed.
uint64_t RemoveDamagedCopies(const std::string& path);

}  // namespace hone
