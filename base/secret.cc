#include "base/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/small_file.h"

namespace hone {
namespace {

constexpr std::string_view kHead = "hone key\n";

// What names this machine; "" where there is no such file.
std::string MachineId() { return ReadFile("/etc/machine-id", 4096).value_or(""); }

SecretKey Bind(const SecretKey& secret) {
  return Mac256(secret, fmt::format("machine {} user {}", MachineId(), geteuid()));
}

std::optional<SecretKey> Parse(const SmallFile& file) {
  SecretKey key;
  std::string_view text = file.text;
  if (!text.starts_with(kHead) || !text.ends_with('\n')) return std::nullopt;
  text.remove_prefix(kHead.size());
  text.remove_suffix(1);
  return ParseHex(text, key) ? std::optional(key) : std::nullopt;
}

Result<void> Write(const std::string& path, const SecretKey& secret) {
  return WriteFileAtomically(path, EncodeSmallFile(fmt::format("{}{}\n", kHead, HexOf(secret))), 0600);
}

// What the file says; nullopt if it is to be replaced, `why` says why.
Result<std::optional<SecretKey>> Read(const std::string& directory, const std::string& path, std::string& why,
                                      bool may_write) {
  UniqueFd opened = HONE_TRY(OpenPrivateDirectory(directory));
  UniqueFd file = HONE_TRY(OpenPrivateFile(opened.get(), "key", O_RDONLY, Owner::kSelf, path));
  struct stat info;
  if (fstat(file.get(), &info) != 0) return ErrnoError(errno, "cannot look at", path);
  if ((info.st_mode & 077) != 0) {
    why = "others can read it";
    return std::optional<SecretKey>();
  }
  std::optional<SmallFile> text = DecodeSmallFile(HONE_TRY(ReadAll(file.get(), 4096)));
  std::optional<SecretKey> key = text ? Parse(*text) : std::nullopt;
  if (!key) why = "it is damaged";
  if (key && text->mended && may_write) HONE_TRY(Write(path, *key));
  return key;
}

}  // namespace

SecretKey RandomSecretKey() {
  SecretKey key;
  for (size_t have = 0; have < key.size();) {
    ssize_t got = getrandom(key.data() + have, key.size() - have, 0);
    HONE_CHECK(got > 0 || errno == EINTR);
    have += static_cast<size_t>(std::max<ssize_t>(got, 0));
  }
  return key;
}

Result<SecretKey> OpenSecretKey(const std::string& cache_directory, bool may_create) {
  std::string directory = cache_directory;
  while (directory.size() > 1 && directory.ends_with('/')) directory.pop_back();
  directory += ".state";
  const std::string path = directory + "/key";
  std::string why;
  Result<std::optional<SecretKey>> read = Read(directory, path, why, may_create);
  if (read && *read) return Bind(**read);
  if (!read && read.error().kind != ErrorKind::kNotFound) return std::move(read).error();
  if (!may_create) return Error{ErrorKind::kNotFound, "there is no key", path};
  if (read) LogWarn("cache_key_replaced", {{"file", path}, {"reason", why}, {"then", "code is compiled again"}});
  HONE_TRY(EnsurePrivateDirectory(directory));
  const SecretKey secret = RandomSecretKey();
  HONE_TRY(Write(path, secret));
  return Bind(secret);
}

}  // namespace hone
