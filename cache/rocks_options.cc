// RocksDB's settings. The numbers behind them are printed by bench/cache_bench.cc.
#include "cache/rocks_options.h"

#include <fmt/format.h>
#include <rocksdb/env.h>
#include <rocksdb/file_checksum.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/write_buffer_manager.h>

#include <cstdarg>
#include <cstdio>

#include "base/log.h"

namespace hone {
namespace {

// RocksDB's own log: warnings and errors go to hone's, the rest nowhere.
class ForwardingLogger : public rocksdb::Logger {
 public:
  ForwardingLogger() : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    char text[512];
    std::vsnprintf(text, sizeof(text), format, arguments);
    LogDebug("rocksdb", {{"text", text}});
  }
};

// Keeps RocksDB from resuming by itself after an error: the cache opens it again (see RocksStore::failed_).
class NoOwnRecovery : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status, bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

std::shared_ptr<rocksdb::TableFactory> TableWith(const std::shared_ptr<rocksdb::Cache>& cache, size_t block_size) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.block_size = block_size;
  table.format_version = 5;
  table.checksum = rocksdb::kXXH3;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));  // a miss reads no data block in 99 of 100 cases
  table.optimize_filters_for_memory = true;
  table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
  // Index and filters count against the cache's memory and stay in it.
  table.cache_index_and_filter_blocks = true;
  table.metadata_cache_options.top_level_index_pinning = rocksdb::PinningTier::kAll;
  table.metadata_cache_options.partition_pinning = rocksdb::PinningTier::kAll;
  table.metadata_cache_options.unpartitioned_pinning = rocksdb::PinningTier::kAll;
  return std::shared_ptr<rocksdb::TableFactory>(rocksdb::NewBlockBasedTableFactory(table));
}

}  // namespace

RocksSettings MakeRocksSettings(const RocksOptions& options) {
  RocksSettings settings;
  uint64_t buffers = options.memory_bytes / 4;
  settings.block_cache = rocksdb::NewLRUCache(options.memory_bytes - buffers);

  rocksdb::DBOptions& db = settings.db;
  if (options.env != nullptr) db.env = options.env;
  if (options.mode == RocksMode::kReadWrite) {
    settings.env = MakeLogEnv(db.env, settings.log_fate);
    db.env = settings.env.get();
  }
  db.create_if_missing = options.mode == RocksMode::kReadWrite;
  db.create_missing_column_families = true;
  db.info_log = std::make_shared<ForwardingLogger>();
  db.paranoid_checks = !options.lenient;
  // Torn ends of logs were cut off before (cache/mend.h): what is not whole now is refused, and salvaged.
  db.wal_recovery_mode = options.lenient ? rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords
                                         : rocksdb::WALRecoveryMode::kAbsoluteConsistency;
  db.file_checksum_gen_factory = rocksdb::GetFileChecksumGenCrc32cFactory();  // what Store::Mend goes by
  db.max_total_wal_size = 32 << 20;  // what an opening after kill -9 has to replay at most
  db.write_buffer_manager = std::make_shared<rocksdb::WriteBufferManager>(buffers);
  db.max_background_jobs = 2;
  db.max_open_files =
      options.mode == RocksMode::kSecondary ? -1 : 512;  // held open, so that the writer may delete them
  db.avoid_unnecessary_blocking_io = true;
  db.allow_fallocate = false;  // a log of a few kilobytes takes a few kilobytes, also on a disk that is nearly full
  db.max_bgerror_resume_count = 0;
  db.listeners.push_back(std::make_shared<NoOwnRecovery>());

  rocksdb::ColumnFamilyOptions base;
  base.write_buffer_size = 1 << 20;
  base.level_compaction_dynamic_level_bytes = true;
  base.compression = rocksdb::kLZ4Compression;
  base.table_factory = TableWith(settings.block_cache, 4 << 10);
  settings.small = base;

  settings.records = base;
  settings.records.write_buffer_size = 8 << 20;
  settings.records.compression = rocksdb::kZSTD;
  settings.records.compression_opts.max_dict_bytes = 32 << 10;
  settings.records.compression_opts.zstd_max_train_bytes = 4 << 20;
  settings.records.compression_opts.level = 3;
  settings.records.table_factory = TableWith(settings.block_cache, 4 << 10);

  settings.artifacts = base;
  settings.artifacts.write_buffer_size = 8 << 20;
  settings.artifacts.enable_blob_files = true;
  settings.artifacts.min_blob_size = 512;
  settings.artifacts.blob_file_size = 32 << 20;
  settings.artifacts.blob_compression_type = rocksdb::kLZ4Compression;
  settings.artifacts.enable_blob_garbage_collection = true;
  settings.artifacts.blob_garbage_collection_age_cutoff = 0.25;
  settings.artifacts.blob_garbage_collection_force_threshold = 0.5;
  return settings;
}

std::vector<rocksdb::ColumnFamilyDescriptor> DescribeFamilies(const RocksSettings& settings) {
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  families.emplace_back(rocksdb::kDefaultColumnFamilyName, settings.small);
  for (size_t i = 0; i < kFamilies; ++i) {
    Family family = static_cast<Family>(i);
    bool many = family == Family::kRecords || family == Family::kKernels || family == Family::kTrials;
    families.emplace_back(std::string(kFamilyNames[i]), family == Family::kArtifacts ? settings.artifacts
                                                        : many                       ? settings.records
                                                                                     : settings.small);
  }
  return families;
}

Result<void> FromStatus(const rocksdb::Status& status, std::string_view what) {
  if (status.ok()) return {};
  ErrorKind kind = ErrorKind::kIo;
  if (status.IsCorruption())
    kind = ErrorKind::kCorrupt;
  else if (status.IsNoSpace())
    kind = ErrorKind::kLimit;
  else if (status.IsNotFound() || status.IsPathNotFound())
    kind = ErrorKind::kNotFound;
  else if (status.IsBusy() || status.IsTryAgain())
    kind = ErrorKind::kBusy;
  else if (status.IsNotSupported())
    kind = ErrorKind::kUnsupported;
  return Error{kind, fmt::format("cannot {}: {}", what, status.ToString()), ""};
}

}  // namespace hone
