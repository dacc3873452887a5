#include "ir/reference/accuracy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/language/parse.h"
#include "tests/support/kernel_inputs.h"

namespace hone::accuracy_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Kernel Parse(std::string_view text) {
  Result<Kernel> kernel = ParseKernel(text);
  if (!kernel) ADD_FAILURE() << text << "\n" << kernel.error().Text();
  return kernel ? *kernel : Kernel{};
}

// Value and magnitude of an expression over the scalars a and b (f32) and i (i32).
Reference Of(const std::string& value, float a = 0, float b = 0, int32_t i = 0, const std::string& type = "f32") {
  Kernel kernel = Parse("kernel k(a: f32[], b: f32[], i: i32[]) -> y: " + type + "[] { y[] = " + value + " }");
  OperandView views[] = {{&a}, {&b}, {&i}};
  return Interpreter(kernel, views).At(0, 0);
}

TEST(Accuracy, LongestReductionIsTheProductWithinAStage) {
  EXPECT_EQ(LongestReduction(Parse("conv2d(C=5,H=7,W=7,O=3,R=3,S=2)+bias+relu")), 30);
  EXPECT_EQ(LongestReduction(Parse("softmax(M=3,N=11)")), 11);
  EXPECT_EQ(LongestReduction(Parse("add(M=3,N=11)")), 1);
}

TEST(Accuracy, ToleranceFollowsTheContract) {
  EXPECT_DOUBLE_EQ(Tolerance(Parse("matmul(M=3,N=4,K=256)")), (4 + 16) * 0x1p-24);
  EXPECT_DOUBLE_EQ(Tolerance(Parse("matmul(M=3,N=4,K=256,dtype=f64)")), (4 + 16) * 0x1p-53);
  EXPECT_DOUBLE_EQ(Tolerance(Parse("kernel k(x: f32[4, 100]) -> y: f32[4] { y[m] = prod(i) x[m, i] }")),
                   (4 + 100) * 0x1p-24);
  EXPECT_DOUBLE_EQ(Tolerance(Parse("matmul(M=3,N=4,K=256,accuracy=relaxed)")), 1e-4);
  EXPECT_DOUBLE_EQ(Tolerance(Parse("matmul(M=3,N=4,K=256,accuracy=fast)")), 1e-2);
  EXPECT_DOUBLE_EQ(Tolerance(Parse("matmul(M=3,N=4,K=256,accuracy=fast,dtype=i8)")), 0);
  EXPECT_DOUBLE_EQ(Tolerance(Parse("kernel k(x: f32[4]) -> y: f64[4] { y[n] = f64(x[n]) }")), 5 * 0x1p-24);
}

TEST(Accuracy, ToleranceIsThatOfTheCoarsestTypeThatIsComputedIn) {
  EXPECT_DOUBLE_EQ(Tolerance(Parse("kernel k(x: f64[4]) -> y: f64[4] { y[n] = f64(f32(x[n])) }")), 5 * 0x1p-24);
  EXPECT_DOUBLE_EQ(Tolerance(Parse("kernel k(x: i32[4]) -> y: f64[4] { y[n] = f64(sqrt(f32(x[n]))) }")), 5 * 0x1p-24);
  EXPECT_DOUBLE_EQ(Tolerance(Parse("kernel k(x: i32[4]) -> y: f64[4] { y[n] = sqrt(f64(x[n])) }")), 5 * 0x1p-53);
}

TEST(Accuracy, MagnitudesOfArithmetic) {
  EXPECT_DOUBLE_EQ(Of("a[] - b[]", 3, 2).magnitude, 5);
  EXPECT_DOUBLE_EQ(Of("a[] - b[]", 3, 2).value, 1);
  EXPECT_DOUBLE_EQ(Of("(a[] - b[]) * (a[] + b[])", 3, 2).magnitude, 25);
  EXPECT_DOUBLE_EQ(Of("(a[] - b[]) / b[]", 3, 2).magnitude, 5.0 / 2);
  EXPECT_DOUBLE_EQ(Of("(a[] - b[]) / (a[] + b[])", 3, 2).magnitude, 5.0 / 5 + 1.0 / 5 * 5 / 5);
  EXPECT_DOUBLE_EQ(Of("abs(a[] - b[])", 3, 2).magnitude, 5);
  EXPECT_DOUBLE_EQ(Of("-(a[] - b[])", 3, 2).magnitude, 5);
  EXPECT_DOUBLE_EQ(Of("f32(f64(a[] - b[]))", 3, 2).magnitude, 5);
  EXPECT_DOUBLE_EQ(Of("a[] + float(i[])", 3, 2, -4).magnitude, 7);
}

TEST(Accuracy, MagnitudesOfFunctions) {
  // max(|f(x)|, |f′(x)|·A(x)) with x = 1 and A(x) = 5.
  const std::string x = "(a[] - b[])";
  double e = std::exp(1.0), t = std::tanh(1.0);
  EXPECT_DOUBLE_EQ(Of("exp" + x, 3, 2).magnitude, 5 * e);
  EXPECT_DOUBLE_EQ(Of("log" + x, 3, 2).magnitude, 5);
  EXPECT_DOUBLE_EQ(Of("sqrt" + x, 3, 2).magnitude, 2.5);
  EXPECT_DOUBLE_EQ(Of("rsqrt" + x, 3, 2).magnitude, 2.5);
  EXPECT_DOUBLE_EQ(Of("tanh" + x, 3, 2).magnitude, std::max(t, (1 - t * t) * 5));
  EXPECT_DOUBLE_EQ(Of("erf" + x, 3, 2).magnitude, std::max(std::erf(1.0), 2 / std::sqrt(M_PI) / e * 5));
  EXPECT_NEAR(Of("pow(" + x + ", 3)", 3, 2).magnitude, 3 * 5, 1e-12);
  EXPECT_NEAR(Of("pow(a[], " + x + " + 1)", 3, 2).magnitude, 2 * 3.0 * 3 + 9 * std::log(3.0) * 6, 1e-12);
  EXPECT_DOUBLE_EQ(Of("exp(a[])", 0.25).magnitude, std::exp(0.25));  // the rounding of the function itself
  // At the root of √ the slope is infinite; the bound is the square root of the error instead.
  Reference root = Of("sqrt" + x, 1, 1);
  EXPECT_EQ(root.value, 0);
  EXPECT_NEAR(root.magnitude, std::sqrt(5 * 0x1p-24 * 2) / (5 * 0x1p-24), 1e-3);
}

TEST(Accuracy, TheChosenSideCountsUnlessItIsClose) {
  EXPECT_DOUBLE_EQ(Of("max(a[] - b[], a[])", 3, 2).magnitude, 3);
  EXPECT_DOUBLE_EQ(Of("min(a[] - b[], a[])", 3, 2).magnitude, 5);
  EXPECT_DOUBLE_EQ(Of("max(a[] - b[], 0)", 3, 3).magnitude, 6);  // either side, within the error
  EXPECT_DOUBLE_EQ(Of("max(a[] - b[], 0)", 3, 4).magnitude, 0);  // certainly 0
  EXPECT_DOUBLE_EQ(Of("if(a[] < b[], a[] - b[], a[])", 3, 2).magnitude, 3);
  EXPECT_DOUBLE_EQ(Of("max(a[], -inf)", 3).magnitude, 3);
}

TEST(Accuracy, JumpsWithinTheErrorCount) {
  double tolerance = 5 * 0x1p-24;
  EXPECT_DOUBLE_EQ(Of("floor(a[] * b[])", 3, 0.5).magnitude, 1);
  EXPECT_DOUBLE_EQ(Of("floor(a[] * b[])", 3, 1).magnitude, 1 / tolerance);  // 3 may come out as 2.9999998
  EXPECT_DOUBLE_EQ(Of("floor(a[])", 3).magnitude, 3);                       // an input has no error
  EXPECT_DOUBLE_EQ(Of("if(a[] * b[] < 3, 1, 5)", 3, 1).magnitude, 4 / tolerance + 5);
  EXPECT_DOUBLE_EQ(Of("if(a[] < 3, 1, 5)", 3, 1).magnitude, 5);
  EXPECT_DOUBLE_EQ(Of("i32(a[] * b[])", 3, 1, 0, "i32").magnitude, 1);
  EXPECT_DOUBLE_EQ(Of("i32(a[] * b[])", 3, 1.1f, 0, "i32").magnitude, 0);
  EXPECT_DOUBLE_EQ(Of("i32(a[])", 3, 1, 0, "i32").magnitude, 0);
  EXPECT_DOUBLE_EQ(Of("a[] * b[] < 3", 3, 1, 0, "bool").magnitude, 1);
  EXPECT_DOUBLE_EQ(Of("a[] < b[]", 3, 3, 0, "bool").magnitude, 0);
  EXPECT_DOUBLE_EQ(Of("float(i32(a[] * b[]))", 3, 1).magnitude, 3 + 1 / tolerance);
}

// What is quantised is right or wrong: a whole number has an error only where a rounding could have gone either way.
TEST(Accuracy, WholeNumbersAreExactUnlessAJumpIsNear) {
  auto slack = [](const std::string& value, float a, float b) { return Of(value, a, b, 0, "i32").magnitude; };
  EXPECT_EQ(slack("i32(round(a[] * b[]) + 128)", 37, 0.1f), 0);
  EXPECT_EQ(slack("i32(round(a[] * b[]) + 128)", 35, 0.1f), 1);  // a tie
  EXPECT_EQ(slack("i32(128 - 2 * round(a[] * b[]))", 37, 0.1f), 0);
  EXPECT_GE(slack("i32(128 - 2 * round(a[] * b[]))", 35, 0.1f), 2);
  EXPECT_EQ(slack("i32(clamp(floor(a[] * b[]) * 3 + 1, -128, 127))", 37, 0.1f), 0);
  EXPECT_EQ(slack("i32(float(i32(a[] * b[])) + 7)", 37, 0.1f), 0);
  EXPECT_EQ(slack("i32(round(a[] * b[]) + 0.5)", 37, 0.1f), 0);   // no whole number, and no jump near
  EXPECT_EQ(slack("i32(round(a[] * b[]) * 0.1)", 101, 0.1f), 1);  // nor this, which may come out below 1
  EXPECT_GT(slack("i32(round(a[] * b[]))", 3e8f, 0.1f), 1);       // beyond 2^24 f32 rounds whole numbers, too
  EXPECT_EQ(Of("round(a[] * b[]) < 4", 37, 0.1f, 0, "bool").magnitude, 0);
}

// y of a kernel over one scalar x, and how far off a value is in units of what is allowed.
template <typename T>
double ErrorOf(const std::string& kernel_text, T x, double y) {
  const Kernel kernel = Parse("kernel k(x: " + kernel_text);
  OperandView view{&x};
  const Reference reference = Interpreter(kernel, std::span(&view, 1)).At(0, 0);
  const DType type = kernel.tensors[kernel.operands.back()].dtype;
  const double error = RelativeError(y, reference, type);
  return error == 0 ? 0 : error / Allowed(reference, type, Tolerance(kernel));
}

// Below its smallest normal number f16 rounds to multiples of 2^-24.
TEST(Accuracy, SmallHalvesAreOffByHalfOfTheSmallestOne) {
  const std::string scaled = "f32[]) -> y: f32[] { y[] = f32(f16(x[])) * 1024.0 }";
  EXPECT_LE(ErrorOf(scaled, 0x1.7p-24f, 0x1p-14), 1);
  EXPECT_GT(ErrorOf(scaled, 0x1.7p-24f, 0x1p-13), 1);  // the next one
  EXPECT_GT(ErrorOf(scaled, 0x1.3p-24f, 0), 1);
  EXPECT_GT(ErrorOf(scaled, 0x1p-14f, 0x1.008p-4), 1);  // the first normal one: half a unit
  EXPECT_LE(ErrorOf(scaled, 0x1p-14f, 0x1.002p-4), 1);
  EXPECT_GT(ErrorOf(scaled, 0.0f, 0x1p-16), 1);  // what is 0 stays so
  const std::string result = "f32[]) -> y: f16[] { y[] = f16(f32(f16(x[])) * 1024.0) }";
  EXPECT_LE(ErrorOf(result, 0x1.7p-24f, 0x1p-14), 1);
  EXPECT_GT(ErrorOf(result, 0x1.7p-24f, 0x1p-13), 1);
  const std::string truth = "f32[]) -> y: bool[] { y[] = bool(f16(x[])) }";
  EXPECT_EQ(ErrorOf(truth, 1e-40f, 0), 0);
  EXPECT_EQ(ErrorOf(truth, 0x1.7p-24f, 0), kInfinity);
}

// Half of a number's size is too much for a slope.
TEST(Accuracy, WhatIsSteepNearZeroIsTakenAtTheEndOfTheInterval) {
  const auto of_half = [](const std::string& function) { return "f32[]) -> y: f32[] { y[] = " + function + " }"; };
  const double x = 0x1.7p-24;
  EXPECT_LE(ErrorOf(of_half("log(f32(f16(x[])))"), float(x), std::log(0x1p-24)), 1);
  EXPECT_GT(ErrorOf(of_half("log(f32(f16(x[])))"), float(x), std::log(0x1p-22)), 1);
  EXPECT_LE(ErrorOf(of_half("1.0 / f32(f16(x[]))"), float(x), 0x1p24), 1);
  EXPECT_GT(ErrorOf(of_half("1.0 / f32(f16(x[]))"), float(x), 0x1p25), 1);
  EXPECT_LE(ErrorOf(of_half("rsqrt(f32(f16(x[])))"), float(x), 0x1p12), 1);
  EXPECT_GT(ErrorOf(of_half("rsqrt(f32(f16(x[])))"), float(x), 0x1.6ap12), 1);
}

// A processor may take subnormal numbers of bf16 for zeros.
TEST(Accuracy, SmallNumbersOfBf16AreOffByTheSmallestNormalOne) {
  const std::string scaled = "f32[]) -> y: f32[] { y[] = f32(bf16(x[])) * 1e30 }";
  EXPECT_LE(ErrorOf(scaled, 0x1p-127f, 0), 1);
  EXPECT_GT(ErrorOf(scaled, 0x1p-125f, 0), 1);
}

TEST(Accuracy, ConversionsToSinglePrecisionRoundWhatItDoesNotHold) {
  const std::string back = "f64[]) -> y: f64[] { y[] = f64(f32(x[])) }";
  EXPECT_LE(ErrorOf(back, 0.1, double(0.1f)), 1);
  EXPECT_GT(ErrorOf(back, 0.1, 0.10001), 1);
  EXPECT_EQ(ErrorOf(back, 1e300, kInfinity), 0);
  EXPECT_LE(ErrorOf("f64[]) -> y: f64[] { y[] = f64(f32(x[])) * 1e30 }", 1e-39, 0), 1);
  EXPECT_GT(ErrorOf("f64[]) -> y: f64[] { y[] = f64(f32(x[])) * 1e30 }", 1e-37, 0), 1);
  EXPECT_EQ(ErrorOf("f64[]) -> y: bool[] { y[] = f64(f32(x[])) == x[] }", 0.1, 0), 0);
  EXPECT_EQ(ErrorOf("f64[]) -> y: bool[] { y[] = f64(f32(x[])) < x[] * 1.1 }", 0.1, 0), kInfinity);
  const std::string whole = "i32[]) -> y: i32[] { y[] = i32(f32(x[])) }";
  EXPECT_EQ(ErrorOf(whole, 100000007, 100000008), 0);
  EXPECT_EQ(ErrorOf(whole, 100000007, 100001007), kInfinity);
  EXPECT_EQ(ErrorOf(whole, 1 << 24, (1 << 24) + 1), kInfinity);  // up to there f32 holds them all
  EXPECT_EQ(ErrorOf("i32[]) -> y: i32[] { y[] = i32(floor(f32(x[]))) }", 100000007, 100000008), 0);
  // What it always holds stays exact, whatever is made of it.
  EXPECT_EQ(ErrorOf("u8[]) -> y: i32[] { y[] = i32(min(f32(x[]), 3.0)) }", uint8_t{9}, 2), kInfinity);
  EXPECT_EQ(ErrorOf("i32[]) -> y: i32[] { y[] = i32(if(f64(x[]) < 2.0, f64(x[]), 3.0)) }", 100000007, 2), kInfinity);
  EXPECT_EQ(ErrorOf("i32[]) -> y: i32[3] { y[i] = i32(min(f32(i), 3.0)) + 0 * x[] }", 0, 1), kInfinity);
}

// An integer that may be one less comes out at the other end of a narrower type.
TEST(Accuracy, WhatWrapsWithinTheErrorMayBeAnything) {
  EXPECT_EQ(Of("u8(i32(a[] * b[]))", 256, 1, 0, "u8").magnitude, 255);
  EXPECT_EQ(Of("i8(i32(a[] * b[]))", 128, 1, 0, "i8").magnitude, 255);
  EXPECT_EQ(Of("u8(i32(a[] * b[]))", 300, 1, 0, "u8").magnitude, 1);
  EXPECT_EQ(Of("i8(i32(a[] * b[]))", 200, 1, 0, "i8").magnitude, 1);
  EXPECT_EQ(Of("u8(i32(a[]))", 256, 1, 0, "u8").magnitude, 0);
}

TEST(Accuracy, InfinitiesCarryNoError) {
  // One masked score of a softmax must not make every error acceptable.
  float x[] = {1, 2, 3, 4};
  Kernel kernel = Parse(
      "kernel k(x: f32[N]) -> y: f32[N] where N=4 { s: f32[N] s[n] = if(n < 3, x[n], -inf)\n"
      "  y[n] = exp(s[n] - max(k) s[k]) / sum(k) exp(s[k] - max(j) s[j]) }");
  OperandView view{x};
  Interpreter interpreter(kernel, std::span(&view, 1));
  Reference shown = interpreter.At(0, 1), masked = interpreter.At(0, 3);
  EXPECT_GT(shown.magnitude, shown.value);
  EXPECT_LT(shown.magnitude, 20);
  EXPECT_EQ(masked.value, 0);
  EXPECT_EQ(masked.magnitude, 0);
}

TEST(Accuracy, SumsAddMagnitudes) {
  float x[] = {1, -2, 3, -4};
  OperandView view{x};
  for (auto [text, value, magnitude] :
       {std::tuple{"kernel k(x: f32[4]) -> y: f32[] { y[] = sum(i) x[i] }", -2.0, 10.0},
        {"kernel k(x: f32[4]) -> y: f32[] { y[] = sum(i) x[i] * x[i] }", 30.0, 30.0},
        {"kernel k(x: f32[4]) -> y: f32[] { y[] = sum(i) (x[i] - 1) }", -6.0, 14.0},
        {"kernel k(x: f32[4]) -> y: f32[] { y[] = prod(i) (x[i] - 1) }", 0.0, 2.0 * 3 * 4 * 5},
        {"kernel k(x: f32[4]) -> y: f32[] { y[] = max(i) (x[i] - 1) }", 2.0, 4.0}}) {
    Kernel kernel = Parse(text);
    Reference reference = Interpreter(kernel, std::span(&view, 1)).At(0, 0);
    EXPECT_DOUBLE_EQ(reference.value, value) << text;
    EXPECT_DOUBLE_EQ(reference.magnitude, magnitude) << text;
  }
}

TEST(Accuracy, RelativeErrorOfSpecialValues) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(RelativeError(1.5, {1.0, 2.0}, DType::kF32), 0.25);
  EXPECT_EQ(RelativeError(0, {0, 0}, DType::kF32), 0);
  EXPECT_EQ(RelativeError(1, {0, 0}, DType::kF32), kInfinity);
  EXPECT_EQ(RelativeError(nan, {NAN, 0}, DType::kF32), 0);
  EXPECT_EQ(RelativeError(nan, {1, 1}, DType::kF32), kInfinity);
  EXPECT_EQ(RelativeError(1, {NAN, 1}, DType::kF32), kInfinity);
  EXPECT_EQ(RelativeError(kInfinity, {kInfinity, 0}, DType::kF32), 0);
  EXPECT_EQ(RelativeError(-kInfinity, {kInfinity, 0}, DType::kF32), kInfinity);
  EXPECT_EQ(RelativeError(kInfinity, {1e39, 1e39}, DType::kF32), 0);
  EXPECT_EQ(RelativeError(kInfinity, {1e39, 1e39}, DType::kF64), kInfinity);
  EXPECT_EQ(RelativeError(kInfinity, {1e38, 1e38}, DType::kF32), kInfinity);
  EXPECT_EQ(RelativeError(0, {1e-39, 1e-39}, DType::kF32), 0);
  EXPECT_EQ(RelativeError(0, {1e-39, 1e-39}, DType::kF64), 1);
  EXPECT_EQ(RelativeError(3, {3, 0}, DType::kI32), 0);
  EXPECT_EQ(RelativeError(4, {3, 0}, DType::kI32), kInfinity);
  EXPECT_EQ(RelativeError(4, {3, 1}, DType::kI32), 0);
}

// Loops in single precision, as a plain compiler would run them, stay within the strict bound.
TEST(Accuracy, SinglePrecisionLoopsMeetTheStrictBound) {
  Kernel kernel = Parse("dense(M=7,N=5,K=1000)+bias+gelu");
  Rng rng(11);
  KernelInputs inputs(kernel, rng);
  std::vector<Reference> reference = WholeReference(kernel, inputs);
  const float *x = inputs.As<float>(0), *w = inputs.As<float>(1), *bias = inputs.As<float>(2);
  double tolerance = Tolerance(kernel), worst = 0;
  for (int m = 0; m < 7; ++m)
    for (int n = 0; n < 5; ++n) {
      float sum = 0;
      for (int k = 0; k < 1000; ++k) sum += x[m * 1000 + k] * w[n * 1000 + k];
      float z = sum + bias[n], y = 0.5f * z * (1 + std::erf(z * 0.70710678f));
      worst = std::max(worst, RelativeError(double(y), reference[static_cast<size_t>(m * 5 + n)], DType::kF32));
    }
  EXPECT_LE(worst, tolerance);
  EXPECT_GT(worst, tolerance / 1000);  // the bound is not vacuous either
  // One product left out is far outside.
  double off = std::abs(double(x[0]) * double(w[0]));
  EXPECT_GT(off / reference[0].magnitude, tolerance);
}

TEST(Accuracy, SoftmaxInSinglePrecisionMeetsTheStrictBound) {
  Kernel kernel = Parse("softmax(M=4,N=100)");
  Rng rng(12);
  KernelInputs inputs(kernel, rng);
  float* x = inputs.As<float>(0);
  for (int i = 0; i < 400; ++i) x[i] *= 30;
  std::vector<Reference> reference = WholeReference(kernel, inputs);
  for (int m = 0; m < 4; ++m) {
    float top = x[m * 100], total = 0;
    for (int n = 0; n < 100; ++n) top = std::max(top, x[m * 100 + n]);
    for (int n = 0; n < 100; ++n) total += std::exp(x[m * 100 + n] - top);
    for (int n = 0; n < 100; ++n) {
      float y = std::exp(x[m * 100 + n] - top) / total;
      EXPECT_LE(RelativeError(double(y), reference[static_cast<size_t>(m * 100 + n)], DType::kF32), Tolerance(kernel));
    }
  }
}

}  // namespace
}  // namespace hone::accuracy_test
