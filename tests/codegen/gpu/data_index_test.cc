// Places that data decide, in code for a GPU: its indices are 32 bits wide, what data come to before they are bounded
// may not be.
#include <gtest/gtest.h>

#include "codegen/rules/default_schedule.h"
#include "tests/support/data_index_kernels.h"
#include "tests/support/gpu_run.h"

namespace hone::gpu_data_index_test {
namespace {

class GpuDataIndex : public testing::TestWithParam<DataIndexKernel> {};

// The data of checks reach the ends of their types.
TEST_P(GpuDataIndex, HoldsForExtremeData) {
  const Kernel kernel = Specialize(ParseKernel(GetParam().text).value());
  for (const bool planned : {false, true}) {
    const Schedule schedule = planned ? DefaultSchedule(kernel, SomeGpu()).value() : Schedule();
    const GpuOutcome outcome = RunOnGpu(GetParam().text, schedule);
    EXPECT_TRUE(outcome.IsRight()) << outcome.Text() << "\n" << PrintSchedule(schedule);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuDataIndex, testing::ValuesIn(DataIndexKernels()),
                         [](const testing::TestParamInfo<DataIndexKernel>& info) { return info.param.name; });

}  // namespace
}  // namespace hone::gpu_data_index_test
