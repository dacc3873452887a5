// Schedules by the rule for instructions of warps: of whatever decisions, they apply, are right and free of races, by
// the instruction and by what it means.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"

namespace hone {
namespace {

using testing::HasSubstr;

Target Cuda(const char* arch = "sm_80") {
  return DeviceTarget{std::string(kCudaKind),
                      {{"arch", arch}, {"block_bytes", "49152"}, {"block_threads", "1024"}, {"units", "4"}}};
}

straight::DeviceLimits WithInstructions() { return straight::LimitsOf(ModelMachine(Cuda())); }

std::vector<std::string> Samples() {
  return {
      "matmul(M=37,N=45,K=64,dtype=f16)",
      "matmul(M=64,N=128,K=128,dtype=bf16,const=1)+bias+gelu",
      "matmul(M=33,N=24,K=40,dtype=f16,ta=1)+bias",
      "matmul(M=20,N=40,K=50,dtype=bf16,tb=1)+relu",
      "matmul(M=32,N=48,K=70,dtype=i8)+bias",
      "matmul(M=37,N=45,K=64,accuracy=fast)+bias",
      "dense(M=19,N=40,K=50,accuracy=fast,const=1)+bias+gelu",
      "batch_matmul(B=3,M=17,N=33,K=32,accuracy=fast)",
      "dense(M=32,N=48,K=64,dtype=u8,const=1)",
      "conv2d(C=32,H=9,W=11,O=24,R=3,S=3,pad=1,dtype=u8,const=1)+bias",
      // What quantised networks have: bytes of both kinds, either of them along the columns, and what is quantised
      // again.
      "kernel quantised(x: u8[M, K], const w: i8[N, K], s: f32[N]) -> y: u8[M, N] where M=37, N=40, K=96 "
      "{ y[m, n] = u8(round(float(sum(k) x[m, k] * w[n, k]) * s[n]) + 128.0) }",
      "kernel channels(x: u8[C, P], const w: i8[O, C]) -> y: i32[O, P] where C=32, P=50, O=24 "
      "{ y[o, p] = sum(c) x[c, p] * w[o, c] }",
      "batch_matmul(B=3,M=17,N=33,K=32,dtype=f16)",
      "dense(M=19,N=40,K=48,dtype=f16,const=1)+bias+add+relu",
      "conv2d(C=16,H=9,W=11,O=24,R=3,S=3,pad=1,dtype=f16,const=1)+bias+relu",
      "conv2d(N=2,C=20,H=8,W=9,O=17,R=1,S=1,dtype=bf16,const=1)",
      "conv2d(C=16,H=17,W=18,O=16,R=3,S=3,stride=2,pad=1,dtype=f16,const=1)",
  };
}

TEST(WarpRules, DefaultsAreRight) {
  for (const std::string& text : Samples()) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    const std::string schedule = PrintSchedule(PlanSchedule(kernel, Cuda(), {}).value().schedule);
    EXPECT_THAT(schedule, HasSubstr("tensorize mma_")) << text;
    for (const straight::DeviceLimits& limits :
         {WithInstructions(), straight::DeviceLimits{.threads = 1024, .shared_bytes = 49152}}) {
      const GpuOutcome outcome = RunOnGpu(text, ParseSchedule(schedule).value(), limits);
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << schedule;
    }
  }
}

// Windows whose weights, of a block's rows and all their places, are more than a block's storage at once.
TEST(WarpRules, LargeWindowsFit) {
  for (const char* text : {"conv2d(C=64,H=9,W=9,O=64,R=5,S=5,pad=2,dtype=u8,const=1)",
                           "conv2d(C=32,H=8,W=8,O=64,R=7,S=7,pad=3,dtype=i8,const=1)",
                           "conv2d(C=64,H=3,W=28,O=32,R=7,S=7,pad=3,dtype=u8,const=1)",
                           "conv2d(C=32,H=8,W=8,O=64,R=7,S=7,pad=3,dtype=f16,accuracy=relaxed,const=1)",
                           "conv2d(C=32,H=5,W=5,O=32,R=11,S=11,pad=5,dtype=u8,const=1)"}) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    const Schedule schedule = PlanSchedule(kernel, Cuda(), {}).value().schedule;
    const GpuOutcome outcome = RunOnGpu(text, schedule, WithInstructions());
    EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << PrintSchedule(schedule);
  }
}

// How many times the passes over banks that there had to be: reads of fragments conflict nowhere, but copies into rows
// that are not as long as a row of banks do, and bytes whose order changes on their way.
TEST(WarpRules, BanksAreDifferent) {
  const std::pair<const char*, double> most[] = {{"matmul(M=64,N=64,K=128,dtype=u8)", 1.8},
                                                 {"dense(M=64,N=64,K=128,dtype=u8)", 1.4},
                                                 {"matmul(M=64,N=64,K=128,accuracy=fast)", 1.15},
                                                 {"matmul(M=64,N=64,K=128,dtype=f16)", 1.15}};
  for (const auto& [text, times] : most) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    const straight::Program program =
        StraightOf(text, DefaultSchedule(kernel, Cuda()).value(), WithInstructions()).value();
    const GpuOutcome outcome = RunStraight(text, program, {.count = true});
    ASSERT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text();
    EXPECT_LE(static_cast<double>(outcome.report.shared_passes),
              times * static_cast<double>(outcome.report.least_passes))
        << text;
  }
}

// Copies of 16 bytes, past the registers, for the trip after this one.
TEST(WarpRules, CopiesAhead) {
  const std::string text = "matmul(M=64,N=64,K=128,dtype=f16)";
  const Kernel kernel = Specialize(ParseKernel(text).value());
  const Schedule schedule = DefaultSchedule(kernel, Cuda()).value();
  EXPECT_THAT(PrintSchedule(schedule), HasSubstr("pipeline a_block 2"));
  const straight::Program program = StraightOf(text, schedule, WithInstructions()).value();
  int copies = 0, barriers = 0;
  auto count = [&](auto&& self, const std::vector<straight::Node>& nodes) -> void {
    for (const straight::Node& node : nodes) {
      if (node.kind == straight::Node::Kind::kCopyAhead) {
        ++copies;
        EXPECT_EQ(node.lanes, 8);
      }
      barriers += node.kind == straight::Node::Kind::kBarrier ? 1 : 0;
      self(self, node.body);
    }
  };
  count(count, program.launches[0].code.nodes);
  EXPECT_GT(copies, 0);
  EXPECT_EQ(barriers, 1);
  EXPECT_TRUE(RunStraight(text, program).IsRight());
}

TEST(WarpRules, ForWhoHasTheInstructionAndTheTypes) {
  auto takes = [](const std::string& text, const Target& target) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    return PrintSchedule(DefaultSchedule(kernel, target).value()).find("tensorize") != std::string::npos;
  };
  EXPECT_TRUE(takes("matmul(M=256,N=256,K=512,dtype=f16)", Cuda()));
  EXPECT_FALSE(takes("matmul(M=256,N=256,K=512,dtype=f16)", Cuda("sm_75")));
  EXPECT_FALSE(takes("matmul(M=256,N=256,K=512,dtype=f16)", SomeGpu()));
  EXPECT_FALSE(takes("matmul(M=256,N=256,K=512)", Cuda())) << "f32 is not cut to tf32";
  EXPECT_FALSE(takes("matmul(M=256,N=256,K=512,accuracy=relaxed)", Cuda()));
  EXPECT_TRUE(takes("matmul(M=256,N=256,K=512,accuracy=fast)", Cuda()));
  EXPECT_FALSE(takes("matmul(M=256,N=256,K=512,accuracy=fast)", Cuda("sm_75")));
  EXPECT_FALSE(takes("conv2d(C=64,H=14,W=14,O=64,R=3,S=3,pad=1,accuracy=fast,const=1)", Cuda())) << "columns are a row";
  EXPECT_FALSE(takes("matmul(M=256,N=1,K=512,dtype=f16)", Cuda())) << "seven eighths would be padding";
  // What is cut off drifts.
  EXPECT_FALSE(takes("matmul(M=256,N=256,K=1024,dtype=f16)", Cuda()));
  EXPECT_TRUE(takes("matmul(M=256,N=256,K=1024,dtype=f16,accuracy=relaxed)", Cuda()));
  EXPECT_TRUE(takes("matmul(M=16,N=64,K=16384,dtype=f16,accuracy=relaxed)", Cuda()));
  EXPECT_FALSE(takes("matmul(M=16,N=64,K=32768,dtype=f16,accuracy=relaxed)", Cuda()));
  EXPECT_TRUE(takes("matmul(M=16,N=64,K=32768,dtype=f16,accuracy=fast)", Cuda()));
  EXPECT_TRUE(takes("matmul(M=256,N=256,K=1024,dtype=i8)+bias", Cuda()));
}

// Sums of less than a tile of the instruction are none of its.
TEST(WarpRules, WhateverTheSizes) {
  for (const char* type : {"f16", "i8", "f32,accuracy=fast"})
    for (const int rows : {1, 2, 4, 5, 7, 8, 9, 15, 16, 17})
      for (const int columns : {1, 2, 3, 4, 5, 6, 7, 8, 9, 40}) {
        const std::string text = fmt::format("matmul(M={},N={},K=64,dtype={})", rows, columns, type);
        const Schedule schedule = DefaultSchedule(Specialize(ParseKernel(text).value()), Cuda()).value();
        const GpuOutcome outcome = RunOnGpu(text, schedule, WithInstructions());
        EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << PrintSchedule(schedule);
      }
  for (const std::string text : {"matmul(M=8,N=4096,K=512,dtype=f16)", "dense(M=64,N=5,K=512,dtype=f16,const=1)",
                                 "conv2d(N=1,C=64,H=10,W=10,O=64,R=1,S=1,stride=2,dtype=bf16,const=1)"}) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    const Result<straight::Program> program =
        StraightOf(text, DefaultSchedule(kernel, Cuda()).value(), WithInstructions());
    EXPECT_TRUE(program) << text << ": " << program.error().Text();
  }
}

TEST(WarpRules, WhateverIsDecided) {
  Rng rng(7);
  int runs = 0;
  for (const std::string& text : Samples()) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    std::set<std::string> seen;
    for (int trial = 0; trial < 20 && seen.size() < 5; ++trial) {
      const Chooser any = [&](const Choice& choice) {
        if (choice.site.ends_with(".on_warps")) return int64_t{1};
        if (choice.site.ends_with(".rule")) return choice.preferred;
        return choice.options[static_cast<size_t>(rng.Below(choice.options.size()))];
      };
      const Plan plan = PlanSchedule(kernel, Cuda(), any).value();
      const std::string schedule = PrintSchedule(plan.schedule);
      if (!seen.insert(schedule).second) continue;
      const GpuOutcome outcome = RunOnGpu(text, plan.schedule, WithInstructions());
      if (outcome.refusal.find("are allowed") != std::string::npos) continue;  // of the device
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << schedule;
      EXPECT_GT(outcome.report.barriers, 0);
      ++runs;
    }
  }
  EXPECT_GT(runs, 30);
}

}  // namespace
}  // namespace hone
