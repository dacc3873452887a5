// Models that somebody made to do harm: numbers beyond all bounds, bodies that never end or cannot run, shapes that
// lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/onnx/import_network.h"
#include "network/run/missing_operators.h"
#include "network/run/program.h"
#include "tests/network/model_files.h"

namespace hone::hostile_models_test {
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

// Those of operators that somebody contributed.
TEST(HostileModels, ContributedAttributesBeyondAllBounds) {
  using Attributes = std::vector<ModelFileBuilder::Attribute>;
  auto expect = [](const std::string& op, const std::vector<std::string>& inputs, const Attributes& usual) {
    for (size_t at = 0; at < usual.size(); ++at) {
      for (int64_t extreme : kExtremes) {
        Attributes attributes = usual;
        attributes[at].second = extreme;
        ModelFileBuilder builder;
        builder.Input("m", {4, 4}).Input("q", {1, 1, 32}).Input("kv", {1, 1, 16}).Input("past", {1, 1, 3, 16});
        builder.Raw("last", {1}, 6, std::string("\3\0\0\0", 4)).Raw("total", {1}, 6, std::string("\4\0\0\0", 4));
        builder.Random("cos", {8, 8}).Input("x", {1, 32}).Raw("w", {3, 2, 8}, 2, std::string(48, 'w')).Random("s", {6});
        builder.Raw("table", {3, 16}, 2, std::string(48, 'w')).Random("scales", {3, 2}).Wholes("rows", {2, 0});
        builder.Random("taps", {1, 1, 3}).Random("share", {1, 1, 2});
        builder.Node("Relu", {"m"}, {"z"}).Output("z").Node(op, inputs, {"y"}, attributes, "com.microsoft").Output("y");
        const Result<Network> network = Import(builder.Bytes());
        if (!network) { EXPECT_THAT(network.error().where, HasSubstr("n_y")) << op << " " << attributes[at].first; }
      }
    }
  };
  const int64_t one = 1;
  expect("GroupQueryAttention", {"q", "kv", "kv", "past", "past", "last", "total", "cos", "cos"},
         {{"num_heads", 2 * one}, {"kv_num_heads", one}, {"local_window_size", 3 * one}, {"do_rotary", one}});
  expect("MatMulNBits", {"x", "w", "s"},
         {{"N", 3 * one}, {"K", 32 * one}, {"block_size", 16 * one}, {"bits", 4 * one}});
  expect("GatherBlockQuantized", {"table", "rows", "scales"}, {{"block_size", 16 * one}, {"bits", 4 * one}});
  expect("UnfoldTensor", {"x"}, {{"size", 3 * one}, {"step", one}, {"dim", one}});
  expect("CausalConvWithState", {"kv", "taps"}, {{"dilation", one}, {"ndim", one}, {"channels_last", 0 * one}});
  expect("LinearAttention", {"q", "q", "q", "", "q", "share"}, {{"q_num_heads", 2 * one}, {"kv_num_heads", 2 * one}});
}

TEST(HostileModels, ACacheBeyondAllBounds) {
  for (int64_t total : kExtremes) {
    ModelFileBuilder builder;
    builder.Input("m", {4, 4}).Input("q", {1, 1, 32}).Input("kv", {1, 1, 16}).Input("past", {1, 1, 3, 16});
    builder.Raw("last", {1}, 6, std::string("\3\0\0\0", 4)).Wholes("total", {total}).Node("Relu", {"m"}, {"z"});
    builder.Node("GroupQueryAttention", {"q", "kv", "kv", "past", "past", "last", "total"}, {"y"},
                 {{"num_heads", int64_t{2}}, {"kv_num_heads", int64_t{1}}}, "com.microsoft");
    const Result<Network> network = Import(builder.Output("y").Output("z").Bytes());
    ASSERT_FALSE(network) << total;
    EXPECT_THAT(network.error().where, HasSubstr("n_y"));
  }
}

TEST(HostileModels, WindowsOfAFewElementsThatReadBillionsAreRefused) {
  ModelFileBuilder builder;
  builder.Input("x", {1 << 20}).Node("UnfoldTensor", {"x"}, {"y"}, {{"size", int64_t{1} << 19}}, "com.microsoft");
  const Result<Network> network = Import(builder.Output("y").Bytes());
  ASSERT_FALSE(network);
  EXPECT_THAT(network.error().Text(), HasSubstr("524289 windows of 524288"));
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

// Each operand in turn, and then all of them: a word at the node, or a network.
TEST(HostileModels, ScalarsWhereTensorsAreWanted) {
  struct Operand {
    Shape shape;
    int type;
  };
  struct Case {
    std::string op, domain;
    std::vector<Operand> operands;
    std::vector<ModelFileBuilder::Attribute> attributes;
  };
  constexpr int kF32 = 1, kU8 = 2, kI32 = 6, kI64 = 7;
  const std::string contributed = "com.microsoft";
  const std::vector<Case> cases = {
      {"CausalConvWithState", contributed, {{{1, 2, 4}, kF32}, {{2, 1, 3}, kF32}, {{2}, kF32}, {{1, 2, 2}, kF32}}, {}},
      {"ConvInteger", "", {{{1, 1, 3, 3}, kU8}, {{2, 1, 2, 2}, kU8}, {{}, kU8}, {{2}, kU8}}, {}},
      {"MatMulInteger", "", {{{2, 3}, kU8}, {{3, 4}, kU8}, {{2}, kU8}, {{4}, kU8}}, {}},
      {"MatMulIntegerToFloat",
       contributed,
       {{{2, 3}, kU8}, {{3, 4}, kU8}, {{}, kF32}, {{4}, kF32}, {{2}, kU8}, {{4}, kU8}},
       {}},
      {"DynamicQuantizeMatMul", contributed, {{{2, 3}, kF32}, {{3, 4}, kU8}, {{4}, kF32}, {{4}, kU8}}, {}},
      {"DecoderMaskedMultiHeadAttention",
       contributed,
       {{{1, 1, 8}, kF32}, {{1, 2, 3, 4}, kF32}, {{1, 2, 3, 4}, kF32}, {{1, 3}, kI32}, {{1, 1, 1, 3}, kF32}},
       {{"num_heads", int64_t{2}}}},
      {"EmbedLayerNormalization",
       contributed,
       {{{1, 3}, kI32},
        {{1, 3}, kI32},
        {{9, 4}, kF32},
        {{9, 4}, kF32},
        {{9, 4}, kF32},
        {{4}, kF32},
        {{4}, kF32},
        {{1, 3}, kI32}},
       {}},
      {"RotaryEmbedding", contributed, {{{1, 2, 8}, kF32}, {{1, 2}, kI64}, {{4, 2}, kF32}, {{4, 2}, kF32}}, {}},
      {"SkipLayerNormalization", contributed, {{{1, 2, 4}, kF32}, {{1, 2, 4}, kF32}, {{4}, kF32}, {{4}, kF32}}, {}},
      {"LayerNormalization", "", {{{2, 4}, kF32}, {{4}, kF32}, {{4}, kF32}}, {}},
      {"Gather", "", {{{4, 3}, kF32}, {{2}, kI64}}, {}},
      {"GatherElements", "", {{{4, 3}, kF32}, {{2, 3}, kI64}}, {}},
      {"ScatterElements", "", {{{4, 3}, kF32}, {{2, 3}, kI64}, {{2, 3}, kF32}}, {}},
      {"TensorScatter", "", {{{1, 8, 2}, kF32}, {{1, 4, 2}, kF32}, {{1}, kI64}}, {}}};
  for (const Case& each : cases) {
    const size_t none = each.operands.size(), all = none + 1;
    for (size_t at = 0; at <= all; ++at) {
      ModelFileBuilder builder(24);
      std::vector<std::string> inputs;
      for (size_t i = 0; i < each.operands.size(); ++i) {
        inputs.push_back("x" + std::to_string(i));
        builder.Input(inputs.back(), i == at || at == all ? Shape{} : each.operands[i].shape, each.operands[i].type);
      }
      builder.Node(each.op, inputs, {"y"}, each.attributes, each.domain).Output("y");
      const Result<Network> network = Import(builder.Bytes());
      if (at == none) {
        EXPECT_TRUE(network && network->left_out.empty())
            << each.op << ": " << (network ? network->left_out[0].reason : network.error().Text());
      } else if (!network) {
        EXPECT_THAT(network.error().Text(), HasSubstr("n_y")) << each.op << " with scalar " << at + 1;
      }
    }
  }
}

TEST(HostileModels, AnAxisThatIsResizedTwiceIsRefused) {
  ModelFileBuilder builder;
  builder.Input("x", {400, 1}, 2).Wholes("sizes", {1, 3});
  builder.Node("Resize", {"x", "", "", "sizes"}, {"y"}, {{"mode", "nearest"}, {"axes", Ints{0, 0}}}).Output("y");
  const Result<Network> network = Import(builder.Bytes());
  ASSERT_FALSE(network);
  EXPECT_THAT(network.error().Text(), HasSubstr("an axis is named twice"));
}

// ---- Bodies

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

// As protobuf writes fields of bytes and of numbers.
std::string Field(uint64_t number, const std::string& bytes) {
  return Varint(number << 3 | 2) + Varint(bytes.size()) + bytes;
}
std::string Field(uint64_t number, uint64_t value) { return Varint(number << 3) + Varint(value); }

// An If within an If within …; its condition is an input.
std::string Nested(int depth) {
  const std::string input = Field(1, "c") + Field(2, Field(1, Field(1, 9) + Field(2, "")));
  std::string graph = Field(1, Field(1, "c") + Field(2, "y") + Field(4, "Not")) + Field(12, Field(1, "y"));
  for (int i = 0; i < depth; ++i) {
    std::string node = Field(1, "c") + Field(2, "y") + Field(4, "If");
    for (const char* branch : {"then_branch", "else_branch"}) {
      const bool is_deep = branch[0] == 't';
      const std::string leaf = Field(1, Field(1, "c") + Field(2, "y") + Field(4, "Not")) + Field(12, Field(1, "y"));
      node += Field(5, Field(1, branch) + Field(6, is_deep ? graph : leaf) + Field(20, 5));
    }
    graph = Field(1, node) + Field(12, Field(1, "y"));
  }
  return Field(1, 8) + Field(7, graph + Field(11, input)) + Field(8, Field(2, 18));
}

TEST(HostileModels, BodiesWithinBodiesHaveAnEnd) {
  for (int depth : {1, 10, 25}) {
    const Result<OnnxModel> model = ParseOnnx(Nested(depth), {"bad.onnx", ""});
    ASSERT_TRUE(model) << model.error().Text();
    ImportOptions options;
    options.in_stages = true;
    EXPECT_TRUE(BuildNetwork(*model, "bad.onnx", options)) << depth;
  }
  for (int depth : {40, 1000}) {
    const Result<OnnxModel> model = ParseOnnx(Nested(depth), {"bad.onnx", ""});
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().kind, ErrorKind::kCorrupt);
    EXPECT_THAT(model.error().Text(), HasSubstr("more than 30 deep"));
  }
}

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
}  // namespace hone::hostile_models_test
