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
#include "base/small_file.h"
#include "cache/mend.h"
#include "cache/rocks_store.h"
#include "cache/trust.h"

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

struct Format {
  int number = 0;    // 0: there is no FORMAT file
  bool old = false;  // to be written anew: without a checksum, or a bit was flipped
};

// kUnsupported if it is a newer hone's, kCorrupt if it is no format file.
Result<Format> ReadFormat(const std::string& path) {
  Result<std::string> file = ReadFile(path + "/FORMAT", 4096);
  if (!file && file.error().kind == ErrorKind::kNotFound) return Format{};
  if (!file) return std::move(file).error();
  Format format;
  std::optional<SmallFile> checked = DecodeSmallFile(*file);
  format.old = !checked || checked->mended;
  const std::string_view text = checked ? checked->text : *file;
  const char* begin = text.data() + std::min(kFormatHead.size(), text.size());
  auto [end, code] = std::from_chars(begin, text.data() + text.size(), format.number);
  const bool whole = text.starts_with(kFormatHead) && code == std::errc() && format.number >= 1;
  if (!whole || std::string_view(end, text.data() + text.size()) != "\n")
    return Error{ErrorKind::kCorrupt, "is not a cache's FORMAT file; restore it, or move the directory away",
                 path + "/FORMAT"};
  if (format.number > kCacheFormat)
    return Error{ErrorKind::kUnsupported,
                 fmt::format("this cache has format {}, this hone reads up to {}: upgrade hone, or choose another "
                             "directory with --cache",
                             format.number, kCacheFormat),
                 path};
  return format;
}

Result<void> WriteFormat(const std::string& path) {
  Format format = HONE_TRY(ReadFormat(path));
  if (format.number > 0 && !format.old) return {};
  return WriteFileAtomically(path + "/FORMAT", EncodeSmallFile(fmt::format("{}{}\n", kFormatHead, kCacheFormat)));
}

// The lock, with our process id inside for people; kBusy if it is taken.
Result<UniqueFd> TakeLock(int directory, const std::string& path) {
  std::string name = path + "/LOCK";
  UniqueFd lock = HONE_TRY(OpenPrivateFile(directory, "LOCK", O_RDWR | O_CREAT, Owner::kSelf, name));
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

std::string DamagedName(const std::string& path) {
  return fmt::format("{}/damaged-{}", path, Clock::Real().WallNow().time_since_epoch().count());
}

// Puts a finished salvage in the database's place; cleans up an unfinished one. Every state a crash can leave leads on.
Result<void> FinishSalvage(const std::string& path) {
  RemoveTree(path + "/db.rebuilt");
  if (!Exists(path + "/db.repaired")) return {};
  if (Exists(path + "/db")) { HONE_TRY(Rename(path + "/db", DamagedName(path))); }
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
  HONE_TRY(Rename(rebuilt, options.path + "/db.repaired"));
  return report;
}

Result<void> Salvage(const DirectoryOptions& options, std::string_view reason, bool has_manifest,
                     SalvageReport& report) {
  SalvageReport salvaged = HONE_TRY(Rebuild(options, reason, [&](const std::string& to) {
    return SalvageRocksStore(options.path + "/db", to, has_manifest, options.env);
  }));
  report.Add(salvaged);
  return FinishSalvage(options.path);
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

// Sets flipped bits in tables and blob files right. False if there is other damage, or none that can be found.
bool MendTables(const DirectoryOptions& options, SalvageReport& report) {
  Result<std::unique_ptr<Store>> store = OpenStore(options, RocksMode::kReadOnly);
  if (!store) return false;
  Result<MendedFiles> files = (*store)->Mend();
  if (!files) return false;
  report.mended += files->mended;
  return files->mended > 0 && files->damaged == 0;
}

// Makes the database one that opens: mends it, or salvages it. "" if there was nothing to do, else why there was.
Result<std::string> Repair(const DirectoryOptions& options, SalvageReport& report) {
  const std::string database = options.path + "/db";
  if (!RocksFilesExist(database)) return std::string();
  LogsState logs = HONE_TRY(MendLogs(database, DamagedName(options.path), report));
  std::string reason;
  if (logs.manifest_is_lost)
    reason = "the list of its files is damaged or gone";
  else if (Exists(options.path + "/DAMAGED") && !MendTables(options, report))
    reason = kMetWhileReading;
  if (!reason.empty()) HONE_TRY(Salvage(options, reason, !logs.manifest_is_lost, report));
  unlink((options.path + "/DAMAGED").c_str());
  return reason.empty() && report.mended + report.lost_writes > 0 ? "damage was found at opening" : reason;
}

// Opens for writing, after a repair if need be. REQUIRES: the lock is held.
Result<CacheDirectory> OpenForWriting(const DirectoryOptions& options, UniqueFd lock) {
  CacheDirectory opened;
  opened.lock = std::move(lock);
  HONE_TRY(FinishSalvage(options.path));
  HONE_TRY(WriteFormat(options.path));
  SalvageReport report;
  std::string reason = HONE_TRY(Repair(options, report));
  HONE_TRY(CreateDirectories(options.path + "/db", 0700));
  Result<std::unique_ptr<Store>> store = OpenStore(options, RocksMode::kReadWrite);
  auto is_damaged = [&] {
    return !store && (store.error().kind == ErrorKind::kCorrupt || store.error().kind == ErrorKind::kNotFound);
  };
  if (is_damaged()) reason = store.error().message;
  if (is_damaged() && MendTables(options, report)) store = OpenStore(options, RocksMode::kReadWrite);
  if (is_damaged()) {
    HONE_TRY(Salvage(options, reason, /*has_manifest=*/true, report));
    store = OpenStore(options, RocksMode::kReadWrite);
  }
  opened.store = HONE_TRY(std::move(store));
  if (!reason.empty()) {
    opened.repaired = report.Text(reason);
    opened.lost = !report.lossless();
    LogWarn("cache_repaired", {{"directory", options.path}, {"result", opened.repaired}});
    if (report.lossless()) RemoveDamagedCopies(options.path);
  }
  return opened;
}

// What can be had of a directory that cannot be written.
CacheDirectory OpenReadOnlyInstead(const DirectoryOptions& options, UniqueFd lock, const Error& reason) {
  CacheDirectory opened;
  opened.lock = std::move(lock);
  opened.not_writable = reason.Text();
  if (!RocksIsComplete(options.path + "/db")) return opened;
  if (Result<UniqueFd> trusted = OpenTrustedDirectory(options.path, Owner::kSelfOrRoot); !trusted) {
    LogWarn("cache_untrusted", {{"directory", options.path}, {"error", trusted.error().Text()}});
    return opened;
  }
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
    HONE_TRY(OpenTrustedDirectory(options.path, Owner::kSelfOrRoot));
    Format format = HONE_TRY(ReadFormat(options.path));
    if (format.number == 0 || !RocksIsComplete(options.path + "/db"))
      return Error{ErrorKind::kNotFound, "there is no cache here", options.path};
    CacheDirectory opened;
    RocksMode mode = options.mode == DirectoryMode::kRead ? RocksMode::kReadOnly : RocksMode::kSecondary;
    opened.store = HONE_TRY(OpenStore(options, mode));
    return opened;
  }
  Result<void> created = CreateDirectories(options.path, 0700);
  Result<UniqueFd> directory = OpenTrustedDirectory(options.path, Owner::kSelf);
  if (!created) return OpenReadOnlyInstead(options, UniqueFd(), created.error());
  if (!directory && OpenTrustedDirectory(options.path, Owner::kSelfOrRoot))
    return OpenReadOnlyInstead(options, UniqueFd(), directory.error());  // root's: to be looked at
  if (!directory && CannotWrite(directory.error())) return OpenReadOnlyInstead(options, UniqueFd(), directory.error());
  if (!directory) return std::move(directory).error();
  HONE_TRY(ReadFormat(options.path));
  Result<UniqueFd> lock = TakeLock(directory->get(), options.path);
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

Result<SalvageReport> SalvageLive(const DirectoryOptions& options, const Store& live, const std::stop_token& stop) {
  return Rebuild(options, kMetWhileReading, [&](const std::string& to) -> Result<SalvageReport> {
    RocksOptions fresh;
    fresh.path = to;
    fresh.env = options.env;
    std::unique_ptr<Store> target = HONE_TRY(OpenRocksStore(fresh));
    SalvageReport copied;
    for (size_t i = 0; i < kFamilies; ++i) HONE_TRY(CopyReadable(live, *target, static_cast<Family>(i), copied, stop));
    HONE_TRY(target->Flush());
    return copied;
  });
}

void MarkDamaged(const std::string& path) {
  if (Result<void> written = WriteFileAtomically(path + "/DAMAGED", "salvage at the next opening\n"); !written)
    LogWarn("cache_mark", {{"error", written.error().Text()}});
}

uint64_t CacheBytes(const std::string& path, const CountsFile& counts) {
  uint64_t bytes = 0;
  for (const std::string& name : ListDirectory(path).value_or(std::vector<std::string>())) {
    const bool is_file = name == "FORMAT" || name == "LOCK" || name == "DAMAGED";
    if (is_file || name == "db" || name.starts_with("db.") || name.starts_with("damaged-"))
      bytes += DiskUsage(path + "/" + name, counts);
  }
  return bytes;
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
