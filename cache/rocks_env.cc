#include "cache/rocks_env.h"

#include <utility>

namespace hone {
namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

class WatchedLog : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  WatchedLog(std::unique_ptr<rocksdb::FSWritableFile> file, std::shared_ptr<LogFate> fate)
      : FSWritableFileOwnerWrapper(std::move(file)), fate_(std::move(fate)) {}

  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options, IODebugContext* debug) override {
    return Try([&] { return target()->Append(data, options, debug); });
  }
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& verification, IODebugContext* debug) override {
    return Try([&] { return target()->Append(data, options, verification, debug); });
  }
  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* debug) override {
    return Try([&] { return target()->Truncate(size, options, debug); });
  }
  IOStatus Flush(const IOOptions& options, IODebugContext* debug) override {
    return Try([&] { return target()->Flush(options, debug); });
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return Try([&] { return target()->Sync(options, debug); });
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Try([&] { return target()->Fsync(options, debug); });
  }
  IOStatus RangeSync(uint64_t offset, uint64_t size, const IOOptions& options, IODebugContext* debug) override {
    return Try([&] { return target()->RangeSync(offset, size, options, debug); });
  }
  IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
    if (IOStatus closed = target()->Close(options, debug); !closed.ok()) fate_->Note(closed);
    return IOStatus::OK();
  }

 private:
  template <typename Operation>
  IOStatus Try(Operation operation) {
    if (!fate_->first().ok()) return IOStatus::OK();
    if (IOStatus done = operation(); !done.ok()) fate_->Note(done);
    return IOStatus::OK();
  }

  const std::shared_ptr<LogFate> fate_;
};

class LogFileSystem : public rocksdb::FileSystemWrapper {
 public:
  LogFileSystem(const std::shared_ptr<rocksdb::FileSystem>& target, std::shared_ptr<LogFate> fate)
      : FileSystemWrapper(target), fate_(std::move(fate)) {}
  const char* Name() const override { return "LogFileSystem"; }

  IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* debug) override {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    IOStatus status = target()->NewWritableFile(path, options, &file, debug);
    if (!status.ok()) return status;
    if (path.ends_with(".log")) file = std::make_unique<WatchedLog>(std::move(file), fate_);
    *result = std::move(file);
    return status;
  }

 private:
  const std::shared_ptr<LogFate> fate_;
};

class LogEnv : public rocksdb::EnvWrapper {
 public:
  LogEnv(rocksdb::Env* base, std::shared_ptr<LogFate> fate) : EnvWrapper(base) {
    file_system_ = std::make_shared<LogFileSystem>(base->GetFileSystem(), std::move(fate));
    system_clock_ = base->GetSystemClock();
  }
};

}  // namespace

std::shared_ptr<rocksdb::Env> MakeLogEnv(rocksdb::Env* base, std::shared_ptr<LogFate> fate) {
  return std::make_shared<LogEnv>(base, std::move(fate));
}

}  // namespace hone
