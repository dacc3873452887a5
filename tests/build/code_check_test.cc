// The gate's walk over machine code takes whatever LLVM makes: kernels of networks, every operation, ranges of sizes,
// random kernels with random schedules, for each ISA that we emit.
#include "base/code_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "backends/cpu/build_for_cpu.h"
#include "base/elf_check.h"
#include "base/file.h"
#include "base/rng.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "tests/support/odd_kernels.h"
#include "tests/support/operation_samples.h"
#include "tests/support/random_kernel.h"
#include "tests/support/random_schedule.h"
#include "tests/support/run_cases.h"

namespace hone::code_check_test {
namespace {

constexpr uint64_t kUsualSeed = 5;
constexpr int kUsualRounds = 24;  // of each source of kernels

std::vector<Target> Targets() {
  std::vector<Target> targets;
  for (const char* text : {"avx2 cpu=haswell l1=32768 l2=262144 l3=8388608 cores=2",
                           "avx512 cpu=sapphirerapids features=avx512bf16,avx512vnni l1=49152 l2=2097152 l3=8388608 "
                           "cores=2",
                           "neon cpu=neoverse-n1 l1=65536 l2=1048576 l3=8388608 cores=2"}) {
    Result<Target> target = ParseTarget(text);
    EXPECT_TRUE(target) << target.error().Text();
    if (target) targets.push_back(*target);
  }
  return targets;
}

// The kernels of all lists in models/, each once.
std::vector<std::string> ListedKernels() {
  std::set<std::string> kernels;
  const std::string folder = HONE_SOURCE_DIR "/models/";
  for (const std::string& name : ListDirectory(folder).value_or(std::vector<std::string>())) {
    if (!name.ends_with(".kernels")) continue;
    std::istringstream lines(ReadFile(folder + name, size_t{1} << 20).value_or(""));
    for (std::string line; std::getline(lines, line);)
      if (!line.empty() && line[0] != '#') kernels.insert(line.substr(line.find(' ') + 1));
  }
  return {kernels.begin(), kernels.end()};
}

struct Sample {
  std::string kernel;
  uint64_t schedule_seed = 0;  // 0: the default schedule
};

// A chain of products by constants: packing chooses among as many operands.
std::string Chain(int length) {
  std::string operands, stages, before = "x";
  for (int i = 0; i < length; ++i) {
    const std::string n = std::to_string(i), after = i + 1 < length ? "t" + n : "y";
    operands += ", const w" + n + ": f32[D, D]";
    if (i + 1 < length) stages += after + ": f32[M, D]\n";
    stages += after + "[m, n] = sum(k) " + before + "[m, k] * w" + n + "[k, n]\n";
    before = after;
  }
  return "kernel chain(x: f32[M, D]" + operands + ") -> y: f32[M, D] where M=32, D=64 {\n" + stages + "}";
}

std::vector<Sample> Samples(uint64_t seed) {
  const int rounds = RoundsFromEnvironment(kUsualRounds);
  std::vector<Sample> samples;
  for (const std::string& kernel : OperationSamples()) samples.push_back({kernel});
  for (const char* kernel : {"matmul(M=1..512,N=64,K=64,const=1)+bias+relu", "softmax(M=1..64,N=300)",
                             "conv2d(N=1..4,C=8,H=14,W=14,O=16,R=3,S=3,pad=1,const=1)"})
    samples.push_back({kernel});
  samples.push_back({Chain(7)});
  std::vector<std::string> listed = ListedKernels();
  EXPECT_GT(listed.size(), 100u);
  Rng rng(seed);
  for (int i = 0; i < rounds && i < static_cast<int>(listed.size()); ++i) {
    std::swap(listed[static_cast<size_t>(i)],
              listed[static_cast<size_t>(i) + rng.Below(listed.size() - static_cast<size_t>(i))]);
    samples.push_back({listed[static_cast<size_t>(i)]});
  }
  for (int i = 0; i < rounds; ++i) {
    samples.push_back({OddKernel(rng), rng.Below(UINT64_MAX - 1) + 1});
    samples.push_back({RandomKernel(rng).Text()});
    samples.push_back({RandomKernel(rng).Text(), rng.Below(UINT64_MAX - 1) + 1});
  }
  return samples;
}

TEST(CheckCode, TakesWhatIsEmitted) {
  const uint64_t seed = SeedFromEnvironment(kUsualSeed);
  const std::vector<Sample> samples = Samples(seed);
  const std::vector<Target> targets = Targets();
  CaseReport report = RunCases(static_cast<int>(samples.size()), [&](int index, CaseLog& log) {
    const Sample& sample = samples[static_cast<size_t>(index)];
    log.Note(sample.kernel);
    Result<Kernel> kernel = ParseKernel(sample.kernel);
    if (!kernel) return log.Fail(kernel.error().Text());
    for (const Target& target : targets) {
      std::string schedule;
      if (sample.schedule_seed != 0) {
        Rng rng(sample.schedule_seed);
        schedule = PrintSchedule(RandomSchedule(Specialize(*kernel), target, rng).Make());
      }
      log.Note(sample.kernel + "\n" + PrintTarget(target) + "\n" + schedule);
      Result<BuildOutput> built = BuildForCpu({sample.kernel, schedule, target});
      if (!built) {
        log.Count("refused");
        continue;
      }
      Result<ArtifactLayout> layout = CheckArtifact(built->object, {.other_machine = true});
      if (!layout)
        log.Fail(layout.error().Text());
      else
        log.Count("accepted");
    }
  });
  EXPECT_TRUE(report.failures.empty()) << "seed " << seed << "\n" << report.Text();
  std::printf("seed %lu: %ld artifacts accepted, %ld schedules refused\n", seed, report.count("accepted"),
              report.count("refused"));
  EXPECT_GT(report.count("accepted"), static_cast<int64_t>(samples.size() * targets.size() * 8 / 10));
}

}  // namespace
}  // namespace hone::code_check_test
