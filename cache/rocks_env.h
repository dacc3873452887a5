// RocksDB's file system, but for how writing a log fails. RocksDB 7.8 trips an assertion (those are compiled in, in
// Debian's build) when a background flush syncs a log whose last write failed, and the process is gone. So a log here
// takes every write and forgets what follows the first that failed; who writes asks afterwards whether one did.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/io_status.h>

#include <memory>
#include <string>

#include "base/mutex.h"

namespace hone {

// Of the logs of one database. Thread-safe.
class LogFate {
 public:
  void Note(const rocksdb::IOStatus& failure) {
    MutexLock lock(mutex_);
    if (first_.ok()) first_ = failure;
  }
  // The first failure, after which nothing was written any more; ok: there was none.
  rocksdb::IOStatus first() const {
    MutexLock lock(mutex_);
    return first_;
  }

 private:
  mutable Mutex mutex_;
  rocksdb::IOStatus first_ HONE_GUARDED_BY(mutex_);
};

// `base` outlives it.
std::shared_ptr<rocksdb::Env> MakeLogEnv(rocksdb::Env* base, std::shared_ptr<LogFate> fate);

}  // namespace hone
