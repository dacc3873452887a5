// code_digest: what code becomes of kernels, as hashes. A change that must not change code is run before and after, and
// the two outputs compared: a line that differs names the kernel, the target and the choices.
//
//   code_digest [--samples N] [--shard I/N] FILE.kernels… | FILE.onnx…
//
// Each kernel for an AVX2, an AVX-512 and a NEON target: the default schedule, and N schedules (2) drawn from its space
// by a random generator that is seeded with the kernel's text. A line is: hash of the assembly (or the error), target,
// choices by number, kernel. Hashes are of LLVM's text, so they do not change with the words of schedules.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "backends/cpu/build_for_cpu.h"
#include "base/hash.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "network/onnx/import_network.h"
#include "network/run/kernel_calls.h"

namespace hone {
namespace {

uint64_t NumberOf(std::string_view text) { return std::bit_cast<uint64_t>(Hash64(text)); }

std::vector<Target> Targets() {
  std::vector<Target> targets;
  for (const char* text : {"avx2 cpu=haswell l1=32768 l2=262144 l3=8388608 cores=1",
                           "avx512 cpu=sapphirerapids l1=49152 l2=2097152 l3=33554432 cores=2",
                           "neon cpu=cortex-a76 l1=65536 l2=524288 l3=2097152 cores=4"}) {
    Result<Target> target = ParseTarget(text);
    if (!target) std::abort();
    targets.push_back(*target);
  }
  return targets;
}

bool ReadKernels(const std::string& file, std::vector<std::string>& kernels) {
  if (file.ends_with(".onnx")) {
    Result<Network> network = ImportModel(file);
    if (!network) {
      fmt::print(stderr, "{}: {}\n", file, network.error().Text());
      return false;
    }
    for (const KernelCall& call : Lower(network->graph).calls)
      if (!call.is_host()) kernels.push_back(call.kernel);
    return true;
  }
  std::ifstream in(file);
  if (!in) fmt::print(stderr, "{}: {}\n", file, std::strerror(errno));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    int64_t count = 0;
    std::string kernel;
    if (words >> count >> kernel) kernels.push_back(kernel);
  }
  return static_cast<bool>(in.eof());
}

std::string Digest(const BuildRequest& request) {
  Result<std::string> text = ExplainCode(request);
  if (!text) return "refused: " + text.error().message;
  return fmt::format("{:016x}", NumberOf(std::string_view(*text).substr(text->find("\n; LLVM IR\n"))));
}

void PrintDigests(const std::string& kernel, const Target& target, int samples) {
  std::string name = kernel;
  std::replace(name.begin(), name.end(), '\n', ' ');
  auto print = [&](int sample, const std::string& digest) {
    fmt::print("{} {} {} {}\n", digest, ArchitectureName(target), sample, name);
  };
  print(0, Digest({kernel, "", target}));
  Result<Kernel> parsed = ParseKernel(kernel);
  if (!parsed || !IsStatic(*parsed)) return;
  std::mt19937_64 random(NumberOf(kernel));
  for (int sample = 1; sample <= samples; ++sample) {
    Result<Plan> plan = PlanSchedule(Specialize(*parsed), target, [&](const Choice& choice) {
      return choice.options[random() % choice.options.size()];
    });
    print(sample, plan ? Digest({kernel, PrintSchedule(plan->schedule), target}) : "no plan: " + plan.error().message);
  }
}

int Main(int argc, char** argv) {
  int samples = 2;
  size_t shard = 0, shards = 1;
  std::vector<std::string> all;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--samples" && i + 1 < argc) {
      samples = std::atoi(argv[++i]);
    } else if (argument == "--shard" && i + 1 < argc) {
      if (std::sscanf(argv[++i], "%zu/%zu", &shard, &shards) != 2 || shard >= shards) return 2;
    } else if (!ReadKernels(argument, all)) {
      return 1;
    }
  }
  if (all.empty()) {
    fmt::print(stderr, "usage: code_digest [--samples N] [--shard I/N] FILE.kernels… | FILE.onnx…\n");
    return 2;
  }
  std::set<std::string> kernels(all.begin(), all.end());
  size_t index = 0;
  for (const std::string& kernel : kernels)
    if (index++ % shards == shard)
      for (const Target& target : Targets()) PrintDigests(kernel, target, samples);
  return 0;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) { return hone::Main(argc, argv); }
