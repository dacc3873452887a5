#include "daemon/inspect/bundle_uploads.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <cerrno>

#include "base/file.h"
#include "base/start_thread.h"
#include "cache/bundle/bundle.h"

namespace hone {
namespace {

constexpr size_t kAtOnce = 4;

Result<UniqueFd> NamelessFile(const std::string& directory) {
  if (!directory.empty()) {
    UniqueFd file(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (file) return file;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)
      return ErrnoError(errno, "cannot keep the bundle's bytes", directory);
  }
  UniqueFd file(memfd_create("hone-bundle", MFD_CLOEXEC));
  if (!file) return ErrnoError(errno, "cannot keep the bundle's bytes");
  return file;
}

}  // namespace

void BundleUploads::DropIdle(std::chrono::milliseconds idle) {
  const Clock::time_point now = Clock::now();
  std::erase_if(uploads_, [&](const auto& entry) { return entry.second.touched + idle < now; });
}

void BundleUploads::TakeCare(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "hone-uploads");
  MutexLock lock(mutex_);
  while (!stop.stop_requested()) {
    DropIdle(idle_);
    stopped_.WaitFor(mutex_, idle_, stop);
  }
}

Result<uint64_t> BundleUploads::Begin(const UploadRequest& request, const std::string& directory) {
  if (!caretaker_.joinable())
    caretaker_ = HONE_TRY(StartThread([this](const std::stop_token& stop) { TakeCare(stop); }));
  if (request.total > BundleLimits::kBytes)
    return Error{ErrorKind::kLimit,
                 fmt::format("the bundle has {} bytes, hone takes at most {}", request.total, BundleLimits::kBytes),
                 ""};
  if (uploads_.size() >= kAtOnce) DropIdle(idle_ / 12);
  if (uploads_.size() >= kAtOnce)
    return Error{ErrorKind::kBusy, fmt::format("{} bundles are imported at once already; try again", kAtOnce), "honed"};
  Upload upload;
  upload.file = HONE_TRY(NamelessFile(directory));
  upload.total = request.total;
  uint64_t id = 0;
  while (id == 0 || uploads_.contains(id))
    if (getrandom(&id, sizeof id, 0) != sizeof id) id = 0;
  uploads_.emplace(id, std::move(upload));
  return id;
}

Result<UploadReply> BundleUploads::Add(const UploadRequest& request, const std::string& directory) {
  MutexLock lock(mutex_);
  DropIdle(idle_);
  const uint64_t id = request.upload != 0 ? request.upload : HONE_TRY(Begin(request, directory));
  auto entry = uploads_.find(id);
  if (entry == uploads_.end())
    return Error{ErrorKind::kNotFound, "there is no such upload (any more); begin anew", "honed"};
  Upload& upload = entry->second;
  if (request.offset != upload.received || request.bytes.size() > upload.total - upload.received)
    return Error{ErrorKind::kInvalid,
                 fmt::format("a piece of {} bytes at {}, wanted the next at {} of {}", request.bytes.size(),
                             request.offset, upload.received, upload.total),
                 "upload"};
  if (Result<void> written = WriteAll(upload.file.get(), request.bytes); !written) {
    uploads_.erase(entry);
    return std::move(written).error().Context("the bundle cannot be kept while it is looked at");
  }
  upload.received += request.bytes.size();
  upload.touched = Clock::now();
  return UploadReply{id, upload.received};
}

Result<ReadOnlyMapping> BundleUploads::Take(uint64_t id) {
  Upload upload;
  {
    MutexLock lock(mutex_);
    auto entry = uploads_.extract(id);
    if (entry.empty()) return Error{ErrorKind::kNotFound, "there is no such upload (any more); begin anew", "honed"};
    upload = std::move(entry.mapped());
  }
  if (upload.received != upload.total)
    return Error{ErrorKind::kInvalid,
                 fmt::format("{} of the upload's {} bytes are there", upload.received, upload.total), "upload"};
  return ReadOnlyMapping::Map(upload.file.get(), upload.total);
}

}  // namespace hone
