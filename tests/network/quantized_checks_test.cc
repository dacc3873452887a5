// What says how right a quantised network is: its kernels held against the definition, layer beside layer of the
// network that it was made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "network/graph/evaluate_network.h"
#include "network/graph/quantization.h"
#include "network/run/compare_layers.h"
#include "network/run/follow_network.h"
#include "tests/network/plan_interpreter.h"
#include "tests/network/quantized_model.h"

namespace hone::quantized_checks_test {
namespace {

// ---- following kernels by definition

TEST(Following, SeesAWrongStepAndTakesATie) {
  ModelFileBuilder file(13);
  file.Input("x", {3}).Scalar("s", 1).Node("QuantizeLinear", {"x", "s"}, {"q"}).Output("q", {}, kUint8);
  Result<Network> network = ImportedQuantized(file);
  ASSERT_TRUE(network);
  Graph& graph = network->graph;
  Numbers x = MakeNumbers(DType::kF32, {3}), seen = MakeNumbers(DType::kU8, {3});
  x.real = {0.5, 3.2, 7};
  seen.whole = {1, 3, 7};  // 0 and 1 are as near
  const ValueId output = graph.outputs[0];
  Result<Followed> tie = FollowNetwork(graph, {x}, {{output, seen}}, 1e-6);
  ASSERT_TRUE(tie);
  EXPECT_FALSE(tie->failure) << tie->failure->Text();
  EXPECT_EQ(tie->ties, 1U);
  EXPECT_EQ(tie->quantized, 3U);
  for (size_t wrong : {1U, 2U}) {
    Numbers other = seen;
    ++other.whole[wrong];
    EXPECT_TRUE(FollowNetwork(graph, {x}, {{output, other}}, 1e-6)->failure);
  }
}

TEST(Following, HoldsNarrowFloatsToTheirOwnRounding) {
  ModelFileBuilder file(13);
  constexpr int kHalf = 10;
  file.Input("x", {2}, kHalf).Node("Exp", {"x"}, {"y"}).Output("y", {}, kHalf);
  Result<Network> network = ImportedQuantized(file);
  ASSERT_TRUE(network);
  Numbers x = MakeNumbers(DType::kF16, {2}), seen = x;
  seen.real = {1, 1.0009765625};
  const ValueId output = network->graph.outputs[0];
  EXPECT_FALSE(FollowNetwork(network->graph, {x}, {{output, seen}}, 1e-6)->failure);
  seen.real[1] = 1.0029296875;
  EXPECT_TRUE(FollowNetwork(network->graph, {x}, {{output, seen}}, 1e-6)->failure);
}

// Kernels that quantise what a padded convolution reads write it with its padding.
TEST(Following, FindsWhatIsSurrounded) {
  Graph graph;
  const ValueId x = graph.AddInput("x", {DType::kU8, {2, 2, 3}}), zero = graph.AddInput("zero", {DType::kU8, {1}});
  Builder build(graph, "node");
  const ValueId around = Surround(build, x, {1, 0, 2, 3}, zero).value();
  EXPECT_EQ(graph.shape(around), (Shape{2, 5, 6}));
  graph.outputs = {around};
  Numbers elements = MakeNumbers(DType::kU8, {2, 2, 3}), nine = MakeNumbers(DType::kU8, {1});
  for (size_t i = 0; i < elements.whole.size(); ++i) elements.whole[i] = static_cast<int64_t>(10 + i);
  nine.whole[0] = 9;
  const Numbers seen = EvaluateNetwork(graph, {elements, nine}).value()[0];
  EXPECT_THAT(std::vector<int64_t>(seen.whole.begin(), seen.whole.begin() + 12),
              testing::ElementsAre(9, 9, 9, 9, 9, 9, 10, 11, 12, 9, 9, 9));
  const std::optional<Node> inner = FindSurrounded(graph, around);
  ASSERT_TRUE(inner);
  EXPECT_EQ(inner->output, x);
  const Numbers* whole = &seen;
  EXPECT_EQ(Evaluate(*inner, std::span(&whole, 1), {DType::kU8, {2, 2, 3}})->whole, elements.whole);
  EXPECT_FALSE(FindSurrounded(graph, x));
  // Nor is what anybody else selects from a padded tensor.
  const Node select = graph.nodes[graph.values[around].producer];
  const ValueId never = build.Constant(MakeNumbers(DType::kBool, {5, 6}));
  EXPECT_FALSE(FindSurrounded(graph, build.Select(never, select.inputs[1], select.inputs[2]).value()));
}

// ---- layers beside those of the network before it was quantised

// Four layers, the weights of one of which may be wrong.
ModelFileBuilder Layers(bool is_quantized, int wrong) {
  Model model;
  std::string x = "x";
  model.file.Input("x", {2, 16});
  for (int layer = 0; layer < 4; ++layer) {
    const std::string w = "w" + std::to_string(layer), y = "y" + std::to_string(layer);
    model.Weight(w, {{16, 16}, kInt8}, 1);
    std::string weight = w;
    if (layer == wrong) {
      model.file.Node("Neg", {w}, {w + "_wrong"});
      weight += "_wrong";
    }
    if (is_quantized) {
      model.Quantized(x, layer == 0 ? 1.0F / 32 : 3 * std::pow(57.0F, static_cast<float>(layer - 1)), 128);
      model.file.Node("DequantizeLinear", {x + "_q", x + "_s", x + "_z"}, {x + "_d"});
      x += "_d";
    }
    model.file.Node("MatMul", {x, weight}, {y});
    x = y;
  }
  model.file.Output(x);
  return std::move(model.file);
}

TEST(Layers, TheOneWithAFaultIsFound) {
  Result<Network> exact = ImportedQuantized(Layers(false, -1));
  ASSERT_TRUE(exact);
  const ValueNumbers inputs = RandomInputs(exact->graph, 3);
  const std::vector<Numbers> data = {inputs.at(exact->graph.inputs[0])};
  for (int wrong : {-1, 0, 2, 3}) {
    SCOPED_TRACE(wrong);
    Result<Network> quantized = ImportedQuantized(Layers(true, wrong));
    ASSERT_TRUE(quantized) << quantized.error().Text();
    Result<std::vector<LayerError>> layers = CompareLayers(quantized->graph, exact->graph, data);
    ASSERT_TRUE(layers) << layers.error().Text();
    EXPECT_EQ(layers->size(), 4U);
    const std::optional<LayerError> first = FirstAbove(*layers, 0.1);
    EXPECT_EQ(first ? first->name : "", wrong < 0 ? "" : "y" + std::to_string(wrong));
    if (first) { EXPECT_EQ(Losses(*layers).back().name, first->name); }
  }
}

// onnxruntime's tools leave out a relu that quantising does as well, and give its name to what comes before.
TEST(Layers, AreComparedAsTheyAreQuantized) {
  ModelFileBuilder exact(13);
  exact.Input("x", {64}).Node("Relu", {"x"}, {"y"}).Node("Neg", {"y"}, {"n"}).Output("n");
  Model model;
  model.file.Input("x", {64}).Node("Identity", {"x"}, {"c"}).Node("Add", {"c", "zero"}, {"y"}).Scalar("zero", 0);
  model.Quantized("y", 1.0F / 64, 0).file.Node("DequantizeLinear", {"y_q", "y_s", "y_z"}, {"d"});
  model.file.Node("Neg", {"d"}, {"n"}).Output("n");
  Result<Network> plain = ImportedQuantized(exact), network = ImportedQuantized(model.file);
  ASSERT_TRUE(plain && network) << network.error().Text();
  Result<std::vector<LayerError>> layers =
      CompareLayers(network->graph, plain->graph, {RandomInputs(plain->graph, 3).begin()->second});
  ASSERT_TRUE(layers) << layers.error().Text();
  EXPECT_FALSE(FirstAbove(*layers, 0.1)) << FirstAbove(*layers, 0.1)->name;
}

TEST(Layers, OfOtherInputsAreNotCompared) {
  ModelFileBuilder other(13);
  other.Input("z", {2, 16}).Node("Relu", {"z"}, {"y"}).Output("y");
  Result<Network> exact = ImportedQuantized(Layers(false, -1)), network = ImportedQuantized(other);
  ASSERT_TRUE(exact && network);
  Result<std::vector<LayerError>> layers =
      CompareLayers(network->graph, exact->graph, {RandomInputs(exact->graph, 3).begin()->second});
  ASSERT_FALSE(layers);
  EXPECT_EQ(layers.error().where, "input z");
}

}  // namespace
}  // namespace hone::quantized_checks_test
