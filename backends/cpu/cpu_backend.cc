#include "backends/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backends/cpu/emulated_pools.h"
#include "backends/cpu/emulator.h"
#include "backends/cpu/host_target.h"
#include "backends/cpu/measure_peaks.h"
#include "backends/cpu/named_targets.h"
#include "base/content_id.h"
#include "base/cpu_features.h"
#include "base/subprocess.h"
#include "ir/native_artifact.h"

namespace hone {
namespace {

class Cpu : public Backend {
 public:
  const DeviceKind& kind() const override { return *FindDeviceKind(kCpuKind); }

  Result<std::vector<Device>> Probe() const override {
    return std::vector<Device>{{std::string(kCpuKind), HONE_TRY(HostTarget())}};
  }

  Result<std::optional<Target>> Named(std::string_view name) const override {
    return std::optional<Target>(HONE_TRY(NamedCpu(name)));
  }

  // Code for another machine can be built here, but not checked, unless this machine can run it or emulate it.
  Result<Target> Accept(const Target& asked, std::span<const Device> devices) const override {
    CpuTarget target = *asked.cpu();
    if (target.cpu.empty()) target.cpu = "generic";
    std::sort(target.features.begin(), target.features.end());
    Result<void> runs = CheckProcessor(IsaName(target.isa), target.features);
    if (runs) return Target(std::move(target));
    if (Result<std::vector<std::string>> emulated = FindEmulatedRunner(target); !emulated)
      return Error{
          ErrorKind::kUnsupported,
          fmt::format("code for it cannot be checked here: {}; this machine is {}; {}", runs.error().message,
                      devices.empty() ? "another" : PrintTarget(devices.front().target), emulated.error().message),
          "target"};
    return Target(std::move(target));
  }

  bool RunsHere(const Target& target) const override {
    return target.cpu() != nullptr && CheckProcessor(IsaName(target.cpu()->isa), target.cpu()->features).has_value();
  }

  Result<std::string> CompilerName(const std::string& program) const override {
    std::string path = program;
    if (path.empty()) path = HONE_TRY(FindOwnProgram("hone-builder"));
    return fmt::format("hone-{} builder={}", HONE_VERSION, HONE_TRY(ContentId(path)));
  }

  Result<Manifest> OpenArtifact(std::span<const std::byte> bytes, uint64_t size) const override {
    Result<Manifest> manifest = OpenNativeArtifact(bytes, {.size = size});
    if (manifest) return manifest;
    // For another processor: it was checked on a device, or by an emulator. It is handed out, and never mapped here.
    Result<Manifest> foreign = OpenNativeArtifact(bytes, {.size = size, .other_machine = true});
    if (!foreign) return manifest;
    const Target target = HONE_TRY(ParseTarget(foreign->target));
    return RunsHere(target) ? std::move(manifest) : std::move(foreign);
  }

  Result<std::unique_ptr<WorkerPools>> StartPools(const WorkerPoolsOptions& options) const override {
    return WithEmulatedRunners(HONE_TRY(StartProcessPools(options)), options);
  }

  MachinePeaks MeasurePeaks(const Target& target, int threads) const override {
    return hone::MeasurePeaks(target, threads);
  }
};

}  // namespace

const Backend& CpuBackend() {
  static const Cpu& cpu = *new Cpu;
  return cpu;
}

}  // namespace hone
