#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <sstream>

#include "base/paths.h"

namespace hone {
namespace {

std::string ParentOf(const std::string& path) {
  size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Whether this process is in a namespace of users that has no root, as a user's service manager makes them: there what
// is root's belongs to nobody, and so does what is anybody else's.
bool RootIsNobody(uid_t uid) {
  std::istringstream nobody(ReadFile("/proc/sys/kernel/overflowuid", 64).value_or(""));
  uid_t number = 0;
  if (!(nobody >> number) || uid != number) return false;
  std::istringstream map(ReadFile("/proc/self/uid_map", 1 << 16).value_or("0 0 1"));
  for (uint64_t inside = 0, outside = 0, count = 0; map >> inside >> outside >> count;)
    if (inside == 0) return false;
  return true;
}

bool IsAbove(std::string_view directory, std::string_view path) {
  return directory == "/" ||
         (path.starts_with(directory) && path.size() > directory.size() && path[directory.size()] == '/');
}

// Places that are root's whoever they seem to belong to: else this user's account would be another's already.
bool IsRootsPlace(const std::string& path) {
  for (const char* system : {"/etc", "/usr"})
    if (path == system || IsAbove(system, path)) return true;
  for (const char* own : {"HOME", "XDG_RUNTIME_DIR"})
    if (std::optional<std::string> directory = Environment(own); directory && IsAbove(path, *directory)) return true;
  return false;
}

bool IsRoots(const struct stat& info, const std::string& path) {
  return info.st_uid == 0 || (RootIsNobody(info.st_uid) && IsRootsPlace(path));
}

bool IsOurs(const struct stat& info, const std::string& path, Owner owner) {
  return info.st_uid == geteuid() || (owner == Owner::kSelfOrRoot && IsRoots(info, path));
}

std::string NotOurs(const struct stat& info) {
  return fmt::format("belongs to uid {}, and this program runs as uid {}: chown it, or name another place", info.st_uid,
                     geteuid());
}

std::string WritableByOthers(const struct stat& info) {
  return fmt::format("can be written by others (mode {:o}): look at what is in it, then chmod go-w it",
                     info.st_mode & 07777);
}

// What is wrong with a part of a private path; "" if nothing is.
std::string Complaint(const struct stat& info, const std::string& path, bool last, Owner owner) {
  if (!S_ISDIR(info.st_mode)) return "is not a directory";
  if (!IsOurs(info, path, last ? owner : Owner::kSelfOrRoot)) return NotOurs(info);
  bool shared = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  bool sticky = (info.st_mode & S_ISVTX) != 0 && IsRoots(info, path);
  return shared && (last || !sticky) ? WritableByOthers(info) : "";
}

uint64_t DiskUsageAt(int parent, const char* name, const CountsFile& counts) {
  struct stat info;
  if (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  if (S_ISREG(info.st_mode)) return counts && !counts(name) ? 0 : static_cast<uint64_t>(info.st_blocks) * 512;
  if (!S_ISDIR(info.st_mode)) return 0;
  UniqueFd fd(openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return 0;
  DIR* entries = fdopendir(fd.get());
  if (entries == nullptr) return 0;
  int here = fd.Release();  // closedir closes it
  uint64_t sum = 0;
  while (dirent* entry = readdir(entries)) {  // NOLINT(concurrency-mt-unsafe): a DIR of our own
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    sum += DiskUsageAt(here, entry->d_name, counts);
  }
  closedir(entries);
  return sum;
}

}  // namespace

Error ErrnoError(int code, std::string_view what, std::string_view path) {
  ErrorKind kind = code == ENOENT                     ? ErrorKind::kNotFound
                   : code == ENOSPC || code == EDQUOT ? ErrorKind::kLimit
                                                      : ErrorKind::kIo;
  char buffer[128];
  const char* text = strerror_r(code, buffer, sizeof(buffer));  // GNU's: returns the text, in the buffer or not
  return Error{kind, fmt::format("{}: {}", what, text), std::string(path)};
}

Result<std::string> ReadAll(int fd, size_t limit) {
  std::string contents;
  for (;;) {
    const size_t old_size = contents.size(), room = std::clamp<size_t>(old_size, 4096, 1 << 20);
    contents.resize(old_size + room);
    ssize_t got = read(fd, contents.data() + old_size, room);
    if (got < 0 && errno != EINTR) return ErrnoError(errno, "cannot read");
    contents.resize(old_size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (contents.size() > limit) return Error{ErrorKind::kLimit, fmt::format("longer than {} bytes", limit), ""};
    if (got == 0) return contents;
  }
}

Result<std::string> ReadFile(const std::string& path, size_t limit) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoError(errno, "cannot open", path);
  Result<std::string> contents = ReadAll(fd.get(), limit);
  if (!contents) contents.error().where = path;
  return contents;
}

Result<std::vector<std::string>> ListDirectory(const std::string& path) {
  DIR* entries = opendir(path.c_str());
  if (entries == nullptr) return ErrnoError(errno, "cannot open", path);
  std::vector<std::string> names;
  errno = 0;
  while (dirent* entry = readdir(entries)) {  // NOLINT(concurrency-mt-unsafe): a DIR of our own
    std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int code = errno;
  closedir(entries);
  if (code != 0) return ErrnoError(code, "cannot read", path);
  std::sort(names.begin(), names.end());
  return names;
}

Result<void> WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError(errno, "cannot write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Result<void> WriteFileAtomically(const std::string& path, std::string_view bytes, unsigned mode) {
  std::string temporary = path + ".XXXXXX";
  UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) return ErrnoError(errno, "cannot create", path);
  auto fail = [&](std::string_view what) {
    int code = errno;
    unlink(temporary.c_str());
    return ErrnoError(code, what, path);
  };
  if (!WriteAll(fd.get(), bytes)) return fail("cannot write");
  if (fchmod(fd.get(), mode) != 0) return fail("cannot set the mode of");
  if (fsync(fd.get()) != 0) return fail("cannot sync");
  if (rename(temporary.c_str(), path.c_str()) != 0) return fail("cannot rename");
  UniqueFd parent(open(ParentOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent || fsync(parent.get()) != 0) return ErrnoError(errno, "cannot sync the directory of", path);
  return {};
}

Result<void> CreateDirectories(const std::string& path, unsigned mode) {
  if (mkdir(path.c_str(), mode) == 0) return {};
  if (errno == ENOENT && ParentOf(path) != path) {
    HONE_TRY(CreateDirectories(ParentOf(path), mode));
    if (mkdir(path.c_str(), mode) == 0) return {};
  }
  int code = errno;
  struct stat info;
  if (code == EEXIST && stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return {};
  return ErrnoError(code == EEXIST ? ENOTDIR : code, "cannot create the directory", path);
}

uint64_t DiskUsage(const std::string& path, const CountsFile& counts) {
  return DiskUsageAt(AT_FDCWD, path.c_str(), counts);
}

std::string_view NetworkFileSystem(const std::string& path) {
  struct statfs info;
  if (statfs(path.c_str(), &info) != 0) return "";
  switch (static_cast<uint32_t>(info.f_type)) {  // <linux/magic.h>, and what stands in the Linux kernel's sources alone
    case 0x6969: return "nfs";
    case 0xff534d42: return "cifs";
    case 0xfe534d42: return "smb2";
    case 0x517b: return "smb";
    case 0x01021997: return "9p";
    case 0x5346414f: return "afs";
    case 0x73757245: return "coda";
    case 0x00c36400: return "ceph";
    case 0x0bd00bd0: return "lustre";
    case 0x47504653: return "gpfs";
    case 0x19830326: return "beegfs";
    case 0x7461636f: return "ocfs2";
    default: return "";
  }
}

Result<UniqueFd> OpenPrivateDirectory(const std::string& path, Owner owner) {
  if (path.empty() || path[0] != '/') return Error{ErrorKind::kInvalid, "wanted an absolute path", path};
  UniqueFd here(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!here) return ErrnoError(errno, "cannot open", "/");
  size_t begin = 0, end = 0;
  for (;;) {
    begin = path.find_first_not_of('/', end);
    bool last = path.find_first_not_of('/', path.find('/', begin)) == std::string::npos;
    struct stat info;
    if (fstat(here.get(), &info) != 0) return ErrnoError(errno, "cannot look at", path.substr(0, end));
    const std::string so_far = path.substr(0, std::max<size_t>(end, 1));
    if (std::string complaint = Complaint(info, so_far, begin == std::string::npos, owner); !complaint.empty())
      return Error{ErrorKind::kInvalid, std::move(complaint), so_far};
    if (begin == std::string::npos) return here;
    end = std::min(path.find('/', begin), path.size());
    std::string part = path.substr(begin, end - begin);
    if (part == "..") return Error{ErrorKind::kInvalid, "wanted a path without ..", path};
    int flags = (last ? O_RDONLY : O_PATH) | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    UniqueFd next(openat(here.get(), part.c_str(), flags));
    if (!next) {
      bool link = errno == ELOOP || errno == ENOTDIR;
      if (link)
        return Error{ErrorKind::kInvalid, "is a link or not a directory: give the path without links",
                     path.substr(0, end)};
      return ErrnoError(errno, "cannot open", path.substr(0, end));
    }
    here = std::move(next);
  }
}

Result<UniqueFd> OpenPrivateFile(int directory, const std::string& name, int flags, Owner owner,
                                 const std::string& path) {
  UniqueFd file(openat(directory, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!file && errno == ELOOP) return Error{ErrorKind::kInvalid, "is a link: put the file itself here", path};
  struct stat info;
  if (!file || fstat(file.get(), &info) != 0) return ErrnoError(errno, "cannot open", path);
  if (!S_ISREG(info.st_mode)) return Error{ErrorKind::kInvalid, "is not a plain file", path};
  if (!IsOurs(info, path, owner)) return Error{ErrorKind::kInvalid, NotOurs(info), path};
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return Error{ErrorKind::kInvalid, WritableByOthers(info), path};
  return file;
}

Result<std::string> ReadPrivateFile(const std::string& path, size_t limit) {
  UniqueFd directory = HONE_TRY(OpenPrivateDirectory(ParentOf(path), Owner::kSelfOrRoot));
  const std::string name = path.substr(path.find_last_of('/') + 1);
  UniqueFd file = HONE_TRY(OpenPrivateFile(directory.get(), name, O_RDONLY, Owner::kSelfOrRoot, path));
  Result<std::string> contents = ReadAll(file.get(), limit);
  if (!contents) contents.error().where = path;
  return contents;
}

}  // namespace hone
