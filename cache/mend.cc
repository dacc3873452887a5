#include "cache/mend.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "cache/log_file.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLogBytes = size_t{1} << 30;
constexpr size_t kPiece = 1 << 20;
constexpr std::string_view kManifest = "MANIFEST-";

// The number in "000012.log" or "MANIFEST-000012"; nullopt for other names.
std::optional<uint64_t> NumberIn(std::string_view name, std::string_view head, std::string_view tail) {
  if (!name.starts_with(head) || !name.ends_with(tail) || name.size() <= head.size() + tail.size()) return std::nullopt;
  name = name.substr(head.size(), name.size() - head.size() - tail.size());
  uint64_t number = 0;
  auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (code != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

// Such files, oldest first.
Result<std::vector<std::string>> Numbered(const std::string& directory, std::string_view head, std::string_view tail) {
  std::vector<std::pair<uint64_t, std::string>> files;
  for (std::string& name : HONE_TRY(ListDirectory(directory)))
    if (std::optional<uint64_t> number = NumberIn(name, head, tail)) files.emplace_back(*number, std::move(name));
  std::sort(files.begin(), files.end());
  std::vector<std::string> names;
  for (auto& [number, name] : files) names.push_back(std::move(name));
  return names;
}

// Counts the writes that are missing between a log's batches, each of which begins with its first write's number and
// how many it has.
class WriteCounter {
 public:
  uint64_t lost() const { return lost_; }
  void Add(std::string_view batch) {
    uint64_t first;
    uint32_t count;
    if (batch.size() < sizeof(first) + sizeof(count)) return;
    std::memcpy(&first, batch.data(), sizeof(first));
    std::memcpy(&count, batch.data() + sizeof(first), sizeof(count));
    if (next_ && first > *next_) lost_ += first - *next_;
    next_ = first + count;
  }

 private:
  std::optional<uint64_t> next_;
  uint64_t lost_ = 0;
};

Result<void> MendCurrent(const std::string& database, const std::vector<std::string>& manifests,
                         SalvageReport& report) {
  const std::string path = database + "/CURRENT";
  Result<std::string> text = ReadFile(path, 4096);
  if (!text && text.error().kind != ErrorKind::kNotFound && text.error().kind != ErrorKind::kLimit)
    return std::move(text).error();
  for (const std::string& manifest : manifests)
    if (text && *text == manifest + "\n") return {};
  // The newest that is whole: one that tore was never pointed to.
  const std::string* chosen = &manifests.back();
  for (const std::string& manifest : manifests) {
    LogContents contents = ReadLog(HONE_TRY(ReadFile(database + "/" + manifest, kMostLogBytes)));
    if (!contents.records.empty() && contents.damaged == 0 && !contents.torn) chosen = &manifest;
  }
  HONE_TRY(WriteFileAtomically(path, *chosen + "\n"));
  ++report.mended;
  LogWarn("cache_mended", {{"file", path}, {"was", text ? "damaged" : "missing"}});
  return {};
}

Result<LogsState> MendManifest(const std::string& database, SalvageReport& report) {
  std::vector<std::string> manifests = HONE_TRY(Numbered(database, kManifest, ""));
  if (manifests.empty()) return LogsState{.manifest_is_lost = true};
  HONE_TRY(MendCurrent(database, manifests, report));
  std::string current = HONE_TRY(ReadFile(database + "/CURRENT", 4096));
  current.pop_back();
  const std::string path = database + "/" + current;
  LogContents contents = ReadLog(HONE_TRY(ReadFile(path, kMostLogBytes)));
  if (contents.damaged > 0 || contents.records.empty()) return LogsState{.manifest_is_lost = true};
  if (contents.mended > 0) {
    HONE_TRY(WriteFileAtomically(path, WriteLog(contents.records)));
    report.mended += contents.mended;
    LogWarn("cache_mended", {{"file", path}, {"bits", contents.mended}});
  }
  return LogsState{};
}

// A second name for a file that is about to be replaced.
void Keep(const std::string& path, const std::string& keep_in) {
  std::error_code failed;
  fs::create_directories(keep_in, failed);
  fs::create_hard_link(path, keep_in / fs::path(path).filename(), failed);
  if (failed) LogWarn("cache_keep", {{"file", path}, {"error", failed.message()}});
}

Result<void> MendWriteAheadLogs(const std::string& database, const std::string& keep_in, SalvageReport& report) {
  WriteCounter writes;
  uint64_t stretches = 0;
  for (const std::string& name : HONE_TRY(Numbered(database, "", ".log"))) {
    const std::string path = database + "/" + name;
    LogContents contents = ReadLog(HONE_TRY(ReadFile(path, kMostLogBytes)));
    for (const std::string& batch : contents.records) writes.Add(batch);
    if (contents.foreign || (contents.sound() && !contents.torn)) continue;
    stretches += contents.damaged;
    report.mended += contents.mended;
    if (contents.damaged > 0) Keep(path, keep_in);
    if (!contents.sound())
      LogWarn("cache_mended", {{"file", path}, {"bits", contents.mended}, {"lost_stretches", contents.damaged}});
    HONE_TRY(WriteFileAtomically(path, WriteLog(contents.records)));
  }
  // A gap between sound logs is what a power cut leaves of writes that nobody was promised.
  if (stretches > 0) report.lost_writes += std::max(stretches, writes.lost());
  return {};
}

}  // namespace

Result<LogsState> MendLogs(const std::string& database, const std::string& keep_in, SalvageReport& report) {
  LogsState state = HONE_TRY(MendManifest(database, report));
  HONE_TRY(MendWriteAheadLogs(database, keep_in, report));
  return state;
}

Result<FileState> MendFile(const std::string& path, uint32_t crc) {
  UniqueFd file(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (!file || fstat(file.get(), &info) != 0) return ErrnoError(errno, "cannot open", path);
  const size_t size = static_cast<size_t>(info.st_size);
  uint32_t seen = 0;
  std::string piece(kPiece, '\0');
  for (size_t at = 0; at < size;) {
    const ssize_t got = pread(file.get(), piece.data(), piece.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return ErrnoError(got < 0 ? errno : EIO, "cannot read", path);
    seen = Crc32c(std::string_view(piece).substr(0, static_cast<size_t>(got)), seen);
    at += static_cast<size_t>(got);
  }
  if (seen == crc) return FileState::kSound;
  std::optional<BitPosition> flipped = FindFlippedBit(crc, seen, size);
  if (!flipped) return FileState::kDamaged;
  uint8_t byte = 0;
  const off_t at = static_cast<off_t>(flipped->byte);
  if (pread(file.get(), &byte, 1, at) != 1) return ErrnoError(errno, "cannot read", path);
  byte ^= flipped->mask;
  if (pwrite(file.get(), &byte, 1, at) != 1 || fsync(file.get()) != 0) return ErrnoError(errno, "cannot write", path);
  return FileState::kMended;
}

}  // namespace hone
