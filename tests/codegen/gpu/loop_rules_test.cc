// Schedules for OpenCL on a processor, whose blocks are loops over their threads: what is made vectors, what is given
// out as blocks, and that it is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codegen/machine_model.h"
#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"
#include "tests/support/operation_samples.h"

namespace hone {
namespace loop_rules_test {

Target Processor() {
  return ParseTarget("opencl block_bytes=1048576 block_threads=4096 type=cpu units=2 lanes=16").value();
}
straight::DeviceLimits LimitsOfProcessor() { return straight::LimitsOf(ModelMachine(Processor())); }

Plan PlanOf(const std::string& text, const Chooser& chooser = {}) {
  return PlanSchedule(Specialize(ParseKernel(text).value()), Processor(), chooser).value();
}

int64_t Decided(const Plan& plan, const std::string& decision) {
  for (const Choice& choice : plan.choices)
    if (choice.site.ends_with("." + decision)) return choice.value;
  return -1;
}

int64_t ThreadsOf(const straight::Launch& launch) {
  int64_t threads = launch.Threads();
  for (const Linear& blocks : launch.grid) threads *= blocks.constant();
  return threads;
}

// Reductions along rows: divided among lanes, whole vectors or not, one axis or several, few vectors that share a
// matrix.
std::vector<std::string> RowSamples() {
  return {"softmax(M=3,N=300)",           "softmax(M=2,N=33)",
          "layer_norm(M=3,N=515)",        "rms_norm(M=2,N=300)+mul",
          "reduce_sum(M=3,N=600)",        "reduce_sum(M=1,N=9000)",
          "reduce_sum(M=1,N=100000)",     "global_avgpool(C=3,H=17,W=19)",
          "global_avgpool(C=24,H=7,W=7)", "dense(M=1,N=6,K=130)+bias",
          "dense(M=3,N=5,K=128)",         "softmax(M=1,N=1)"};
}

TEST(LoopRules, DefaultSchedulesOfAllOperations) {
  std::vector<std::string> texts = GpuSamples();
  for (const std::string& text : RowSamples()) texts.push_back(text);
  for (const std::string& text : texts) {
    const Schedule schedule = PlanOf(text).schedule;
    const GpuOutcome outcome = RunOnGpu(text, schedule, LimitsOfProcessor());
    EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << PrintSchedule(schedule);
  }
}

TEST(LoopRules, RandomSchedules) {
  std::vector<std::string> texts = RowSamples();
  texts.insert(texts.end(),
               {"depthwise_conv2d(C=2,H=9,W=11,R=3,S=3,pad=1)+bias", "maxpool2d(C=2,H=8,W=9,R=3,S=3,stride=2,pad=1)",
                "conv2d(C=5,H=9,W=7,O=6,R=3,S=3,pad=1,const=1)+bias+relu", "matmul(M=9,N=35,K=21)"});
  Rng rng(11);
  for (const std::string& text : texts) {
    std::set<std::string> seen;
    for (int trial = 0; trial < 20; ++trial) {
      const Chooser any = [&](const Choice& choice) {
        return choice.options[static_cast<size_t>(rng.Below(choice.options.size()))];
      };
      const Schedule schedule = PlanOf(text, any).schedule;
      if (!seen.insert(PrintSchedule(schedule)).second) continue;
      const GpuOutcome outcome = RunOnGpu(text, schedule, LimitsOfProcessor());
      if (outcome.refusal.find("registers of a thread") != std::string::npos) continue;
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << PrintSchedule(schedule);
    }
  }
}

// A block's threads are a loop, whose registers go to memory at barriers: a row is one thread's.
TEST(LoopRules, AThreadHasAWholeRow) {
  for (const std::string text :
       {"softmax(M=64,N=1000)", "layer_norm(M=32,N=768)", "dense(M=1,N=64,K=1280)+bias", "reduce_sum(M=32,N=600)"}) {
    const Schedule schedule = PlanOf(text).schedule;
    const GpuOutcome outcome = RunOnGpu(text, schedule, LimitsOfProcessor());
    EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text();
    EXPECT_EQ(outcome.report.most_threads, 1) << text << "\n" << PrintSchedule(schedule);
    EXPECT_EQ(Decided(PlanOf(text), "vector"), 16) << text;
  }
  // Adding up as many lanes would take as long as a short row itself.
  EXPECT_EQ(Decided(PlanOf("softmax(M=64,N=128)"), "vector"), 16);
  EXPECT_EQ(Decided(PlanOf("softmax(M=64,N=32)"), "vector"), 8);
  // Of lanes no more than a fourth has nothing to do; short rows share a block.
  EXPECT_EQ(Decided(PlanOf("global_avgpool(C=1280,H=7,W=7)"), "vector"), 8);
  EXPECT_EQ(Decided(PlanOf("global_avgpool(C=1280,H=7,W=7)"), "block_rows"), 8);
  EXPECT_EQ(Decided(PlanOf("softmax(M=1024,N=1024)"), "block_rows"), 1);
}

// Code without loops of its own becomes vectors of threads side by side: windows of short rows are read where they lie,
// in one launch.
TEST(LoopRules, ThreadsAreLanesOfShortWindows) {
  for (const std::string text : {"depthwise_conv2d(C=2,H=14,W=14,R=3,S=3,pad=1,const=1)+bias",
                                 "depthwise_conv2d(C=2,H=14,W=14,R=5,S=5,pad=2,const=1)",
                                 "depthwise_conv2d(C=2,H=28,W=28,R=3,S=3,stride=2,pad=1,const=1)"}) {
    const Plan plan = PlanOf(text);
    const straight::Program program = StraightOf(text, plan.schedule, LimitsOfProcessor()).value();
    EXPECT_EQ(program.launches.size(), 1u) << text << "\n" << PrintSchedule(plan.schedule);
    EXPECT_EQ(Decided(plan, "columns"), 1) << text;
    EXPECT_GE(Decided(plan, "threads_x"), 8) << text;
  }
  // Windows of 5 that move by 2 would gather each of their elements two and a half times; windows of more terms than
  // make one piece of code have loops.
  for (const std::string text : {"depthwise_conv2d(C=2,H=28,W=28,R=5,S=5,stride=2,pad=2,const=1)",
                                 "depthwise_conv2d(C=2,H=28,W=16,R=9,S=9,pad=4,const=1)"}) {
    EXPECT_GT(Decided(PlanOf(text), "columns"), 1) << text;
    EXPECT_EQ(Decided(PlanOf(text), "threads_x"), 1) << text;
  }
}

TEST(LoopRules, LongRowsOfWindowsAreVectors) {
  for (const std::string text : {"depthwise_conv2d(C=16,H=112,W=112,R=3,S=3,pad=1,const=1)+bias+relu6",
                                 "depthwise_conv2d(C=32,H=112,W=112,R=3,S=3,stride=2,pad=1,const=1)+bias",
                                 "maxpool2d(C=32,H=64,W=64,R=3,S=3,stride=2,pad=1)"}) {
    const Plan plan = PlanOf(text);
    EXPECT_GE(Decided(plan, "columns"), 8) << text;
    EXPECT_EQ(Decided(plan, "rows"), 4) << text;
    const straight::Program program = StraightOf(text, plan.schedule, LimitsOfProcessor()).value();
    for (const straight::Value& value : program.launches.back().code.values) {
      if (value.what == straight::Do::kRegister) { EXPECT_GE(value.lanes, 8) << text; }
    }
  }
}

// Of a sum of an image and a filter alone, unless lanes that lie apart are loaded slowly.
TEST(LoopRules, ThreadsGatherEverySecondElementWhereThatIsFast) {
  const std::string text = "depthwise_conv2d(C=32,H=112,W=112,R=3,S=3,stride=2,pad=1,const=1)";
  EXPECT_EQ(Decided(PlanOf(text), "columns"), 1);
  EXPECT_EQ(Decided(PlanOf(text), "threads_x"), 64);
  const Target zen = ParseTarget(PrintTarget(Processor()) + " device=pthread-znver4-AMD_EPYC").value();
  const Plan plan = PlanSchedule(Specialize(ParseKernel(text).value()), zen, {}).value();
  EXPECT_EQ(Decided(plan, "columns"), 8);
  EXPECT_EQ(Decided(plan, "threads_x"), 1);
}

int64_t VectorRegisters(const std::string& text, int lanes) {
  const straight::Program program = StraightOf(text, PlanOf(text).schedule, LimitsOfProcessor()).value();
  return std::ranges::count_if(program.launches.back().code.values, [&](const straight::Value& value) {
    return value.what == straight::Do::kRegister && value.lanes == lanes;
  });
}

// Half of the registers are sums: two vectors side by side, eight rows. Constants and what lies crosswise are copied in
// panels, constants once.
TEST(LoopRules, TilesAreOfWholeVectors) {
  EXPECT_EQ(VectorRegisters("matmul(M=64,N=64,K=64)", 16), 16);
  for (const std::string text : {"dense(M=64,N=96,K=64,const=1)+bias", "matmul(M=64,N=50,K=64,tb=1)"}) {
    EXPECT_EQ(Decided(PlanOf(text), "panels"), 1) << text;
    EXPECT_EQ(VectorRegisters(text, 16), 16) << text;
  }
  const std::string constant = "dense(M=64,N=96,K=64,const=1)";
  EXPECT_EQ(StraightOf(constant, PlanOf(constant).schedule, LimitsOfProcessor()).value().pack.size(), 1u);
  EXPECT_EQ(Decided(PlanOf("matmul(M=64,N=64,K=64)"), "panels"), 0);
  EXPECT_EQ(Decided(PlanOf("matmul(M=3,N=50,K=64,tb=1)"), "panels"), -1);  // a matrix times few vectors
}

// So is what blocks would have to read anew, each the same, because its rows are more than the cache keeps: those of
// 4096 bytes lie in a thirty-second of it.
TEST(LoopRules, WhatTheCacheDoesNotKeepIsCopiedInPanels) {
  EXPECT_EQ(Decided(PlanOf("matmul(M=256,N=1024,K=512)"), "panels"), 1);
  EXPECT_EQ(Decided(PlanOf("matmul(M=256,N=1024,K=128)"), "panels"), 0);
  EXPECT_EQ(Decided(PlanOf("matmul(M=256,N=992,K=512)"), "panels"), 0);
  EXPECT_EQ(Decided(PlanOf("matmul(M=256,N=992,K=9000)"), "panels"), 1);
  EXPECT_EQ(Decided(PlanOf("matmul(M=8,N=1024,K=512)"), "panels"), 0);  // read once
}

// Rows of an image that are too short for vectors are one axis: of columns in panels, or of the image as a matrix.
TEST(LoopRules, ShortRowsOfImagesAreOneAxis) {
  const std::string windows = "conv2d(C=64,H=7,W=7,O=128,R=3,S=3,pad=1,const=1)+bias+relu";
  EXPECT_NE(PrintSchedule(PlanOf(windows).schedule).find("im2col"), std::string::npos);
  EXPECT_EQ(VectorRegisters(windows, 16), 16);
  const std::string matrix = "conv2d(C=64,H=7,W=7,O=128,R=1,S=1,const=1)+bias+relu";
  EXPECT_NE(PrintSchedule(PlanOf(matrix).schedule).find("fuse_axes"), std::string::npos);
  EXPECT_EQ(VectorRegisters(matrix, 16), 16);
  const std::string wide = "conv2d(C=64,H=64,W=64,O=64,R=3,S=3,pad=1,const=1)+bias+relu";
  EXPECT_EQ(PrintSchedule(PlanOf(wide).schedule).find("im2col"), std::string::npos);
  EXPECT_EQ(VectorRegisters(wide, 16), 16);
}

// Columns that no block copies a launch of many threads makes: on a device whose threads are no loops, too.
TEST(LoopRules, ManyThreadsMakeColumnsThatNoBlockCopies) {
  const std::string text = "conv2d(C=64,H=28,W=28,O=64,R=3,S=3,pad=1,const=1)+bias+relu";
  const Chooser apart = [](const Choice& choice) {
    return choice.site.ends_with(".share")                ? int64_t{0}
           : choice.site.ends_with(".columns_of_windows") ? int64_t{1}
                                                          : choice.preferred;
  };
  for (const Target& target : {Processor(), SomeGpu()}) {
    const Plan plan = PlanSchedule(Specialize(ParseKernel(text).value()), target, apart).value();
    const straight::Program program = StraightOf(text, plan.schedule).value();
    EXPECT_EQ(program.launches.size(), 2u);
    for (const straight::Launch& launch : program.launches) EXPECT_GT(ThreadsOf(launch), 64) << PrintTarget(target);
  }
}

}  // namespace loop_rules_test
}  // namespace hone
