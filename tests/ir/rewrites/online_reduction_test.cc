// Two reductions in one pass over a row: the kernel's function stays, for inputs with NaN and infinities too.
#include "ir/rewrites/online_reduction.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ir/graph/specialize.h"
#include "tests/support/odd_numbers.h"
#include "tests/support/rewrites.h"
#include "tests/support/same_function.h"

namespace hone::online_reduction_test {
namespace {

using testing::ElementsAre;

// The first stage that is the second one of two such reductions; none without.
StageId SecondOf(const Kernel& kernel) {
  for (StageId stage : kernel.stages.ids())
    if (FirstOfOnline(kernel, stage)) return stage;
  return {};
}

Result<Kernel> Online(const Kernel& kernel, int64_t block) {
  const StageId second = SecondOf(kernel);
  if (!second) return Error{ErrorKind::kInvalid, "nothing to take in one pass", ""};
  return OnlineReduction(kernel, second, "blocks", block);
}

// In blocks of any size, and at the sizes as at names for them.
void ExpectSame(const std::string& text, const std::vector<int64_t>& blocks = {1, 2, 5, 8, 13, 64}) {
  SCOPED_TRACE(text);
  for (const Kernel& before : {Parsed(text), Specialize(Parsed(text))})
    for (int64_t block : blocks) {
      const Kernel after = Kept(before, Online(before, block));
      if (after.stages.empty() || testing::Test::HasFatalFailure()) return;
      ExpectSameWithOddNumbers(before, after);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(OnlineReduction, KeepsSoftmaxes) {
  ExpectSame("softmax(M=22,N=13)");
  ExpectSame("softmax(M=22,N=16)+gelu+mul");
  ExpectSame("softmax(M=13,N=1)");
  ExpectSame("softmax(M=1,N=29)");
  ExpectSame("softmax(M=12,N=17,dtype=f64)");
  // The exponentials in no stage of their own; the logarithm of their sum; masks that leave rows of −∞.
  ExpectSame(R"(kernel sums(x: f32[M, N]) -> y: f32[M] where M=22, N=14 {
    y[i] = (max(k) x[i, k]) + log(sum(k) exp(x[i, k] - max(l) x[i, l]))
  })");
  ExpectSame(R"(kernel causal(x: f32[H, N, N]) -> p: f32[H, N, N] where H=3, N=11 {
    s: f32[H, N, N]
    s[h, i, j] = if(j <= i, 0.5 * x[h, i, j], -inf)
    p[h, i, j] = exp(s[h, i, j] - max(l) s[h, i, l]) / sum(l) exp(s[h, i, l] - max(m) s[h, i, m])
  })");
}

TEST(OnlineReduction, KeepsNormalisations) {
  ExpectSame("layer_norm(M=22,N=13)");
  ExpectSame("layer_norm(M=22,N=16,eps=1e-3)+add");
  ExpectSame("layer_norm(M=13,N=1)");
  ExpectSame("layer_norm(M=1,N=29)");
  ExpectSame("layer_norm(M=12,N=17,dtype=f64)");
  // Mean and variance as outputs; a mean that is a product; a shift that is no mean.
  ExpectSame(R"(kernel moments(x: f32[M, N]) -> mean: f32[M], variance: f32[M] where M=22, N=13 {
    mean[m] = (sum(n) x[m, n]) / float(N)
    variance[m] = (sum(n) ((x[m, n] - mean[m]) * (x[m, n] - mean[m]))) / float(N)
  })");
  ExpectSame(R"(kernel shifted(x: f32[M, N]) -> y: f32[M] where M=22, N=14 {
    t: f32[M]
    t[m] = 0.25 * sum(n) (2 * x[m, n])
    y[m] = sum(n) ((2 * x[m, n] - t[m]) * (2 * x[m, n] - t[m]))
  })");
  ExpectSame(R"(kernel shifted(x: f32[M, N]) -> y: f32[M] where M=22, N=14 {
    t: f32[M]
    t[m] = sum(n) x[m, n]
    y[m] = sum(n) ((x[m, n] - t[m]) * (x[m, n] - t[m]))
  })");
}

// Whatever the length turns out to be.
TEST(OnlineReduction, KeepsRowsOfDynamicLength) {
  for (const char* text : {"softmax(M=13,N=1..40)", "layer_norm(M=13,N=1..40)", "softmax(M=1..13,N=21)"})
    for (int64_t block : {1, 8, 100}) {
      Kernel before = Specialize(Parsed(text));
      Result<Kernel> after = Online(before, block);
      ASSERT_TRUE(after) << text << ": " << after.error().Text();
      Result<void> verified = VerifyKernel(WithoutUnused(*after));
      EXPECT_TRUE(verified) << text << ": " << verified.error().Text();
      for (int64_t length : {1, 7, 8, 13}) {
        for (Kernel* kernel : {&before, &*after})
          for (Size& size : kernel->sizes)
            if (!size.is_constant() || size.name == "dynamic") size = {"dynamic", length, length};
        ExpectSameFunction(before, *after);
        ExpectSameWithOddNumbers(before, *after);
        if (HasFatalFailure()) return;
      }
    }
}

// Rows of every length and kind, in blocks of every size.
TEST(OnlineReduction, KeepsRandomRows) {
  Rng rng(23);
  auto pick = [&](std::initializer_list<const char*> texts) {
    return std::string(*(texts.begin() + rng.Below(texts.size())));
  };
  for (int round = 0; round < 150; ++round) {
    const std::string type = pick({"f32", "f32", "f64"});
    const std::string x = pick({"x[i, j]", "v[i, j]", "(0.5 * v[i, j])", "(x[i, j] * w[j])", "abs(v[i, j])"});
    auto at = [&](const std::string& index) {
      std::string text = x;
      for (size_t from; (from = text.find('j')) != std::string::npos;) text.replace(from, 1, index);
      return text;
    };
    const std::string declared = fmt::format("  v: {}[M, N]\n  v[i, j] = {}\n  t: {}[M]\n", type,
                                             pick({"x[i, j] + w[j]", "if(j <= i, x[i, j], -inf)", "-x[i, j]"}), type);
    std::string body;
    if (rng.Chance(0.5)) {
      body = fmt::format("  t[i] = max(j) {}\n  s: {}[M]\n  s[i] = sum(k) exp({} - t[i])\n  y[i, j] = {}\n", x, type,
                         at("k"), pick({"exp(v[i, j] - t[i]) / s[i]", "v[i, j] - t[i] - log(s[i])", "s[i] * w[j]"}));
    } else {
      const std::string mean = pick({"t[i] / float(N)", "t[i] * 0.125", "t[i] / 7", "t[i]"});
      const std::string off = fmt::format("({} - {})", at("k"), mean);
      body = fmt::format("  t[i] = sum(j) {}\n  s: {}[M]\n  s[i] = sum(k) ({} * {})\n  y[i, j] = {}\n", x, type, off,
                         off, pick({"(v[i, j] - t[i]) * rsqrt(s[i] + 0.5)", "s[i] + t[i] * w[j]"}));
    }
    const int64_t columns = rng.Between(1, 40);
    ExpectSame(fmt::format("kernel rows(x: {0}[M, N], w: {0}[N]) -> y: {0}[M, N] where M={1}, N={2} {{\n{3}{4}}}", type,
                           rng.Between(1, 13), columns, declared, body),
               {rng.Between(1, columns + 3)});
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST(OnlineReduction, MakesStagesOfBlocksAndDropsWhatNothingReads) {
  const Kernel softmax = *Online(Specialize(Parsed("softmax(M=4,N=100)")), 32);
  EXPECT_THAT(StageNames(softmax),
              ElementsAre("blocks_first", "blocks_second", "blocks", "top", "e", "total", "scale", "y"));
  EXPECT_THAT(AxisNames(StageOf(softmax, "blocks").axes), ElementsAre("m", "s", "b"));
  EXPECT_THAT(StaticShape(softmax, softmax.tensors[FindTensor(softmax, "blocks")]), ElementsAre(4, 2, 4));
  EXPECT_THAT(AxisNames(StageOf(softmax, "total").reduce_axes), ElementsAre("b"));
  EXPECT_EQ(EvalExtent(softmax, StageOf(softmax, "blocks_first").reduce_axes[0].extent), 32);
  // A block is not longer than the row.
  const Kernel whole = *Online(Specialize(Parsed("softmax(M=4,N=100)")), 4096);
  EXPECT_EQ(EvalExtent(whole, StageOf(whole, "blocks_first").reduce_axes[0].extent), 100);
  // A log-sum of exponentials needs them nowhere else.
  const Kernel sums = *Online(Specialize(Parsed(R"(kernel sums(x: f32[M, N]) -> y: f32[M] where M=22, N=14 {
    t: f32[M]
    t[i] = max(k) x[i, k]
    e: f32[M, N]
    e[i, k] = exp(x[i, k] - t[i])
    s: f32[M]
    s[i] = sum(k) e[i, k]
    y[i] = t[i] + log(s[i])
  })")),
                              4);
  EXPECT_THAT(StageNames(sums), ElementsAre("blocks_first", "blocks_second", "blocks", "t", "s", "y"));
  // Names of axes that are taken already.
  const Kernel named = *Online(Specialize(Parsed(R"(kernel k(x: f32[M, N]) -> y: f32[M] where M=22, N=14 {
    t: f32[M]
    t[b] = max(k) x[b, k]
    y[s] = sum(k) exp(x[s, k] - t[s])
  })")),
                               4);
  EXPECT_THAT(AxisNames(StageOf(named, "blocks").axes), ElementsAre("s", "s1", "b1"));
}

// With a stage "t" of its own, what is summed in "s".
std::string SecondRefused(const std::string& t, const std::string& s, const std::string& type = "f32") {
  const Kernel kernel = Specialize(Parsed(fmt::format(
      "kernel k(x: {0}[N, N], z: {0}[N]) -> y: {0}[N] where N=7 {{ t: {0}[N] {1} y[i] = {2} }}", type, t, s)));
  return RefusalOf(OnlineReduction(kernel, FindStage(kernel, "y"), "blocks", 4));
}

TEST(OnlineReduction, RefusesEverythingElse) {
  const std::string maximum = "t[i] = max(k) x[i, k]", sum = "t[i] = sum(k) x[i, k]";
  EXPECT_EQ(SecondRefused(maximum, "sum(k) exp(x[i, k] - t[i])"), "no refusal");
  EXPECT_EQ(SecondRefused(sum, "sum(k) ((x[i, k] - t[i] / 7) * (x[i, k] - t[i] / 7))"), "no refusal");
  // No such sum.
  EXPECT_EQ(SecondRefused(maximum, "max(k) exp(x[i, k] - t[i])"), "y is no sum of floats along one axis");
  EXPECT_EQ(SecondRefused(maximum, "sum(k, l < 7) exp(x[i, k] - t[i])"), "y is no sum of floats along one axis");
  EXPECT_EQ(SecondRefused(sum, "sum(k) ((x[i, k] - t[i]) * (x[i, k] - t[i]))", "i32"),
            "y is no sum of floats along one axis");
  const std::string neither = "y sums neither exp(x - max x) nor (x - mean x) squared";
  EXPECT_EQ(SecondRefused(maximum, "sum(k) (exp(x[i, k] - t[i]) + 1)"), neither);
  EXPECT_EQ(SecondRefused(maximum, "sum(k) exp(x[i, k] + t[i])"), neither);
  EXPECT_EQ(SecondRefused(sum, "sum(k) ((x[i, k] - t[i]) * (x[k, i] - t[i]))"), neither);
  // Nothing of the row, of another row, under a factor that turns infinity around or makes NaN of it.
  EXPECT_EQ(SecondRefused(maximum, "sum(k) exp(x[i, k] - z[i])"), "what y takes off x is no maximum of the same row");
  EXPECT_EQ(SecondRefused(maximum, "sum(k) exp(x[i, k] - t[6 - i])"),
            "what y takes off x is no maximum of the same row");
  EXPECT_EQ(SecondRefused(maximum, "sum(k) exp(x[i, k] - t[k])"), "what y takes off x is no maximum of the same row");
  EXPECT_EQ(SecondRefused(maximum, "sum(k) exp(x[i, k] - 2 * t[i])"),
            "what y takes off x is no maximum of the same row");
  for (const char* mean : {"t[i] * (-0.5)", "t[i] / (-7)", "0 * t[i]", "t[i] * z[i]", "(t[i] + 1)"})
    EXPECT_EQ(SecondRefused(sum, fmt::format("sum(k) ((x[i, k] - {0}) * (x[i, k] - {0}))", mean)),
              "what y takes off x is no multiple of a sum of the same row")
        << mean;
  // Of another x, another part of the row, another reduction.
  EXPECT_EQ(SecondRefused("t[i] = max(k) x[k, i]", "sum(k) exp(x[i, k] - t[i])"),
            "t is no maximum of the x that y sums over");
  EXPECT_EQ(SecondRefused("t[i] = max(k < 6) x[i, k]", "sum(k) exp(x[i, k] - t[i])"),
            "t is no maximum of the x that y sums over");
  EXPECT_EQ(SecondRefused("t[i] = min(k) x[i, k]", "sum(k) exp(x[i, k] - t[i])"),
            "t is no maximum of the x that y sums over");
  EXPECT_EQ(SecondRefused(maximum, "sum(k) ((x[i, k] - t[i]) * (x[i, k] - t[i]))"),
            "t is no sum of the x that y sums over");
  EXPECT_EQ(SecondRefused(sum, "sum(k) ((2 * x[i, k] - t[i]) * (2 * x[i, k] - t[i]))"),
            "t is no sum of the x that y sums over");
  // Names and sizes.
  const Kernel softmax = Parsed("softmax(M=3,N=7)");
  const StageId total = FindStage(softmax, "total");
  EXPECT_EQ(RefusalOf(OnlineReduction(softmax, total, "top", 4)), "the name top is taken");
  EXPECT_EQ(RefusalOf(OnlineReduction(softmax, total, "blocks", 0)), "a block of a row has at least one element");
  EXPECT_EQ(RefusalOf(OnlineReduction(softmax, FindStage(softmax, "y"), "blocks", 4)),
            "y is no sum of floats along one axis");
}

}  // namespace
}  // namespace hone::online_reduction_test
