// Sequences whose elements are known become nodes of these.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/onnx/import_network.h"
#include "network/onnx/onnx_model.h"
#include "network/run/check_network.h"
#include "tests/network/model_files.h"

namespace hone::sequences_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Network> Imported(const ModelFileBuilder& builder) {
  OnnxModel model = HONE_TRY(ParseOnnx(builder.Bytes(), {"list.onnx", ""}));
  return BuildNetwork(model, "list.onnx", {});
}

// The first output for x = 1, 2, 3, …
std::vector<double> Computed(const ModelFileBuilder& builder) {
  Result<Network> network = Imported(builder);
  EXPECT_TRUE(network) << network.error().Text();
  if (!network) return {};
  EXPECT_TRUE(network->left_out.empty());
  std::vector<Numbers> data;
  for (ValueId input : network->graph.inputs) {
    data.push_back(MakeNumbers(DType::kF32, network->graph.shape(input)));
    for (size_t i = 0; i < data.back().real.size(); ++i) data.back().real[i] = static_cast<double>(i + 1);
  }
  Result<std::vector<Numbers>> outputs = EvaluateNetwork(network->graph, data);
  EXPECT_TRUE(outputs) << outputs.error().Text();
  return outputs && !outputs->empty() ? outputs->front().real : std::vector<double>();
}

ModelFileBuilder OfX(const std::vector<int64_t>& shape, int64_t opset = 18) {
  ModelFileBuilder builder(opset);
  builder.Input("x", shape).Output("y");
  return builder;
}

TEST(Sequences, ElementsAreTakenFromWhatWasPutIn) {
  ModelFileBuilder builder = OfX({2});
  builder.WholeScalar("first", 0).WholeScalar("last", -1).WholeScalar("end", 2);
  builder.Node("SequenceEmpty", {}, {"s0"}).Node("Neg", {"x"}, {"a"}).Node("Abs", {"x"}, {"b"});
  builder.Node("SequenceInsert", {"s0", "a"}, {"s1"}).Node("SequenceInsert", {"s1", "b"}, {"s2"});
  builder.Node("SequenceInsert", {"s2", "x", "first"}, {"s3"});  // x a b
  builder.Node("SequenceInsert", {"s3", "a", "end"}, {"s4"});    // x a a b
  builder.Node("SequenceErase", {"s4"}, {"s5"});                 // x a a
  builder.Node("SequenceAt", {"s5", "last"}, {"p"}).Node("SequenceAt", {"s4", "last"}, {"q"});
  builder.Node("Identity", {"s4"}, {"s6"}).Node("ConcatFromSequence", {"s6"}, {"all"}, {{"axis", int64_t{0}}});
  builder.Node("Concat", {"p", "q", "all"}, {"y"}, {{"axis", int64_t{0}}});
  EXPECT_THAT(Computed(builder), ElementsAre(-1, -2, 1, 2, 1, 2, -1, -2, -1, -2, 1, 2));
}

TEST(Sequences, PartsOfATensorAreCutOut) {
  ModelFileBuilder builder = OfX({5, 2});
  builder.WholeScalar("two", 2)
      .WholeScalar("one", 1)
      .WholeScalar("minus", -1)
      .Wholes("lengths", {1, 4})
      .Wholes("row", {1, -1});
  builder.Node("SplitToSequence", {"x", "two"}, {"pairs"}, {{"axis", int64_t{0}}});
  builder.Node("SequenceAt", {"pairs", "two"}, {"rest"});
  builder.Node("SplitToSequence", {"x"}, {"rows"}, {{"axis", int64_t{0}}, {"keepdims", int64_t{1}}});
  builder.Node("SequenceAt", {"rows", "minus"}, {"last"}).Node("SequenceAt", {"rows", "one"}, {"second"});
  builder.Node("SplitToSequence", {"x"}, {"columns"}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  builder.Node("SequenceAt", {"columns", "minus"}, {"column"}).Node("Reshape", {"column", "row"}, {"flat"});
  builder.Node("SplitToSequence", {"x", "lengths"}, {"uneven"}, {{"axis", int64_t{0}}});
  builder.Node("SequenceAt", {"uneven", "one"}, {"four"}).Node("Reshape", {"four", "row"}, {"tail"});
  builder.Node("Concat", {"rest", "last", "second"}, {"picked"}, {{"axis", int64_t{0}}})
      .Node("Reshape", {"picked", "row"}, {"front"});
  builder.Node("Concat", {"front", "flat", "tail"}, {"y"}, {{"axis", int64_t{1}}});
  EXPECT_THAT(Computed(builder), ElementsAre(9, 10, 9, 10, 3, 4, 2, 4, 6, 8, 10, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST(Sequences, AreStackedAlongANewAxis) {
  for (int64_t opset : {11, 18}) {
    ModelFileBuilder builder = OfX({2}, opset);
    builder.Node("Neg", {"x"}, {"a"}).Node("SequenceConstruct", {"x", "a"}, {"s"});
    builder.Node("ConcatFromSequence", {"s"}, {"y"}, {{"axis", int64_t{1}}, {"new_axis", int64_t{1}}});
    EXPECT_THAT(Computed(builder), ElementsAre(1, -1, 2, -2)) << opset;
  }
}

TEST(Sequences, HaveLengths) {
  ModelFileBuilder builder = OfX({2});
  builder.Node("SequenceConstruct", {"x", "x", "x"}, {"s"}).Node("SequenceLength", {"s"}, {"n"});
  builder.Node("Cast", {"n"}, {"f"}, {{"to", int64_t{1}}}).Node("Mul", {"x", "f"}, {"y"});
  EXPECT_THAT(Computed(builder), ElementsAre(3, 6));
}

TEST(Sequences, WhosePlacesAreNotKnownAreNamed) {
  ModelFileBuilder builder = OfX({2});
  builder.Input("place", {}, 7).WholeScalar("beyond", 2);
  builder.Node("SequenceConstruct", {"x", "x"}, {"s"}).Node("SequenceAt", {"s", "place"}, {"y"});
  Result<Network> network = Imported(builder);
  ASSERT_FALSE(network);
  EXPECT_THAT(network.error().Text(), HasSubstr("Sequence"));
  ModelFileBuilder outside = OfX({2});
  outside.WholeScalar("beyond", 2)
      .Node("SequenceConstruct", {"x", "x"}, {"s"})
      .Node("SequenceAt", {"s", "beyond"}, {"y"});
  EXPECT_FALSE(Imported(outside));
}

}  // namespace
}  // namespace hone::sequences_test
