// NaN, infinities, zeros of either sign and the smallest numbers in code for processors.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/run_cases.h"
#include "tests/support/run_kernel.h"
#include "tests/support/special_numbers.h"

namespace hone {
namespace special_numbers_test {

TEST(SpecialNumbersOnProcessors, AreWhatTheReferenceSays) {
  const std::vector<SpecialKernel> kernels = SpecialKernels("f32");
  const CaseReport report = RunCases(static_cast<int>(kernels.size()), [&](int index, CaseLog& log) {
    const SpecialKernel& special = kernels[static_cast<size_t>(index)];
    KernelCase kernel(special.text, 7, 1, [&](const Kernel& of, KernelInputs& inputs) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        const Tensor& tensor = of.tensors[of.operands[i]];
        FillSpecial(tensor.dtype, special.data, i,
                    {inputs.buffer(i), static_cast<size_t>(ElementCount(of, tensor) * ByteSize(tensor.dtype))});
      }
    });
    const RunOutcome outcome = BuildAndRun(kernel, "", TestTargets().front());
    if (!outcome.ran()) log.Fail(special.text + ": " + outcome.refusal + outcome.failure);
    log.Count("runs");
  });
  EXPECT_TRUE(report.failures.empty()) << report.Text(40);
  EXPECT_EQ(report.count("runs"), static_cast<int64_t>(kernels.size()));
}

}  // namespace special_numbers_test
}  // namespace hone
