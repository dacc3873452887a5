// What a model lacks is told by cause: operators with their counts, and what depends on them.
#include "network/run/missing_operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/network/model_files.h"

namespace hone::missing_operators_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Taken {
  OnnxModel file;
  Network network;
};

Taken Take(const ModelFileBuilder& builder) {
  Taken taken;
  taken.file = *ParseOnnx(builder.Bytes(), {"some.onnx", ""});
  Result<Network> network = BuildNetwork(taken.file, "some.onnx", {});
  EXPECT_TRUE(network) << network.error().Text();
  taken.network = *std::move(network);
  return taken;
}

TEST(Complete, NothingIsMissing) {
  ModelFileBuilder builder;
  builder.Input("x", {4}).Node("Relu", {"x"}, {"y"}).Output("y");
  Taken taken = Take(builder);
  EXPECT_TRUE(MissingOf(taken.network).empty());
  EXPECT_TRUE(CheckComplete(taken.network, "some.onnx"));
}

// Two of one kind, one of another; what reads them has no cause of its own, whether the file says its shape or not.
TEST(Complete, CausesNotConsequences) {
  ModelFileBuilder builder;
  builder.Input("x", {4})
      .Node("Fancy", {"x"}, {"a"}, {}, "com.example")
      .Node("Relu", {"a"}, {"b"})
      .Node("Fancy", {"b"}, {"c"}, {}, "com.example")
      .Node("Exp", {"c"}, {"d"})
      .Node("Scaler", {"x"}, {"e"}, {}, "ai.onnx.ml")
      .Node("Add", {"d", "e"}, {"f"})
      .Node("Neg", {"x"}, {"g"})
      .Output("f")
      .Output("g");
  Taken taken = Take(builder);
  std::vector<Missing> missing = MissingOf(taken.network);
  ASSERT_EQ(missing.size(), 2u);
  EXPECT_EQ(missing[0].op, "com.example.Fancy");
  EXPECT_THAT(missing[0].nodes, ElementsAre("n_a", "n_c"));
  EXPECT_EQ(CountDependents(taken.file, missing[0].nodes), 3u);  // b, d, f; not c, which is missing itself
  EXPECT_EQ(missing[1].op, "ai.onnx.ml.Scaler");
  EXPECT_THAT(missing[1].nodes, ElementsAre("n_e"));
  EXPECT_EQ(CountDependents(taken.file, missing[1].nodes), 1u);

  Result<void> complete = CheckComplete(taken.network, "some.onnx");
  ASSERT_FALSE(complete);
  EXPECT_EQ(complete.error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(complete.error().where, "some.onnx");
  EXPECT_THAT(complete.error().message, HasSubstr("com.example.Fancy ×2: no operator that hone knows (node n_a)"));
  EXPECT_THAT(complete.error().message, HasSubstr("ai.onnx.ml.Scaler: hone runs networks of tensors"));
  EXPECT_THAT(complete.error().message, Not(HasSubstr("left out")));
}

}  // namespace
}  // namespace hone::missing_operators_test
