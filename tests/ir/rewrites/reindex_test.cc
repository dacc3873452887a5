// Windows through copies, and clamps as borders and insides: the kernel's function stays, at every border.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ir/graph/affine.h"
#include "tests/support/rewrites.h"
#include "tests/support/same_function.h"

namespace hone {
namespace {

Kernel Reindexed(const std::string& text, const std::string& tensor = "x", StageId stage = StageId(0)) {
  SCOPED_TRACE(text);
  const Kernel before = Parsed(text);
  Result<Kernel> after = RewriteStage(before, "reindex", stage, {tensor, "copy"});
  EXPECT_TRUE(after) << after.error().message;
  if (!after) return {};
  ExpectSameFunction(before, *after);
  return *std::move(after);
}

// Whether a stage indexes a tensor by sums of axes alone.
bool ReadsBySums(const Kernel& kernel, const Stage& stage, const std::string& tensor) {
  bool by_sums = true;
  Walk(stage.body, [&](const Expr& e) {
    if (e.op() != Op::kLoad || kernel.tensors[e.tensor()].name != tensor) return;
    for (const Expr& index : e.args()) by_sums &= AffineIndex(kernel, index).has_value();
  });
  return by_sums;
}

std::string ReindexRefusal(const std::string& text, const std::string& tensor = "x", const std::string& name = "copy") {
  Result<Kernel> after = RewriteStage(Parsed(text), "reindex", StageId(0), {tensor, name});
  return after ? "" : after.error().message;
}

TEST(Reindex, WindowsOverBordersThatRepeat) {
  const Kernel box = Reindexed(R"(kernel box(x: f32[H, W]) -> y: f32[H, W] where H=7, W=9 {
    y[i, j] = sum(r < 5, s < 3) x[clamp(i + r - 2, 0, H - 1), clamp(j + s - 1, 0, W - 1)]
  })");
  ASSERT_EQ(box.stages.size(), 2u);
  EXPECT_TRUE(ReadsBySums(box, box.stages[StageId(1)], "copy"));
  EXPECT_EQ(StaticShape(box, box.tensors.back()), (std::vector<int64_t>{11, 11}));
}

TEST(Reindex, OtherFunctionsOfASum) {
  // Wrapped around, mirrored, scaled up; with strides, downwards, and with a dimension that stays as it is.
  Reindexed("kernel k(x: f32[N]) -> y: f32[N] where N=11 { y[i] = sum(r < 4) x[(i + r) % N] * float(r) }");
  Reindexed("kernel k(x: f32[N]) -> y: f32[N] where N=11 { y[i] = sum(r < 3) x[max(abs(i + r - 1) - 1, 0)] }");
  Reindexed(R"(kernel k(x: f32[N]) -> y: f32[N] where N=11 {
    y[i] = sum(r < 5) x[N - 1 - abs(N - 1 - abs(i + r - 2))] * float(r)
  })");
  Reindexed("kernel k(x: f32[N]) -> y: f32[2*N] where N=6 { y[i] = sum(r < 3) x[clamp(i + r - 1, 0, 2*N - 1) / 2] }");
  Reindexed("kernel k(x: f32[N]) -> y: f32[5] where N=11 { y[i] = max(r < 4) x[clamp(3*i - 2*r + 1, 0, N - 1)] }");
  Reindexed(R"(kernel k(x: f32[C, N], w: f32[C, R]) -> y: f32[C, N] where C=3, N=8, R=5 {
    y[c, i] = sum(r) x[c, clamp(i + r - 2, 0, N - 1)] * w[c, r]
  })");
}

TEST(Reindex, LoadsThatDifferByConstantsShareTheCopy) {
  const Kernel kernel = Reindexed(R"(kernel k(x: f32[N]) -> y: f32[8] where N=10 {
    y[i] = sum(r < 2) x[clamp(i + r - 3, 0, N - 1)] * x[clamp(i + r + 2, 0, N - 1)] * x[i + r]
  })");
  ASSERT_EQ(kernel.stages.size(), 2u) << PrintKernel(kernel);
  // From i + r − 3 = −3 to i + r + 2 = 10; what is read by a sum is read where it lies.
  EXPECT_EQ(StaticShape(kernel, kernel.tensors.back()), std::vector<int64_t>{14});
  EXPECT_TRUE(ReadsTensor(kernel.stages[StageId(1)], FindTensor(kernel, "x")));
}

TEST(Reindex, RefusesWithTheReason) {
  EXPECT_EQ(ReindexRefusal("kernel k(x: f32[N]) -> y: f32[4] where N=9 { y[i] = sum(r < 3) x[i + r] }"),
            "y reads x by nothing but sums of axes");
  EXPECT_EQ(ReindexRefusal(R"(kernel k(x: f32[N]) -> y: f32[N] where N=9 {
    y[i] = sum(r < 3) x[clamp(i + r, 0, N - 1)] * x[(i + r) % N]
  })"),
            "y reads x in more than one way");
  EXPECT_EQ(ReindexRefusal(R"(kernel k(x: f32[N]) -> y: f32[N] where N=9 {
    y[i] = sum(r < 3) x[clamp(i - 2, 0, 4) + clamp(r - 1, 0, 1)]
  })"),
            "an index of x is no function of one sum of axes");
  EXPECT_EQ(ReindexRefusal(R"(kernel k(x: f32[N], p: i32[N]) -> y: f32[N] where N=9 {
    y[i] = sum(r < 3) x[clamp(p[i] + r, 0, N - 1)]
  })"),
            "an index of x is no function of one sum of axes");
  EXPECT_EQ(ReindexRefusal(R"(kernel k(x: f32[N]) -> y: f32[N] where N=1..9 {
    y[i] = sum(r < 3) x[clamp(i + r, 0, N - 1)]
  })"),
            "an index of x is over a size that is a range");
  EXPECT_EQ(ReindexRefusal(R"(kernel k(x: f32[N]) -> y: f32[N] where N=9 {
    y[i] = sum(r < 3) if(i + r < N, x[(i + r) * 2 / 2], 0.0)
  })"),
            "y reads x under a condition");
  EXPECT_EQ(ReindexRefusal("kernel k(x: f32[N]) -> y: f32[N] where N=9 { y[i] = x[i] }", "z"), "there is no tensor z");
  EXPECT_EQ(ReindexRefusal("kernel k(x: f32[N]) -> y: f32[N] where N=9 { y[i] = x[N - 1 - i] }", "x", "y"),
            "the name y is taken");
}

Kernel WithSplitClamps(const std::string& text) {
  SCOPED_TRACE(text);
  const Kernel before = Parsed(text);
  Result<Kernel> after = RewriteStage(before, "split_clamp", StageId(0));
  EXPECT_TRUE(after) << after.error().message;
  if (!after) return {};
  ExpectSameFunction(before, *after);
  return *std::move(after);
}

TEST(SplitClamp, BordersAndInsideAreReadApart) {
  for (const char* text : {
           "kernel k(x: f32[N]) -> y: f32[N] where N=9 { y[i] = x[clamp(i - 2, 0, N - 1)] - x[clamp(i + 3, 0, N - 1)] "
           "}",
           "kernel k(x: f32[M, N]) -> y: f32[M, N] where M=4, N=9 { y[i, j] = x[clamp(i - 1, 0, M - 1), clamp(j + 1, "
           "2, 6)] }",
           "kernel k(x: f32[N]) -> y: f32[N] where N=9 { y[i] = x[min(max(2*i - 4, 1), N - 2)] }",
           "kernel k(x: i8[N]) -> y: i32[N] where N=9 { y[i] = sum(r < 3) i32(x[clamp(i + r, 0, N - 1)]) }",
       }) {
    const Kernel kernel = WithSplitClamps(text);
    ASSERT_EQ(kernel.stages.size(), 1u);
    EXPECT_TRUE(kernel.stages.front().body.Has(Op::kPad)) << text;
  }
}

TEST(SplitClamp, SizesMayBeRanges) {
  Result<Kernel> after =
      RewriteStage(Parsed("kernel k(x: f32[N]) -> y: f32[N] where N=3..9 { y[i] = x[clamp(i - 1, 0, N - 1)] }"),
                   "split_clamp", StageId(0));
  ASSERT_TRUE(after) << after.error().message;
  Result<void> verified = VerifyKernel(*after);
  EXPECT_TRUE(verified) << verified.error().Text();
}

// With the upper bound below the lower one, what is outermost decides.
TEST(SplitClamp, BoundsInTheWrongOrderAreLeftAlone) {
  Reindexed("kernel k(x: f32[W]) -> y: f32[W] where W=2 { y[j] = max(s < 3) x[clamp(2*j - s, 1, W - 2)] }");
  for (const char* text : {"kernel k(x: f32[W]) -> y: f32[W] where W=2 { y[j] = x[clamp(2*j - 1, 1, W - 2)] }",
                           "kernel k(x: f32[W]) -> y: f32[W] where W=2 { y[j] = x[min(max(2*j - 1, 1), W - 2)] }"})
    EXPECT_FALSE(RewriteStage(Parsed(text), "split_clamp", StageId(0), {})) << text;
}

TEST(SplitClamp, LeavesWhatIsNoClampBetweenFixedBounds) {
  for (const char* text : {
           "kernel k(x: f32[N]) -> y: f32[N] where N=9 { y[i] = x[max(i - 1, 0)] }",
           "kernel k(x: f32[N], p: i32[N]) -> y: f32[N] where N=9 { y[i] = x[clamp(p[i], 0, N - 1)] }",
           "kernel k(x: f32[N]) -> y: f32[N, N] where N=9 { y[i, j] = x[max(min(i + 2, j), 0)] }",
       }) {
    Result<Kernel> after = RewriteStage(Parsed(text), "split_clamp", StageId(0));
    ASSERT_FALSE(after) << text;
    EXPECT_EQ(after.error().message, "no last index of what it reads is a clamp between fixed bounds");
  }
}

}  // namespace
}  // namespace hone
