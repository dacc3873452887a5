// The store on disk: RocksDB, one column family per Family, artifacts in blob files. Only rocks_*.cc see its headers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "cache/salvage.h"
#include "cache/store.h"

namespace hone {

enum class RocksMode : uint8_t {
  kReadWrite,  // the one writer; creates what is missing
  kReadOnly,   // a directory that nobody writes at the moment, or that cannot be written
  kSecondary,  // a live cache, beside its writer
};

struct RocksOptions {
  std::string path;
  RocksMode mode = RocksMode::kReadWrite;
  uint64_t memory_bytes = 64ull << 20;  // block cache and write buffers together
  // Opens what can be opened of a damaged database: unreadable tables and log records fail when read, not now.
  bool lenient = false;
  rocksdb::Env* env = nullptr;
};

// kCorrupt: damaged, see SalvageRocksStore. kBusy: another writer. kLimit: no space. kNotFound: nothing there (not with
// kReadWrite). kUnsupported: written by a newer RocksDB. kIo.
Result<std::unique_ptr<Store>> OpenRocksStore(const RocksOptions& options);

// A database is here, whole or in parts.
bool RocksFilesExist(const std::string& path);
// The database can be told to open: it has what points to its other files.
bool RocksIsComplete(const std::string& path);

// Copies everything that can still be read from the damaged database `from` into a new one at `to` (created; must not
// exist). May rewrite parts of `from`. `has_manifest`: its list of files is whole.
// REQUIRES: MendLogs went through `from`.
Result<SalvageReport> SalvageRocksStore(const std::string& from, const std::string& to, bool has_manifest,
                                        rocksdb::Env* env);

}  // namespace hone
