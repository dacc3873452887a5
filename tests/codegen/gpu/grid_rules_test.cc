// Launches of more blocks than a device allows along a dimension go on along others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"
#include "tests/support/operation_samples.h"

namespace hone {
namespace grid_rules_test {

Target CudaDevice() { return ParseTarget("cuda arch=sm_80 block_bytes=49152 block_threads=1024 units=4").value(); }
Target VulkanDevice(int64_t grid) {
  return ParseTarget(fmt::format("vulkan block_bytes=32768 block_threads=256 grid={} units=4", grid)).value();
}
straight::DeviceLimits LimitsFor(const Target& target) { return straight::LimitsOf(ModelMachine(target)); }

Result<straight::Program> ByDefault(const std::string& text, const Target& target) {
  const Kernel kernel = Specialize(HONE_TRY(ParseKernel(text)));
  return StraightOf(text, HONE_TRY(DefaultSchedule(kernel, target)), LimitsFor(target));
}

TEST(GridRules, MoreBlocksThanADimensionAllowsGoOnAlongOthers) {
  for (const Target& target : {CudaDevice(), VulkanDevice(65535)})
    for (const std::string text : {
             "maxpool2d(N=16,C=64,H=112,W=112,R=3,S=3,stride=2,pad=1)",
             "batch_matmul(B=65536,M=49,N=32,K=49)",
             "batch_matmul(B=65536,M=49,N=32,K=64,dtype=f16)",
             "add(M=8192,N=8192)",
             "gelu(M=9000,N=9001)",
             "global_avgpool(N=256,C=2048,H=7,W=7)",
             "softmax(M=9000000,N=4)",
         }) {
      const Result<straight::Program> program = ByDefault(text, target);
      EXPECT_TRUE(program) << text << " for " << PrintTarget(target) << ": " << program.error().Text();
    }
}

TEST(GridRules, WhereverBlocksGoEachComputesItsOwn) {
  for (const int64_t grid : {40, 6}) {
    const Target target = VulkanDevice(grid);
    for (const std::string& text : GpuSamples()) {
      const Schedule schedule = DefaultSchedule(Specialize(ParseKernel(text).value()), target).value();
      const GpuOutcome outcome = RunOnGpu(text, schedule, LimitsFor(target));
      EXPECT_TRUE(outcome.IsRight()) << grid << ", " << text << ": " << outcome.Text() << "\n"
                                     << PrintSchedule(schedule);
    }
  }
}

// A thread per output asks nothing of a device.
TEST(GridRules, TheLastResortFitsTheLeastOfDevices) {
  const Target least = ParseTarget("vulkan block_bytes=0 block_threads=1 grid=2 units=1").value();
  for (const Target& target : {least, VulkanDevice(65535)})
    for (const std::string& text : GpuSamples()) {
      const Schedule schedule = PlainSchedule(Specialize(ParseKernel(text).value()), target).value();
      const GpuOutcome outcome = RunOnGpu(text, schedule, LimitsFor(target));
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << PrintSchedule(schedule);
    }
}

}  // namespace grid_rules_test
}  // namespace hone
