// Kernels that read at places which data decide. Elements are what the reference says, and nothing outside of the
// buffers is touched, for data anywhere in the range of their type: clamps, guards and conditions hold.
#include <gtest/gtest.h>

#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/run_cases.h"
#include "tests/support/run_kernel.h"

namespace hone::data_index_test {
namespace {

struct IndexCase {
  std::string name;
  std::string kernel;
};

const std::vector<IndexCase>& IndexCases() {
  static const std::vector<IndexCase> kCases = {
      {"scaled_and_clamped", "kernel a(x: i32[3001], z: i32[16]) -> y: i32[16] { y[i] = x[clamp(8*z[i], 0, 3000)] }"},
      {"clamped_through_a_stage",
       "kernel a(x: f32[1000], w: i32[16]) -> y: f32[16] { a: i32[16] a[i] = w[i] y[i] = x[clamp(8*a[i], 0, 999)] }"},
      {"clamped_into_a_stage",
       R"(kernel a(x: f32[1000, 4], w: i32[16]) -> y: f32[16] {
         a: i32[16]
         a[i] = w[i]
         b: f32[1000]
         b[i] = sum(r) x[i, r]
         y[i] = b[clamp(8*a[i], 0, 999)]
       })"},
      {"padded", "kernel a(x: f32[1000], w: i32[16]) -> y: f32[16] { y[i] = pad(x[8*w[i]], 0) }"},
      {"distance_of_a_remainder", "kernel a(x: i32[1317], z: i32[9]) -> y: i32[9] { y[i] = x[abs(z[i] % 1321 - 4)] }"},
      {"distance_of_a_byte", "kernel a(x: i32[22], z: i8[64]) -> y: i32[64] { y[i] = x[abs(z[i] % 31 - 9)] }"},
      {"condition", "kernel a(w: i32[16]) -> y: i32[16] { y[i] = if(8*int(w[i]) < 100, 1, 2) }"},
      {"converted", "kernel a(w: i32[16]) -> y: f64[16] { y[i] = f64(8*int(w[i]*100000007)) }"},
      {"divided", "kernel a(x: f32[9], z: i32[16]) -> y: f32[16] { y[i] = x[clamp(z[i] / 3 * 5, 0, 8)] }"},
      {"product_of_two",
       "kernel a(x: f32[9], z: i32[16], w: i8[16]) -> y: f32[16] { y[i] = x[clamp(int(z[i]) * int(w[i]), 0, 8)] }"},
      {"reduced_before_what_it_indexes",
       R"(kernel a(x: f32[31], z: i32[31]) -> y: f32[31] {
         a: i32[31]
         a[i] = max(r < 31) z[r]
         b: f32[31]
         b[i] = sum(r < 31) x[r]
         y[i] = b[clamp(a[i], 0, 30)]
       })"},
      {"rounded_from_a_float",
       "kernel a(x: f32[16], t: f32[5]) -> y: f32[16] { y[i] = t[clamp(int(x[i] * 8), 0, 4)] }"},
      {"rounded_from_a_huge_float",
       "kernel a(x: f64[16], t: f32[5]) -> y: f32[16] { y[i] = t[clamp(int(x[i] * 1e30) + 2, 0, 4)] }"},
  };
  return kCases;
}

void PrintTo(const IndexCase& index_case, std::ostream* out) { *out << index_case.kernel; }

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

class DataIndex : public testing::TestWithParam<IndexCase> {};

TEST_P(DataIndex, HoldsForExtremeData) {
  const CaseReport report = RunCases(static_cast<int>(TestTargets().size()), [&](int index, CaseLog& log) {
    const Target target = TestTargets()[static_cast<size_t>(index)];
    KernelCase kernel(GetParam().kernel, 1, 1, PutExtremes);
    const RunOutcome outcome = BuildAndRun(kernel, "", target);
    if (!outcome.ran()) log.Fail(PrintTarget(target) + ": " + outcome.refusal + outcome.failure);
  });
  EXPECT_TRUE(report.failures.empty()) << report.Text(1);
}

INSTANTIATE_TEST_SUITE_P(All, DataIndex, testing::ValuesIn(IndexCases()),
                         [](const testing::TestParamInfo<IndexCase>& info) { return info.param.name; });

}  // namespace
}  // namespace hone::data_index_test
