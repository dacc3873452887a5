// How RocksDB is set up for the cache, and how its statuses become errors. For rocks_*.cc alone.
#pragma once

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/rocks_env.h"
#include "cache/rocks_store.h"

namespace hone {

struct RocksSettings {
  std::shared_ptr<LogFate> log_fate = std::make_shared<LogFate>();
  std::shared_ptr<rocksdb::Env> env;  // null where nothing is written; outlives the database
  std::shared_ptr<rocksdb::Cache> block_cache;
  rocksdb::DBOptions db;
  rocksdb::ColumnFamilyOptions small;      // models, meta, default
  rocksdb::ColumnFamilyOptions records;    // many similar values of about a kilobyte; kernels and trials too
  rocksdb::ColumnFamilyOptions artifacts;  // keys in tables, values in blob files
};

RocksSettings MakeRocksSettings(const RocksOptions& options);
// "default", then the families in order.
std::vector<rocksdb::ColumnFamilyDescriptor> DescribeFamilies(const RocksSettings& settings);

// Store::Mend for an open database. `table_options`: with which its tables are read.
MendedFiles MendRocksFiles(rocksdb::DB& db, const rocksdb::Options& table_options);

Result<void> FromStatus(const rocksdb::Status& status, std::string_view what);

}  // namespace hone
