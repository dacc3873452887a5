#include "ir/reference/projection.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "tests/support/kernel_inputs.h"
#include "tests/support/random_kernel.h"

namespace hone::projection_test {
namespace {

Kernel Parse(std::string_view text) {
  Result<Kernel> kernel = ParseKernel(text);
  if (!kernel) ADD_FAILURE() << text << "\n" << kernel.error().Text();
  return kernel ? *kernel : Kernel{};
}

const Tensor& FirstOutput(const Kernel& kernel) {
  for (TensorId id : kernel.operands)
    if (kernel.tensors[id].kind == TensorKind::kOutput) return kernel.tensors[id];
  return kernel.tensors[TensorId(0)];
}

// The projection agrees with the reference of every element, summed under the same signs.
bool ExpectAgrees(const Kernel& kernel, Rng& rng) {
  KernelInputs inputs(kernel, rng);
  std::vector<OperandView> views = inputs.Views();
  std::optional<Projection> projection = ProjectOutput(kernel, views, 0, rng, 1e9);
  if (!projection) return false;
  std::vector<Reference> whole = WholeReference(kernel, inputs);
  double value = 0, magnitude = 0;
  std::vector<int64_t> shape = StaticShape(kernel, FirstOutput(kernel));
  for (size_t i = 0; i < whole.size(); ++i) {
    double sign = 1;
    size_t rest = i;
    for (size_t d = shape.size(); d-- > 0;) {
      sign *= projection->signs[d][rest % static_cast<size_t>(shape[d])];
      rest /= static_cast<size_t>(shape[d]);
    }
    value += sign * whole[i].value;
    magnitude += whole[i].magnitude;
  }
  EXPECT_NEAR(projection->value, value, 1e-10 * (1 + magnitude));
  EXPECT_NEAR(projection->magnitude, magnitude, 1e-10 * (1 + magnitude));
  EXPECT_LE(projection->bound, Tolerance(kernel) * projection->magnitude * (1 + 1e-12));
  return true;
}

TEST(Projection, AgreesWithTheWholeReference) {
  Rng rng(5);
  for (const char* text :
       {"matmul(M=7,N=5,K=13)", "matmul(M=7,N=5,K=13,ta=1,tb=1)+bias+add", "batch_matmul(B=3,M=4,N=5,K=6,tb=1)+add",
        "dense(M=3,N=4,K=5)+bias", "conv2d(N=2,C=3,H=7,W=9,O=5,R=3,S=2,stride=[2,3],pad=[1,0])+bias",
        "conv2d(C=2,H=9,W=9,O=3,R=3,S=3,dilation=2,pad=[1,2,0,1])+bias+add",
        "conv2d(C=6,H=5,W=7,O=9,R=3,S=3,groups=3,pad=1)",
        "depthwise_conv2d(N=2,C=3,H=9,W=7,R=5,S=3,stride=2,pad=[2,1])+bias", "global_avgpool(N=2,C=3,H=4,W=5)",
        "reduce_sum(M=7,N=31)", "transpose(M=5,N=7)", "add(M=3,N=7)", "mul(M=3,N=7)", "matmul(M=3,N=4,K=5,dtype=f64)",
        "kernel s(x: f32[N]) -> y: f32[] where N=9 { y[] = 2 * sum(n) x[n] * x[N - 1 - n] }",
        "kernel c(a: f32[5, 4], b: f32[4, 3], c: f32[3, 2]) -> y: f32[5, 2] { t: f32[5, 3] t[i, j] = sum(k) a[i, k] * "
        "b[k, j]\n y[i, j] = sum(k) t[i, k] * c[k, j] }",
        "kernel d(a: f32[5, 5]) -> y: f32[5] { y[i] = a[i, i] - 0.5 }"}) {
    SCOPED_TRACE(text);
    EXPECT_TRUE(ExpectAgrees(Parse(text), rng));
  }
}

TEST(Projection, AgreesOnRandomKernelsWhereItApplies) {
  int applied = 0;
  for (uint64_t n = 0; n < 2000; ++n) {
    Rng rng = Rng(99).Fork(n);
    RandomKernelOptions options;
    options.depth = 1;
    options.max_stages = 2;
    std::string text = RandomKernel(rng, options).Text();
    SCOPED_TRACE(text);
    Kernel kernel = Parse(text);
    applied += ExpectAgrees(kernel, rng);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(applied, 100);
}

TEST(Projection, DoesNotApplyToNonLinearOutputs) {
  Rng rng(5);
  for (const char* text : {"matmul(M=3,N=4,K=5)+relu", "softmax(M=3,N=4)", "maxpool2d(C=1,H=4,W=4,R=2,S=2)",
                           "matmul(M=3,N=4,K=5,dtype=i8)", "gelu(M=2,N=2)",
                           "kernel g(x: f32[4], i: i32[4]) -> y: f32[4] { y[n] = x[clamp(i[n], 0, 3)] }"})
    EXPECT_FALSE(ExpectAgrees(Parse(text), rng)) << text;
}

TEST(Projection, StopsAtItsBudget) {
  Kernel kernel = Parse("matmul(M=64,N=64,K=64)");
  Rng rng(5);
  KernelInputs inputs(kernel, rng);
  std::vector<OperandView> views = inputs.Views();
  EXPECT_FALSE(ProjectOutput(kernel, views, 0, rng, 1000));
  // Far less than the 262,144 multiply-adds of the product itself.
  EXPECT_TRUE(ProjectOutput(kernel, views, 0, rng, 20000));
}

TEST(Projection, SeesOneWrongElementAndAcceptsSinglePrecision) {
  Kernel kernel = Parse("dense(M=96,N=128,K=200)+bias");
  Rng rng(17);
  KernelInputs inputs(kernel, rng);
  std::vector<OperandView> views = inputs.Views();
  std::vector<float> y;
  const float *x = inputs.As<float>(0), *w = inputs.As<float>(1), *bias = inputs.As<float>(2);
  for (int m = 0; m < 96; ++m)
    for (int n = 0; n < 128; ++n) {
      float sum = bias[n];
      for (int k = 0; k < 200; ++k) sum += x[m * 200 + k] * w[n * 200 + k];
      y.push_back(sum);
    }
  for (int trial = 0; trial < 20; ++trial) {
    std::optional<Projection> projection = ProjectOutput(kernel, views, 0, rng, 1e9);
    ASSERT_TRUE(projection);
    EXPECT_LE(std::abs(ProjectionOf(*projection, y.data(), DType::kF32).value - projection->value), projection->bound);
    std::vector<float> wrong = y;
    wrong[rng.Below(wrong.size())] += 0.5f;
    EXPECT_GT(std::abs(ProjectionOf(*projection, wrong.data(), DType::kF32).value - projection->value),
              projection->bound);
  }
}

}  // namespace
}  // namespace hone::projection_test
