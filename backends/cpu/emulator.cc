#include "backends/cpu/emulator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/file.h"
#include "base/subprocess.h"

namespace hone {
namespace {

std::string& ForeignRunners() {
  static std::string& directory = *new std::string;
  return directory;
}

bool IsProgram(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

Result<std::string> FindRunner(const std::string& architecture) {
  const std::string& directory = ForeignRunners();
  Result<std::string> runner = directory + "/" + architecture + "/hone-runner";
  if (directory.empty()) runner = FindOwnProgram(architecture + "/hone-runner");
  if (!runner || !IsProgram(*runner))
    return Error{ErrorKind::kNotFound,
                 fmt::format("there is no hone-runner for {} (cmake --preset edge-arm64 builds one; honed.toml says "
                             "where: [build] foreign_runners)",
                             architecture),
                 ""};
  HONE_TRY(OpenPrivateDirectory(runner->substr(0, runner->rfind('/')), Owner::kSelfOrRoot));
  return runner;
}

}  // namespace

void ConfigureForeignRunners(std::string directory) { ForeignRunners() = std::move(directory); }

Result<std::vector<std::string>> FindEmulatedRunner(const CpuTarget& target) {
#if defined(__x86_64__)
  if (target.isa == Isa::kNeon) {
    for (const char* emulator : {"/usr/bin/qemu-aarch64", "/usr/bin/qemu-aarch64-static"}) {
      if (!IsProgram(emulator)) continue;
      return std::vector<std::string>{emulator, HONE_TRY(FindRunner("aarch64"))};
    }
    return Error{ErrorKind::kNotFound, "there is no qemu-aarch64 (scripts/install_dependencies.sh --edge-arm64)", ""};
  }
#endif
  return Error{ErrorKind::kNotFound, "there is no emulator for it", ""};
}

}  // namespace hone
