// Small files that would take much memory or many steps: copies, lists and loops that a few numbers in them decide.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <limits>

#include "network/graph/evaluate_network.h"
#include "network/onnx/import_network.h"
#include "tests/network/model_files.h"

namespace hone::small_files_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ints = std::vector<int64_t>;

Result<Network> Import(const std::string& bytes) {
  OnnxModel model = HONE_TRY(ParseOnnx(bytes, {"small.onnx", ""}));
  ImportOptions options;
  options.in_stages = true;
  return BuildNetwork(model, "small.onnx", options);
}

TEST(SmallFiles, CopiesOfFunctionsAreBounded) {
  auto calls = [](int count, const ModelFileBuilder& function, const std::string& first) {
    ModelFileBuilder builder;
    builder.Function("F", function).Input(first, {4});
    std::string last = first;
    for (int i = 0; i < count; ++i) {
      builder.Node("F", {last}, {"v" + std::to_string(i)}, {}, "functions");
      last = "v" + std::to_string(i);
    }
    return builder.Output(last).Bytes();
  };
  ModelFileBuilder wide;  // 700 copies of an attribute
  wide.Input("a", {}).Node("Identity", {"a"}, {"b"}, {{"w", Ints(200'000, 1)}}).Output("b");
  ModelFileBuilder many;  // 20,000 copies of a name
  many.Input("a", {});
  for (int i = 0; i < 20'000; ++i) many.Node("Neg", {"a"}, {std::to_string(i)});
  many.Output("0");
  for (const std::string& bytes : {calls(700, wide, "x"), calls(1, many, std::string(100'000, 'x'))}) {
    const Result<Network> network = Import(bytes);
    ASSERT_FALSE(network);
    EXPECT_EQ(network.error().kind, ErrorKind::kLimit);
    EXPECT_THAT(network.error().Text(), HasSubstr("its functions have more than"));
  }
  EXPECT_TRUE(Import(calls(30, wide, "x")));
}

// A loop that carries a list is unrolled if that is not too much.
TEST(SmallFiles, CopiesOfStepsAreBounded) {
  auto is_unrolled = [](int64_t steps) {
    ModelFileBuilder body, builder;
    body.Input("i", {}, 7).Input("c", {}, 9).Input("s", {}).Node("Identity", {"c"}, {"go on"});
    body.Node("Identity", {"x"}, {"t"}, {{"w", Ints(200'000, 1)}}).Node("SequenceInsert", {"s", "t"}, {"longer"});
    body.Output("go on", {}, 9).Output("longer");
    builder.Input("x", {4}).WholeScalar("steps", steps).Node("SequenceEmpty", {}, {"none"});
    builder.Node("Loop", {"steps", "", "none"}, {"all"}).Body("body", body);
    builder.Node("ConcatFromSequence", {"all"}, {"y"}, {{"axis", int64_t{0}}}).Output("y");
    const Result<Network> network = Import(builder.Bytes());
    return network && network->rest.nodes.empty() && network->left_out.empty();
  };
  EXPECT_TRUE(is_unrolled(10));
  EXPECT_FALSE(is_unrolled(1000));
}

TEST(SmallFiles, AnAxisOfRowsIsBounded) {
  for (int64_t axis : {INT64_MIN, INT64_MIN + 1, -(int64_t{1} << 31), int64_t{1} << 31, INT64_MAX}) {
    for (int64_t is_new : {0, 1}) {
      ModelFileBuilder builder;
      builder.Input("x", {3, 4});
      builder.Node("SplitToSequence", {"x"}, {"s"}, {{"axis", int64_t{0}}, {"keepdims", int64_t{0}}});
      builder.Node("ConcatFromSequence", {"s"}, {"y"}, {{"axis", axis}, {"new_axis", is_new}}).Output("y");
      const Result<Network> network = Import(builder.Bytes());
      EXPECT_FALSE(network && network->left_out.empty() && network->rest.nodes.empty()) << axis;
    }
  }
}

TEST(SmallFiles, BlocksAlongBillionsAreRefused) {
  constexpr int kF32 = 1, kInt4 = 22, kI64 = 7;
  const int64_t many = int64_t{1} << 36, block = 1024;
  ModelFileBuilder quantized(21), gathered(21);
  quantized.Input("x", {many}, kF32).Input("s", {many / block}, kF32).Input("z", {many / block}, kInt4);
  quantized.Node("QuantizeLinear", {"x", "s", "z"}, {"y"}, {{"axis", int64_t{0}}, {"block_size", block}}).Output("y");
  gathered.Input("x", {1, many}, kInt4).Input("i", {1}, kI64).Input("s", {1, many / block}, kF32);
  gathered.Node("GatherBlockQuantized", {"x", "i", "s"}, {"y"}, {{"block_size", block}}, "com.microsoft").Output("y");
  for (const ModelFileBuilder* builder : {&quantized, &gathered}) {
    const Result<Network> network = Import(builder->Bytes());
    ASSERT_FALSE(network);
    EXPECT_EQ(network.error().kind, ErrorKind::kLimit);
    EXPECT_THAT(network.error().Text(), HasSubstr("blocks along 68719476736 elements"));
  }
}

int64_t PeakKibibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(SmallFiles, LargeWindowsTakeLittleMemory) {
  ModelFileBuilder builder;
  builder.Input("x", {1, 1, 287, 287});
  builder.Node("MaxPool", {"x"}, {"y", "at"}, {{"kernel_shape", Ints{256, 256}}}).Output("y").Output("at", {}, 7);
  Result<Network> network = Import(builder.Bytes());
  ASSERT_TRUE(network) << network.error().Text();
  const Numbers x = MakeNumbers(DType::kF32, {1, 1, 287, 287});
  const int64_t before = PeakKibibytes();
  const Result<std::vector<Numbers>> outputs = EvaluateNetwork(network->graph, {x});
  ASSERT_TRUE(outputs) << outputs.error().Text();
  EXPECT_EQ((*outputs)[1].whole.back(), 31 * 287 + 31);
  EXPECT_LT(PeakKibibytes() - before, 256 << 10);
}

TEST(SmallFiles, BandsBeyondAllBinsEnd) {
  for (float upper : {1e6F, 1e30F, std::numeric_limits<float>::max()}) {
    ModelFileBuilder builder;
    builder.WholeScalar("bands", 2).WholeScalar("length", 16).WholeScalar("rate", 8000);
    builder.Scalar("lower", 0).Scalar("upper", upper);
    builder.Node("MelWeightMatrix", {"bands", "length", "rate", "lower", "upper"}, {"y"}).Output("y");
    const Result<Network> network = Import(builder.Bytes());
    ASSERT_TRUE(network) << network.error().Text();
    EXPECT_EQ(network->graph.shape(network->graph.outputs[0]), (Shape{9, 2}));
  }
}

TEST(SmallFiles, GapsLongerThanARowEnd) {
  for (int64_t skips : {int64_t{1} << 31, int64_t{1} << 62, INT64_MAX}) {
    ModelFileBuilder builder;
    builder.Wholes("x", {1, 5, 2, 1});
    builder
        .Node("TfIdfVectorizer", {"x"}, {"y"},
              {{"pool_int64s", Ints{1, 1, 2}},
               {"ngram_counts", Ints{0, 1}},
               {"ngram_indexes", Ints{0, 1}},
               {"max_gram_length", int64_t{2}},
               {"min_gram_length", int64_t{2}},
               {"max_skip_count", skips},
               {"mode", std::string("TF")}})
        .Output("y");
    Result<Network> network = Import(builder.Bytes());
    ASSERT_TRUE(network) << network.error().Text();
    const Result<std::vector<Numbers>> outputs = EvaluateNetwork(network->graph, {});
    ASSERT_TRUE(outputs) << outputs.error().Text();
    EXPECT_THAT((*outputs)[0].real, ElementsAre(0, 1));
  }
}

}  // namespace
}  // namespace hone::small_files_test
