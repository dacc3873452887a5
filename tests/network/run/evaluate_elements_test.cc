// Values in their own types, moved where nodes only move them, are what numbers throughout give.
#include "network/run/evaluate_elements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "network/graph/evaluate_network.h"
#include "network/onnx/import_network.h"
#include "tests/network/model_files.h"
#include "tests/network/run/plain_program.h"

namespace hone::evaluate_elements_test {
namespace {

using plain_program::Reals;
using plain_program::Wholes;
using testing::ElementsAre;

Network NetworkOf(const ModelFileBuilder& builder) {
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"elements.onnx", ""});
  EXPECT_TRUE(model) << (model ? "" : model.error().Text());
  ImportOptions options;
  for (const OnnxValue& input : model->inputs) options.data.insert(input.name);
  Result<Network> network = BuildNetwork(*model, "elements.onnx", options);
  EXPECT_TRUE(network) << (network ? "" : network.error().Text());
  return *std::move(network);
}

std::vector<Numbers> ByElements(Graph& graph, const std::vector<HostTensor>& inputs) {
  std::vector<TensorView> views;
  for (const HostTensor& input : inputs) views.push_back(ViewOf(input));
  Result<Evaluated> evaluated = EvaluateElements(graph, views);
  EXPECT_TRUE(evaluated) << (evaluated ? "" : evaluated.error().Text());
  std::vector<Numbers> outputs;
  if (evaluated)
    for (const TensorView& view : evaluated->outputs) outputs.push_back(ToNumbers(view));
  return outputs;
}

// A network of what moves 4x6 tensors, computes with them, and with whole numbers; all its values small and whole.
ModelFileBuilder AnyNetwork(Rng& rng) {
  ModelFileBuilder builder;
  builder.Input("x", {4, 6}).Input("n", {4, 6}, 7).Random("c", {4, 6}, 3);
  builder.Wholes("four_six", {4, 6}).Wholes("flat", {24}).Wholes("swapped", {6, 4}).Wholes("tall", {8, 6});
  builder.Wholes("rows", {3, -4, 1, 0}).Wholes("zero", {0}).Wholes("four", {4}).Wholes("lead", {0, 0, 4, 0});
  std::vector<std::string> reals = {"x", "c"}, wholes = {"n"};
  for (int i = 0; i < 12; ++i) {
    const bool is_whole = rng.Chance(0.4);
    std::vector<std::string>& of = is_whole ? wholes : reals;
    const std::string a = of[rng.Below(of.size())], b = of[rng.Below(of.size())], v = "v" + std::to_string(i);
    switch (rng.Below(8)) {
      case 0: builder.Node("Reshape", {a, "flat"}, {v + "f"}).Node("Reshape", {v + "f", "four_six"}, {v}); break;
      case 1: builder.Node("Transpose", {a}, {v + "t"}).Node("Reshape", {v + "t", "four_six"}, {v}); break;
      case 2:
        builder.Node("Concat", {a, b}, {v + "c"}, {{"axis", int64_t{0}}});
        builder.Node("Slice", {v + "c", "zero", "four", "zero"}, {v});
        break;
      case 3: builder.Node("Gather", {a, "rows"}, {v}, {{"axis", int64_t{0}}}); break;
      case 4: builder.Node("Pad", {a, "lead"}, {v + "p"}).Node("Slice", {v + "p", "zero", "four", "zero"}, {v}); break;
      case 5: builder.Node("Sub", {a, b}, {v}); break;
      case 6: builder.Node("Max", {a, b}, {v}); break;
      default:
        builder.Node("Cast", {a}, {v}, {{"to", int64_t{is_whole ? 1 : 7}}});
        (is_whole ? reals : wholes).push_back(v);
        continue;
    }
    of.push_back(v);
  }
  builder.Output(reals.back()).Output(reals[reals.size() / 2]).Output(wholes.back(), {}, 7);
  return builder;
}

TEST(EvaluateElements, GivesWhatNumbersThroughoutGive) {
  Rng rng(11);
  for (int round = 0; round < 300; ++round) {
    Network network = NetworkOf(AnyNetwork(rng));
    std::vector<HostTensor> inputs;
    for (ValueId input : network.graph.inputs) {
      Numbers numbers = MakeNumbers(network.graph.dtype(input), network.graph.shape(input));
      for (double& each : numbers.real) each = static_cast<double>(rng.Below(50)) - 20;
      for (int64_t& each : numbers.whole) each = static_cast<int64_t>(rng.Below(50)) - 20;
      inputs.push_back(ToHost(numbers, numbers.dtype));
    }
    std::vector<Numbers> data;
    for (const HostTensor& input : inputs) data.push_back(ToNumbers(input));
    Result<std::vector<Numbers>> wanted = EvaluateNetwork(network.graph, data);
    ASSERT_TRUE(wanted) << wanted.error().Text();
    const std::vector<Numbers> got = ByElements(network.graph, inputs);
    ASSERT_EQ(got.size(), wanted->size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].shape, (*wanted)[i].shape);
      EXPECT_EQ(got[i].whole, (*wanted)[i].whole) << "round " << round;
      // Constants have fractions: results are rounded to f32 in places.
      ASSERT_EQ(got[i].real.size(), (*wanted)[i].real.size());
      for (size_t k = 0; k < got[i].real.size(); ++k)
        EXPECT_NEAR(got[i].real[k], (*wanted)[i].real[k], 1e-4) << "round " << round;
    }
  }
}

TEST(EvaluateElements, AnotherShapeIsTheSameMemory) {
  ModelFileBuilder builder;
  builder.Input("x", {2, 3}).Wholes("shape", {3, 2}).Node("Reshape", {"x", "shape"}, {"y"}).Output("y");
  Network network = NetworkOf(builder);
  const HostTensor x = Reals({2, 3}, {1, 2, 3, 4, 5, 6});
  Result<Evaluated> evaluated = EvaluateElements(network.graph, {ViewOf(x)});
  ASSERT_TRUE(evaluated) << evaluated.error().Text();
  EXPECT_EQ(evaluated->outputs[0].data, x.data.data());
  EXPECT_EQ(evaluated->outputs[0].shape, (Shape{3, 2}));
}

TEST(EvaluateElements, WhatIsComputedOutlivesTheGraph) {
  ModelFileBuilder builder;
  builder.Input("x", {2}).Wholes("shape", {2, 1}).Random("c", {2});
  builder.Node("Neg", {"x"}, {"y"}).Node("Reshape", {"y", "shape"}, {"tall"}).Node("Identity", {"c"}, {"same"});
  builder.Output("tall").Output("same");
  auto network = std::make_unique<Network>(NetworkOf(builder));
  const HostTensor x = Reals({2}, {1, 2});
  Result<Evaluated> evaluated = EvaluateElements(network->graph, {ViewOf(x)});
  ASSERT_TRUE(evaluated) << evaluated.error().Text();
  network.reset();
  EXPECT_THAT(ToNumbers(evaluated->outputs[0]).real, ElementsAre(-1, -2));
  EXPECT_EQ(ToNumbers(evaluated->outputs[1]).real.size(), 2u);
}

// Callers may have elements anywhere.
TEST(EvaluateElements, ElementsNeedNotBeAligned) {
  ModelFileBuilder builder;
  builder.Input("x", {3}).Node("Concat", {"x", "x"}, {"y"}, {{"axis", int64_t{0}}}).Output("y");
  Network network = NetworkOf(builder);
  const HostTensor x = Reals({3}, {1, 2, 3});
  std::vector<char> bytes(x.data.size() + 1);
  std::memcpy(bytes.data() + 1, x.data.data(), x.data.size());
  Result<Evaluated> evaluated = EvaluateElements(network.graph, {{DType::kF32, {3}, bytes.data() + 1}});
  ASSERT_TRUE(evaluated) << evaluated.error().Text();
  EXPECT_THAT(ToNumbers(evaluated->outputs[0]).real, ElementsAre(1, 2, 3, 1, 2, 3));
}

TEST(EvaluateElements, AnIndexOutsideIsTheNodesError) {
  ModelFileBuilder builder;
  builder.Input("x", {3}).Input("at", {1}, 7).Node("Gather", {"x", "at"}, {"y"}).Output("y");
  Network network = NetworkOf(builder);
  const HostTensor x = Reals({3}, {1, 2, 3}), at = Wholes({1}, {3});
  const Result<Evaluated> evaluated = EvaluateElements(network.graph, {ViewOf(x), ViewOf(at)});
  ASSERT_FALSE(evaluated);
  EXPECT_EQ(evaluated.error().kind, ErrorKind::kInvalid);
  EXPECT_THAT(evaluated.error().where, testing::HasSubstr("n_y"));
}

}  // namespace
}  // namespace hone::evaluate_elements_test
