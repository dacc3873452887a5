// What makes products of matrices of convolutions, and lets threads divide sums: flatten_axes, split_reduction, and
// rfactor with lanes of several elements.
#include <gtest/gtest.h>

#include <string>

#include "ir/graph/stage_graph.h"
#include "ir/rewrites/rfactor.h"
#include "tests/support/rewrites.h"
#include "tests/support/same_function.h"

namespace hone::divided_sums_test {
namespace {

// A convolution as a product of two matrices: its columns find their image's rows and columns by division.
TEST(FlattenAxes, ColumnsOfAnImageBecomeAMatrix) {
  const Kernel before = Parsed("conv2d(C=4,H=6,W=5,O=3,R=3,S=2,stride=2,pad=1)+bias");
  Kernel after = Kept(before, Im2col(before, FindStage(before, "acc"), "xp", "cols", {"n", "c", "r", "s", "h", "w0"}));
  after = Kept(before, FlattenAxes(after, FindStage(after, "acc"), {"c", "r", "s"}));
  after = Kept(before, FlattenAxes(after, FindStage(after, "y"), {"h", "w0"}));
  EXPECT_EQ(StageOf(after, "cols").axes.size(), 3u);
  EXPECT_EQ(StageOf(after, "acc").reduce_axes.size(), 1u);
  EXPECT_EQ(StageOf(after, "y").axes.size(), 3u);
}

// What a kernel takes and gives is not computed by division: there fuse_axes and flatten_axes are the same.
TEST(FlattenAxes, IsForIntermediates) {
  const Kernel kernel =
      Parsed("kernel k(x: f32[M, N], v: f32[N]) -> y: f32[M, N] where M=5, N=7 { y[m, n] = x[m, n] + v[n] }");
  EXPECT_EQ(RefusalOf(FlattenAxes(kernel, StageId(0), {"m", "n"})), "fuse_axes: an access needs the dimensions apart");
}

TEST(SplitReduction, TakesTermsInRuns) {
  const Kernel before = Parsed("matmul(M=7,N=5,K=24)");
  const Kernel after = Kept(before, SplitReduction(before, StageId(0), "k", 8));
  const Stage& sum = StageOf(after, "y");
  ASSERT_EQ(sum.reduce_axes.size(), 2u);
  EXPECT_EQ(UpperExtent(after, sum.reduce_axes[0].extent), 3);
  EXPECT_EQ(UpperExtent(after, sum.reduce_axes[1].extent), 8);
  Kept(before, Rfactor(after, StageId(0), "k", 2, "parts"));
  EXPECT_EQ(RefusalOf(SplitReduction(before, StageId(0), "k", 7)), "k is no multiple of 7");
  EXPECT_EQ(RefusalOf(SplitReduction(before, StageId(0), "m", 1)), "y does not reduce over m");
}

// Lanes of several elements side by side, whether or not they divide the axis.
TEST(RfactorOf, LanesMayTakeSeveralElementsAtAStep) {
  for (int width : {2, 4}) {
    for (int k : {1, 3, 8, 12, 31, 64}) {
      const Kernel before = Parsed("matmul(M=3,N=5,K=" + std::to_string(k) + ")");
      Kernel after = Kept(before, Rfactor(before, StageId(0), "k", 8, "part", width));
      const Stage part = StageOf(after, "part");
      EXPECT_EQ(EvalExtent(after, part.axes.back().extent), 8);
      ASSERT_EQ(part.reduce_axes.size(), 2u);
      EXPECT_EQ(EvalExtent(after, part.reduce_axes[0].extent), (k + 8 * width - 1) / (8 * width));
      EXPECT_EQ(EvalExtent(after, part.reduce_axes[1].extent), width);
      EXPECT_EQ(StageOf(after, "y").reduce_axes.size(), 1u);
    }
  }
}

}  // namespace
}  // namespace hone::divided_sums_test
