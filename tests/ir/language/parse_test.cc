#include "ir/language/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ir/graph/print.h"
#include "ir/language/without_comments.h"
#include "tests/support/operation_samples.h"

namespace hone::parse_test {
namespace {

using ::testing::HasSubstr;

Kernel Parse(std::string_view text) {
  Result<Kernel> kernel = ParseKernel(text);
  if (!kernel) ADD_FAILURE() << text << "\n" << kernel.error().Text();
  return kernel ? *kernel : Kernel{};
}

std::string ErrorOf(std::string_view text) {
  Result<Kernel> kernel = ParseKernel(text);
  return kernel ? "parsed" : kernel.error().Text();
}

void ExpectRoundTrip(const Kernel& kernel) {
  std::string text = PrintKernel(kernel);
  Result<Kernel> again = ParseKernel(text);
  ASSERT_TRUE(again) << text << again.error().Text();
  EXPECT_TRUE(SameKernel(kernel, *again)) << text << PrintKernel(*again);
}

const Stage& StageOf(const Kernel& kernel, std::string_view tensor) {
  for (const Stage& stage : kernel.stages)
    if (kernel.tensors[stage.output].name == tensor) return stage;
  ADD_FAILURE() << "no stage " << tensor << " in\n" << PrintKernel(kernel);
  return kernel.stages.at(StageId(0));
}

std::string BodyOf(const Kernel& kernel, std::string_view tensor) {
  const Stage& stage = StageOf(kernel, tensor);
  return PrintExpr(kernel, stage, stage.body);
}

// A kernel over x[N], y[N, M] and the output z[N, M], with one statement's right-hand side.
std::string Wrap(std::string_view value, std::string_view type = "f32") {
  return "kernel t(x: f32[N], y: f32[N, M], i: i32[N], b: i8[N]) -> z: " + std::string(type) +
         "[N, M] where N=5, M=4 { z[n, m] = " + std::string(value) + " }";
}

TEST(Parse, RoundTripsEveryOperation) {
  for (const std::string& text : OperationSamples()) {
    SCOPED_TRACE(text);
    ExpectRoundTrip(Parse(text));
  }
}

TEST(Parse, RoundTripsEveryEpilogue) {
  for (const char* epilogue : {"bias", "add", "mul", "relu", "relu6", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh",
                               "hardswish", "bias+add+add+mul+mul+relu"})
    for (const char* operation :
         {"matmul(M=3,N=4,K=5)", "conv2d(C=4,H=5,W=5,O=6,R=3,S=3,groups=2)", "softmax(M=3,N=4)"}) {
      SCOPED_TRACE(std::string(operation) + "+" + epilogue);
      Kernel kernel = Parse(std::string(operation) + "+" + epilogue);
      ExpectRoundTrip(kernel);
      EXPECT_THAT(kernel.name, HasSubstr(epilogue));
    }
}

TEST(Parse, ReadsEveryKernelOfTheModels) {
  int count = 0;
  for (const char* model :
       {"alexnet", "bert_128", "bert_256", "efficientnet_b0", "efficientnet_b4", "googlenet", "mnasnet1_0",
        "mobilebert_128", "mobilebert_256", "mobilenet_v2", "resnet18", "resnet50", "vgg16"}) {
    std::ifstream file(std::string(HONE_SOURCE_DIR "/models/") + model + ".kernels");
    ASSERT_TRUE(file) << model;
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line[0] == '#') continue;
      std::string text = line.substr(line.find(' ') + 1);
      SCOPED_TRACE(text);
      ExpectRoundTrip(Parse(text));
      ++count;
    }
  }
  EXPECT_GT(count, 339);
}

TEST(Parse, ReadsTheExamplesOfTheDocumentation) {
  std::ifstream file(HONE_SOURCE_DIR "/docs/kernel_language.md");
  ASSERT_TRUE(file);
  int count = 0;
  std::string block;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line != "```") {
      if (inside) block += line + "\n";
      continue;
    }
    inside = !inside;
    if (!inside && block.find("::=") == std::string::npos) {
      SCOPED_TRACE(block);
      ExpectRoundTrip(Parse(block));
      ++count;
    }
    block.clear();
  }
  EXPECT_GE(count, 5);
}

TEST(Parse, SizesComeInAnyOrder) {
  EXPECT_TRUE(SameKernel(Parse("matmul(M=2,N=3,K=4)"), Parse("matmul(K=4, N=3, M=2)")));
  EXPECT_TRUE(SameKernel(Parse("kernel k(a: f32[M, K]) -> y: f32[M] where M=2, K=3 { y[m] = sum(k) a[m, k] }"),
                         Parse("kernel k(a: f32[M, K]) -> y: f32[M] where K=3, M=2 { y[m] = sum(k) a[m, k] }")));
}

TEST(Parse, ConvolutionKeepsItsPadStageWithoutPadding) {
  Kernel kernel = Parse("conv2d(C=3,H=5,W=5,O=2,R=1,S=1)");
  ASSERT_EQ(kernel.stages.size(), 2u);
  EXPECT_EQ(BodyOf(kernel, "xp"), "pad(x[n, c, h - pt, w0 - pl], 0.0)");
  EXPECT_EQ(BodyOf(kernel, "y"), "xp[n, c, h * sh + r * dh, w0 * sw + s * dw] * w[o, c, r, s]");
}

TEST(Parse, GroupsAreAViewOfTheSameMemory) {
  Kernel kernel = Parse("conv2d(C=6,H=5,W=7,O=9,R=3,S=3,groups=3)+bias");
  const Tensor& x = kernel.tensors[TensorId(0)];
  EXPECT_EQ(StaticShape(kernel, x), (std::vector<int64_t>{1, 3, 2, 5, 7}));
  ASSERT_EQ(x.declared.size(), 4u);
  EXPECT_EQ(EvalExtent(kernel, x.declared[1]), 6);
}

TEST(Parse, OneChannelAGroupIsDepthwise) {
  EXPECT_TRUE(SameKernel(Parse("conv2d(C=4,H=5,W=7,O=4,R=3,S=3,groups=4)+bias"),
                         Parse("depthwise_conv2d(C=4,H=5,W=7,R=3,S=3)+bias")));
}

TEST(Parse, PoolOutputExtents) {
  auto height = [](const std::string& attributes) {
    Kernel kernel = Parse("maxpool2d(C=1,W=9,S=1," + attributes + ")");
    return StaticShape(kernel, kernel.tensors[kernel.operands.back()])[2];
  };
  EXPECT_EQ(height("H=7,R=3,stride=2"), 3);
  EXPECT_EQ(height("H=8,R=3,stride=2"), 3);
  EXPECT_EQ(height("H=8,R=3,stride=2,ceil=1"), 4);
  // The fourth window would start in the right padding: 5 + 2 > 6.
  EXPECT_EQ(height("H=5,R=2,stride=3,pad=[1,0],ceil=0"), 2);
  EXPECT_EQ(height("H=5,R=2,stride=3,pad=[1,0],ceil=1"), 2);
  EXPECT_EQ(height("H=3,R=1,stride=4,ceil=1"), 1);
  EXPECT_EQ(height("H=6,R=3"), 2);  // the stride is the window's size unless given
}

TEST(Parse, IntegersAccumulateInI32) {
  Kernel kernel = Parse("matmul(M=3,N=4,K=9,dtype=i8)");
  EXPECT_EQ(kernel.tensors[TensorId(2)].dtype, DType::kI32);
  EXPECT_EQ(BodyOf(kernel, "y"), "i32(a[m, k]) * i32(b[k, n])");
  EXPECT_EQ(Parse("maxpool2d(C=2,H=6,W=6,R=2,S=2,dtype=i8)").tensors[TensorId(1)].dtype, DType::kI8);
}

TEST(Parse, RangesAreDynamicSizes) {
  Kernel kernel = Parse("matmul(M=1..512,N=4,K=9)");
  EXPECT_FALSE(IsStatic(kernel));
  EXPECT_EQ(kernel.sizes[0].name, "M");
  EXPECT_EQ(kernel.sizes[0].lo, 1);
  EXPECT_EQ(kernel.sizes[0].hi, 512);
  ExpectRoundTrip(kernel);
  ExpectRoundTrip(Parse("conv2d(N=1..8,C=3,H=16..64,W=16..64,O=4,R=3,S=3,stride=2,pad=1)+bias+relu"));
}

TEST(Parse, OptionsRoundTrip) {
  Kernel kernel = Parse("matmul(M=2,N=4,K=9,accuracy=relaxed,threads=3)");
  EXPECT_EQ(kernel.options.accuracy, Accuracy::kRelaxed);
  EXPECT_EQ(kernel.options.threads, 3);
  ExpectRoundTrip(kernel);
}

TEST(Parse, ReductionTakesAProduct) {
  Kernel kernel = Parse(Wrap("sum(k) y[n, k] * y[n, k] + x[n]"));
  EXPECT_EQ(BodyOf(kernel, "z"), "z_sum[n] + x[n]");
  EXPECT_EQ(BodyOf(kernel, "z_sum"), "y[n, k] * y[n, k]");
  EXPECT_EQ(StageOf(kernel, "z_sum").reduction, Reduction::kSum);
}

TEST(Parse, ReductionInsideAFunctionGetsAStage) {
  Kernel kernel = Parse(Wrap("relu(max(k) y[n, k]) / (min(k) y[n, k])"));
  EXPECT_EQ(BodyOf(kernel, "z"), "max(z_max[n], 0.0) / z_min[n]");
  ExpectRoundTrip(kernel);
}

TEST(Parse, SameReductionTwiceIsOneStage) {
  Kernel kernel = Parse(Wrap("exp(y[n, m] - max(k) y[n, k]) / sum(k) exp(y[n, k] - max(j) y[n, j])"));
  ASSERT_EQ(kernel.stages.size(), 3u);
  ExpectRoundTrip(kernel);
}

TEST(Parse, NestedReductionRunsOverTheOuterVariable) {
  Kernel kernel = Parse(Wrap("sum(k < N) x[k] * (max(j) y[k, j]) * y[n, m]"));
  EXPECT_EQ(StageOf(kernel, "z_max").axes.size(), 1u);
  EXPECT_EQ(StageOf(kernel, "z_sum").axes.size(), 0u);
  EXPECT_EQ(BodyOf(kernel, "z_sum"), "x[k] * z_max[k]");
  EXPECT_EQ(BodyOf(kernel, "z"), "z_sum[] * y[n, m]");
  ExpectRoundTrip(kernel);
}

TEST(Parse, InvariantFactorsLeaveTheSum) {
  Kernel kernel = Parse(Wrap("sum(k) 2 * y[n, k] * x[n] * y[n, k] / float(M)"));
  EXPECT_EQ(BodyOf(kernel, "z_sum"), "y[n, k] * y[n, k]");
  EXPECT_EQ(BodyOf(kernel, "z"), "z_sum[n] * 2.0 * x[n] / f32(M)");
  Kernel inside = Parse(Wrap("sum(k) (2 * y[n, k] * x[n])"));
  EXPECT_EQ(BodyOf(inside, "z"), "2.0 * y[n, k] * x[n]");
  ExpectRoundTrip(inside);
  // An integer division does not distribute.
  Kernel whole = Parse(Wrap("sum(k < 3) i[n] * (i32(k) + 1) / 2", "i32"));
  EXPECT_EQ(whole.stages.size(), 1u);
  ExpectRoundTrip(whole);
}

TEST(Parse, MinAndMaxAreFunctionsToo) {
  Kernel kernel = Parse(Wrap("max(x[n], y[n, m], 0.5) + min(x[n], 1) + float(max(n, m))"));
  EXPECT_EQ(BodyOf(kernel, "z"), "max(max(x[n], y[n, m]), 0.5) + min(x[n], 1.0) + f32(max(n, m))");
}

TEST(Parse, GivenReductionRanges) {
  Kernel kernel = Parse(Wrap("sum(r < 3, s < N - 2) pad(y[n + r - 1, s], 0)"));
  EXPECT_EQ(EvalExtent(kernel, StageOf(kernel, "z").reduce_axes[0].extent), 3);
  EXPECT_EQ(EvalExtent(kernel, StageOf(kernel, "z").reduce_axes[1].extent), 3);
}

TEST(Parse, LiteralsTakeTheTypeOfTheirNeighbours) {
  EXPECT_EQ(BodyOf(Parse(Wrap("x[n] * 2 + 1/2")), "z"), "x[n] * 2.0 + 0.5");
  EXPECT_EQ(BodyOf(Parse(Wrap("i[n] * 2 + 7", "i32")), "z"), "i[n] * 2 + 7");
  EXPECT_EQ(BodyOf(Parse(Wrap("f64(x[n]) * float(n)", "f64")), "z"), "f64(x[n]) * f64(n)");
  EXPECT_EQ(BodyOf(Parse(Wrap("if(n < m, 1, -inf)")), "z"), "if(n < m, 1.0, -inf)");
  EXPECT_EQ(BodyOf(Parse(Wrap("b[n] + 1", "i32")), "z"), "i32(b[n]) + 1");
  EXPECT_EQ(BodyOf(Parse(Wrap("3", "f64")), "z"), "3.0");
}

TEST(Parse, ExpressionsRoundTrip) {
  for (const char* value : {"-x[n]",
                            "-2.5 * x[n]",
                            "x[n] - -3.0",
                            "x[n] - (y[n, m] - 1)",
                            "(x[n] - y[n, m]) - 1",
                            "x[n] / (y[n, m] / 2)",
                            "x[n] * (y[n, m] + 1) / 3",
                            "if(n < m and (n == 2 or not m != 3), x[n], nan)",
                            "if(x[n] >= 0.5, 1e-30, 1e30)",
                            "float(n * M + m - (n - m))",
                            "float((n + 3) / 2 % 3)",
                            "pow(abs(x[n]), 1.5)",
                            "f32(f64(x[n]) * f64(2))",
                            "f32(f64(1) + f64(0.1))",
                            "f32(i32(0.5 + x[n]))",
                            "f32(b[n]) + f32(i[n])",
                            "x[clamp(i[n], 0, N - 1)]",
                            "pad(y[n - 1, m + 1], -1)",
                            "x[min(n + 1, N - 1)]",
                            "gelu(silu(x[n]))",
                            "floor(x[n]) + erf(x[n]) * tanh(x[n])",
                            "sqrt(rsqrt(exp(log(x[n]))))",
                            "if(not (n < 2), x[n], 0)",
                            "if(true, x[n], 0)",
                            "-(x[n] + 1)",
                            "x[(n + 1) % N]",
                            "f32(i32(3))",
                            "float(f64(x[n]) < 0.5 or 1 < 2)",
                            "if(f64(1) < f64(2), x[n], 1)",
                            "x[n] * (-1)",
                            "1 / x[n]"}) {
    SCOPED_TRACE(value);
    Result<Kernel> kernel = ParseKernel(Wrap(value));
    if (!kernel) kernel = ParseKernel(Wrap("float(" + std::string(value) + ")"));
    ASSERT_TRUE(kernel) << kernel.error().Text();
    ExpectRoundTrip(*kernel);
  }
}

TEST(Parse, AbbreviationsStandForTheirExpression) {
  Kernel kernel = Parse("kernel k(x: f32[N]) -> y: f32[P] where N=7, P=(N - 1)/2, Q=2*3 { y[p] = x[2*p] * float(Q) }");
  EXPECT_EQ(EvalExtent(kernel, kernel.tensors[TensorId(1)].shape[0]), 3);
  EXPECT_EQ(kernel.sizes.size(), 2u);
  ExpectRoundTrip(kernel);
}

TEST(Parse, ViewsKeepTheNumberOfElements) {
  std::string ok = "kernel k(x: f32[N, 6] as [N, 2, 3]) -> y: f32[N, 2] where N=1..5 { y[n, g] = sum(c) x[n, g, c] }";
  ExpectRoundTrip(Parse(ok));
  EXPECT_THAT(ErrorOf("kernel k(x: f32[4, 6] as [4, 2, 2]) -> y: f32[4] { y[n] = x[n, 0, 0] }"),
              HasSubstr("x has 24 elements and its view 16"));
}

TEST(Parse, StagesThatNothingReadsAreDropped) {
  Kernel kernel =
      Parse("kernel k(x: f32[N]) -> y: f32[N] where N=7 { t: f32[N] t[n] = x[n] u: f32[N] u[n] = t[n] y[n] = x[n] }");
  EXPECT_EQ(kernel.stages.size(), 1u);
  EXPECT_EQ(kernel.tensors.size(), 2u);
}

TEST(Parse, SeveralOutputsAndScalars) {
  Kernel kernel = Parse(
      "kernel k(x: f32[N]) -> total: f32[], scaled: f32[N] where N=7 {\n"
      "  total[] = sum(n) x[n]   # of all\n"
      "  scaled[n] = x[n] / total[]\n"
      "}");
  EXPECT_EQ(kernel.operands.size(), 3u);
  ExpectRoundTrip(kernel);
}

TEST(Parse, EqualPartsAreOneNode) {
  Kernel kernel = Parse(Wrap("exp(x[n] + y[n, m]) * (x[n] + y[n, m])"));
  const Expr& body = StageOf(kernel, "z").body;
  EXPECT_EQ(body.arg(0).arg(0).id(), body.arg(1).id());
}

TEST(Parse, DeepNestingEndsInAnError) {
  std::string deep(10000, '(');
  EXPECT_THAT(ErrorOf(Wrap(deep + "x[n]" + std::string(10000, ')'))), HasSubstr("nested more than 200 deep"));
  std::string minuses;
  for (int i = 0; i < 10000; ++i) minuses += "-";
  EXPECT_THAT(ErrorOf(Wrap(minuses + "x[n]")), HasSubstr("nested more than 200 deep"));
  std::string nots;
  for (int i = 0; i < 10000; ++i) nots += "not ";
  EXPECT_THAT(ErrorOf(Wrap("if(" + nots + "true, x[n], 0)")), HasSubstr("nested more than 200 deep"));
  std::string sums;
  for (int i = 0; i < 10000; ++i) sums += "sum(k" + std::to_string(i) + " < 2) ";
  EXPECT_THAT(ErrorOf(Wrap(sums + "x[n]")), HasSubstr("nested more than 200 deep"));
  std::string chain = "x[n]";
  for (int i = 0; i < 20000; ++i) chain += " + x[n]";
  EXPECT_THAT(ErrorOf(Wrap(chain)), HasSubstr("more than 1000 operators"));
  std::string brackets = "x";
  for (int i = 0; i < 10000; ++i) brackets += "[x";
  EXPECT_THAT(ErrorOf(Wrap(brackets)), HasSubstr("nested more than 200 deep"));
}

TEST(Parse, FunctionsThatMultiplyTheirArgumentStayWithinLimits) {
  std::string text = "matmul(M=2,N=2,K=2)";
  for (int i = 0; i < 30; ++i) text += "+gelu_tanh";
  EXPECT_THAT(ErrorOf(text), HasSubstr("operands and operators"));
}

TEST(Parse, ATextWithoutItsCommentsReadsAsTheSameKernel) {
  const std::string text =
      "# what it does\n\nkernel sum2(x: f32[N]) ->  # of it\r\n    y: f32[N] where N=3 {   \n\t\n  y[n] = x[n] + x[n]  "
      "#\n}\n#";
  const std::string bare = WithoutComments(text);
  EXPECT_EQ(bare, "kernel sum2(x: f32[N]) ->\n    y: f32[N] where N=3 {\n  y[n] = x[n] + x[n]\n}");
  Result<Kernel> with = ParseKernel(text), without = ParseKernel(bare);
  ASSERT_TRUE(with && without);
  EXPECT_EQ(PrintKernel(*with), PrintKernel(*without));
  EXPECT_EQ(WithoutComments("a \"b # c\" # d"), "a \"b # c\"");
  EXPECT_EQ(WithoutComments("# nothing\n"), "");
}

TEST(Parse, LargeTextIsRefusedUnread) {
  std::string text(100 << 20, ' ');
  EXPECT_THAT(ErrorOf(text), HasSubstr("the text has 100 MiB, hone's limit for a kernel is 1 MiB"));
}

}  // namespace
}  // namespace hone::parse_test
