// Operators at the edges of their definitions: windows larger than what lies under them, nothing to reduce over,
// numbers without a sign, operands without a dimension. The results are those of onnxruntime 1.32 and of ONNX's
// reference, which agree on them.
#include <gmock/gmock.h>

#include "tests/network/contributed_models.h"

namespace hone::operator_edges_test {
namespace {

using contributed_test::BytesOf;
using contributed_test::Computed;
using testing::ElementsAre;
using Ints = std::vector<int64_t>;

constexpr int kU8 = 2, kI8 = 3, kI32 = 6, kF16 = 10, kF64 = 11, kU64 = 13;
constexpr uint64_t kHuge = uint64_t{1} << 63;

// The outputs of a model that has nothing but constants.
std::vector<Numbers> ResultsOf(const ModelFileBuilder& builder) {
  Result<std::vector<Numbers>> outputs = Computed(builder);
  EXPECT_TRUE(outputs) << outputs.error().Text();
  return outputs ? *std::move(outputs) : std::vector<Numbers>(3);
}

// A pool of 1, 2, 3, … over `shape`, which has a batch and a channel before the dimensions.
std::vector<Numbers> Pooled(const std::string& op, const Ints& shape,
                            const std::vector<ModelFileBuilder::Attribute>& attributes, bool has_places = false) {
  std::vector<float> counting;
  for (int64_t i = 0; i < CountOf(shape); ++i) counting.push_back(static_cast<float>(i + 1));
  ModelFileBuilder builder(22);
  builder.Floats("x", shape, counting);
  builder.Node(op, {"x"}, has_places ? std::vector<std::string>{"y", "at"} : std::vector<std::string>{"y"}, attributes);
  builder.Output("y");
  if (has_places) builder.Output("at", {}, 7);
  return ResultsOf(builder);
}

TEST(OperatorEdges, AWindowLargerThanItsInputHangsOverOnceWhereItsStrideIsLarger) {
  const Ints window = {4}, stride = {2};
  for (int64_t rounds_up : {0, 1}) {
    const Numbers y =
        Pooled("MaxPool", {1, 1, 3}, {{"kernel_shape", window}, {"strides", stride}, {"ceil_mode", rounds_up}})[0];
    EXPECT_EQ(y.shape, (Shape{1, 1, 1}));
    EXPECT_THAT(y.real, ElementsAre(3));
  }
  const Numbers plane = Pooled("AveragePool", {1, 1, 1, 3}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 1}}})[0];
  EXPECT_EQ(plane.shape, (Shape{1, 1, 1, 2}));
  EXPECT_THAT(plane.real, ElementsAre(1.5, 2.5));
  const Numbers volume =
      Pooled("MaxPool", {1, 1, 3, 1, 1}, {{"kernel_shape", Ints{4, 2, 1}}, {"strides", Ints{2, 2, 1}}})[0];
  EXPECT_EQ(volume.shape, (Shape{1, 1, 1, 1, 1}));
  EXPECT_THAT(volume.real, ElementsAre(3));
  const Numbers none = Pooled("MaxPool", {1, 1, 3}, {{"kernel_shape", window}})[0];
  EXPECT_EQ(none.shape, (Shape{1, 1, 0}));
}

TEST(OperatorEdges, WhatHangsOverCountsNothingWherePaddingCounts) {
  const Numbers y = Pooled("AveragePool", {1, 1, 3, 3, 3},
                           {{"kernel_shape", Ints{2, 2, 2}},
                            {"dilations", Ints{2, 2, 2}},
                            {"strides", Ints{3, 3, 3}},
                            {"pads", Ints{1, 1, 1, 1, 1, 1}},
                            {"ceil_mode", int64_t{1}},
                            {"count_include_pad", int64_t{1}}})[0];
  EXPECT_EQ(y.shape, (Shape{1, 1, 2, 2, 2}));
  EXPECT_THAT(y.real, ElementsAre(14.0 / 8, 15.0 / 4, 17.0 / 4, 18.0 / 2, 23.0 / 4, 24.0 / 2, 26.0 / 2, 27));
}

TEST(OperatorEdges, PlacesInColumnsCountTheFirstDimensionFirstWhateverTheirNumber) {
  const std::vector<Numbers> y =
      Pooled("MaxPool", {1, 1, 2, 2, 3}, {{"kernel_shape", Ints{1, 2, 2}}, {"storage_order", int64_t{1}}}, true);
  EXPECT_THAT(y[0].real, ElementsAre(5, 6, 11, 12));
  EXPECT_THAT(y[1].whole, ElementsAre(6, 10, 7, 11));
}

TEST(OperatorEdges, AReductionOverNoDimensionsIsOfEachElement) {
  auto reduced = [](const std::string& op) {
    ModelFileBuilder builder(20);
    builder.Floats("x", {3}, {-2, 3, 4}).Wholes("axes", {});
    builder.Node(op, {"x", "axes"}, {"y"}, {{"noop_with_empty_axes", int64_t{1}}}).Output("y");
    return ResultsOf(builder)[0].real;
  };
  EXPECT_THAT(reduced("ReduceSum"), ElementsAre(-2, 3, 4));
  EXPECT_THAT(reduced("ReduceSumSquare"), ElementsAre(4, 9, 16));
  EXPECT_THAT(reduced("ReduceL1"), ElementsAre(2, 3, 4));
  EXPECT_THAT(reduced("ReduceL2"), ElementsAre(2, 3, 4));
  EXPECT_THAT(reduced("ReduceLogSumExp"), ElementsAre(-2, 3, 4));
}

TEST(OperatorEdges, TheLogarithmOfASumOfPowersOfWholeNumbersIsCutOff) {
  ModelFileBuilder builder(18);
  builder.Raw("x", {3}, kI32, BytesOf(std::vector<int32_t>{1, 2, 3}));
  builder.Node("ReduceLogSumExp", {"x"}, {"y"}, {{"keepdims", int64_t{0}}}).Output("y", {}, kI32);
  EXPECT_THAT(ResultsOf(builder)[0].whole, ElementsAre(3));
}

TEST(OperatorEdges, StatisticsOfALayerAreF32WhateverItsElements) {
  for (int type : {kF16, kF64}) {
    ModelFileBuilder builder(17);
    const std::string elements = type == kF16 ? BytesOf(std::vector<uint16_t>{0x3c00, 0x4200})  // 1, 3
                                              : BytesOf(std::vector<double>{1, 3});
    builder.Raw("x", {1, 2}, type, elements).Raw("scale", {2}, type, elements);
    builder.Node("LayerNormalization", {"x", "scale"}, {"y", "mean", "deviation"}, {{"epsilon", 0.0F}});
    builder.Output("y", {}, type).Output("mean").Output("deviation");
    const std::vector<Numbers> outputs = ResultsOf(builder);
    EXPECT_EQ(outputs[1].dtype, DType::kF32);
    EXPECT_EQ(outputs[2].dtype, DType::kF32);
    EXPECT_THAT(outputs[1].real, ElementsAre(2));
    EXPECT_THAT(outputs[2].real, ElementsAre(1));
  }
}

TEST(OperatorEdges, BeforeOpset21AGroupHasAScaleAndABias) {
  ModelFileBuilder builder(18);
  builder.Floats("x", {1, 4, 1}, {-1, 1, -1, 1}).Floats("scale", {2}, {1, 10}).Floats("bias", {2}, {0, 100});
  builder.Node("GroupNormalization", {"x", "scale", "bias"}, {"y"}, {{"num_groups", int64_t{2}}, {"epsilon", 0.0F}});
  builder.Output("y");
  EXPECT_THAT(ResultsOf(builder)[0].real, ElementsAre(-1, 1, 90, 110));
}

TEST(OperatorEdges, AProductOfBytesMayBeOneWithAVector) {
  ModelFileBuilder builder(10);
  builder.Raw("a", {2}, kU8, BytesOf(std::vector<uint8_t>{200, 3})).Raw("zero", {}, kU8, std::string("\x01", 1));
  builder.Raw("b", {2, 2}, kI8, BytesOf(std::vector<int8_t>{1, -2, 3, 4}));
  builder.Node("MatMulInteger", {"a", "b", "zero"}, {"y"}).Node("MatMulInteger", {"b", "a", "", "zero"}, {"z"});
  builder.Output("y", {}, kI32).Output("z", {}, kI32);
  const std::vector<Numbers> outputs = ResultsOf(builder);
  EXPECT_EQ(outputs[0].shape, Shape{2});
  EXPECT_THAT(outputs[0].whole, ElementsAre(199 + 6, -398 + 8));
  EXPECT_THAT(outputs[1].whole, ElementsAre(199 - 4, 597 + 8));
}

TEST(OperatorEdges, VolumesOfBytesAreConvolved) {
  ModelFileBuilder builder(10);
  builder.Raw("x", {1, 1, 2, 1, 2}, kU8, BytesOf(std::vector<uint8_t>{1, 2, 3, 255}));
  builder.Raw("w", {1, 1, 2, 1, 1}, kI8, BytesOf(std::vector<int8_t>{-1, 100}));
  builder.Node("ConvInteger", {"x", "w"}, {"y"}).Output("y", {}, kI32);
  EXPECT_THAT(ResultsOf(builder)[0].whole, ElementsAre(299, 25498));
}

TEST(OperatorEdges, TheLargestNumbersOfU64AreFound) {
  ModelFileBuilder builder(13);
  builder.Raw("x", {3}, kU64, BytesOf(std::vector<uint64_t>{5, kHuge + 1, kHuge})).Wholes("k", {2});
  builder.Node("TopK", {"x", "k"}, {"y", "at"}).Node("ArgMax", {"x"}, {"most"}).Node("ArgMin", {"x"}, {"least"});
  builder.Output("y", {}, kU64).Output("at", {}, 7).Output("most", {}, 7).Output("least", {}, 7);
  const std::vector<Numbers> outputs = ResultsOf(builder);
  EXPECT_THAT(outputs[0].whole, ElementsAre(static_cast<int64_t>(kHuge + 1), static_cast<int64_t>(kHuge)));
  EXPECT_THAT(outputs[1].whole, ElementsAre(1, 2));
  EXPECT_THAT(outputs[2].whole, ElementsAre(1));
  EXPECT_THAT(outputs[3].whole, ElementsAre(0));
}

TEST(OperatorEdges, NumbersWithoutASignShrinkFromAboveOnly) {
  ModelFileBuilder builder(13);
  builder.Raw("x", {4}, kU8, BytesOf(std::vector<uint8_t>{0, 1, 2, 200}));
  builder.Node("Shrink", {"x"}, {"y"}, {{"lambd", 1.5F}, {"bias", 1.0F}}).Output("y", {}, kU8);
  EXPECT_THAT(ResultsOf(builder)[0].whole, ElementsAre(0, 0, 1, 199));
}

TEST(OperatorEdges, AWholeNumberHasAPowerThatIsNone) {
  for (bool is_one : {false, true}) {
    ModelFileBuilder builder(15);
    builder.Raw("x", {3}, kI32, BytesOf(std::vector<int32_t>{4, 9, 2}));
    builder.Floats("p", {is_one ? 1 : 3}, is_one ? std::vector<float>{0.5F} : std::vector<float>{0.5F, 1.5F, -1});
    builder.Node("Pow", {"x", "p"}, {"y"}).Output("y", {}, kI32);
    if (is_one)
      EXPECT_THAT(ResultsOf(builder)[0].whole, ElementsAre(2, 3, 1));
    else
      EXPECT_THAT(ResultsOf(builder)[0].whole, ElementsAre(2, 27, 0));
  }
}

TEST(OperatorEdges, WhatShrinksToItsNearestElementsInOpset10TakesTheOnesAbove) {
  ModelFileBuilder builder(10);
  builder.Floats("x", {1, 4}, {1, 2, 3, 4}).Floats("smaller", {2}, {1, 0.6F}).Floats("larger", {2}, {1, 1.5F});
  builder.Node("Resize", {"x", "smaller"}, {"y"}).Node("Resize", {"x", "larger"}, {"z"}).Output("y").Output("z");
  const std::vector<Numbers> outputs = ResultsOf(builder);
  EXPECT_THAT(outputs[0].real, ElementsAre(1, 3));
  EXPECT_THAT(outputs[1].real, ElementsAre(1, 1, 2, 3, 3, 4));
}

TEST(OperatorEdges, WhatIsResizedAlongSeveralDimensionsKeepsItsType) {
  ModelFileBuilder builder(18);
  builder.Raw("x", {2, 1}, kF16, BytesOf(std::vector<uint16_t>{0x3c00, 0x4200})).Wholes("sizes", {4, 2});
  builder.Node("Resize", {"x", "", "", "sizes"}, {"y"}).Output("y", {}, kF16);
  const Numbers y = ResultsOf(builder)[0];
  EXPECT_EQ(y.dtype, DType::kF16);
  EXPECT_THAT(y.real, ElementsAre(1, 1, 1, 1, 3, 3, 3, 3));
}

}  // namespace
}  // namespace hone::operator_edges_test
