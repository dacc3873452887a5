#include "ir/graph/verify_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/rng.h"
#include "ir/graph/print.h"
#include "ir/language/parse.h"
#include "tests/support/operation_samples.h"

namespace hone::verify_kernel_test {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text) {
  Result<Kernel> kernel = ParseKernel(text);
  return kernel ? "fine" : kernel.error().Text();
}

// y[n, m] over x[N] and z[N, M], N=5 and M=4, or dynamic sizes.
std::string Wrap(std::string_view value, std::string_view sizes = "N=5, M=4") {
  return "kernel t(x: f32[N], z: f32[N, M], i: i32[N]) -> y: f32[N, M] where " + std::string(sizes) +
         " { y[n, m] = " + std::string(value) + " }";
}

TEST(Verify, AccessesInBounds) {
  for (const char* value : {"x[n]",
                            "z[n, m]",
                            "x[N - 1 - n]",
                            "x[(n + 7) % N]",
                            "x[min(n + 1, N - 1)]",
                            "x[max(n - 1, 0)]",
                            "x[clamp(i[n], 0, N - 1)]",
                            "x[abs(n - m) % N]",
                            "x[(2*n)/2]",
                            "x[(n * 7 % 6) / 5]",
                            "x[n * 3 % 2 / 3]",
                            "x[(n * 7 + m) % 6 / 2 + 1]",
                            "x[min(n * 7 % 6, 3)]",
                            "x[(n*M + m) / M]",
                            "z[(n*M + m) / M, (n*M + m) % M]",
                            "if(n > 0, x[n - 1], 0)",
                            "if(n != 0, x[n - 1], 0)",
                            "if(n == 0, 0, x[n - 1])",
                            "if(n + 1 < N, x[n + 1], 0)",
                            "if(not (n + 1 >= N), x[n + 1], 0)",
                            "if(n > 0 and n < N - 1, x[n - 1] + x[n + 1], 0)",
                            "if(n == 0 or m == 0, 0, z[n - 1, m - 1])",
                            "if(n + m - 2 >= 0 and n + m - 2 < N, x[n + m - 2], 0)",
                            "if(n > 0, if(m > 0, z[n - 1, m - 1], 1), 2)",
                            "if(n >= 1 and m >= 1, x[min(n + m - 2, N - 1)], 0)",
                            "pad(x[n - 100], 0)",
                            "sum(k < min(N, M)) x[k]",
                            "if(m <= n, x[n - m], 0)"}) {
    EXPECT_EQ(ErrorOf(Wrap(value)), "fine") << value;
    // With M a range, n*M + m does not come apart again.
    bool flattened = std::string_view(value).find("n*M + m") != std::string_view::npos;
    if (flattened) continue;
    EXPECT_EQ(ErrorOf(Wrap(value, "N=4..9, M=4..6")), "fine") << value;
  }
  for (const char* value : {"x[(n + m) / 2]", "x[n - 4*(n/4)]"}) EXPECT_EQ(ErrorOf(Wrap(value)), "fine") << value;
}

TEST(Verify, WhatIsNeverComputedIsInBounds) {
  for (const char* value :
       {"if(n > 0, x[n - 1], 0)", "if(m > 0, z[n, m - 1], 0)", "if(n + 1 < N, x[n + 1], 0)", "if(n != 0, x[n + 7], 0)",
        "if(n == N, x[n], 0)", "if(n > 0 and m > 0, z[n - 1, m - 1], 0)"})
    EXPECT_EQ(ErrorOf(Wrap(value, "N=1, M=1")), "fine") << value;
  EXPECT_NE(ErrorOf(Wrap("if(n >= 0, x[n - 1], 0)", "N=1, M=1")), "fine");
  EXPECT_NE(ErrorOf(Wrap("if(n > 0, 0, x[n - 1])", "N=1, M=1")), "fine");
}

TEST(Verify, AccessesOutOfBounds) {
  for (const char* value : {"x[n + 1]",
                            "x[n - 1]",
                            "z[m, n]",
                            "x[2*n]",
                            "x[n + m]",
                            "x[N]",
                            "x[-1]",
                            "x[i[n]]",
                            "x[clamp(i[n], 0, N)]",
                            "x[max(i[n], 0)]",
                            "if(n > 0, x[n + 1], 0)",
                            "if(n == 0 or m == 0, z[n - 1, m - 1], 0)",
                            "if(n != 2, x[n - 1], 0)",
                            "if(x[n] > 0, x[n + 1], 0)",
                            "if(n > 0 or m > 0, x[n - 1], 0)",
                            "if(n >= 1, 0, x[n - 1])",
                            "x[n] + pad(x[i[n + 1]], 0)",
                            "if(x[n + 1] > 0, 1, 0)",
                            "x[(n + 7) % (N + 1)]",
                            "x[(n - 7) / 2]",
                            "x[n * 7 % 6 / 5 + N - 1]",
                            "x[n * 7 % 6]",
                            "if(true, x[n + 1], x[n])"}) {
    EXPECT_NE(ErrorOf(Wrap(value)), "fine") << value;
    EXPECT_NE(ErrorOf(Wrap(value, "N=3..9, M=2..9")), "fine") << value;
  }
}

TEST(Verify, SaysWhichAccessAndHowFar) {
  EXPECT_EQ(ErrorOf("kernel t(x: f32[N]) -> y: f32[N] where N=5 {\n  y[n] = 2 * x[n + 1]\n}"),
            "kernel:2:14: index 1 of x is n + 1, which ranges over 1..5, but the dimension has 5 elements; write "
            "pad(x[…], 0) or guard it with if(…)");
  EXPECT_EQ(
      ErrorOf("kernel t(x: f32[2]) -> y: f32[9] { y[n] = x[2 * (n % 4 / 2) + n % 3 - 1] }"),
      "kernel:1:43: index 1 of x is 2 * (n % 4 / 2) + n % 3 - 1, which ranges over -1..3, but the dimension has 2 "
      "elements; write pad(x[…], 0) or guard it with if(…)");
  EXPECT_EQ(ErrorOf(Wrap("x[i[n]]")),
            "kernel:1:89: index 1 of x is read from data (int(i[n])); wrap it in clamp(…, 0, N - 1)");
}

TEST(Verify, DynamicOperationsAreProvenForAllSizes) {
  for (const char* text : {"matmul(M=1..512,N=1..9,K=1..1000)", "batch_matmul(B=1..9,M=1..9,N=3,K=2..7)+add",
                           "conv2d(N=1..8,C=1..9,H=3..64,W=5..64,O=1..4,R=3,S=5)",
                           "conv2d(N=1..8,C=3,H=1..64,W=1..64,O=4,R=3,S=3,stride=2,pad=1)+bias+relu",
                           "conv2d(C=3,H=9..64,W=9..64,O=4,R=3,S=3,stride=[3,2],dilation=[2,4],pad=[1,2,3,0])",
                           "conv2d(N=1..8,C=6,H=3..64,W=3..64,O=4,R=3,S=3,groups=2)+bias",
                           "depthwise_conv2d(C=1..8,H=2..30,W=2..30,R=3,S=3,stride=2,pad=1)",
                           "maxpool2d(C=3,H=3..60,W=2..60,R=3,S=3,stride=2,pad=1)",
                           "maxpool2d(C=3,H=3..60,W=3..60,R=3,S=3,stride=2,ceil=1)",
                           "avgpool2d(C=3,H=3..60,W=3..60,R=3,S=3,stride=5,pad=[1,2],ceil=1)",
                           "global_avgpool(C=1..5,H=1..9,W=1..9)", "softmax(M=1..100,N=1..100)",
                           "layer_norm(M=1..4,N=1..1000)", "transpose(M=1..9,N=2..9)", "reduce_sum(M=1..3,N=1..9)"})
    EXPECT_EQ(ErrorOf(text), "fine") << text;
  EXPECT_THAT(ErrorOf("conv2d(C=3,H=1..64,W=8,O=4,R=3,S=3)"), HasSubstr("does not fit"));
}

TEST(Verify, FlattenedIndicesOverDynamicSizes) {
  EXPECT_EQ(ErrorOf("kernel t(x: f32[H*W]) -> y: f32[H, W] where H=1..9, W=2..7 { y[h, w] = x[h*W + w] }"), "fine");
  EXPECT_NE(ErrorOf("kernel t(x: f32[H*W]) -> y: f32[H, W] where H=1..9, W=2..7 { y[h, w] = x[h*W + w + 1] }"), "fine");
  EXPECT_NE(ErrorOf("kernel t(x: f32[H*W]) -> y: f32[H, W] where H=1..9, W=2..7 { y[h, w] = x[h + w*W] }"), "fine");
}

TEST(Verify, DivisionByZeroAndOverflow) {
  EXPECT_THAT(ErrorOf(Wrap("x[n / 0]")), HasSubstr("division by zero"));
  EXPECT_THAT(ErrorOf(Wrap("x[n] / 0")), HasSubstr("division by zero"));
  EXPECT_THAT(ErrorOf(Wrap("x[n % 0]")), HasSubstr("division by zero"));
  EXPECT_THAT(ErrorOf(Wrap("x[n / Z]", "N=5, M=4, Z=0")), HasSubstr("division by zero"));
  EXPECT_THAT(ErrorOf(Wrap("x[n / Z]", "N=5, M=4, Z=0..3")), HasSubstr("division by zero"));
  EXPECT_THAT(ErrorOf(Wrap("float(i[n] / i32(Z))", "N=5, M=4, Z=0..3")), HasSubstr("division by zero"));
  EXPECT_EQ(ErrorOf(Wrap("float(i[n] / i32(Z))", "N=5, M=4, Z=1..3")), "fine");
  EXPECT_THAT(ErrorOf(Wrap("x[n / i[n]]")), HasSubstr("by something that varies"));
  EXPECT_THAT(ErrorOf(Wrap("float(n * 4611686018427387904)")), HasSubstr("may not fit"));
  EXPECT_THAT(ErrorOf(Wrap("float(i[n] * 1)")), HasSubstr("fine"));
}

TEST(Verify, ManyConditionsEndInTime) {
  std::string value = "x[n]";
  for (int i = 0; i < 150; ++i) value = "if(n + " + std::to_string(i) + " < m * 3, " + value + ", x[n])";
  EXPECT_EQ(ErrorOf(Wrap(value)), "fine");
  std::string hard = "0";
  for (int i = 0; i < 60; ++i)
    hard = "if(n * " + std::to_string(i + 2) + " - m < " + std::to_string(i) + ", x[n + m], " + hard +
           " + x[min(n, 2*m)])";
  EXPECT_NE(ErrorOf(Wrap(hard)), "fine");
}

TEST(Verify, RefusesBrokenGraphs) {
  Result<Kernel> parsed = ParseKernel("matmul(M=3,N=4,K=5)+bias");
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(VerifyKernel(*parsed));
  auto expect_refused = [&](const char* what, const std::function<void(Kernel&)>& damage) {
    Kernel kernel = *parsed;
    damage(kernel);
    EXPECT_FALSE(VerifyKernel(kernel)) << what;
  };
  expect_refused("stages swapped", [](Kernel& k) { std::swap(k.stages.front(), k.stages[StageId(1)]); });
  expect_refused("written twice", [](Kernel& k) { k.stages.Add(k.stages.back()); });
  expect_refused("never written", [](Kernel& k) { k.stages.Erase(k.stages.last()); });
  expect_refused("input written", [](Kernel& k) { k.stages.front().output = TensorId(0); });
  expect_refused("no such tensor", [](Kernel& k) { k.stages.front().output = TensorId(99); });
  expect_refused("no such tensor read",
                 [](Kernel& k) { k.stages.front().body = LoadOf(TensorId(77), DType::kF32, {Int(0)}); });
  expect_refused("wrong rank", [](Kernel& k) { k.stages.front().body = LoadOf(TensorId(0), DType::kF32, {Int(0)}); });
  expect_refused("wrong type", [](Kernel& k) { k.tensors[TensorId(0)].dtype = DType::kI32; });
  expect_refused("axis out of range",
                 [](Kernel& k) { k.stages[StageId(1)].body = LoadOf(TensorId(2), DType::kF32, {AxisRef(AxisId(7))}); });
  expect_refused("extent differs", [](Kernel& k) { k.stages.front().axes[0].extent = Int(2); });
  expect_refused("zero size", [](Kernel& k) { k.sizes[0].lo = k.sizes[0].hi = 0; });
  expect_refused("operand missing", [](Kernel& k) { k.operands.erase(k.operands.begin()); });
  expect_refused("operand twice", [](Kernel& k) { k.operands[0] = k.operands[1]; });
  expect_refused("reduction without axes", [](Kernel& k) { k.stages.front().reduce_axes.clear(); });
  expect_refused("mixed types", [](Kernel& k) {
    Expr body = k.stages[StageId(1)].body;
    k.stages[StageId(1)].body = Expr(Op::kAdd, DType::kF32, {body, Int(1)});
  });
}

// ---- soundness: what is accepted stays in bounds at every point of every size

struct Point {
  const Kernel* kernel;
  const std::vector<int64_t>* sizes;
  const std::vector<int64_t>* axes;
};

int64_t Value(const Expr& e, const Point& p);

bool Holds(const Expr& e, const Point& p) {
  switch (e.op()) {
    case Op::kAnd: return Holds(e.arg(0), p) && Holds(e.arg(1), p);
    case Op::kOr: return Holds(e.arg(0), p) || Holds(e.arg(1), p);
    case Op::kNot: return !Holds(e.arg(0), p);
    case Op::kEq: return Value(e.arg(0), p) == Value(e.arg(1), p);
    case Op::kNe: return Value(e.arg(0), p) != Value(e.arg(1), p);
    case Op::kLt: return Value(e.arg(0), p) < Value(e.arg(1), p);
    default: return Value(e.arg(0), p) <= Value(e.arg(1), p);
  }
}

int64_t Value(const Expr& e, const Point& p) {
  auto arg = [&](size_t i) { return Value(e.arg(i), p); };
  switch (e.op()) {
    case Op::kInt: return e.int_value();
    case Op::kSize: return (*p.sizes)[static_cast<size_t>(e.int_value())];
    case Op::kAxis: return (*p.axes)[e.axis().index()];
    case Op::kAdd: return arg(0) + arg(1);
    case Op::kSub: return arg(0) - arg(1);
    case Op::kMul: return arg(0) * arg(1);
    case Op::kFloorDiv: return FloorDiv(arg(0), arg(1));
    case Op::kMod: return FloorMod(arg(0), arg(1));
    case Op::kMin: return std::min(arg(0), arg(1));
    case Op::kMax: return std::max(arg(0), arg(1));
    case Op::kAbs: return std::abs(arg(0));
    case Op::kSelect: return Holds(e.arg(0), p) ? arg(1) : arg(2);
    default: ADD_FAILURE() << "unexpected " << OpName(e.op()); return 0;
  }
}

// Follows the chosen side of each if, and expects every load that is reached to be in bounds.
void ExpectInBounds(const Expr& e, const Point& p, const std::string& text) {
  if (e.op() == Op::kSelect) return ExpectInBounds(Holds(e.arg(0), p) ? e.arg(1) : e.arg(2), p, text);
  if (e.op() == Op::kLoad) {
    const Tensor& tensor = p.kernel->tensors[e.tensor()];
    for (size_t d = 0; d < e.args().size(); ++d) {
      int64_t index = Value(e.arg(d), p), extent = Value(tensor.shape[d], p);
      ASSERT_TRUE(index >= 0 && index < extent) << text << "\nindex " << index << " of " << extent;
    }
    return;
  }
  for (const Expr& arg : e.args()) ExpectInBounds(arg, p, text);
}

std::string RandomIndex(Rng& rng, int depth) {
  if (depth == 0 || rng.Chance(0.2)) {
    const char* leaves[] = {"n", "m", "n", "m", "1", "2", "3", "N", "M", "0"};
    return leaves[rng.Below(10)];
  }
  std::string a = RandomIndex(rng, depth - 1), b = RandomIndex(rng, depth - 1);
  switch (rng.Below(12)) {
    case 0:
    case 1: return "(" + a + " + " + b + ")";
    case 2:
    case 3: return "(" + a + " - " + b + ")";
    case 4: return "(" + a + ") * " + std::to_string(rng.Between(1, 3));
    case 5: return "(" + a + ") / " + std::to_string(rng.Between(1, 4));
    case 6: return "(" + a + ") % " + std::to_string(rng.Between(1, 4));
    case 7: return "(" + a + ") % " + (rng.Chance(0.5) ? "N" : "M");
    case 8: return "min(" + a + ", " + b + ")";
    case 9: return "max(" + a + ", " + b + ")";
    case 10: return "clamp(" + a + ", 0, N - 1)";
    default: return "(" + a + ") * (" + b + ")";
  }
}

std::string RandomCondition(Rng& rng, int depth) {
  if (depth > 0 && rng.Chance(0.4)) {
    std::string a = RandomCondition(rng, depth - 1), b = RandomCondition(rng, depth - 1);
    return rng.Chance(0.3) ? "not (" + a + ")" : "(" + a + (rng.Chance(0.5) ? " and " : " or ") + b + ")";
  }
  const char* comparisons[] = {" < ", " <= ", " == ", " != ", " > ", " >= "};
  return RandomIndex(rng, 1) + comparisons[rng.Below(6)] + RandomIndex(rng, 1);
}

TEST(Verify, AcceptedRandomAccessesAreInBounds) {
  constexpr uint64_t kSeed = 20240607;
  Rng rng(kSeed);
  int accepted = 0, refused = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    bool dynamic = rng.Chance(0.5);
    std::string value = "x[" + RandomIndex(rng, 2) + "]";
    if (rng.Chance(0.5))
      value = "if(" + RandomCondition(rng, 2) + ", " + value + ", z[" + RandomIndex(rng, 1) + ", " +
              RandomIndex(rng, 1) + "])";
    std::string text = Wrap(value, dynamic ? "N=1..4, M=2..5" : rng.Chance(0.2) ? "N=1, M=2" : "N=4, M=3");
    Result<Kernel> kernel = ParseKernel(text);
    if (!kernel) {
      ++refused;
      continue;
    }
    ++accepted;
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " trial " << trial);
    const Stage& stage = kernel->stages.at(StageId(0));
    bool has_float = false;  // 1/2 outside an index is a half
    Walk(stage.body, [&](const Expr& e) {
      has_float |= IsFloat(e.type()) && (e.op() == Op::kFloat || e.op() == Op::kDiv) && e.float_value() != 0;
    });
    if (has_float) continue;
    std::vector<int64_t> sizes(kernel->sizes.size());
    std::function<void(size_t)> each_size = [&](size_t s) {
      if (s < sizes.size()) {
        for (sizes[s] = kernel->sizes[s].lo; sizes[s] <= kernel->sizes[s].hi; ++sizes[s]) each_size(s + 1);
        return;
      }
      std::vector<int64_t> axes(2);
      Point p{&*kernel, &sizes, &axes};
      int64_t N = Value(stage.axes[0].extent, p), M = Value(stage.axes[1].extent, p);
      for (axes[0] = 0; axes[0] < N; ++axes[0])
        for (axes[1] = 0; axes[1] < M; ++axes[1]) ExpectInBounds(stage.body, p, text);
    };
    each_size(0);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace hone::verify_kernel_test
