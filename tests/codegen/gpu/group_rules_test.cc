// Schedules by the rule for instructions of groups of warps: of whatever decisions, they apply, are right and free of
// races, by the instruction and by what it means.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"

namespace hone::group_rules_test {
namespace {

using testing::HasSubstr;

Target Hopper(const char* units = "4") {
  return DeviceTarget{std::string(kCudaKind),
                      {{"arch", "sm_90"},
                       {"block_bytes", "49152"},
                       {"block_bytes_most", "232448"},
                       {"block_threads", "1024"},
                       {"units", units}}};
}

straight::DeviceLimits HopperLimits() { return straight::LimitsOf(ModelMachine(Hopper())); }

std::string DefaultOf(const std::string& text, const char* units = "4") {
  return PrintSchedule(DefaultSchedule(Specialize(ParseKernel(text).value()), Hopper(units)).value());
}

std::vector<std::string> Samples() {
  return {
      "matmul(M=120,N=100,K=64,dtype=f16)",           "matmul(M=64,N=128,K=128,dtype=bf16,const=1)+bias+gelu",
      "matmul(M=120,N=200,K=96,dtype=f16,ta=1)+bias", "matmul(M=64,N=68,K=48,dtype=bf16,tb=1)+relu",
      "matmul(M=100,N=121,K=80,dtype=f16,ta=1,tb=1)", "matmul(M=64,N=130,K=128,dtype=f16,ta=1,tb=1)",
      "batch_matmul(B=2,M=64,N=90,K=32,dtype=f16)",   "dense(M=70,N=64,K=48,dtype=f16,const=1)+bias+add+relu",
  };
}

TEST(GroupRules, DefaultsAreRight) {
  for (const std::string& text : Samples()) {
    const std::string schedule = DefaultOf(text);
    EXPECT_THAT(schedule, HasSubstr("tensorize wgmma_")) << text;
    for (const straight::DeviceLimits& limits :
         {HopperLimits(), straight::DeviceLimits{.threads = 1024, .shared_bytes = 232448}}) {
      const GpuOutcome outcome = RunOnGpu(text, ParseSchedule(schedule).value(), limits);
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << schedule;
    }
  }
}

TEST(GroupRules, LargeProductsHaveLargeTilesAndSmallOnesEnoughBlocks) {
  const std::string large = DefaultOf("matmul(M=4096,N=4096,K=4096,dtype=f16,accuracy=relaxed)", "132");
  EXPECT_THAT(large, HasSubstr("split y.m 2 1 4 2 8\nsplit y.n 1 32 4 2"));
  EXPECT_THAT(large, HasSubstr("pipeline a_block 4"));
  EXPECT_THAT(large, HasSubstr("[k/64, m, k%64 swizzled]"));
  EXPECT_THAT(large, HasSubstr("[n/64, k, n%64 swizzled]"));
  EXPECT_THAT(DefaultOf("matmul(M=512,N=512,K=512,dtype=f16)", "132"), HasSubstr("wgmma_m64n64k16_f16"));
}

TEST(GroupRules, ForMatricesOfTypesThatTheInstructionTakes) {
  const auto takes = [](const std::string& text) { return DefaultOf(text).find("wgmma") != std::string::npos; };
  EXPECT_TRUE(takes("matmul(M=256,N=256,K=512,dtype=f16)"));
  EXPECT_FALSE(takes("matmul(M=256,N=256,K=512)"));
  EXPECT_FALSE(takes("matmul(M=256,N=256,K=512,dtype=i8)+bias"));
  EXPECT_FALSE(takes("matmul(M=256,N=60,K=512,dtype=f16)")) << "less than a tile";
  EXPECT_FALSE(takes("matmul(M=256,N=256,K=1024,dtype=f16)")) << "what is cut off drifts";
  EXPECT_FALSE(takes("conv2d(C=64,H=16,W=16,O=64,R=3,S=3,pad=1,dtype=f16,const=1)")) << "no matrix in memory";
  EXPECT_THAT(DefaultOf("matmul(M=256,N=256,K=40,dtype=f16)"), HasSubstr("tensorize mma_")) << "no whole steps";
}

TEST(GroupRules, WhateverIsDecided) {
  Rng rng(11);
  int runs = 0;
  for (const std::string& text : Samples()) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    std::set<std::string> seen;
    for (int trial = 0; trial < 20 && seen.size() < 4; ++trial) {
      const Chooser any = [&](const Choice& choice) {
        if (choice.site.ends_with(".on_groups")) return int64_t{1};
        if (choice.site.ends_with(".rule")) return choice.preferred;
        if (choice.site.ends_with(".group_columns") && rng.Below(2) == 0) return int64_t{64};
        return choice.options[static_cast<size_t>(rng.Below(choice.options.size()))];
      };
      const Plan plan = PlanSchedule(kernel, Hopper(), any).value();
      const std::string schedule = PrintSchedule(plan.schedule);
      if (!seen.insert(schedule).second) continue;
      const GpuOutcome outcome = RunOnGpu(text, plan.schedule, HopperLimits());
      if (outcome.refusal.find("are allowed") != std::string::npos ||
          outcome.refusal.find("a block has") != std::string::npos)
        continue;  // of the device
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << schedule;
      ++runs;
    }
  }
  EXPECT_GT(runs, 12);
}

}  // namespace
}  // namespace hone::group_rules_test
