#include "client/api/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/paths.h"

namespace hone {
namespace {

constexpr std::string_view kMagic = "hone-code";
constexpr uint8_t kVersion = 2;
constexpr size_t kTextLimit = size_t{2} << 20;
constexpr size_t kFileLimit = SealedMemfd::kMaxBytes + 3 * kTextLimit;
constexpr size_t kDigestBytes = 32;
constexpr size_t kHeadBytes = kMagic.size() + 1 + kDigestBytes;
constexpr std::string_view kTemporary = ".new-";
constexpr int kStoresPerTrim = 64;

// What a file is found by. The protocol's version is part of it: `reply` is encoded in it.
std::string RequestKey(std::string_view kernel, uint32_t threads) {
  return "v" + std::to_string(kProtocolMax) + " threads=" + std::to_string(threads) + " " + std::string(kernel);
}

std::string FileName(std::string_view request) { return HexOf(Hash128(request)) + ".code"; }

Digest256 MarkOf(std::string_view body, const SecretKey& key) {
  const Digest256 digest = Hash256(body);
  return Mac256(key, "copy " + std::string(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

Result<StoredCode> Decode(std::string_view file, std::string_view request, const SecretKey& key) {
  auto corrupt = [](const char* what) { return Error{ErrorKind::kCorrupt, what, "file"}; };
  if (file.size() < kHeadBytes + kDigestBytes) return corrupt("too short");
  std::string_view body = file.substr(0, file.size() - kDigestBytes);
  const Digest256 mark = MarkOf(body, key);
  if (file.substr(body.size()) != std::string_view(reinterpret_cast<const char*>(mark.data()), mark.size()))
    return corrupt("it is damaged, or was not stored by this user on this machine");
  ByteReader reader(body);
  if (HONE_TRY(reader.Raw(kMagic.size())) != kMagic) return corrupt("not a file of hone's");
  if (HONE_TRY(reader.U8()) != kVersion) return corrupt("written by another version");
  HONE_TRY(reader.Raw(kDigestBytes));
  if (HONE_TRY(reader.String(kTextLimit)) != request) return corrupt("it answers another request");
  StoredCode stored;
  stored.canonical = HONE_TRY(reader.String(kTextLimit));
  stored.reply = HONE_TRY(DecodeBody<GetReply>(AsBytes(HONE_TRY(reader.String(kTextLimit)))));
  std::string_view code = HONE_TRY(reader.Raw(reader.left()));
  stored.artifact = HONE_TRY(SealedMemfd::Create(AsBytes(code)));
  return stored;
}

bool StartsWith(int directory, const std::string& name, std::string_view head) {
  UniqueFd file(openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  char bytes[kHeadBytes];
  return file && head.size() <= sizeof bytes &&
         pread(file.get(), bytes, head.size(), 0) == static_cast<ssize_t>(head.size()) &&
         std::string_view(bytes, head.size()) == head;
}

// Not synced: a file that a power cut left half-written fails its mark, and honed has the code anyway.
Result<void> Replace(int directory, const std::string& name, std::string_view bytes, const std::string& path) {
  static std::atomic<uint32_t> number{0};
  std::string temporary = std::string(kTemporary) + std::to_string(getpid()) + "-" + std::to_string(++number);
  UniqueFd file(openat(directory, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return ErrnoError(errno, "cannot create a file", path);
  Result<void> written = WriteAll(file.get(), bytes);
  if (written && renameat(directory, temporary.c_str(), directory, name.c_str()) != 0) {
    written = ErrnoError(errno, "cannot rename a file", path);
  }
  if (!written) unlinkat(directory, temporary.c_str(), 0);
  return written;
}

}  // namespace

Result<SecretKey> DiskCache::Key(bool may_create) const {
  return OpenSecretKey(options_.key_of.empty() ? options_.directory : options_.key_of, may_create);
}

Result<std::optional<StoredCode>> DiskCache::Load(std::string_view kernel, uint32_t threads) const {
  Result<UniqueFd> directory = OpenPrivateDirectory(options_.directory);
  if (!directory) {
    if (directory.error().kind == ErrorKind::kNotFound) return std::optional<StoredCode>();
    return std::move(directory).error();
  }
  std::string request = RequestKey(kernel, threads);
  std::string name = FileName(request);
  std::string path = options_.directory + "/" + name;
  Result<UniqueFd> opened = OpenPrivateFile(directory->get(), name, O_RDONLY, Owner::kSelf, path);
  if (!opened) {
    if (opened.error().kind == ErrorKind::kNotFound) return std::optional<StoredCode>();
    return std::move(opened).error();
  }
  std::string file = HONE_TRY(ReadAll(opened->get(), kFileLimit));
  Result<SecretKey> key = Key(false);
  if (!key && key.error().kind == ErrorKind::kNotFound) return std::optional<StoredCode>();
  if (!key) return std::move(key).error();
  Result<StoredCode> stored = Decode(file, request, *key);
  if (!stored) {
    if (stored.error().kind == ErrorKind::kCorrupt) unlinkat(directory->get(), name.c_str(), 0);
    Error error = std::move(stored).error();
    error.where = path;
    return error;
  }
  utimensat(directory->get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);  // used now: Trim takes the oldest
  return std::optional<StoredCode>(*std::move(stored));
}

Result<void> DiskCache::Store(std::string_view kernel, uint32_t threads, std::string_view canonical,
                              const GetReply& reply, const SealedMemfd& artifact) const {
  if (reply.digest.size() != kDigestBytes) {
    return Error{ErrorKind::kInvalid, "a digest of " + std::to_string(reply.digest.size()) + " bytes, expected 32",
                 "disk cache"};
  }
  std::string request = RequestKey(kernel, threads);
  std::string name = FileName(request);
  Result<UniqueFd> directory = OpenPrivateDirectory(options_.directory);
  if (!directory && directory.error().kind == ErrorKind::kNotFound) {
    HONE_TRY(EnsurePrivateDirectory(options_.directory));
    directory = OpenPrivateDirectory(options_.directory);
  }
  if (!directory) return std::move(directory).error();
  ByteWriter file;
  file.Raw(kMagic);
  file.U8(kVersion);
  file.Raw(reply.digest);
  if (StartsWith(directory->get(), name, file.view())) return {};
  ReadOnlyMapping code = HONE_TRY(artifact.Map());
  file.Reserve(code.bytes().size() + request.size() + canonical.size() + 4096);
  file.String(request);
  file.String(canonical);
  file.String(EncodeBody(reply));
  file.Raw(code.bytes());
  const Digest256 mark = MarkOf(file.view(), HONE_TRY(Key(true)));
  file.Raw(std::span<const uint8_t>(mark));
  HONE_TRY(Replace(directory->get(), name, file.view(), options_.directory));
  static std::atomic<int> stores{0};
  if (stores.fetch_add(1, std::memory_order_relaxed) % kStoresPerTrim == 0) Trim(directory->get());
  return {};
}

void DiskCache::Trim(int directory) const {
  struct File {
    std::string name;
    int64_t used;
    uint64_t bytes;
  };
  std::vector<File> files;
  uint64_t bytes = 0;
  int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  std::unique_ptr<DIR, int (*)(DIR*)> listing(copy >= 0 ? fdopendir(copy) : nullptr, closedir);
  if (!listing) return;
  int64_t now = time(nullptr);
  while (dirent* entry = readdir(listing.get())) {
    std::string name = entry->d_name;
    struct stat status;
    if (fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) continue;
    if (name.starts_with(kTemporary)) {  // left by a process that died while writing it
      if (now - status.st_mtim.tv_sec > 3600) unlinkat(directory, name.c_str(), 0);
    } else if (name.ends_with(".code")) {
      files.push_back({std::move(name), status.st_mtim.tv_sec, static_cast<uint64_t>(status.st_size)});
      bytes += files.back().bytes;
    }
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  size_t left = files.size();
  for (const File& file : files) {
    if (bytes <= options_.most_bytes && left <= options_.most_files) return;
    unlinkat(directory, file.name.c_str(), 0);
    bytes -= file.bytes;
    --left;
  }
}

}  // namespace hone
