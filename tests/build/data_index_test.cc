// Kernels that read at places which data decide. Elements are what the reference says, and nothing outside of the
// buffers is touched, for data anywhere in the range of their type: clamps, guards and conditions hold.
#include <gtest/gtest.h>

#include <limits>
#include <ostream>
#include <string>

#include "tests/support/data_index_kernels.h"
#include "tests/support/run_cases.h"
#include "tests/support/run_kernel.h"

namespace hone::data_index_test {
namespace {

// Among the integers of every input the ends of the type, and numbers whose small multiples leave it.
void PutExtremes(const Kernel& kernel, KernelInputs& inputs) {
  size_t input = 0;
  for (TensorId id : kernel.operands) {
    const Tensor& tensor = kernel.tensors[id];
    if (tensor.kind != TensorKind::kInput) continue;
    if (tensor.dtype == DType::kI32) {
      constexpr int32_t kExtremes[] = {std::numeric_limits<int32_t>::max(), 300, std::numeric_limits<int32_t>::min(),
                                       300'000'000, -300'000'000};
      const auto count = static_cast<size_t>(ElementCount(kernel, tensor));
      for (size_t i = 0; i < std::size(kExtremes) && i < count; ++i) inputs.As<int32_t>(input)[i] = kExtremes[i];
    }
    ++input;
  }
}

class DataIndex : public testing::TestWithParam<DataIndexKernel> {};

TEST_P(DataIndex, HoldsForExtremeData) {
  const CaseReport report = RunCases(static_cast<int>(TestTargets().size()), [&](int index, CaseLog& log) {
    const Target target = TestTargets()[static_cast<size_t>(index)];
    KernelCase kernel(GetParam().text, 1, 1, PutExtremes);
    const RunOutcome outcome = BuildAndRun(kernel, "", target);
    if (!outcome.ran()) log.Fail(PrintTarget(target) + ": " + outcome.refusal + outcome.failure);
  });
  EXPECT_TRUE(report.failures.empty()) << report.Text(1);
}

INSTANTIATE_TEST_SUITE_P(All, DataIndex, testing::ValuesIn(DataIndexKernels()),
                         [](const testing::TestParamInfo<DataIndexKernel>& info) { return info.param.name; });

}  // namespace
}  // namespace hone::data_index_test
