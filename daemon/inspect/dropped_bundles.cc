#include "daemon/inspect/dropped_bundles.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "cache/bundle/bundle_files.h"
#include "daemon/inspect/bundle_import.h"

namespace hone {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

// What changes when a file does.
std::string StateOf(const struct stat& file) {
  return fmt::format("{} {} {}.{:09} {}.{:09}\n", file.st_ino, file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec,
                     file.st_ctim.tv_sec, file.st_ctim.tv_nsec);
}

// What changes when other keys are trusted or revoked.
std::string StateOfKeys(const std::vector<std::string>& directories) {
  std::string state;
  for (const std::string& directory : directories)
    for (const std::string& name : ListDirectory(directory).value_or(std::vector<std::string>())) {
      struct stat file{};
      if (::stat((directory + "/" + name).c_str(), &file) == 0) state += name + " " + StateOf(file);
    }
  return state;
}

// Reads it into a copy that nobody writes in meanwhile.
Result<ReadOnlyMapping> Copy(int file, uint64_t size, BundleUploads& uploads, const std::string& directory) {
  UploadRequest piece;
  piece.total = size;
  do {
    piece.bytes.resize(std::min<uint64_t>(kPieceBytes, size - piece.offset));
    const ssize_t count = ::pread(file, piece.bytes.data(), piece.bytes.size(), static_cast<off_t>(piece.offset));
    if (count < 0) return ErrnoError(errno, "cannot read it");
    if (static_cast<size_t>(count) != piece.bytes.size())
      return Error{ErrorKind::kCorrupt, "it became shorter while it was read", ""};
    piece.upload = HONE_TRY(uploads.Add(piece, directory)).upload;
    piece.offset += piece.bytes.size();
  } while (piece.offset < size);
  return uploads.Take(piece.upload);
}

}  // namespace

void DroppedBundles::Look(std::vector<std::string> directories) {
  MutexLock lock(mutex_);
  wanted_ = std::move(directories);
  if (is_at_work_) return;
  Result<std::jthread> thread = StartThread([this](const std::stop_token& stop) { Work(stop); });
  if (!thread) return LogWarn("bundles_not_looked_for", {{"why", thread.error().Text()}});
  is_at_work_ = true;
  thread_ = *std::move(thread);  // the last one has nothing left to do
}

void DroppedBundles::Work(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "hone-dropped");
  const BundleFileVisitor visitor{
      .visit = [&](const UniqueFd& file, const std::string& path) { return TakeUp(file, path, stop); },
      .leave_out = [](const std::string& path,
                      const Error& error) { LogWarn("bundle_left_out", {{"file", path}, {"why", error.Text()}}); },
      .goes_on = [&] { return !stop.stop_requested(); }};
  for (;;) {
    std::vector<std::string> directories;
    {
      MutexLock lock(mutex_);
      is_at_work_ = wanted_ && !stop.stop_requested();
      if (!is_at_work_) return;
      directories = *std::exchange(wanted_, std::nullopt);
    }
    for (const std::string& directory : directories) ForEachBundleFile(directory, visitor);
  }
}

Result<void> DroppedBundles::TakeUp(const UniqueFd& file, const std::string& path, const std::stop_token& stop) {
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return ErrnoError(errno, "fstat", path);
  const std::string mark = "dropped " + path;
  const std::string state = HexOf(Hash256(StateOf(info) + StateOfKeys(admin_.key_directories)));
  if (HONE_TRY(admin_.cache.GetMeta(mark)) == state) return {};
  ReadOnlyMapping bytes =
      HONE_TRY(Copy(file.get(), static_cast<uint64_t>(info.st_size), admin_.uploads, admin_.facts.cache));
  const TrustedKeys keys = HONE_TRY(TrustedKeys::Read(admin_.key_directories));
  BundleImport import = HONE_TRY(
      BundleImport::Open(std::move(bytes), keys, admin_.cache, admin_.path.devices(), Clock::Real().WallNow()));
  for (bool more = true; more;) {
    if (stop.stop_requested()) return {};  // it goes on there at the next start
    const size_t before = import.changed().size();
    const Result<ImportReply> reply = import.Next();
    admin_.ForgetSoon({import.changed().begin() + static_cast<std::ptrdiff_t>(before), import.changed().end()});
    if (!reply) return reply.error();
    more = reply->more;
  }
  return admin_.cache.PutMeta(mark, state, Durability::kSoon);
}

}  // namespace hone
