#include "backends/gpu/find_nvrtc.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace hone {
namespace {

constexpr const char* kFile = "libnvrtc.so*";

struct Configured {
  Mutex mutex;
  std::string place HONE_GUARDED_BY(mutex);
};
Configured& TheConfigured() {
  static Configured& configured = *new Configured;
  return configured;
}

std::vector<std::string> Matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (const char* path : std::span(found.gl_pathv, found.gl_pathc)) paths.emplace_back(path);
  ::globfree(&found);
  return paths;
}

// The newest of a pattern's: "libnvrtc.so.13" before "libnvrtc.so.12", whatever lies in python3.9.
std::optional<std::string> Newest(const std::string& directories) {
  std::optional<std::string> newest;
  int of_newest = -1;
  for (const std::string& path : Matches(directories + "/" + kFile)) {
    const size_t version = path.rfind(".so.");
    const int number = version == std::string::npos ? 0 : std::atoi(path.c_str() + version + 4);
    struct stat status{};
    if (number <= of_newest || ::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    of_newest = number;
    newest = path;
  }
  return newest;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> Places() {
  std::vector<std::string> places;
  std::string libraries = Environment("LD_LIBRARY_PATH");
  for (size_t begin = 0; begin < libraries.size();) {
    const size_t end = std::min(libraries.find(':', begin), libraries.size());
    if (end > begin && libraries[begin] == '/') places.push_back(libraries.substr(begin, end - begin));
    begin = end + 1;
  }
  places.insert(places.end(), {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                               "/usr/local/cuda*/lib64", "/opt/cuda*/lib64"});
  // Python's packages: those of CUDA 12 have a folder each, later ones share one.
  const std::string home = Environment("HOME");
  for (const std::string& prefix :
       {Environment("VIRTUAL_ENV"), Environment("CONDA_PREFIX"), home.empty() ? "" : home + "/.local",
        std::string("/usr/local"), std::string("/usr")})
    if (prefix.starts_with('/'))
      for (const char* inside : {"cuda_nvrtc", "cu1[0-9]"})
        places.push_back(fmt::format("{}/lib/python3*/*-packages/nvidia/{}/lib", prefix, inside));
  return places;
}

Result<std::string> FindAny() {
  Configured& configured = TheConfigured();
  std::string place;
  {
    MutexLock lock(configured.mutex);
    place = configured.place;
  }
  if (!place.empty()) {
    struct stat status{};
    if (::stat(place.c_str(), &status) == 0 && S_ISREG(status.st_mode)) return place;
    if (std::optional<std::string> found = Newest(place)) return *found;
    return Error{ErrorKind::kNotFound, fmt::format("there is no libnvrtc at {} ([build] nvrtc)", place), ""};
  }
  for (const std::string& directories : Places())
    if (std::optional<std::string> found = Newest(directories)) return *found;
  return Error{ErrorKind::kNotFound, std::string(kHowToGetNvrtc), ""};
}

}  // namespace

void ConfigureNvrtc(std::string place) {
  Configured& configured = TheConfigured();
  MutexLock lock(configured.mutex);
  configured.place = std::move(place);
}

// Its code is run: nobody else may have written it.
Result<std::string> FindNvrtc() {
  const std::string found = HONE_TRY(FindAny());
  std::error_code failure;
  const std::filesystem::path path = std::filesystem::canonical(found, failure);
  if (failure) return Error{ErrorKind::kIo, "NVRTC: " + failure.message(), found};
  const UniqueFd directory = HONE_TRY(OpenPrivateDirectory(path.parent_path(), Owner::kSelfOrRoot));
  HONE_TRY(OpenPrivateFile(directory.get(), path.filename(), O_RDONLY, Owner::kSelfOrRoot, path));
  return path.string();
}

}  // namespace hone
