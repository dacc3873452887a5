// What the cost model is told of blocks and threads: counts by hand, and what the machine model in software counts when
// it runs the same programs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/rng.h"
#include "codegen/machine_model.h"
#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"
#include "tests/support/gpu_schedules.h"
#include "tests/support/operation_samples.h"
#include "tuner/features.h"
#include "tuner/features_launches.h"

namespace hone::device_features_test {
namespace {

using features::Launches;

Result<LoopProgram> ProgramOf(const std::string& text, const Schedule& schedule) {
  const Kernel kernel = Specialize(HONE_TRY(ParseKernel(text)));
  return Lower(HONE_TRY(ApplySchedule(kernel, schedule)));
}

Launches LaunchesOf(const LoopProgram& program) {
  features::Analysis analysis;
  const MachineModel machine = ModelMachine(SomeGpu());
  features::AnalyzeLoops(program, machine, analysis);
  return features::AnalyzeLaunches(program, machine, analysis);
}

Launches LaunchesOf(const std::string& text, const std::string& schedule) {
  const Result<LoopProgram> program = ProgramOf(text, ParseSchedule(schedule).value());
  if (!program) ADD_FAILURE() << program.error().Text();
  return program ? LaunchesOf(*program) : Launches{};
}

constexpr char kMatmul[] = "matmul(M=64,N=64,K=16)";

TEST(DeviceFeatures, CountBlocksAndThreads) {
  const Launches l = LaunchesOf(kMatmul, "split y.n 32\nbind y.m block.y\nbind y.n.0 block.x\nbind y.n.1 thread.x\n");
  EXPECT_EQ(l.launches, 1);
  EXPECT_EQ(l.blocks, 64 * 2);
  EXPECT_EQ(l.threads, 32);
  EXPECT_EQ(l.threads_x, 32);
  EXPECT_EQ(l.barriers, 0);
  EXPECT_EQ(l.block_bytes, 0);
  EXPECT_EQ(l.cycles, l.all_cycles);
  EXPECT_NEAR(l.thread_cycles * l.blocks * l.threads, l.cycles, 1e-6 * l.cycles);
}

// One row of a, broadcast: a sector; of b and y rows of 32 elements: 4 sectors each. The other way round each thread
// has a row of a and of y of its own.
TEST(DeviceFeatures, CountSectorsOfThreadsSideBySide) {
  const Launches rows =
      LaunchesOf(kMatmul, "split y.n 32\nbind y.m block.y\nbind y.n.0 block.x\nbind y.n.1 thread.x\n");
  const double sums = 64 * 2 * 16;  // of warps
  // y is read and written for each term: it is summed in memory.
  EXPECT_EQ(rows.global_accesses, 4 * sums + 64 * 2);
  EXPECT_EQ(rows.global_sectors, (1 + 4 + 4 + 4) * sums + 4 * 64 * 2);
  const Launches columns = LaunchesOf(
      kMatmul,
      "split y.m 32\nreorder y.n y.m.0 y.m.1 y.k\nbind y.n block.y\nbind y.m.0 block.x\nbind y.m.1 thread.x\n");
  EXPECT_EQ(columns.global_accesses, rows.global_accesses);
  EXPECT_EQ(columns.global_sectors, (32 + 1 + 32 + 32) * sums + 32 * 64 * 2);
}

TEST(DeviceFeatures, CountBarriersAndBlockStorage) {
  const Launches l = LaunchesOf(kTiledMatmul, kTiledMatmulSchedule);
  EXPECT_EQ(l.blocks, 3 * 2);
  EXPECT_EQ(l.threads, 4 * 8);
  EXPECT_EQ(l.threads_x, 8);
  EXPECT_EQ(l.barriers, 2 * 4);  // around each trip's copies: 29 steps in trips of 8
  EXPECT_EQ(l.block_bytes, (16 * 9 + 8 * 32) * 4);
  EXPECT_GT(l.shared_accesses, 0);
  EXPECT_GE(l.shared_passes, l.shared_accesses);
}

// Rows by runs of 32 lanes, which read side by side and meet in registers.
TEST(DeviceFeatures, CountRunsOfLanes) {
  const Target target = ParseTarget("opencl block_bytes=32768 block_threads=256 units=8 sub_group=32").value();
  const Schedule schedule = DefaultSchedule(Specialize(ParseKernel("softmax(M=64,N=4096)").value()), target).value();
  ASSERT_NE(PrintSchedule(schedule).find("lane.x"), std::string::npos);
  const LoopProgram program = ProgramOf("softmax(M=64,N=4096)", schedule).value();
  const straight::Program code = Straighten(program, straight::LimitsOf(ModelMachine(target))).value();
  const Launches l = LaunchesOf(program);
  ASSERT_EQ(code.launches.size(), 1u);
  EXPECT_EQ(l.threads, code.launches[0].Threads());
  EXPECT_EQ(l.threads_x, code.launches[0].block[0]);
  EXPECT_LT(l.global_sectors, 17 * l.global_accesses);  // 16 bytes of each lane
}

TEST(DeviceFeatures, AreNothingOnAProcessor) {
  const LoopProgram program = ProgramOf(kMatmul, {}).value();
  const Launches l = LaunchesOf(program);
  EXPECT_EQ(l.launches, 0);
  EXPECT_EQ(l.global_accesses, 0);
}

// How far apart means are, in powers of two.
double Apart(double sum, double count, int64_t seen_sum, int64_t seen_count) {
  return std::abs(std::log2(sum / count) - std::log2(static_cast<double>(seen_sum) / static_cast<double>(seen_count)));
}

struct Compared {
  int global = 0, shared = 0;
  double global_apart = 0, shared_apart = 0;  // sums
};

// Schedules by the rules, that by default among them: sectors of an access, and how many times the least passes over
// banks there are, by strides alone, beside what it is when the first block runs. Of one launch, since the means are
// over all of them.
Compared Compare(const std::vector<std::string>& kernels) {
  constexpr int kSchedules = 3;
  Compared result;
  Rng rng(5);
  for (const std::string& text : kernels) {
    for (int round = 0; round < kSchedules; ++round) {
      auto chooser = [&](const Choice& choice) {
        return round > 0 && rng.Chance(0.5) ? choice.options[rng.Below(choice.options.size())] : choice.preferred;
      };
      const Result<Plan> plan = PlanSchedule(Specialize(ParseKernel(text).value()), SomeGpu(), chooser);
      if (!plan) continue;
      const Result<LoopProgram> program = ProgramOf(text, plan->schedule);
      if (!program || program->entry.size() != 1 || !program->pack.empty()) continue;
      const Result<straight::Program> code = Straighten(*program, {});
      if (!code) continue;
      const Launches l = LaunchesOf(*program);
      const SimtReport seen = RunStraight(text, *code, {.count = true}).report;
      result.global_apart += Apart(l.global_sectors, l.global_accesses, seen.global_sectors, seen.global_accesses);
      ++result.global;
      EXPECT_EQ(l.shared_accesses > 0, seen.shared_accesses > 0) << text << "\n" << PrintSchedule(plan->schedule);
      if (seen.shared_accesses == 0 || l.shared_accesses == 0) continue;
      result.shared_apart += Apart(l.shared_passes, l.least_passes, seen.shared_passes, seen.least_passes);
      ++result.shared;
    }
  }
  return result;
}

TEST(DeviceFeatures, SayWhatTheMachineModelCounts) {
  const Compared result = Compare(
      {"matmul(M=64,N=64,K=32)", "matmul(M=32,N=128,K=16)+bias+relu", "transpose(M=64,N=64)", "softmax(M=8,N=256)",
       "layer_norm(M=8,N=128)", "kernel r(x: f32[N]) -> y: f32[N] where N=1024 { y[i] = max(x[i], 0) }",
       "kernel s(x: f32[N], z: f32[N]) -> y: f32[N] where N=4096 { y[i] = x[i] + z[i] }",
       "conv2d(C=8,H=16,W=16,O=32,R=3,S=3,pad=1)", "maxpool2d(C=4,H=32,W=32,R=2,S=2,stride=2)",
       "depthwise_conv2d(C=8,H=16,W=32,R=3,S=3,pad=1)", "reduce_sum(M=16,N=256)"});
  EXPECT_GE(result.global, 20);
  EXPECT_GE(result.shared, 10);
  EXPECT_LT(result.global_apart, 0.15 * result.global);
  EXPECT_LT(result.shared_apart, 0.15 * result.shared);
}

// Where most blocks, and their warps, are not full.
TEST(DeviceFeatures, SayNearlyThatOfOddSizes) {
  const Compared result = Compare(GpuSamples());
  EXPECT_GE(result.global, 150);
  EXPECT_GE(result.shared, 80);
  EXPECT_LT(result.global_apart, 0.35 * result.global);
  EXPECT_LT(result.shared_apart, 0.35 * result.shared);
}

}  // namespace
}  // namespace hone::device_features_test
