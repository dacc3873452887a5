// Rows whose partial results meet in registers of a sub-group's threads: that rules make it so where a device has
// sub-groups, that it is right, and that what is not is refused or seen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codegen/machine_model.h"
#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"
#include "tests/support/special_numbers.h"

namespace hone {
namespace sub_group_test {

using ::testing::HasSubstr;

Target WithSubGroups(int threads) {
  return ParseTarget("opencl block_bytes=32768 block_threads=256 units=8 sub_group=" + std::to_string(threads)).value();
}
straight::DeviceLimits LimitsWith(int threads) { return straight::LimitsOf(ModelMachine(WithSubGroups(threads))); }

Plan PlanOf(const std::string& text, const Target& target, const Chooser& chooser = {}) {
  return PlanSchedule(Specialize(ParseKernel(text).value()), target, chooser).value();
}

int64_t Shuffles(const straight::Program& program) {
  int64_t count = 0;
  for (const straight::Launch& launch : program.launches)
    count += std::ranges::count_if(launch.code.values,
                                   [](const straight::Value& value) { return value.what == straight::Do::kShuffle; });
  return count;
}

// One run of threads a row or several, whole vectors or not, one axis or two, functions, several rows that share a
// matrix, every type that is exchanged.
const std::vector<std::string>& RowSamples() {
  static const std::vector<std::string>& samples =
      *new std::vector<std::string>{"softmax(M=3,N=300)",
                                    "softmax(M=2,N=33)",
                                    "softmax(M=64,N=128)",
                                    "layer_norm(M=3,N=515)",
                                    "layer_norm(M=70,N=100)",
                                    "rms_norm(M=2,N=300)+mul",
                                    "reduce_sum(M=3,N=600)",
                                    "reduce_sum(M=2,N=9001)",
                                    "reduce_sum(M=3,N=600,dtype=i8)",
                                    "reduce_sum(M=3,N=601,dtype=f64)",
                                    "layer_norm(M=2,N=131,dtype=bf16)+add",
                                    "global_avgpool(C=3,H=17,W=19)",
                                    "dense(M=1,N=6,K=130)+bias",
                                    "dense(M=3,N=5,K=128)",
                                    "kernel extremes(x: f32[M, N]) -> low: f32[M], high: f32[M] where M=5, N=210 "
                                    "{ low[m] = min(n) x[m, n] high[m] = max(n) x[m, n] }"};
  return samples;
}

TEST(SubGroups, DefaultSchedulesExchangeAndAreRight) {
  for (const int threads : {8, 32})
    for (const std::string& text : RowSamples()) {
      const Schedule schedule = PlanOf(text, WithSubGroups(threads)).schedule;
      const Result<straight::Program> program = StraightOf(text, schedule, LimitsWith(threads));
      ASSERT_TRUE(program) << text << ": " << program.error().Text() << "\n" << PrintSchedule(schedule);
      EXPECT_GT(Shuffles(*program), 0) << text << "\n" << PrintSchedule(schedule);
      const GpuOutcome outcome = RunStraight(text, *program);
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << PrintSchedule(schedule);
    }
}

TEST(SubGroups, RandomSchedules) {
  Rng rng(11);
  int with_shuffles = 0;
  for (const std::string& text : RowSamples()) {
    std::set<std::string> seen;
    for (int trial = 0; trial < 12; ++trial) {
      const int threads = trial % 2 == 0 ? 32 : 16;
      const Chooser any = [&](const Choice& choice) {
        return choice.options[static_cast<size_t>(rng.Below(choice.options.size()))];
      };
      const Schedule schedule = PlanOf(text, WithSubGroups(threads), any).schedule;
      if (!seen.insert(PrintSchedule(schedule)).second) continue;
      const Result<straight::Program> program = StraightOf(text, schedule, LimitsWith(threads));
      if (!program && program.error().kind == ErrorKind::kLimit) continue;
      ASSERT_TRUE(program) << text << ": " << program.error().Text() << "\n" << PrintSchedule(schedule);
      const GpuOutcome outcome = RunStraight(text, *program);
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << PrintSchedule(schedule);
      with_shuffles += Shuffles(*program) > 0 ? 1 : 0;
    }
  }
  EXPECT_GE(with_shuffles, 40);
}

TEST(SubGroups, SpecialNumbers) {
  for (const SpecialKernel& special : SpecialKernels("f32")) {
    if (special.data != SpecialKernel::Data::kRows) continue;
    const Kernel kernel = Specialize(ParseKernel(special.text).value());
    const straight::Program program =
        StraightOf(special.text, DefaultSchedule(kernel, WithSubGroups(4)).value(), LimitsWith(4)).value();
    const GpuOutcome outcome = RunStraight(special.text, program, {}, [&](int operand, std::span<std::byte> bytes) {
      FillSpecial(DType::kF32, special.data, static_cast<size_t>(operand), bytes);
    });
    EXPECT_TRUE(outcome.IsRight()) << special.text << ": " << outcome.Text();
  }
}

// A row of one run needs neither block storage nor a barrier.
TEST(SubGroups, RowsOfOneRunMeetInRegistersAlone) {
  const std::string text = "reduce_sum(M=64,N=128)";
  const auto barriers = [&](const Target& target) {
    const Result<straight::Program> program =
        StraightOf(text, PlanOf(text, target).schedule, straight::LimitsOf(ModelMachine(target)));
    int64_t bytes = 0;
    for (const straight::Launch& launch : program->launches) bytes += launch.shared_bytes;
    return std::pair(RunStraight(text, *program).report.barriers, bytes);
  };
  EXPECT_EQ(barriers(WithSubGroups(32)), (std::pair<int64_t, int64_t>(0, 0)));
  EXPECT_GT(barriers(SomeGpu()).first, 0);
}

TEST(SubGroups, CudaHasThemAndOthersDoNotSay) {
  const auto chooses = [](const std::string& target) {
    return PrintSchedule(PlanOf("softmax(M=64,N=128)", ParseTarget(target).value()).schedule).find("lane.x") !=
           std::string::npos;
  };
  EXPECT_TRUE(chooses("cuda arch=sm_90 block_bytes=49152 block_threads=1024 units=132"));
  EXPECT_FALSE(chooses("vulkan block_bytes=32768 block_threads=256 units=16"));
}

constexpr char kRow[] = "kernel row(x: f32[M, N]) -> y: f32[M] where M=4, N=100 { y[m] = sum(n) x[m, n] }";
constexpr char kByRuns[] = R"(
rewrite cache_write y t
bind y.m block.x
compute_at t y.m
store t registers
split t.n 8 4
reorder t.m t.n.0 t.n.1 t.n.2
bind t.n.1 lane.x
vectorize t.n.2
)";

TEST(SubGroups, AScheduleByHand) {
  const GpuOutcome outcome = RunOnGpu(kRow, ParseSchedule(kByRuns).value(), LimitsWith(8));
  EXPECT_TRUE(outcome.IsRight()) << outcome.Text();
}

TEST(SubGroups, AreHeldAgainstTheDevice) {
  const auto refusal = [](const std::string& schedule, const straight::DeviceLimits& limits) {
    return RunOnGpu(kRow, ParseSchedule(schedule).value(), limits).refusal;
  };
  const auto with = [](std::string schedule, const std::string& from, const std::string& to) {
    return schedule.replace(schedule.find(from), from.size(), to);
  };
  EXPECT_THAT(refusal(kByRuns, {}), HasSubstr("the device's sub-groups have 1"));
  EXPECT_THAT(refusal(kByRuns, LimitsWith(4)),
              HasSubstr("in runs of 8 of 8 threads, 8 along x: the device's sub-groups"));
  EXPECT_THAT(refusal(kByRuns, LimitsWith(32)), HasSubstr("sub-groups have 32"));  // whose other lanes nobody is
  EXPECT_THAT(refusal(with(kByRuns, "n 8 4", "n 6 4"), LimitsWith(8)), HasSubstr("a power of two, and not 6"));
}

// Lanes mean the same element: none that each thread has for itself.
TEST(SubGroups, LanesThatMeanDifferentElementsAreRefused) {
  constexpr char kEach[] = "kernel each(x: f32[M, N]) -> y: f32[M] where M=8, N=32 { y[m] = sum(n) x[m, n] }";
  const std::string by_thread = R"(
rewrite cache_write y t
bind y.m thread.x
compute_at t y.m
store t registers
split t.n 8
reorder t.m t.n.0 t.n.1
bind t.n.1 lane.x
)";
  EXPECT_THAT(RunOnGpu(kEach, ParseSchedule(by_thread).value(), LimitsWith(8)).refusal,
              HasSubstr("lanes reduce t together, but the element of x is another one in each thread"));
  constexpr char kOfItsOwn[] =
      "kernel own(x: f32[N]) -> y: f32[N] where N=8 {\n  e: f32[N]\n  e[n] = exp(x[n])\n  y[n] = sum(k) (e[n] * "
      "x[k])\n}";
  const std::string own = R"(
rewrite cache_write y t
bind y.n thread.x
compute_at t y.n
store t registers
compute_at e y.n
store e registers
bind t.k lane.x
)";
  EXPECT_THAT(RunOnGpu(kOfItsOwn, ParseSchedule(own).value(), LimitsWith(8)).refusal,
              HasSubstr("lanes reduce t together, but e is another one in each thread"));
}

// What goes wrong in code is seen: a step of the exchange left out, one by another bit, one that some threads skip.
TEST(SubGroups, DamageIsSeen) {
  const straight::Program program = StraightOf(kRow, ParseSchedule(kByRuns).value(), LimitsWith(8)).value();
  ASSERT_TRUE(RunStraight(kRow, program).IsRight());
  ASSERT_EQ(Shuffles(program), 3);
  for (const int64_t bit : {1, 2, 4}) {
    straight::Program damaged = program;
    for (straight::Value& value : damaged.launches[0].code.values)
      if (value.what == straight::Do::kShuffle && value.number == bit) value.number = bit == 1 ? 2 : 1;
    EXPECT_FALSE(RunStraight(kRow, damaged).failure.empty()) << bit;
  }
  straight::Program divergent = program;
  straight::Code& code = divergent.launches[0].code;
  const auto shuffle = std::ranges::find_if(code.nodes, [&](const straight::Node& node) {
    return node.kind == straight::Node::Kind::kLet && code.values[node.value].what == straight::Do::kShuffle;
  });
  ASSERT_NE(shuffle, code.nodes.end());
  const straight::ValueId thread =
      code.values.Add({.what = straight::Do::kThread, .type = DType::kI32, .number = 0, .varies = true});
  straight::Node some{.kind = straight::Node::Kind::kIf, .a = thread};  // all but the first
  some.body.push_back(*shuffle);
  *shuffle = some;
  EXPECT_THAT(RunStraight(kRow, divergent).Text(), HasSubstr("divergent warp: 1 of 8 threads"));
}

}  // namespace sub_group_test
}  // namespace hone
