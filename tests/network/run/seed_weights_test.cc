// Values for weights that a file lacks.
#include "network/run/seed_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "network/run/check_network.h"
#include "tests/network/model_files.h"

namespace hone::seed_weights_test {
namespace {

// A convolution, a normalisation, a product and a table without values.
Network Structure() {
  ModelFileBuilder builder;
  builder.Input("ids", {2, 4}, 7)
      .Input("table", {50, 16})
      .Input("gamma", {16})
      .Input("beta", {16})
      .Input("w", {16, 32});
  builder.Input("conv", {8, 2, 3, 3}).Wholes("image", {2, 2, 8, 8}).Wholes("rows", {8, 16});
  builder.Node("Gather", {"table", "ids"}, {"e"})
      .Node("Reshape", {"e", "rows"}, {"r"})
      .Node("LayerNormalization", {"r", "gamma", "beta"}, {"n"})
      .Node("MatMul", {"n", "w"}, {"m"})
      .Node("Reshape", {"m", "image"}, {"i"})
      .Node("Conv", {"i", "conv"}, {"y"})
      .Output("y");
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"m.onnx", ""});
  EXPECT_TRUE(model);
  Result<Network> network = BuildNetwork(*model, "m.onnx", {});
  EXPECT_TRUE(network) << network.error().Text();
  return *std::move(network);
}

Numbers WeightOf(const Network& network, const std::string& name) {
  for (ValueId weight : network.weights) {
    const GraphValue& value = network.graph.values[weight];
    if (value.name == name) return ToNumbers(*value.data);
  }
  ADD_FAILURE() << name;
  return {};
}

// Boxes that a suppression chose are looked up, too, and are data all the same: they are read elsewhere.
TEST(SeedWeights, ATableThatIsReadOtherwiseIsData) {
  ModelFileBuilder builder;
  builder.Input("ids", {2, 4}, 7).Input("boxes", {50, 4}).Input("scores", {50});
  builder.Node("Gather", {"boxes", "ids"}, {"chosen"})
      .Node("Neg", {"boxes"}, {"read"})
      .Node("Neg", {"scores"}, {"also"});
  builder.Output("chosen").Output("read").Output("also");
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"m.onnx", ""});
  ASSERT_TRUE(model);
  Result<Network> network = BuildNetwork(*model, "m.onnx", {});
  ASSERT_TRUE(network) << network.error().Text();
  EXPECT_EQ(network->weights.size(), 0U);
  EXPECT_EQ(network->graph.inputs.size(), 3U);
}

TEST(SeedWeights, ScaledByTheFanIn) {
  Network network = Structure();
  ASSERT_EQ(network.weights.size(), 5U);
  SeedWeights(network, 3);
  auto reach = [&](const std::string& name) {
    double most = 0;
    for (double value : WeightOf(network, name).real) most = std::max(most, std::abs(value));
    return most;
  };
  EXPECT_NEAR(reach("w"), std::sqrt(3.0 / 16), 0.02);     // 16 rows are summed
  EXPECT_NEAR(reach("conv"), std::sqrt(3.0 / 18), 0.03);  // 2 channels of 3×3
  EXPECT_NEAR(reach("table"), std::sqrt(3.0), 0.03);
  for (double value : WeightOf(network, "gamma").real) EXPECT_NEAR(value, 1, 0.1);
}

TEST(SeedWeights, TheSeedDecides) {
  Network one = Structure(), same = Structure(), other = Structure();
  SeedWeights(one, 3);
  SeedWeights(same, 3);
  SeedWeights(other, 4);
  EXPECT_EQ(WeightOf(one, "w").real, WeightOf(same, "w").real);
  EXPECT_NE(WeightOf(one, "w").real, WeightOf(other, "w").real);
  // Large weights have no part in common.
  EXPECT_NE(WeightOf(one, "w").real[0], WeightOf(one, "conv").real[0]);
}

// Indices are in the table, from its first row to its last.
TEST(SeedWeights, DataIndexWhatIsThere) {
  Network network = Structure();
  SeedWeights(network, 3);
  int64_t most = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<Numbers> data = RandomData(network.graph, seed);
    for (int64_t index : data[0].whole) {
      EXPECT_GE(index, 0);
      EXPECT_LT(index, 50);
      most = std::max(most, index);
    }
    if (seed == 0) {
      Result<std::vector<Numbers>> outputs = EvaluateNetwork(network.graph, data);
      ASSERT_TRUE(outputs) << outputs.error().Text();
      EXPECT_EQ((*outputs)[0].shape, (Shape{2, 8, 6, 6}));
    }
  }
  EXPECT_GT(most, 40);
}

}  // namespace
}  // namespace hone::seed_weights_test
