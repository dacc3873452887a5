// Sums over windows without the terms of padding: the function stays, for weights that are NaN or infinite, too.
#include "ir/rewrites/trim_padding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ir/graph/specialize.h"
#include "tests/support/odd_numbers.h"
#include "tests/support/rewrites.h"
#include "tests/support/same_function.h"

namespace hone::trim_padding_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The sum in a stage of its own, without the padding of xp along these axes.
Result<Kernel> Trim(const Kernel& before, const std::vector<std::string>& axes) {
  Result<Kernel> kernel = CacheWrite(before, FindStage(before, SumOf(before)), "t");
  if (!kernel) return kernel;
  return TrimPadding(*kernel, FindStage(*kernel, "t"), "xp", "whole", axes);
}

void ExpectSame(const std::string& text, const std::vector<std::string>& axes) {
  SCOPED_TRACE(text);
  for (const Kernel& before : {Parsed(text), Specialize(Parsed(text))}) {
    const Kernel after = Kept(before, Trim(before, axes));
    if (after.stages.empty() || testing::Test::HasFatalFailure()) return;
    for (size_t operand : {size_t{0}, size_t{1}}) ExpectSameWithOddNumbers(before, after, operand);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(TrimPadding, KeepsConvolutions) {
  for (const char* text : {
           "conv2d(C=3,H=5,W=7,O=5,R=3,S=3,pad=1,const=1)",
           "conv2d(N=2,C=2,H=6,W=4,O=3,R=3,S=3,pad=2,const=1)",
           "conv2d(C=2,H=4,W=4,O=12,R=3,S=3,pad=[0,1,2,3],const=1)",
           "conv2d(C=3,H=9,W=8,O=4,R=3,S=3,pad=2,dilation=2,const=1)",
           "conv2d(C=3,H=8,W=9,O=4,R=5,S=3,stride=2,pad=2,const=1)",
           "conv2d(C=2,H=2,W=2,O=4,R=5,S=5,pad=4,const=1)",
           "conv2d(C=6,H=5,W=5,O=4,R=3,S=3,groups=2,pad=1,const=1,dtype=f64)",
       }) {
    ExpectSame(text, {"r", "s"});
    ExpectSame(text, {"s"});
    ExpectSame(text, {"r"});
  }
}

TEST(TrimPadding, KeepsWindowsOfOneChannel) {
  ExpectSame("depthwise_conv2d(C=5,H=6,W=7,R=3,S=3,pad=1,const=1)", {"r", "s"});
  ExpectSame("depthwise_conv2d(C=5,H=6,W=7,R=3,S=3,stride=2,pad=1,const=1)", {"r"});
}

TEST(TrimPadding, KeepsBatchesOfAnySize) {
  const std::string text = "conv2d(N=1..3,C=2,H=4,W=5,O=3,R=3,S=3,pad=1,const=1)";
  Result<Kernel> after = Trim(Parsed(text), {"r", "s"});
  ASSERT_TRUE(after) << after.error().Text();
  for (int64_t n : {1, 2, 3}) {
    Kernel before_n = Parsed(text), after_n = *after;
    for (Kernel* kernel : {&before_n, &after_n})
      for (Size& size : kernel->sizes)
        if (size.lo != size.hi) size.lo = size.hi = n;
    ExpectSameFunction(before_n, after_n);
  }
}

TEST(TrimPadding, SumsWeightsOverWhatNoConditionDependsOn) {
  const Kernel kernel = *Trim(Specialize(Parsed("conv2d(C=6,H=5,W=7,O=4,R=3,S=3,pad=1,const=1)+bias")), {"r"});
  const Stage& weights = StageOf(kernel, "whole_weights");
  EXPECT_THAT(AxisNames(weights.axes), ElementsAre("o", "r"));
  EXPECT_THAT(AxisNames(weights.reduce_axes), ElementsAre("c", "s"));
  const Stage& edges = StageOf(kernel, "whole_edges");
  EXPECT_THAT(AxisNames(edges.axes), ElementsAre("o", "h"));
  EXPECT_THAT(AxisNames(edges.reduce_axes), ElementsAre("r"));
  EXPECT_EQ(StageOf(kernel, "t").body.op(), Op::kSelect);
}

TEST(TrimPadding, RefusesWhatIsNoWindowOverPadding) {
  auto refusal = [](const std::string& text, const std::vector<std::string>& axes) {
    return RefusalOf(Trim(Specialize(Parsed(text)), axes));
  };
  const std::string conv = "conv2d(C=6,H=5,W=7,O=4,R=3,S=3,pad=1,const=1)";
  EXPECT_THAT(refusal(conv, {}), HasSubstr("trim_padding takes a padded tensor"));
  EXPECT_THAT(refusal(conv, {"r", "r"}), HasSubstr("t does not reduce r, or it is named twice"));
  EXPECT_THAT(refusal(conv, {"h"}), HasSubstr("t does not reduce h"));
  EXPECT_THAT(refusal("conv2d(C=6,H=5,W=7,O=4,R=3,S=3,pad=1)", {"r"}),
              HasSubstr("no sum over the product of xp with a constant"));
  EXPECT_THAT(refusal("maxpool2d(C=3,H=6,W=6,R=2,S=2,pad=1)", {"r"}), HasSubstr("no sum of products"));
  EXPECT_THAT(refusal(R"(kernel k(x: f32[N], const w: f32[R, S]) -> y: f32[N] where N=9, R=3, S=2 {
    xp: f32[N + 4]
    xp[n] = pad(x[n - 2], 0)
    y[n] = sum(r, s) xp[n + r + s] * w[r, s]
  })",
                      {"r"}),
              HasSubstr("s moves along dimension 0 of x, too"));
  EXPECT_THAT(refusal(R"(kernel k(x: f32[N], const w: f32[R]) -> y: f32[N] where N=9, R=3 {
    xp: f32[N + 4]
    xp[n] = pad(x[n - 2], 1)
    y[n] = sum(r) xp[n + r] * w[r]
  })",
                      {"r"}),
              HasSubstr("xp is not padded with zeros"));
  EXPECT_THAT(refusal(R"(kernel k(x: f32[N], const w: f32[R, K]) -> y: f32[N] where N=9, R=3, K=2 {
    xp: f32[N + 4]
    xp[n] = pad(x[n - 2], 0)
    y[n] = sum(r, k) xp[n + r] * w[r, k]
  })",
                      {"k"}),
              HasSubstr("k does not move over xp"));
  Kernel kernel = Specialize(Parsed(conv));
  kernel = *CacheWrite(kernel, FindStage(kernel, SumOf(kernel)), "t");
  const StageId acc = FindStage(kernel, "t");
  EXPECT_THAT(RefusalOf(TrimPadding(kernel, acc, "xp", "y", {"r"})), HasSubstr("the name y is taken"));
}

}  // namespace
}  // namespace hone::trim_padding_test
