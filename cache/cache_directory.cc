#include "cache/cache_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cache/rocks_store.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormatHead = "hone cache\nformat ";

bool CannotWrite(const Error& error) { return error.kind == ErrorKind::kIo || error.kind == ErrorKind::kLimit; }

bool Exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Result<void> Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return ErrnoError(errno, "cannot rename to " + to, from);
  return {};
}

void RemoveTree(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// nullopt: no such file. kUnsupported if it is a newer hone's, kCorrupt if it is no format file.
Result<std::optional<int>> ReadFormat(const std::string& path) {
  Result<std::string> text = ReadFile(path + "/FORMAT", 4096);
  if (!text && text.error().kind == ErrorKind::kNotFound) return std::nullopt;
  if (!text) return std::move(text).error();
  int format = 0;
  const char* begin = text->data() + std::min(kFormatHead.size(), text->size());
  auto [end, code] = std::from_chars(begin, text->data() + text->size(), format);
  if (!text->starts_with(kFormatHead) || code != std::errc() || format < 1)
    return Error{ErrorKind::kCorrupt, "is not a cache's FORMAT file; restore it, or move the directory away",
                 path + "/FORMAT"};
  if (format > kCacheFormat)
    return Error{ErrorKind::kUnsupported,
                 fmt::format("this cache has format {}, this hone reads up to {}: upgrade hone, or choose another "
                             "directory with --cache",
                             format, kCacheFormat),
                 path};
  return format;
}

// The lock, with our process id inside for people; kBusy if it is taken.
Result<UniqueFd> TakeLock(const std::string& path) {
  std::string name = path + "/LOCK";
  UniqueFd lock(open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return ErrnoError(errno, "cannot open", name);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoError(errno, "cannot lock", name);
    char owner[32] = {};
    ssize_t got = pread(lock.get(), owner, sizeof(owner) - 1, 0);
    std::string_view pid(owner, static_cast<size_t>(got > 0 ? got : 0));
    return Error{ErrorKind::kBusy,
                 fmt::format("another honed (process {}) is using this cache; stop it, or choose another directory "
                             "with --cache",
                             pid.empty() ? "unknown" : pid.substr(0, pid.find('\n'))),
                 path};
  }
  std::string pid = fmt::format("{}\n", getpid());
  if (ftruncate(lock.get(), 0) == 0) (void)!pwrite(lock.get(), pid.data(), pid.size(), 0);
  return lock;
}

// Puts a finished salvage in the database's place; cleans up an unfinished one. Every state a crash can leave leads on.
Result<void> FinishSalvage(const std::string& path) {
  RemoveTree(path + "/db.rebuilt");
  if (!Exists(path + "/db.repaired")) return {};
  if (Exists(path + "/db")) {
    int64_t now = Clock::Real().WallNow().time_since_epoch().count();
    HONE_TRY(Rename(path + "/db", fmt::format("{}/damaged-{}", path, now)));
  }
  HONE_TRY(Rename(path + "/db.repaired", path + "/db"));
  unlink((path + "/DAMAGED").c_str());
  return {};
}

// Fills db.rebuilt through `fill` and makes it db.repaired.
template <typename Fill>
Result<SalvageReport> Rebuild(const DirectoryOptions& options, std::string_view reason, Fill fill) {
  LogWarn("cache_repairing", {{"directory", options.path}, {"reason", reason}});
  std::string rebuilt = options.path + "/db.rebuilt";
  RemoveTree(rebuilt);
  Result<SalvageReport> report = fill(rebuilt);
  if (!report) return RemoveTree(rebuilt), std::move(report).error().Context("repair");
  RemoveDamagedCopies(options.path);
  HONE_TRY(Rename(rebuilt, options.path + "/db.repaired"));
  LogWarn("cache_repaired", {{"directory", options.path}, {"result", report->Text()}});
  return report;
}

Result<std::string> Salvage(const DirectoryOptions& options, std::string_view reason) {
  SalvageReport report = HONE_TRY(Rebuild(options, reason, [&](const std::string& to) {
    return SalvageRocksStore(options.path + "/db", to, options.env);
  }));
  HONE_TRY(FinishSalvage(options.path));
  if (report.lossless()) RemoveDamagedCopies(options.path);
  return fmt::format("{} ({})", report.Text(), reason);
}

Result<std::unique_ptr<Store>> OpenStore(const DirectoryOptions& options, RocksMode mode) {
  RocksOptions rocks;
  rocks.path = options.path + "/db";
  rocks.mode = mode;
  rocks.memory_bytes = options.memory_bytes;
  rocks.lenient = mode != RocksMode::kReadWrite;  // a reader cannot repair: it serves what can be read
  rocks.env = options.env;
  return OpenRocksStore(rocks);
}

// Opens for writing, after a salvage if need be. REQUIRES: the lock is held.
Result<CacheDirectory> OpenForWriting(const DirectoryOptions& options, UniqueFd lock) {
  CacheDirectory opened;
  opened.lock = std::move(lock);
  std::string database = options.path + "/db";
  HONE_TRY(FinishSalvage(options.path));
  if (!HONE_TRY(ReadFormat(options.path)))
    HONE_TRY(WriteFileAtomically(options.path + "/FORMAT", fmt::format("{}{}\n", kFormatHead, kCacheFormat)));
  if (Exists(options.path + "/DAMAGED")) {
    opened.repaired = HONE_TRY(Salvage(options, "damage was met while reading"));
  } else if (RocksFilesExist(database) && !RocksIsComplete(database)) {
    opened.repaired = HONE_TRY(Salvage(options, "CURRENT is missing"));
  }
  HONE_TRY(CreateDirectories(database, 0700));
  Result<std::unique_ptr<Store>> store = OpenStore(options, RocksMode::kReadWrite);
  if (!store && (store.error().kind == ErrorKind::kCorrupt || store.error().kind == ErrorKind::kNotFound)) {
    opened.repaired = HONE_TRY(Salvage(options, store.error().message));
    store = OpenStore(options, RocksMode::kReadWrite);
  }
  opened.store = HONE_TRY(std::move(store));
  return opened;
}

// What can be had of a directory that cannot be written.
CacheDirectory OpenReadOnlyInstead(const DirectoryOptions& options, UniqueFd lock, const Error& reason) {
  CacheDirectory opened;
  opened.lock = std::move(lock);
  opened.not_writable = reason.Text();
  if (!RocksIsComplete(options.path + "/db")) return opened;
  if (Result<std::unique_ptr<Store>> store = OpenStore(options, RocksMode::kReadOnly)) {
    opened.store = *std::move(store);
  } else {
    LogWarn("cache_unreadable", {{"directory", options.path}, {"error", store.error().Text()}});
  }
  return opened;
}

}  // namespace

Result<CacheDirectory> OpenCacheDirectory(const DirectoryOptions& options) {
  if (options.mode != DirectoryMode::kWrite) {
    std::optional<int> format = HONE_TRY(ReadFormat(options.path));
    if (!format || !RocksIsComplete(options.path + "/db"))
      return Error{ErrorKind::kNotFound, "there is no cache here", options.path};
    CacheDirectory opened;
    RocksMode mode = options.mode == DirectoryMode::kRead ? RocksMode::kReadOnly : RocksMode::kSecondary;
    opened.store = HONE_TRY(OpenStore(options, mode));
    return opened;
  }
  if (Result<void> created = CreateDirectories(options.path, 0700); !created)
    return OpenReadOnlyInstead(options, UniqueFd(), created.error());
  HONE_TRY(ReadFormat(options.path));
  Result<UniqueFd> lock = TakeLock(options.path);
  if (!lock && CannotWrite(lock.error())) return OpenReadOnlyInstead(options, UniqueFd(), lock.error());
  UniqueFd held = HONE_TRY(std::move(lock));
  UniqueFd same(dup(held.get()));  // one lock, whichever of the two ways below keeps it
  Result<CacheDirectory> opened = OpenForWriting(options, std::move(held));
  if (!opened && CannotWrite(opened.error())) return OpenReadOnlyInstead(options, std::move(same), opened.error());
  return opened;
}

Result<std::unique_ptr<Store>> OpenReader(const DirectoryOptions& options) {
  return OpenStore(options, RocksMode::kReadOnly);
}

Result<std::string> SalvageLive(const DirectoryOptions& options, const Store& live, const std::stop_token& stop) {
  const std::string_view reason = "damage was met while reading";
  SalvageReport report = HONE_TRY(Rebuild(options, reason, [&](const std::string& to) -> Result<SalvageReport> {
    RocksOptions fresh;
    fresh.path = to;
    fresh.env = options.env;
    std::unique_ptr<Store> target = HONE_TRY(OpenRocksStore(fresh));
    SalvageReport copied;
    for (size_t i = 0; i < kFamilies; ++i) HONE_TRY(CopyReadable(live, *target, static_cast<Family>(i), copied, stop));
    HONE_TRY(target->Flush());
    return copied;
  }));
  return fmt::format("{} ({})", report.Text(), reason);
}

void MarkDamaged(const std::string& path) {
  if (Result<void> written = WriteFileAtomically(path + "/DAMAGED", "salvage at the next opening\n"); !written)
    LogWarn("cache_mark", {{"error", written.error().Text()}});
}

uint64_t RemoveDamagedCopies(const std::string& path) {
  uint64_t freed = 0;
  for (const std::string& name : ListDirectory(path).value_or(std::vector<std::string>())) {
    if (!name.starts_with("damaged-")) continue;
    freed += DiskUsage(path + "/" + name);
    RemoveTree(path + "/" + name);
  }
  return freed;
}

}  // namespace hone
