// Shapes by our own rules, against values computed by hand; what decides them is read from attributes and inputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/graph/graph_builder.h"
#include "network/onnx/import_network.h"
#include "tests/network/model_files.h"

namespace hone::infer_test {
namespace {

using Ints = std::vector<int64_t>;

// Shape of the first output.
Shape ShapeOf(ModelFileBuilder& builder) {
  builder.Output("y");
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"m.onnx", ""});
  EXPECT_TRUE(model) << model.error().Text();
  Result<Network> network = BuildNetwork(*model, "m.onnx", {});
  EXPECT_TRUE(network) << network.error().Text();
  if (!network) return {};
  EXPECT_TRUE(network->left_out.empty()) << network->left_out[0].reason;
  return network->graph.outputs.empty() ? Shape{-1} : network->graph.shape(network->graph.outputs[0]);
}

Shape Windowed(const std::string& op, const Shape& x, const std::vector<ModelFileBuilder::Attribute>& attributes,
               const Shape& w = {}) {
  ModelFileBuilder builder;
  builder.Input("x", x);
  if (!w.empty()) builder.Random("w", w);
  builder.Node(op, w.empty() ? std::vector<std::string>{"x"} : std::vector<std::string>{"x", "w"}, {"y"}, attributes);
  return ShapeOf(builder);
}

TEST(Infer, Convolutions) {
  EXPECT_EQ(Windowed("Conv", {1, 3, 224, 224}, {{"strides", Ints{2, 2}}, {"pads", Ints{3, 3, 3, 3}}}, {64, 3, 7, 7}),
            (Shape{1, 64, 112, 112}));
  EXPECT_EQ(Windowed("Conv", {1, 3, 224, 224}, {{"strides", Ints{4, 4}}, {"pads", Ints{2, 2, 2, 2}}}, {64, 3, 11, 11}),
            (Shape{1, 64, 55, 55}));
  EXPECT_EQ(Windowed("Conv", {2, 8, 10, 9}, {{"dilations", Ints{2, 3}}, {"group", int64_t{4}}}, {8, 2, 3, 2}),
            (Shape{2, 8, 6, 6}));
  EXPECT_EQ(Windowed("Conv", {1, 1, 5, 5}, {{"auto_pad", "SAME_UPPER"}, {"strides", Ints{2, 2}}}, {1, 1, 2, 2}),
            (Shape{1, 1, 3, 3}));
  EXPECT_EQ(Windowed("Conv", {1, 1, 5, 5}, {{"auto_pad", "VALID"}}, {1, 1, 2, 2}), (Shape{1, 1, 4, 4}));
  EXPECT_EQ(Windowed("Conv", {1, 4, 20}, {{"pads", Ints{1, 1}}, {"strides", Ints{2}}}, {6, 4, 3}), (Shape{1, 6, 10}));
}

TEST(Infer, Pools) {
  EXPECT_EQ(Windowed("MaxPool", {1, 64, 112, 112}, {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}}),
            (Shape{1, 64, 55, 55}));
  EXPECT_EQ(Windowed("MaxPool", {1, 64, 112, 112},
                     {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", int64_t{1}}}),
            (Shape{1, 64, 56, 56}));
  // The last window would begin in the right padding.
  EXPECT_EQ(Windowed("MaxPool", {1, 1, 4, 4},
                     {{"kernel_shape", Ints{2, 2}},
                      {"strides", Ints{3, 3}},
                      {"pads", Ints{0, 0, 1, 1}},
                      {"ceil_mode", int64_t{1}}}),
            (Shape{1, 1, 2, 2}));
  EXPECT_EQ(Windowed("AveragePool", {1, 2, 6, 6}, {{"kernel_shape", Ints{6, 6}}}), (Shape{1, 2, 1, 1}));
  EXPECT_EQ(Windowed("GlobalMaxPool", {2, 3, 6, 7}, {}), (Shape{2, 3, 1, 1}));
}

TEST(Infer, AxesFromAttributesAndInputs) {
  ModelFileBuilder old(11);
  old.Input("x", {1, 4, 1}).Node("Squeeze", {"x"}, {"y"}, {{"axes", Ints{0, -1}}});
  EXPECT_EQ(ShapeOf(old), Shape{4});
  ModelFileBuilder now(13);
  now.Input("x", {1, 4, 1}).Wholes("a", {-1}).Node("Squeeze", {"x", "a"}, {"y"});
  EXPECT_EQ(ShapeOf(now), (Shape{1, 4}));
  ModelFileBuilder all(13);
  all.Input("x", {1, 4, 1}).Node("Squeeze", {"x"}, {"y"});
  EXPECT_EQ(ShapeOf(all), Shape{4});
  ModelFileBuilder more(13);
  more.Input("x", {4}).Wholes("a", {0, -1}).Node("Unsqueeze", {"x", "a"}, {"y"});
  EXPECT_EQ(ShapeOf(more), (Shape{1, 4, 1}));
  ModelFileBuilder mean(18);
  mean.Input("x", {2, 3, 4}).Wholes("a", {1, -1}).Node("ReduceMean", {"x", "a"}, {"y"}, {{"keepdims", int64_t{0}}});
  EXPECT_EQ(ShapeOf(mean), Shape{2});
  ModelFileBuilder noop(18);
  noop.Input("x", {2, 3, 4}).Node("ReduceMean", {"x"}, {"y"}, {{"noop_with_empty_axes", int64_t{1}}});
  EXPECT_EQ(ShapeOf(noop), (Shape{2, 3, 4}));
  ModelFileBuilder total(18);
  total.Input("x", {2, 3, 4}).Node("ReduceMax", {"x"}, {"y"}, {{"keepdims", int64_t{0}}});
  EXPECT_EQ(ShapeOf(total), Shape{});
}

TEST(Infer, Slices) {
  struct Case {
    int64_t start, end, step, extent;
  };
  // Of 10 elements, as Python slices them.
  for (const Case& c :
       {Case{0, 10, 1, 10}, Case{2, -1, 1, 7}, Case{-3, INT64_MAX, 1, 3}, Case{0, 10, 3, 4}, Case{9, INT64_MIN, -1, 10},
        Case{-1, -11, -4, 3}, Case{7, 2, -2, 3}, Case{100, 2, -7, 1}, Case{1, 2, 5, 1}}) {
    ModelFileBuilder builder;
    builder.Input("x", {2, 10}).Wholes("s", {c.start}).Wholes("e", {c.end}).Wholes("a", {1}).Wholes("t", {c.step});
    builder.Node("Slice", {"x", "s", "e", "a", "t"}, {"y"});
    EXPECT_EQ(ShapeOf(builder), (Shape{2, c.extent})) << c.start << ":" << c.end << ":" << c.step;
  }
}

// Five rows by a half are three: halves go up.
TEST(Infer, SlicesLieInside) {
  auto is_taken = [](int64_t size, int64_t begin, int64_t count, int64_t step) {
    Graph graph;
    Builder build(graph, "slice");
    return build.Slice(graph.AddInput("x", {DType::kF32, {2, size}}), 1, begin, count, step).has_value();
  };
  EXPECT_TRUE(is_taken(5, 1, 2, 3));
  EXPECT_TRUE(is_taken(5, 4, 3, -2));
  EXPECT_TRUE(is_taken(5, 0, 0, 1));
  EXPECT_TRUE(is_taken(0, 0, 0, -1));
  EXPECT_FALSE(is_taken(5, 1, 3, 3));
  EXPECT_FALSE(is_taken(5, 4, 4, -2));
  EXPECT_FALSE(is_taken(5, -1, 2, 1));
  EXPECT_FALSE(is_taken(5, 5, 1, -1));
  EXPECT_FALSE(is_taken(0, 0, 1, -1));
  EXPECT_FALSE(is_taken(5, 1, 3, INT64_MAX));
  EXPECT_FALSE(is_taken(5, 0, -1, 1));
}

TEST(Infer, SizesThatKeepTheRatioOfSides) {
  for (const auto& [policy, wanted] : {std::pair("not_larger", Shape{1, 1, 3, 2}), {"not_smaller", {1, 1, 5, 4}}}) {
    ModelFileBuilder builder;
    builder.Input("x", {1, 1, 5, 4}).Wholes("sizes", {5, 2});
    builder.Node("Resize", {"x", "", "", "sizes"}, {"y"},
                 {{"axes", Ints{2, 3}}, {"keep_aspect_ratio_policy", std::string(policy)}});
    EXPECT_EQ(ShapeOf(builder), wanted) << policy;
  }
}

TEST(Infer, ProductsAndBroadcasts) {
  struct Case {
    Shape a, b, y;
  };
  for (const Case& c : {Case{{2, 1, 3, 4}, {5, 4, 6}, {2, 5, 3, 6}}, Case{{3, 4}, {4}, {3}}, Case{{4}, {4, 2}, {2}},
                        Case{{4}, {4}, {}}, Case{{7, 3, 4}, {4, 2}, {7, 3, 2}}}) {
    ModelFileBuilder builder;
    builder.Input("x", c.a).Input("z", c.b).Node("MatMul", {"x", "z"}, {"y"});
    EXPECT_EQ(ShapeOf(builder), c.y) << ShapeText(c.a) << " by " << ShapeText(c.b);
  }
  ModelFileBuilder add;
  add.Input("x", {3, 1, 5}).Input("z", {4, 1}).Node("Add", {"x", "z"}, {"y"});
  EXPECT_EQ(ShapeOf(add), (Shape{3, 4, 5}));
  ModelFileBuilder expand;
  expand.Input("x", {3, 1}).Wholes("s", {2, 1, 6}).Node("Expand", {"x", "s"}, {"y"});
  EXPECT_EQ(ShapeOf(expand), (Shape{2, 3, 6}));
  ModelFileBuilder tile;
  tile.Input("x", {2, 3}).Wholes("r", {3, 2}).Node("Tile", {"x", "r"}, {"y"});
  EXPECT_EQ(ShapeOf(tile), (Shape{6, 6}));
  ModelFileBuilder gather;
  gather.Input("x", {5, 6, 7}).Input("i", {2, 3}, 7).Node("Gather", {"x", "i"}, {"y"}, {{"axis", int64_t{1}}});
  EXPECT_EQ(ShapeOf(gather), (Shape{5, 2, 3, 7}));
  ModelFileBuilder flatten;
  flatten.Input("x", {2, 3, 4, 5}).Node("Flatten", {"x"}, {"y"}, {{"axis", int64_t{-2}}});
  EXPECT_EQ(ShapeOf(flatten), (Shape{6, 20}));
  ModelFileBuilder reshape;
  reshape.Input("x", {2, 3, 4}).Wholes("s", {0, -1, 2}).Node("Reshape", {"x", "s"}, {"y"});
  EXPECT_EQ(ShapeOf(reshape), (Shape{2, 6, 2}));
}

// Shapes that the file computes itself.
TEST(Infer, ShapeArithmetic) {
  ModelFileBuilder builder(17);
  builder.Input("x", {2, 3, 8, 8})
      .Node("Shape", {"x"}, {"shape"}, {{"start", int64_t{1}}, {"end", int64_t{-1}}})  // 3, 8
      .Node("ReduceProd", {"shape"}, {"product"}, {{"keepdims", int64_t{1}}})          // 24
      .Wholes("two", {2})
      .Node("Mul", {"product", "two"}, {"all"})
      .Wholes("minus", {-1})
      .Node("Concat", {"all", "minus"}, {"target"}, {{"axis", int64_t{0}}})
      .Node("Reshape", {"x", "target"}, {"y"});
  EXPECT_EQ(ShapeOf(builder), (Shape{48, 8}));
}

// Inputs without values are weights where layers keep theirs.
TEST(Infer, WeightsAmongTheInputs) {
  ModelFileBuilder builder;
  builder.Input("x", {1, 3, 8, 8}).Input("w", {4, 3, 1, 1}).Input("b", {4}).Input("scale", {1, 4, 8, 8});
  builder.Node("Conv", {"x", "w", "b"}, {"c"}).Node("Mul", {"c", "scale"}, {"y"}).Output("y");
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"m.onnx", ""});
  ASSERT_TRUE(model);
  Result<Network> network = BuildNetwork(*model, "m.onnx", {});
  ASSERT_TRUE(network);
  EXPECT_EQ(network->graph.inputs.size(), 1U);
  EXPECT_EQ(network->weights.size(), 3U);
  ImportOptions options;
  options.data = {"scale"};
  network = BuildNetwork(*model, "m.onnx", options);
  ASSERT_TRUE(network);
  EXPECT_EQ(network->graph.inputs.size(), 2U);
  ModelFileBuilder two;
  two.Input("a", {2, 3}).Input("b", {2, 3}).Node("Add", {"a", "b"}, {"y"}).Output("y");
  model = ParseOnnx(two.Bytes(), {"m.onnx", ""});
  network = BuildNetwork(*model, "m.onnx", {});
  ASSERT_TRUE(network);
  EXPECT_EQ(network->graph.inputs.size(), 2U);
}

TEST(Infer, AnAxisThatAScalarLacksIsRefused) {
  for (NodeKind kind : {NodeKind::kReduce, NodeKind::kSoftmax, NodeKind::kConcat, NodeKind::kGather,
                        NodeKind::kGatherElements, NodeKind::kLayerNorm}) {
    for (int64_t axis : {0, 1, -1}) {
      Graph graph;
      Builder build(graph, "n");
      Node node;
      node.kind = kind;
      node.function = kind == NodeKind::kReduce ? "sum" : "";
      node.axis = axis;
      node.axes = {axis};
      node.inputs = {build.Scalar(1, DType::kF32)};
      if (kind != NodeKind::kReduce && kind != NodeKind::kSoftmax)
        node.inputs.push_back(build.Scalar(
            0, kind == NodeKind::kGather || kind == NodeKind::kGatherElements ? DType::kI64 : DType::kF32));
      const Result<ValueId> y = graph.Add(std::move(node));
      // Rows of a layer norm may be all of x.
      if (kind == NodeKind::kLayerNorm && axis == 0) continue;
      ASSERT_FALSE(y) << Name(kind) << " along " << axis;
      EXPECT_EQ(y.error().kind, ErrorKind::kInvalid);
      EXPECT_THAT(y.error().Text(), testing::HasSubstr("dimension"));
    }
  }
  Graph graph;
  Builder build(graph, "n");
  EXPECT_FALSE(build.Slice(build.Scalar(1, DType::kF32), 0, 0, 1));
}

}  // namespace
}  // namespace hone::infer_test
