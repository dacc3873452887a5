// Where a maximum may overlook NaN: the kernel's function stays, for inputs with NaN and infinities too.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/rewrites.h"
#include "tests/support/same_function.h"

namespace hone::max_ignore_nan_test {
namespace {

// The first stage that is a maximum.
StageId Top(const Kernel& kernel) {
  for (StageId stage : kernel.stages.ids())
    if (kernel.stages[stage].reduction == Reduction::kMax) return stage;
  return {};
}

// Rows without, with one, and with nothing but NaN; rows with either infinity.
void PutOddNumbers(const Kernel& kernel, KernelInputs& inputs) {
  const Tensor& x = kernel.tensors[kernel.operands[0]];
  const size_t row = static_cast<size_t>(EvalExtent(kernel, x.shape.back()));
  const size_t rows = static_cast<size_t>(ElementCount(kernel, x)) / row;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (size_t r = 0; r < rows; ++r)
    for (size_t i = 0; i < row; ++i) {
      float& value = inputs.As<float>(0)[r * row + i];
      if ((r % 5 == 1 && i == r % row) || r % 5 == 2) value = std::nanf("");
      if (r % 5 == 3 && i % 3 == 0) value = kInfinity;
      if (r % 5 == 4 && i % 2 == 0) value = -kInfinity;
    }
}

void ExpectSameWithOddNumbers(const std::string& text) {
  SCOPED_TRACE(text);
  const Kernel before = Parsed(text);
  ASSERT_TRUE(Top(before));
  Result<Kernel> after = MaxIgnoreNan(before, Top(before));
  ASSERT_TRUE(after) << after.error().message << "\n" << PrintKernel(before);
  Rng rng(1);
  KernelInputs inputs(before, rng);
  PutOddNumbers(before, inputs);
  std::vector<Reference> wanted = WholeReference(before, inputs), got = WholeReference(*after, inputs);
  ASSERT_EQ(wanted.size(), got.size());
  int nan = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    nan += std::isnan(wanted[i].value);
    EXPECT_TRUE(wanted[i].value == got[i].value || (std::isnan(wanted[i].value) && std::isnan(got[i].value)))
        << i << ": " << wanted[i].value << " " << got[i].value;
  }
  EXPECT_GT(nan, 0);
}

std::string RefusalOf(const std::string& text) {
  const Kernel kernel = Parsed(text);
  Result<Kernel> after = MaxIgnoreNan(kernel, Top(kernel));
  return after ? "" : after.error().message;
}

TEST(MaxIgnoreNan, KeepsSoftmaxes) {
  ExpectSameWithOddNumbers("softmax(M=11,N=7)");
  ExpectSameWithOddNumbers("softmax(M=11,N=7)+gelu+mul");
  // The exponentials written twice, and in no stage of their own.
  ExpectSameWithOddNumbers(R"(kernel rows(x: f32[M, N]) -> y: f32[M, N] where M=11, N=7 {
    y[i, j] = exp(x[i, j] - max(k) x[i, k]) / sum(k) exp(x[i, k] - max(l) x[i, l])
  })");
  // The logarithm of a softmax uses the maximum itself, less the logarithm of the sum.
  ExpectSameWithOddNumbers(R"(kernel logs(x: f32[M, N]) -> y: f32[M, N] where M=11, N=7 {
    y[i, j] = (x[i, j] - max(k) x[i, k]) - log(sum(k) exp(x[i, k] - max(l) x[i, l]))
  })");
  // Along columns, and followed by a product.
  ExpectSameWithOddNumbers(R"(kernel attend(x: f32[M, N], v: f32[N, D]) -> y: f32[M, D] where M=11, N=7, D=3 {
    p: f32[M, N]
    p[i, j] = exp(x[i, j] - max(k) x[i, k]) / sum(k) exp(x[i, k] - max(l) x[i, l])
    y[i, d] = sum(j) p[i, j] * v[j, d]
  })");
}

TEST(MaxIgnoreNan, RefusesWhereNanWouldBeLost) {
  EXPECT_EQ(RefusalOf("maxpool2d(C=2,H=8,W=8,R=2,S=2)"), "y must keep NaN: it is an output");
  // Nothing but the maximum tells of a NaN elsewhere in the row.
  EXPECT_EQ(
      RefusalOf("kernel k(x: f32[M, N]) -> y: f32[M, N] where M=5, N=7 { y[i, j] = exp(x[i, j] - max(k) x[i, k]) }"),
      "y_max must keep NaN: nothing sums exp(x - max x) over all of x");
  // A sum of something else, of a part, and of a row that is another one's.
  for (const char* sum : {"sum(k) exp(2 * x[i, k] - max(l) x[i, l])", "sum(k < 3) exp(x[i, k] - max(l) x[i, l])",
                          "sum(k) (exp(x[i, k] - max(l) x[i, l]) * x[i, k])"})
    EXPECT_NE(
        RefusalOf("kernel k(x: f32[M, N]) -> y: f32[M, N] where M=5, N=7 { y[i, j] = exp(x[i, j] - max(k) x[i, k]) / " +
                  std::string(sum) + " }"),
        "")
        << sum;
  // A use beside the sum.
  EXPECT_NE(RefusalOf(R"(kernel k(x: f32[M, N]) -> y: f32[M, N], z: f32[M] where M=5, N=7 {
    t: f32[M]
    t[i] = max(k) x[i, k]
    y[i, j] = exp(x[i, j] - t[i]) / sum(k) exp(x[i, k] - t[i])
    z[i] = t[i] + 1
  })"),
            "");
  // Under a choice that does not keep NaN.
  EXPECT_NE(RefusalOf(R"(kernel k(x: f32[M, N]) -> y: f32[M, N] where M=5, N=7 {
    t: f32[M]
    t[i] = max(k) x[i, k]
    s: f32[M]
    s[i] = sum(k) exp(x[i, k] - t[i])
    y[i, j] = if(s[i] > 1, exp(x[i, j] - t[i]), 0)
  })"),
            "");
  // Of another row's sum.
  EXPECT_NE(RefusalOf(R"(kernel k(x: f32[M, N]) -> y: f32[M, N] where M=7, N=7 {
    t: f32[M]
    t[i] = max(k) x[i, k]
    s: f32[M]
    s[i] = sum(k) exp(x[i, k] - t[i])
    y[i, j] = exp(x[i, j] - t[i]) / s[j]
  })"),
            "");
  EXPECT_EQ(RefusalOf("kernel k(x: i32[M, N]) -> y: i32[M] where M=5, N=7 { y[i] = (max(k) x[i, k]) + 1 }"),
            "y_max is no maximum of floats");
}

}  // namespace
}  // namespace hone::max_ignore_nan_test
