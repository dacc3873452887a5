#include "cache/trust.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace hone {
namespace {

constexpr std::string_view kFiles[] = {"LOCK", "FORMAT", "DAMAGED"};
constexpr std::string_view kDatabases[] = {"db", "db.rebuilt", "db.repaired"};

// May others write a file here, if its mode lets them?
bool OthersGetIn(int directory) {
  struct stat info;
  return fstat(directory, &info) != 0 || (info.st_mode & (S_IXGRP | S_IXOTH)) != 0;
}

Result<void> CheckEntry(int directory, const std::string& name, const std::string& path, Owner owner, bool reachable) {
  auto refuse = [&](std::string what) { return Error{ErrorKind::kInvalid, std::move(what), path}; };
  struct stat info;
  if (fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return {};
    return ErrnoError(errno, "cannot look at", path);
  }
  if (S_ISLNK(info.st_mode)) return refuse("is a link, and a cache has none: remove it");
  if (info.st_uid != geteuid() && (owner == Owner::kSelf || info.st_uid != 0))
    return refuse(fmt::format("belongs to uid {}, and this program runs as uid {}: chown it, or move the cache away",
                              info.st_uid, geteuid()));
  if (S_ISREG(info.st_mode) && info.st_nlink > 1 && name == "LOCK") return refuse("has another name: remove it");
  if (reachable && (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return refuse(fmt::format("can be written by others (mode {:o}): chmod go-w it, or move the cache away",
                              info.st_mode & 07777));
  return {};
}

}  // namespace

Result<UniqueFd> OpenTrustedDirectory(const std::string& path, Owner owner) {
  UniqueFd directory = HONE_TRY(OpenPrivateDirectory(path, owner));
  const bool reachable = OthersGetIn(directory.get());
  for (std::string_view name : kFiles)
    HONE_TRY(CheckEntry(directory.get(), std::string(name), fmt::format("{}/{}", path, name), owner, reachable));
  for (std::string_view name : kDatabases) {
    const std::string database = fmt::format("{}/{}", path, name);
    HONE_TRY(CheckEntry(directory.get(), std::string(name), database, owner, reachable));
    Result<UniqueFd> inside = OpenPrivateDirectory(database, owner);
    if (!inside && inside.error().kind == ErrorKind::kNotFound) continue;
    if (!inside) return std::move(inside).error();
    const bool inside_reachable = reachable && OthersGetIn(inside->get());
    for (const std::string& file : HONE_TRY(ListDirectory(database)))
      HONE_TRY(CheckEntry(inside->get(), file, database + "/" + file, owner, inside_reachable));
  }
  return directory;
}

}  // namespace hone
