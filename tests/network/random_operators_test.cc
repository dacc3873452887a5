// Operators that draw numbers: other ones every time, from the distribution that is asked for, and checks go on with
// what was drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "network/graph/evaluate_network.h"
#include "network/onnx/import_network.h"
#include "network/onnx/onnx_model.h"
#include "network/run/follow_network.h"
#include "tests/network/model_files.h"

namespace hone::random_operators_test {
namespace {

using testing::Contains;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::Lt;
using testing::Not;

Network Imported(const ModelFileBuilder& builder) {
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"random.onnx", ""});
  EXPECT_TRUE(model) << model.error().Text();
  Result<Network> network = BuildNetwork(*model, "random.onnx", {});
  EXPECT_TRUE(network) << network.error().Text();
  return *std::move(network);
}

Numbers Reals(Shape shape, double value) {
  Numbers numbers = MakeNumbers(DType::kF32, std::move(shape));
  for (double& each : numbers.real) each = value;
  return numbers;
}

std::vector<double> Drawn(Network& network, const std::vector<Numbers>& inputs) {
  Result<std::vector<Numbers>> outputs = EvaluateNetwork(network.graph, inputs);
  EXPECT_TRUE(outputs) << outputs.error().Text();
  const Numbers& y = outputs->front();
  return y.is_real() ? y.real : std::vector<double>(y.whole.begin(), y.whole.end());
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

ModelFileBuilder Normal(const std::vector<ModelFileBuilder::Attribute>& more = {}) {
  std::vector<ModelFileBuilder::Attribute> attributes = {{"mean", 3.0F}, {"scale", 2.0F}};
  attributes.insert(attributes.end(), more.begin(), more.end());
  ModelFileBuilder builder;
  builder.Input("x", {100, 100}).Node("RandomNormalLike", {"x"}, {"y"}, attributes).Output("y");
  return builder;
}

// Reads nothing.
ModelFileBuilder Uniform() {
  ModelFileBuilder builder;
  const ModelFileBuilder::Attribute shape = {"shape", std::vector<int64_t>{10000}};
  builder.Input("x", {1}).Node("RandomUniform", {}, {"u"}, {shape, {"low", 5.0F}, {"high", 7.0F}});
  builder.Node("Add", {"u", "x"}, {"y"}).Output("y");
  return builder;
}

TEST(RandomOperators, DrawFromTheirDistribution) {
  Network normal = Imported(Normal());
  const std::vector<double> drawn = Drawn(normal, {Reals({100, 100}, 0)});
  EXPECT_NEAR(Mean(drawn), 3, 0.2);  // ten of the mean's deviations
  double squares = 0;
  for (double each : drawn) squares += (each - 3) * (each - 3);
  EXPECT_NEAR(squares / static_cast<double>(drawn.size()), 4, 0.6);

  Network flat = Imported(Uniform());
  EXPECT_THAT(Drawn(flat, {Reals({1}, 0)}),
              testing::AllOf(Each(Ge(5)), Each(Lt(7)), Contains(Lt(5.1)), Contains(Ge(6.9))));
}

TEST(RandomOperators, DrawOthersEveryTime) {
  Network network = Imported(Normal());
  const std::vector<double> first = Drawn(network, {Reals({100, 100}, 0)});
  EXPECT_NE(first, Drawn(network, {Reals({100, 100}, 0)}));
  Network other = Imported(Normal());
  EXPECT_NE(first, Drawn(other, {Reals({100, 100}, 0)}));
  Network uniform = Imported(Uniform());
  EXPECT_NE(Drawn(uniform, {Reals({1}, 0)}), Drawn(uniform, {Reals({1}, 0)}));
}

TEST(RandomOperators, ASeedSaysWhatIsDrawn) {
  Network one = Imported(Normal({{"seed", 7.0F}})), two = Imported(Normal({{"seed", 7.0F}}));
  const std::vector<double> first = Drawn(one, {Reals({100, 100}, 0)});
  EXPECT_EQ(first, Drawn(two, {Reals({100, 100}, 0)}));
  EXPECT_NE(first, Drawn(one, {Reals({100, 100}, 0)}));
  Network other = Imported(Normal({{"seed", 8.0F}}));
  EXPECT_NE(first, Drawn(other, {Reals({100, 100}, 0)}));
}

TEST(RandomOperators, WhatTrainingLeftInAModelIsRefused) {
  for (const char* op : {"Bernoulli", "RandomUniformLike"}) {
    ModelFileBuilder builder;
    builder.Input("x", {10}).Node("Relu", {"x"}, {"r"}).Node(op, {"r"}, {"y"}).Output("y");
    Network network = Imported(builder);
    ASSERT_EQ(network.left_out.size(), 1U) << op;
    EXPECT_THAT(network.left_out[0].reason, HasSubstr("export it in evaluation mode"));
  }
}

TEST(RandomOperators, MultinomialTakesClassesByTheirShare) {
  ModelFileBuilder builder;
  builder.Input("x", {1, 4})
      .Node("Multinomial", {"x"}, {"y"}, {{"sample_size", int64_t{10000}}})
      .Output("y", {1, 10000}, 6);
  Network network = Imported(builder);
  Numbers logs = MakeNumbers(DType::kF32, {1, 4});
  logs.real = {std::log(1.0), -INFINITY, std::log(3.0), -INFINITY};
  const std::vector<double> drawn = Drawn(network, {logs});
  EXPECT_THAT(drawn, testing::AllOf(Not(Contains(1)), Not(Contains(3))));
  EXPECT_NEAR(Mean(drawn), 1.5, 0.1);
}

TEST(RandomOperators, TheDefinitionGoesOnWithWhatWasDrawn) {
  ModelFileBuilder builder = Normal();
  builder.Node("Neg", {"y"}, {"z"}).Output("z");
  Network network = Imported(builder);
  const ValueId y = network.graph.outputs[0];
  ASSERT_TRUE(IsFollowed(network.graph, y));
  const Numbers seen = Reals({100, 100}, 42);
  const Result<Followed> followed = FollowNetwork(network.graph, {Reals({100, 100}, 0)}, {{y, seen}}, 1e-6);
  ASSERT_TRUE(followed);
  EXPECT_FALSE(followed->failure);
  EXPECT_THAT(followed->outputs[1].real, Each(-42));
}

TEST(RandomOperators, WholeRandomNumbersAreRefused) {
  ModelFileBuilder builder;
  builder.Input("x", {2}, 7).Node("RandomNormalLike", {"x"}, {"y"}).Output("y", {2}, 7);
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"random.onnx", ""});
  ASSERT_TRUE(model);
  Result<Network> network = BuildNetwork(*model, "random.onnx", {});
  ASSERT_FALSE(network);
  EXPECT_THAT(network.error().Text(), HasSubstr("random numbers of i64"));
}

}  // namespace
}  // namespace hone::random_operators_test
