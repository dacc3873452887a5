// gpu_compile: what the compilers that no device is needed for say of whole lists of kernels.
//
//   gpu_compile [--target TARGET] [--schedules N] [--products OPTIONS] [--every N] FILE.kernels…
//
// Each kernel once (one in N of them), by its default schedule and by N others (0) drawn from its space with a
// generator that is seeded with the kernel's text, as `honed` would build it for TARGET ("cuda arch=sm_90"; "vulkan").
// With
// --products, of the lists those that multiply matrices alone, with more options: "dtype=f16,accuracy=fast".
//
// For CUDA (NVRTC is looked for as by honed) a line holds the registers that a thread has and the bytes of block
// storage as ptxas counts them, the most of the launches, and bytes of spills, all launches together; it is an error if
// ptxas counts otherwise than our own check did, or if an instruction of tensor cores that the schedule names is not in
// the PTX. For Vulkan each module goes through spirv-val. Exit status 1 if anything was refused that our rules made.
// bench/device_compile.py runs it over all lists, and reads its last line.
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
#include "codegen/gpu/print_warp.h"
#include "codegen/instructions.h"
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
  int built = 0, beyond = 0;  // beyond the device's limits: said before anything is compiled
  int refused = 0;            // by a compiler, or by ours
  int miscounted = 0;         // ptxas counts otherwise
  int on_tensor_cores = 0;    // schedules that name such an instruction,
  int lost = 0;               // and whose code does not have it
  int spilling = 0;
  Sizes most;
  int wrong() const { return refused + miscounted + lost; }
};

// Instructions of warps that the schedule names.
std::vector<const Instruction*> TensorInstructions(const std::string& schedule) {
  std::vector<const Instruction*> found;
  for (const Instruction& instruction : AllInstructions())
    if (MeaningOf(instruction).is_of_warp &&
        schedule.find(fmt::format("tensorize {} ", instruction.name)) != schedule.npos)
      found.push_back(&instruction);
  return found;
}

Result<void> FindInPtx(const std::vector<const Instruction*>& instructions, const std::string& text,
                       const std::string& arch) {
  const std::string ptx = HONE_TRY(PtxOfCuda(text, arch));
  for (const Instruction* instruction : instructions)
    if (ptx.find(PtxName(*instruction)) == std::string::npos)
      return Error{ErrorKind::kCorrupt, fmt::format("there is no {} in the code", PtxName(*instruction)), ""};
  return {};
}

void Try(const BuildRequest& request, Counts& counts) {
  const auto is_wrong = [&](int& count, const Error& error) {
    ++count;
    fmt::print("WRONG  {}: {}\n{}\n", request.kernel, error.Text(), request.schedule);
  };
  const auto wrong = [&](const Error& error) { is_wrong(counts.refused, error); };
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
    if (!found) return is_wrong(counts.miscounted, found.error());
    const std::vector<const Instruction*> named = TensorInstructions(built->schedule);
    counts.on_tensor_cores += named.empty() ? 0 : 1;
    if (!named.empty()) {
      const Result<void> are_there = FindInPtx(named, text, request.target.device()->facts.at("arch"));
      if (!are_there) return is_wrong(counts.lost, are_there.error());
    }
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

// Kernels of lists, each once.
std::set<std::string> KernelsOf(const std::vector<std::string>& lists, const std::string& products) {
  std::set<std::string> kernels;
  for (const std::string& list : lists) {
    std::ifstream in(list);
    if (!in) fmt::print(stderr, "{}: {}\n", list, std::strerror(errno));
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      int64_t count = 0;
      std::string kernel;
      if (!(words >> count >> kernel)) continue;
      if (!products.empty()) {
        const std::string operation = kernel.substr(0, kernel.find('('));
        if (operation != "matmul" && operation != "batch_matmul" && operation != "dense" && operation != "conv2d")
          continue;
        kernel.insert(kernel.find(')'), "," + products);
        if (!ParseKernel(kernel)) continue;  // a function of floats, of bytes
      }
      kernels.insert(kernel);
    }
  }
  return kernels;
}

int Main(int argc, char** argv) {
  std::string target_text = "cuda arch=sm_90 block_bytes=49152 block_threads=1024";
  int samples = 0, every = 1;
  std::string products;
  std::vector<std::string> lists;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool has_value = i + 1 < argc;
    if (argument == "--target" && has_value)
      target_text = argv[++i];
    else if (argument == "--schedules" && has_value)
      samples = std::atoi(argv[++i]);
    else if (argument == "--products" && has_value)
      products = argv[++i];
    else if (argument == "--every" && has_value)
      every = std::max(1, std::atoi(argv[++i]));
    else
      lists.push_back(argument);
  }
  const std::set<std::string> all = KernelsOf(lists, products);
  std::vector<std::string> kernels;
  for (int i = 0; const std::string& kernel : all)
    if (i++ % every == 0) kernels.push_back(kernel);
  const Result<Target> target = ParseTarget(target_text);
  if (kernels.empty() || !target || LanguageOf(target->kind()).empty()) {
    fmt::print(stderr,
               "usage: gpu_compile [--target TARGET] [--schedules N] [--products OPTIONS] [--every N] FILE.kernels…\n");
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
  fmt::print(
      "{}: {} kernels; {} built, {} beyond the device's limits, {} WRONG: {} refused, {} that ptxas counts otherwise, "
      "{} of {} without the tensor instruction that their schedule names",
      target_text, kernels.size(), counts.built, counts.beyond, counts.wrong(), counts.refused, counts.miscounted,
      counts.lost, counts.on_tensor_cores);
  if (counts.most.registers > 0)
    fmt::print("; {} with spills; at most {} registers, {} bytes of block storage", counts.spilling,
               counts.most.registers, counts.most.shared);
  fmt::print("\n");
  return counts.wrong() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) { return hone::Main(argc, argv); }
