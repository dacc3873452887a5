// Models that somebody made to do harm: numbers beyond all bounds, bodies that never end or cannot run, shapes that
// lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/onnx/import_network.h"
#include "network/run/missing_operators.h"
#include "network/run/program.h"
#include "tests/network/model_files.h"

namespace hone {
namespace {

using testing::HasSubstr;
using Ints = std::vector<int64_t>;

Result<Network> Import(const std::string& bytes) {
  OnnxModel model = HONE_TRY(ParseOnnx(bytes, {"bad.onnx", ""}));
  ImportOptions options;
  options.in_stages = true;
  options.folding_limit = 1 << 16;
  return BuildNetwork(model, "bad.onnx", options);
}

constexpr int64_t kExtremes[] = {INT64_MIN, INT64_MIN + 1, -(int64_t{1} << 31), int64_t{1} << 31, INT64_MAX};

// Each attribute of these operators in turn is beyond all bounds: a word at the node, or a network, which may well be
// right (the end of a slice).
TEST(HostileModels, AttributesBeyondAllBounds) {
  struct Case {
    std::string op;
    std::vector<std::string> inputs;
    std::vector<ModelFileBuilder::Attribute> attributes;
  };
  const std::vector<Case> cases = {
      {"Conv",
       {"x", "w"},
       {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{1, 1}}, {"dilations", Ints{1, 1}}, {"group", 1}}},
      {"ConvTranspose",
       {"x", "w"},
       {{"output_padding", Ints{0, 0}}, {"strides", Ints{1, 1}}, {"pads", Ints{0, 0, 0, 0}}}},
      {"MaxPool", {"x"}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{1, 1}}, {"pads", Ints{0, 0, 0, 0}}}},
      {"LpPool", {"x"}, {{"kernel_shape", Ints{2, 2}}, {"p", 2}}},
      {"Softmax", {"x"}, {{"axis", 1}}},
      {"Flatten", {"x"}, {{"axis", 1}}},
      {"Transpose", {"x"}, {{"perm", Ints{0, 1, 2, 3}}}},
      {"Concat", {"x", "x"}, {{"axis", 1}}},
      {"Gather", {"x", "one"}, {{"axis", 1}}},
      {"DepthToSpace", {"x"}, {{"blocksize", 1}}},
      {"SpaceToDepth", {"x"}, {{"blocksize", 1}}},
      {"LRN", {"x"}, {{"size", 3}}},
      {"CumSum", {"x", "one"}, {{"exclusive", 1}}},
      {"ArgMax", {"x"}, {{"axis", 1}}},
      {"LayerNormalization", {"x", "scale"}, {{"axis", -1}}},
      {"GroupNormalization", {"x", "scale", "scale"}, {{"num_groups", 1}}},
      {"EyeLike", {"m"}, {{"k", 1}}},
      {"Shape", {"x"}, {{"start", 0}, {"end", 4}}},
      {"Split", {"x"}, {{"axis", 1}, {"num_outputs", 1}}},
      {"Cast", {"x"}, {{"to", 7}}},
      {"Trilu", {"m"}, {{"upper", 1}}},
      {"TopK", {"x", "one"}, {{"axis", 1}}}};
  for (const Case& each : cases) {
    for (size_t at = 0; at < each.attributes.size(); ++at) {
      for (int64_t extreme : kExtremes) {
        std::vector<ModelFileBuilder::Attribute> attributes = each.attributes;
        if (auto* list = std::get_if<Ints>(&attributes[at].second))
          list->front() = extreme;
        else
          attributes[at].second = extreme;
        ModelFileBuilder builder;
        builder.Input("x", {1, 4, 4, 4}).Input("m", {4, 4}).Random("w", {4, 4, 2, 2}).Random("scale", {4});
        builder.Wholes("one", {1}).Node("Relu", {"m"}, {"z"}).Output("z");
        builder.Node(each.op, each.inputs, {"y"}, attributes).Output("y");
        const Result<Network> network = Import(builder.Bytes());
        if (!network) {
          EXPECT_THAT(network.error().where, HasSubstr("n_y")) << each.op << " " << attributes[at].first;
        }
      }
    }
  }
}

// The same of operands.
TEST(HostileModels, ConstantsBeyondAllBounds) {
  struct Case {
    std::string op;
    std::vector<std::string> inputs;  // "?": the constant
    Ints usual;
  };
  const std::vector<Case> cases = {{"Reshape", {"x", "?"}, {1, 64}},
                                   {"Expand", {"x", "?"}, {1, 4, 4, 4}},
                                   {"Tile", {"x", "?"}, {1, 1, 1, 1}},
                                   {"Slice", {"x", "?", "many", "zero"}, {0}},
                                   {"Slice", {"x", "zero", "?", "zero"}, {1}},
                                   {"Slice", {"x", "zero", "many", "?"}, {0}},
                                   {"Slice", {"x", "zero", "many", "zero", "?"}, {1}},
                                   {"Unsqueeze", {"x", "?"}, {0}},
                                   {"Squeeze", {"x", "?"}, {0}},
                                   {"ReduceSum", {"x", "?"}, {0}},
                                   {"Gather", {"x", "?"}, {0}},
                                   {"GatherND", {"x", "?"}, {0}},
                                   {"Pad", {"x", "?"}, {0, 0, 0, 0, 0, 0, 0, 0}},
                                   {"Resize", {"x", "", "", "?"}, {1, 4, 4, 4}},
                                   {"TopK", {"x", "?"}, {1}},
                                   {"ConstantOfShape", {"?"}, {1, 2}},
                                   {"Range", {"s0", "?s", "s1"}, {1}},
                                   {"Range", {"?s", "s1", "s1"}, {1}},
                                   {"Range", {"s0", "s1", "?s"}, {1}},
                                   {"OneHot", {"zero", "?", "values"}, {3}},
                                   {"Split", {"x", "?"}, {1}},
                                   {"Abs", {"?"}, {1}},
                                   {"Neg", {"?"}, {1}},
                                   {"Div", {"?", "minus"}, {1}},
                                   {"Mod", {"?", "minus"}, {1}},
                                   {"Pow", {"?", "?"}, {1}},
                                   {"CumSum", {"x", "?"}, {0}},
                                   {"Trilu", {"m", "?s"}, {0}},
                                   {"BitShift", {"?", "?"}, {1}}};
  for (const Case& each : cases) {
    for (int64_t extreme : kExtremes) {
      Ints values = each.usual;
      values.front() = extreme;
      ModelFileBuilder builder;
      builder.Input("x", {1, 4, 4, 4}).Input("m", {4, 4}).Wholes("zero", {0}).Wholes("many", {9}).Wholes("minus", {-1});
      builder.Floats("values", {2}, {0, 1}).WholeScalar("s0", 0).WholeScalar("s1", 1);
      builder.Wholes("c", values).WholeScalar("cs", extreme).Node("Relu", {"m"}, {"z"}).Output("z");
      std::vector<std::string> inputs = each.inputs;
      for (std::string& input : inputs)
        if (input[0] == '?') input = input == "?" ? "c" : "cs";
      builder.Node(each.op, inputs, {"y"}).Node("Neg", {"y"}, {"n"}).Output("n");
      const Result<Network> network = Import(builder.Bytes());
      if (!network) { EXPECT_THAT(network.error().where, HasSubstr("n_")) << each.op << " " << network.error().Text(); }
    }
  }
}

TEST(HostileModels, WhatTheFileSaysOfShapesIsNotBelieved) {
  ModelFileBuilder builder;
  builder.Input("x", {2, 3}).Node("Relu", {"x"}, {"r"}).Declare("r", {1000, 1000}).Node("Neg", {"r"}, {"y"});
  builder.Output("y", {7});
  const Result<Network> network = Import(builder.Bytes());
  ASSERT_TRUE(network) << network.error().Text();
  EXPECT_EQ(network->graph.shape(network->graph.outputs[0]), (Shape{2, 3}));
}

// ---- Bodies

OnnxNode Node(const std::string& op, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  OnnxNode node;
  node.name = "n_" + outputs[0];
  node.op = op;
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  return node;
}

OnnxTensor Constant(std::string name, Numbers numbers) {
  return {std::move(name), std::make_shared<HostTensor>(ToHost(numbers, numbers.dtype))};
}

// y = x, `trips` times body(y).
OnnxModel Looping(int64_t trips, std::vector<OnnxNode> nodes) {
  auto body = std::make_shared<OnnxBody>();
  body->inputs = {"i", "before", "state"};
  body->nodes = std::move(nodes);
  body->outputs = {"before", "next", "next"};
  OnnxAttribute attribute;
  attribute.name = "body";
  attribute.kind = OnnxAttribute::Kind::kGraph;
  attribute.body = body;
  OnnxModel model;
  model.opset = 18;
  model.nodes = {Node("Loop", {"trips", "", "x"}, {"y", "all"})};
  model.nodes[0].attributes = {attribute};
  model.initializers = {Constant("trips", WholeNumbers({trips}, {}))};
  OnnxValue x;
  x.name = "x";
  x.type.is_tensor = x.type.has_dtype = true;
  model.inputs = {x};
  for (const char* name : {"y", "all"}) {
    OnnxValue output;
    output.name = name;
    model.outputs.push_back(output);
  }
  return model;
}

Result<void> RunOnce(OnnxModel model) {
  ProgramContext context;
  context.path = "bad.onnx";
  context.is_plain = true;
  Program program(std::move(model), std::make_shared<const ProgramContext>(std::move(context)));
  const HostTensor x = ToHost(MakeNumbers(DType::kF32, {2}), DType::kF32);
  HONE_TRY(program.Run({ViewOf(x)}));
  return {};
}

TEST(HostileModels, ALoopThatNeverEndsIsNotBegun) {
  EXPECT_TRUE(RunOnce(Looping(3, {Node("Neg", {"state"}, {"next"})})));
  const Result<void> ran = RunOnce(Looping(int64_t{1} << 62, {Node("Neg", {"state"}, {"next"})}));
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().kind, ErrorKind::kLimit);
  EXPECT_THAT(ran.error().Text(), HasSubstr("node n_y (Loop)"));
  EXPECT_THAT(ran.error().Text(), HasSubstr("does not end within 16777216 steps"));
  EXPECT_TRUE(RunOnce(Looping(INT64_MIN, {Node("Neg", {"state"}, {"next"})})));  // no step
}

TEST(HostileModels, ABodyThatWaitsForItselfIsNamed) {
  const Result<void> ran = RunOnce(Looping(3, {Node("Add", {"state", "b"}, {"next"}), Node("Neg", {"next"}, {"b"})}));
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().kind, ErrorKind::kInvalid);
  EXPECT_THAT(ran.error().Text(), HasSubstr("cycle"));
}

TEST(HostileModels, ABodyThatCannotRunIsKnownBefore) {
  ImportOptions options;
  options.in_stages = true;
  options.shapes["x"] = {2};
  OnnxModel model = Looping(3, {Node("Fancy", {"state"}, {"next"})});
  model.nodes.push_back(Node("Neg", {"x"}, {"z"}));
  const Result<Network> network = BuildNetwork(model, "bad.onnx", options);
  ASSERT_TRUE(network) << network.error().Text();
  const std::vector<Missing> missing = MissingOf(*network);
  ASSERT_EQ(missing.size(), 1U);
  EXPECT_EQ(missing[0].op, "Loop");
  EXPECT_EQ(missing[0].reason, "its body has Fancy, no operator that hone knows (node n_next)");
}

}  // namespace
}  // namespace hone
