#include "backends/gpu/gpu_backend.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "backends/gpu/build_for_gpu.h"
#include "backends/gpu/driver_files.h"
#include "backends/gpu/find_nvrtc.h"
#include "backends/processes/child_channel.h"
#include "backends/processes/child_pool.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/content_id.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/parallel.h"
#include "base/subprocess.h"
#include "ir/device_artifact.h"
#include "ir/gpu_kinds.h"

namespace hone {
namespace {

constexpr const char* kRunner = "hone-device-runner";
constexpr int kFindingNice = 10;  // drivers are asked while the first kernel is built
// What a driver may take to say which devices there are; and with its waits for a processor, on a busy machine.
constexpr std::chrono::seconds kFinding{5}, kFindingAtMost{60};

// What users steer drivers by, but for what `use` says. A child inherits nothing else.
std::vector<std::string> DriverEnvironment(const std::vector<std::string>& use = {}) {
  std::vector<std::string> environment{"PATH=/usr/local/bin:/usr/bin:/bin"};
  for (const char* name :
       {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES",
        "POCL_DEVICES", "POCL_MAX_PTHREAD_COUNT", "VK_ICD_FILENAMES", "VK_DRIVER_FILES", "VK_INSTANCE_LAYERS",
        "VK_LAYER_PATH", "VK_LAYER_SETTINGS_PATH", "LP_NUM_THREADS", "XDG_RUNTIME_DIR"})
    if (const char* value = std::getenv(name))
      if (std::ranges::none_of(use, [&](const std::string& set) { return set.starts_with(std::string(name) + "="); }))
        environment.push_back(std::string(name) + "=" + value);
  environment.insert(environment.end(), use.begin(), use.end());
  return environment;
}

// Why a child did not answer.
std::string WhyNot(Subprocess& child, const Error& error) {
  if (error.kind == ErrorKind::kTimeout) return "it hangs";
  // Its channel closes before it has ended.
  const std::optional<ExitStatus> ended = child.Wait(std::chrono::steady_clock::now() + std::chrono::seconds(1));
  const std::string words = child.ErrorTail();
  return (ended ? ended->Text() : error.message) + (words.empty() ? "" : "; " + words);
}

// Waits until the child sends something or has had its time.
MonotonicTime AwaitDevices(const ChildChannel& channel, const Subprocess& child) {
  const MonotonicTime start = std::chrono::steady_clock::now();
  const auto deadline = [&] {
    return start + std::min<std::chrono::nanoseconds>(kFinding + child.TimeQueued(), kFindingAtMost);
  };
  MonotonicTime until = deadline();
  pollfd waited{channel.fd(), POLLIN, 0};
  for (MonotonicTime now = start; now < until; now = std::chrono::steady_clock::now()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now);
    if (::poll(&waited, 1, static_cast<int>(left.count())) > 0) break;
    until = deadline();
  }
  return until;
}

// Whether it is worth a process to ask for its devices.
bool IsAnnounced(const GpuKind& kind) {
  return std::ranges::any_of(kind.variables,
                             [](const char* name) { return name != nullptr && std::getenv(name) != nullptr; }) ||
         std::ranges::any_of(kind.directories, [](const char* path) {
           return path != nullptr && !ListDirectory(path).value_or(std::vector<std::string>()).empty();
         });
}

class Gpu : public Backend {
 public:
  explicit Gpu(const GpuKind& kind) : kind_(*FindDeviceKind(kind.name)), gpu_(kind) {}

  const DeviceKind& kind() const override { return kind_; }

  Result<std::vector<Device>> Probe() const override {
    const Error none{ErrorKind::kNotFound, std::string(gpu_.install), kind_.name};
    if (!IsAnnounced(gpu_)) return none;
    Result<std::string> found = List(DriverEnvironment());
    if (!found && found.error().kind == ErrorKind::kUnavailable) found = ListWithoutBroken(found.error());
    if (!found && found.error().kind == ErrorKind::kNotFound) return none;
    if (!found) return found.error();
    std::vector<Device> devices;
    std::string_view lines = *found;
    for (size_t end = 0; (end = lines.find('\n')) != std::string_view::npos; lines.remove_prefix(end + 1)) {
      Target target = HONE_TRY(ParseTarget(lines.substr(0, end)));
      if (target.kind() != kind_.name) return Error{ErrorKind::kCorrupt, "a device of another kind", kind_.name};
      devices.push_back({fmt::format("{}:{}", kind_.name, devices.size()), std::move(target)});
    }
    if (devices.empty()) return none;
    return devices;
  }

  // A device of this machine that has the facts that were asked for: none is any of them.
  Result<Target> Accept(const Target& asked, std::span<const Device> devices) const override {
    for (const Device& device : devices) {
      const auto& facts = device.target.device()->facts;
      if (std::ranges::all_of(asked.device()->facts, [&](const auto& fact) {
            const auto found = facts.find(fact.first);
            return found != facts.end() && found->second == fact.second;
          }))
        return device.target;
    }
    return Error{ErrorKind::kUnsupported,
                 fmt::format("no device here is \"{}\", so code for it cannot be checked", PrintTarget(asked)),
                 "target"};
  }

  Result<std::string> CompilerName(const std::string& program) const override {
    const std::string path = program.empty() ? HONE_TRY(FindOwnProgram("hone-builder")) : program;
    return fmt::format("hone-{} builder={}", HONE_VERSION, HONE_TRY(ContentId(path)));
  }

  Result<Manifest> OpenArtifact(std::span<const std::byte> bytes, uint64_t size) const override {
    Manifest manifest = HONE_TRY(DecodeDeviceArtifact(bytes, size)).manifest;
    if (KindOfTarget(manifest.target) != kind_.name)
      return Error{ErrorKind::kUnsupported,
                   fmt::format("code for devices of kind \"{}\"", KindOfTarget(manifest.target)), "artifact"};
    return manifest;
  }

  // One runner: who shares a device with others measures them.
  Result<std::unique_ptr<WorkerPools>> StartPools(const WorkerPoolsOptions& options) const override {
    WorkerPoolsOptions own = options;
    own.builders.arguments = BuilderArguments();
    own.builders.open = [this](std::span<const std::byte> artifact) { return OpenArtifact(artifact, 0); };
    own.runners.executable = HONE_TRY(FindOwnProgram(kRunner));
    own.runners.arguments = {};
    own.runners.runners = 1;
    own.runners.address_space = 0;  // drivers reserve more than anybody has
    own.runners.environment = Environment();
    own.runners.open_files = 256;
    own.runners.rehearses = kind_.name != kCudaKind;  // whose code is made by builders
    return StartProcessPools(own);
  }

  // Not measured yet: no roof.
  MachinePeaks MeasurePeaks(const Target&, int) const override { return {}; }

  Result<CopySpeed> MeasureCopies(const Target& target) const override {
    return ParseCopySpeed(
        HONE_TRY(AskDriver({"--copies", PrintTarget(target)}, Environment(), 0, "how fast copies are")));
  }

 protected:
  virtual std::vector<std::string> BuilderArguments() const { return {}; }

 private:
  Result<std::string> List(std::vector<std::string> environment) const {
    return AskDriver({"--list", kind_.name}, std::move(environment), kFindingNice, "which devices there are");
  }

  // What is there without the drivers that do not answer even alone, which from now on nobody loads. `failure`: of all
  // together.
  Result<std::string> ListWithoutBroken(const Error& failure) const {
    const std::vector<std::string> files = FindDriverFiles(kind_.name);
    std::vector<std::optional<Error>> broken(files.size());
    ForEachIndex(files.size(), static_cast<int>(files.size()), [&](size_t i) {
      const Result<std::string> alone = List(DriverEnvironment(UseDriverFiles(kind_.name, {&files[i], 1})));
      if (!alone && alone.error().kind == ErrorKind::kUnavailable) broken[i] = alone.error();
    });
    std::vector<std::string> whole;
    std::string why;
    for (size_t i = 0; i < files.size(); ++i) {
      if (!broken[i]) {
        whole.push_back(files[i]);
        continue;
      }
      LogWarn("driver_left_out", {{"file", files[i]}, {"why", broken[i]->message}});
      why += (why.empty() ? "" : "; ") + files[i] + ": " + broken[i]->message;
    }
    if (why.empty()) return failure;
    const Error none{ErrorKind::kUnavailable, why, kind_.name};
    if (whole.empty()) return none;
    const std::vector<std::string> use = UseDriverFiles(kind_.name, whole);
    Result<std::string> found = List(DriverEnvironment(use));
    if (!found || found->empty()) return none;
    MutexLock lock(mutex_);
    use_ = use;
    return found;
  }

  std::vector<std::string> Environment() const {
    MutexLock lock(mutex_);
    return DriverEnvironment(use_);
  }

  // A driver may crash or hang while it is asked: a process of its own asks it. kUnavailable: it never said `what`.
  Result<std::string> AskDriver(std::vector<std::string> question, std::vector<std::string> environment, int nice,
                                std::string_view what) const {
    auto [ours, theirs] = HONE_TRY(ChildChannel::Pair());
    SubprocessOptions options;
    options.executable = HONE_TRY(FindOwnProgram(kRunner));
    options.arguments = std::move(question);
    options.environment = std::move(environment);
    options.fds = {{theirs.get(), kChildChannelFd}};
    options.limits.open_files = 256;
    options.limits.nice = nice;
    Subprocess child = HONE_TRY(Subprocess::Start(options));
    theirs.Reset();
    Result<ChildFrame> frame = ours.Receive(AwaitDevices(ours, child));
    if (!frame)
      return Error{ErrorKind::kUnavailable,
                   fmt::format("the driver did not say {}: {}", what, WhyNot(child, frame.error())), kind_.name};
    if (frame->type == ChildMessage::kError) return DecodeError(frame->body);
    return std::move(frame->body);
  }

  const DeviceKind& kind_;
  const GpuKind& gpu_;
  mutable Mutex mutex_;
  mutable std::vector<std::string> use_ HONE_GUARDED_BY(mutex_);  // what drivers are, where one of them is broken
};

// Architectures that code is built for where no such device is, with the limits that all of them have, and the size of
// their largest one that is widespread (CUDA C++ Programming Guide, table of compute capabilities; white papers).
struct Architecture {
  std::string_view name;
  int64_t units, l2;
  int64_t most_shared;  // bytes of block storage, for who asks
};
constexpr Architecture kArchitectures[] = {{"sm_75", 40, 4 << 20, 64 << 10},      // T4
                                           {"sm_80", 108, 40 << 20, 163 << 10},   // A100
                                           {"sm_86", 82, 6 << 20, 99 << 10},      // RTX 3090
                                           {"sm_89", 128, 72 << 20, 99 << 10},    // RTX 4090
                                           {"sm_90", 132, 50 << 20, 227 << 10}};  // H100
constexpr int64_t kThreads = 1024;

Device Unchecked(const Architecture& architecture) {
  const std::string name(architecture.name);
  DeviceTarget target;
  target.kind = kCudaKind;
  target.facts = {{"arch", name},
                  {"block_bytes", std::to_string(kCudaStaticBytes)},
                  {"block_bytes_most", std::to_string(architecture.most_shared)},
                  {"block_threads", std::to_string(kThreads)},
                  {"l2", std::to_string(architecture.l2)},
                  {"units", std::to_string(architecture.units)},
                  {std::string(kUncheckedFact), name}};
  return {fmt::format("{}:{}", kCudaKind, name), Target(std::move(target))};
}

// CUDA's code is made by NVRTC, in a builder: without it there is nothing to serve, and with it something even without
// a device.
class Cuda : public Gpu {
 public:
  using Gpu::Gpu;

  Result<std::vector<Device>> Probe() const override {
    HONE_TRY(FindNvrtc());
    Result<std::vector<Device>> found = Gpu::Probe();
    if (!found && found.error().kind != ErrorKind::kNotFound) return found;
    std::vector<Device> devices = found ? *std::move(found) : std::vector<Device>();
    for (const Architecture& architecture : kArchitectures) devices.push_back(Unchecked(architecture));
    return devices;
  }

  Result<std::string> CompilerName(const std::string& program) const override {
    return fmt::format("{} nvrtc={}", HONE_TRY(Gpu::CompilerName(program)), HONE_TRY(ContentId(HONE_TRY(FindNvrtc()))));
  }

 protected:
  std::vector<std::string> BuilderArguments() const override {
    const Result<std::string> path = FindNvrtc();
    return path ? std::vector<std::string>{"--nvrtc", *path} : std::vector<std::string>();
  }
};

}  // namespace

std::span<const Backend* const> GpuBackends() {
  static const std::vector<const Backend*>& all = *new std::vector<const Backend*>([] {
    std::vector<const Backend*> made;
    for (const GpuKind& kind : kGpuKinds) {
      if (kind.name == kCudaKind)
        made.push_back(new Cuda(kind));
      else
        made.push_back(new Gpu(kind));
    }
    return made;
  }());
  return all;
}

const Backend& GpuBackend(std::string_view kind) {
  const auto all = GpuBackends();
  const auto found = std::ranges::find(all, kind, [](const Backend* backend) { return backend->kind().name; });
  HONE_CHECK(found != all.end());
  return **found;
}

}  // namespace hone
