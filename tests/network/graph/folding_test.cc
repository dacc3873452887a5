// Constants that are computed ahead of time are what the same nodes compute when they run.
#include <gtest/gtest.h>

#include "network/graph/graph_builder.h"

namespace hone::folding_test {
namespace {

// 2^24 + 1 is no f32.
TEST(Folding, OperandsOfF32AreRoundedBeforeTheNextNode) {
  Graph graph;
  Builder build(graph, "n");
  Result<ValueId> product = build.Binary("mul", build.Scalar(16777216.0, DType::kF32), build.Scalar(1.0, DType::kF32));
  ASSERT_TRUE(product);
  Result<ValueId> sum = build.Binary("add", *product, build.Scalar(1.0, DType::kF32));
  ASSERT_TRUE(sum);
  Result<ValueId> difference = build.Binary("sub", *sum, *product);
  ASSERT_TRUE(difference);
  EXPECT_EQ(graph.ScalarOf(*difference), 0.0);
}

}  // namespace
}  // namespace hone::folding_test
