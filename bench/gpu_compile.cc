// gpu_compile: what the compilers that no device is needed for say of whole lists of kernels.
//
//   gpu_compile [--target TARGET] [--schedules N] FILE.kernels…
//
// Each kernel once, by its default schedule and by N others (0) drawn from its space with a generator that is seeded
// with the kernel's text, as `honed` would build it for TARGET ("cuda arch=sm_90"; "vulkan"). For CUDA (NVRTC is looked
// for as by honed) a line holds the registers that a thread has and the bytes of block storage as ptxas counts them,
// the most of the launches, and bytes of spills, all launches together; it is an error if ptxas counts otherwise than
// our own check did. For Vulkan each module goes through spirv-val. Exit status 1 if anything was refused that our
// rules made.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "backends/gpu/build_for_gpu.h"
#include "backends/gpu/compile_cuda.h"
#include "backends/gpu/find_nvrtc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "codegen/rules/default_schedule.h"
#include "ir/device_artifact.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

constexpr int64_t kRegistersOfABlock = 65536;

struct Sizes {
  int64_t registers = 0, shared = 0, spilled = 0;
};

// ptxas' counts beside what our check took for granted. Ours may be the larger: the end of the last array is rounded
// up, and ptxas leaves out arrays that it can do without.
Result<Sizes> CheckCuda(const DeviceArtifact& artifact, const std::string& text, const std::string& arch) {
  std::map<std::string, PtxasCounts> all = HONE_TRY(CountsOfPtxas(text, arch));
  Sizes sizes;
  for (const DeviceLaunch& launch : artifact.launches) {
    const PtxasCounts& counts = all[launch.entry];
    if (counts.registers == 0) return Error{ErrorKind::kCorrupt, "ptxas says nothing of " + launch.entry, ""};
    if (counts.shared_bytes > launch.shared_bytes)
      return Error{ErrorKind::kCorrupt,
                   fmt::format("{}: ptxas counts {} bytes of block storage, we counted {}", launch.entry,
                               counts.shared_bytes, launch.shared_bytes),
                   ""};
    if (counts.serializes)
      return Error{ErrorKind::kCorrupt, fmt::format("{}: ptxas lets products wait for each other", launch.entry), ""};
    const int64_t threads = launch.block[0] * launch.block[1] * launch.block[2];
    if (threads * counts.registers > kRegistersOfABlock)
      return Error{ErrorKind::kLimit,
                   fmt::format("{}: {} threads of {} registers", launch.entry, threads, counts.registers), ""};
    sizes.registers = std::max(sizes.registers, counts.registers);
    sizes.shared = std::max(sizes.shared, counts.shared_bytes);
    sizes.spilled += counts.spilled_bytes;
  }
  return sizes;
}

Result<void> CheckShaders(const DeviceArtifact& artifact) {
  const std::string path = fmt::format("/tmp/gpu_compile.{}.spv", ::getpid());
  for (const std::string& module : artifact.sources) {
    HONE_TRY(WriteFileAtomically(path, module));
    const int status = std::system(("spirv-val --target-env vulkan1.2 --scalar-block-layout " + path).c_str());
    std::remove(path.c_str());
    if (status != 0) return Error{ErrorKind::kInvalid, "spirv-val refuses a module", ""};
  }
  return {};
}

// The kernel's default schedule (""), and others.
std::vector<std::string> Schedules(const std::string& kernel, const Target& target, int samples) {
  std::vector<std::string> schedules{""};
  const Result<Kernel> parsed = ParseKernel(kernel);
  if (!parsed || !IsStatic(*parsed)) return schedules;
  std::mt19937_64 random(std::bit_cast<uint64_t>(Hash64(kernel)));
  for (int i = 0; i < samples; ++i) {
    const Result<Plan> plan = PlanSchedule(Specialize(*parsed), target, [&](const Choice& choice) {
      return choice.options[random() % choice.options.size()];
    });
    if (plan) schedules.push_back(PrintSchedule(plan->schedule));
  }
  return schedules;
}

struct Counts {
  int built = 0, beyond = 0, wrong = 0;  // beyond the device's limits: said before anything is compiled
  int spilling = 0;
  Sizes most;
};

void Try(const BuildRequest& request, Counts& counts) {
  const auto wrong = [&](const Error& error) {
    ++counts.wrong;
    fmt::print("WRONG  {}: {}\n{}\n", request.kernel, error.Text(), request.schedule);
  };
  const Stopwatch watch;
  const Result<BuildOutput> built = BuildForGpu(request);
  const double ms = watch.Microseconds() / 1000;
  if (!built && built.error().kind == ErrorKind::kLimit && !request.schedule.empty()) {
    ++counts.beyond;
    return;
  }
  if (!built) return wrong(built.error());
  const Result<DeviceArtifact> artifact = DecodeDeviceArtifact(built->object);
  if (!artifact) return wrong(artifact.error());
  std::string sizes;
  if (artifact->language == kCubin) {
    std::string text = ExplainGpuCode(request).value();
    text.erase(0, text.find("\n// cuda\n"));
    const Result<Sizes> found = CheckCuda(*artifact, text, request.target.device()->facts.at("arch"));
    if (!found) return wrong(found.error());
    sizes = fmt::format("{:4} registers  {:6} shared  {:5} spilled", found->registers, found->shared, found->spilled);
    counts.spilling += found->spilled > 0 ? 1 : 0;
    counts.most.registers = std::max(counts.most.registers, found->registers);
    counts.most.shared = std::max(counts.most.shared, found->shared);
  } else if (artifact->language == kSpirv) {
    if (Result<void> valid = CheckShaders(*artifact); !valid) return wrong(valid.error());
  }
  ++counts.built;
  fmt::print("{:7.1f} ms  {}  {}\n", ms, sizes, request.kernel);
}

int Main(int argc, char** argv) {
  std::string target_text = "cuda arch=sm_90 block_bytes=49152 block_threads=1024";
  int samples = 0;
  std::set<std::string> kernels;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--target" && i + 1 < argc) {
      target_text = argv[++i];
    } else if (argument == "--schedules" && i + 1 < argc) {
      samples = std::atoi(argv[++i]);
    } else {
      std::ifstream in(argument);
      if (!in) fmt::print(stderr, "{}: {}\n", argument, std::strerror(errno));
      for (std::string line; std::getline(in, line);) {
        std::istringstream words(line);
        int64_t count = 0;
        std::string kernel;
        if (words >> count >> kernel) kernels.insert(kernel);
      }
    }
  }
  const Result<Target> target = ParseTarget(target_text);
  if (kernels.empty() || !target || LanguageOf(target->kind()).empty()) {
    fmt::print(stderr, "usage: gpu_compile [--target TARGET] [--schedules N] FILE.kernels…\n");
    return 2;
  }
  if (LanguageOf(target->kind()) == "cuda") {
    const auto open = []() -> Result<void> { return OpenNvrtc(HONE_TRY(FindNvrtc())); };
    if (const Result<void> opened = open(); !opened) {
      fmt::print("[SKIP] {}\n", opened.error().message);
      return 0;
    }
  }
  Counts counts;
  for (const std::string& kernel : kernels)
    for (const std::string& schedule : Schedules(kernel, *target, samples)) Try({kernel, schedule, *target}, counts);
  fmt::print("{}: {} kernels; {} built, {} beyond the device's limits, {} WRONG", target_text, kernels.size(),
             counts.built, counts.beyond, counts.wrong);
  if (counts.most.registers > 0)
    fmt::print("; {} with spills; at most {} registers, {} bytes of block storage", counts.spilling,
               counts.most.registers, counts.most.shared);
  fmt::print("\n");
  return counts.wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) { return hone::Main(argc, argv); }
