#include "base/paths.h"

#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/file.h"

namespace hone {
namespace {

std::optional<std::string> AbsoluteFrom(const char* variable) {
  std::optional<std::string> value = Environment(variable);
  if (!value || value->front() != '/') return std::nullopt;
  return value;
}

// $HOME, else the user database.
Result<std::string> HomeDir() {
  if (auto home = AbsoluteFrom("HOME")) return *home;
  std::vector<char> buffer(16384);
  passwd entry;
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr &&
      found->pw_dir != nullptr && found->pw_dir[0] == '/')
    return std::string(found->pw_dir);
  return Error{ErrorKind::kNotFound, "no home directory: set HOME or XDG_CACHE_HOME to an absolute path", ""};
}

}  // namespace

std::optional<std::string> Environment(const char* name) {
  const char* value = secure_getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

Result<std::string> DefaultCacheDir() {
  if (auto cache = AbsoluteFrom("XDG_CACHE_HOME")) return *cache + "/hone";
  return HONE_TRY(HomeDir()) + "/.cache/hone";
}

Result<std::string> DefaultRuntimeDir() {
  if (auto runtime = AbsoluteFrom("XDG_RUNTIME_DIR")) return *runtime + "/hone";
  return HONE_TRY(DefaultCacheDir()) + "/run";
}

Result<std::string> DefaultSocketPath() {
  if (auto socket = Environment("HONE_SOCKET")) return *socket;
  return HONE_TRY(DefaultRuntimeDir()) + "/honed.sock";
}

Result<void> EnsurePrivateDirectory(const std::string& path) {
  HONE_TRY(CreateDirectories(path, 0700));
  HONE_TRY(OpenPrivateDirectory(path));
  return {};
}

}  // namespace hone
