// File systems for tests of the cache: one that runs full or turns read-only, and one that forgets at a power cut what
// was not synced. RocksDB's own (FaultInjectionTestFS) lives in its test tree only.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/system_clock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "base/mutex.h"
#include "base/rng.h"

namespace hone {

// Behaves as the real file system until told otherwise. Thread-safe.
//
// The model of a power cut: of each file, what was written after its last sync is lost from a random point on. A file
// created, renamed or deleted since its directory's last sync is, at random, as before or as after.
class FaultFileSystem : public rocksdb::FileSystemWrapper {
 public:
  enum class Fault { kNone, kNoSpace, kReadOnly, kDead };

  FaultFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "FaultFileSystem"; }

  void Set(Fault fault) {
    MutexLock lock(mutex_);
    fault_ = fault;
  }

  // No operation changes a file after this.
  void CutPower() { Set(Fault::kDead); }

  // What the disk holds after the cut; at worst nothing that was not synced. REQUIRES: CutPower, and nobody uses this
  // file system any more.
  void LoseUnsynced(Rng& rng, bool worst = false) {
    MutexLock lock(mutex_);
    for (auto& [path, change] : names_) {
      if (!worst && rng.Chance(0.5)) continue;
      if (change.before) {
        std::ofstream(path, std::ios::binary | std::ios::trunc) << *change.before;
        files_.erase(path);
      } else {
        std::filesystem::remove(path);
        files_.erase(path);
      }
    }
    for (auto& [path, file] : files_) {
      if (file.size <= file.synced || !std::filesystem::exists(path)) continue;
      uint64_t kept = file.synced + (worst ? 0 : rng.Below(file.size - file.synced + 1));
      if (std::filesystem::file_size(path) > kept) std::filesystem::resize_file(path, kept);
    }
  }

  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result,
                                    rocksdb::IODebugContext* debug) override {
    if (rocksdb::IOStatus failed = Check(); !failed.ok()) return failed;
    bool existed = std::filesystem::exists(path);
    std::unique_ptr<rocksdb::FSWritableFile> file;
    rocksdb::IOStatus status = target()->NewWritableFile(path, options, &file, debug);
    if (!status.ok()) return status;
    MutexLock lock(mutex_);
    files_[path] = {};
    if (!existed) names_.try_emplace(path);
    *result = std::make_unique<File>(path, std::move(file), *this);
    return status;
  }

  rocksdb::IOStatus ReopenWritableFile(const std::string&, const rocksdb::FileOptions&,
                                       std::unique_ptr<rocksdb::FSWritableFile>*, rocksdb::IODebugContext*) override {
    return rocksdb::IOStatus::NotSupported("not modelled");
  }
  rocksdb::IOStatus ReuseWritableFile(const std::string&, const std::string&, const rocksdb::FileOptions&,
                                      std::unique_ptr<rocksdb::FSWritableFile>*, rocksdb::IODebugContext*) override {
    return rocksdb::IOStatus::NotSupported("not modelled");
  }

  rocksdb::IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* result,
                                 rocksdb::IODebugContext* debug) override {
    std::unique_ptr<rocksdb::FSDirectory> directory;
    rocksdb::IOStatus status = target()->NewDirectory(path, options, &directory, debug);
    if (status.ok()) *result = std::make_unique<Directory>(path, std::move(directory), *this);
    return status;
  }

  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override {
    if (rocksdb::IOStatus failed = CheckChange(); !failed.ok()) return failed;
    MutexLock lock(mutex_);
    files_.erase(path);
    names_.erase(path);
    return target()->DeleteFile(path, options, debug);
  }

  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override {
    if (rocksdb::IOStatus failed = Check(); !failed.ok()) return failed;
    MutexLock lock(mutex_);
    NameChange change;
    if (std::filesystem::exists(to)) {
      std::ostringstream before;
      before << std::ifstream(to, std::ios::binary).rdbuf();
      change.before = before.str();
    }
    rocksdb::IOStatus status = target()->RenameFile(from, to, options, debug);
    if (!status.ok()) return status;
    names_.try_emplace(to, std::move(change));
    names_.erase(from);
    if (auto moved = files_.extract(from); !moved.empty()) {
      files_.erase(to);
      moved.key() = to;
      files_.insert(std::move(moved));
    }
    return status;
  }

  rocksdb::IOStatus CreateDir(const std::string& path, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus failed = Check();
    return failed.ok() ? target()->CreateDir(path, options, debug) : failed;
  }
  rocksdb::IOStatus CreateDirIfMissing(const std::string& path, const rocksdb::IOOptions& options,
                                       rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus failed = std::filesystem::exists(path) ? rocksdb::IOStatus::OK() : Check();
    return failed.ok() ? target()->CreateDirIfMissing(path, options, debug) : failed;
  }

 private:
  struct FileState {
    uint64_t size = 0, synced = 0;
  };
  struct NameChange {
    std::optional<std::string> before;  // contents under this name as of the directory's last sync; nullopt: none
  };

  // May something be written?
  rocksdb::IOStatus Check() const {
    MutexLock lock(mutex_);
    switch (fault_) {
      case Fault::kNone: return rocksdb::IOStatus::OK();
      case Fault::kNoSpace: return rocksdb::IOStatus::NoSpace("No space left on device");
      case Fault::kReadOnly: return rocksdb::IOStatus::IOError("Read-only file system");
      case Fault::kDead: return rocksdb::IOStatus::IOError("the power is cut");
    }
    return rocksdb::IOStatus::OK();
  }
  // Deleting needs no space.
  rocksdb::IOStatus CheckChange() const {
    rocksdb::IOStatus status = Check();
    return status.IsNoSpace() ? rocksdb::IOStatus::OK() : status;
  }

  void Grew(const std::string& path, uint64_t bytes) {
    MutexLock lock(mutex_);
    files_[path].size += bytes;
  }
  void Synced(const std::string& path) {
    MutexLock lock(mutex_);
    files_[path].synced = files_[path].size;
  }
  void SyncedDirectory(const std::string& directory) {
    MutexLock lock(mutex_);
    std::erase_if(names_, [&](const auto& entry) {
      return std::filesystem::path(entry.first).parent_path() == std::filesystem::path(directory);
    });
  }

  class File : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    File(std::string path, std::unique_ptr<rocksdb::FSWritableFile> file, FaultFileSystem& system)
        : FSWritableFileOwnerWrapper(std::move(file)), path_(std::move(path)), system_(system) {}

    rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override {
      if (rocksdb::IOStatus failed = system_.Check(); !failed.ok()) return failed;
      rocksdb::IOStatus status = target()->Append(data, options, debug);
      if (status.ok()) system_.Grew(path_, data.size());
      return status;
    }
    rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                             const rocksdb::DataVerificationInfo&, rocksdb::IODebugContext* debug) override {
      return Append(data, options, debug);
    }
    rocksdb::IOStatus Truncate(uint64_t size, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override {
      if (rocksdb::IOStatus failed = system_.CheckChange(); !failed.ok()) return failed;
      return target()->Truncate(size, options, debug);
    }
    rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
      if (rocksdb::IOStatus failed = system_.CheckChange(); !failed.ok()) return failed;
      // The test's machine stays on: flushing to the kernel is all that is needed for it to see what was "synced".
      rocksdb::IOStatus status = target()->Flush(options, debug);
      if (status.ok()) system_.Synced(path_);
      return status;
    }
    rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
      return Sync(options, debug);
    }
    rocksdb::IOStatus RangeSync(uint64_t, uint64_t, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
      return rocksdb::IOStatus::OK();  // promises nothing
    }

   private:
    const std::string path_;
    FaultFileSystem& system_;
  };

  class Directory : public rocksdb::FSDirectoryWrapper {
   public:
    Directory(std::string path, std::unique_ptr<rocksdb::FSDirectory> directory, FaultFileSystem& system)
        : FSDirectoryWrapper(std::move(directory)), path_(std::move(path)), system_(system) {}
    rocksdb::IOStatus Fsync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override { return Note(); }
    rocksdb::IOStatus FsyncWithDirOptions(const rocksdb::IOOptions&, rocksdb::IODebugContext*,
                                          const rocksdb::DirFsyncOptions&) override {
      return Note();
    }

   private:
    rocksdb::IOStatus Note() {
      if (rocksdb::IOStatus failed = system_.CheckChange(); !failed.ok()) return failed;
      system_.SyncedDirectory(path_);
      return rocksdb::IOStatus::OK();
    }

    const std::string path_;
    FaultFileSystem& system_;
  };

  mutable Mutex mutex_;
  Fault fault_ HONE_GUARDED_BY(mutex_) = Fault::kNone;
  std::map<std::string, FileState> files_ HONE_GUARDED_BY(mutex_);   // written through here
  std::map<std::string, NameChange> names_ HONE_GUARDED_BY(mutex_);  // since the directory's last sync
};

// An Env around such a file system. RocksDB's background threads sleep for a second after each error; here they do not.
class FaultEnv : public rocksdb::EnvWrapper {
 public:
  FaultEnv() : FaultEnv(std::make_shared<FaultFileSystem>()) {}
  FaultFileSystem& files() { return *files_; }

 private:
  class HastyClock : public rocksdb::SystemClockWrapper {
   public:
    HastyClock() : SystemClockWrapper(rocksdb::SystemClock::Default()) {}
    const char* Name() const override { return "HastyClock"; }
    void SleepForMicroseconds(int micros) override { SystemClockWrapper::SleepForMicroseconds(std::min(micros, 1000)); }
  };

  explicit FaultEnv(std::shared_ptr<FaultFileSystem> files)
      : EnvWrapper(rocksdb::NewCompositeEnv(files)), files_(std::move(files)) {
    file_system_ = files_;
    system_clock_ = std::make_shared<HastyClock>();
  }

  std::shared_ptr<FaultFileSystem> files_;
};

}  // namespace hone
