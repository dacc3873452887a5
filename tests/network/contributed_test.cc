// onnxruntime's operators beside what onnxruntime 1.32 computes. tests/onnx_suite/contributed.py compares many more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/network/contributed_models.h"

namespace hone::contributed_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// x · w for these zero points ("bytes", "reals" or none), with or without a group for each column.
Result<std::vector<Numbers>> ProductOfFewBits(const std::string& zeros, bool has_order) {
  std::vector<int32_t> order;
  for (int32_t i = 0; i < 32; ++i) order.push_back(i / 3 % 2);
  std::vector<float> scales = Values(6, 3), reals = Values(6, 5);
  for (float& scale : scales) scale += 2;
  for (float& real : reals) real += 8;
  ModelFileBuilder builder;
  builder.Floats("x", {2, 32}, Values(64)).Raw("w", {3, 2, 8}, kBytes, Counting(48, 256)).Floats("s", {6}, scales);
  builder.Raw("bytes", {3}, kBytes, "\x53\x97\x1c").Floats("reals", {6}, reals).Raw("g", {32}, kInts, BytesOf(order));
  builder.Node("MatMulNBits", {"x", "w", "s", zeros, has_order ? "g" : ""}, {"y"},
               {{"K", int64_t{32}}, {"N", int64_t{3}}, {"bits", int64_t{4}}, {"block_size", int64_t{16}}},
               "com.microsoft");
  builder.Output("y");
  return Computed(builder);
}

TEST(Contributed, ColumnsOfFewBitsHaveTheScaleOfTheirGroup) {
  struct Case {
    std::string zeros;
    bool has_order;
    std::vector<double> wanted;
  };
  const Case cases[] = {{"bytes", false, {-19.88, 15.52, -2.16, 0.8, -9.76, -8.4}},
                        {"", true, {-21.48, 31.88, 8.04, -3.6, -16.68, 0.12}},
                        {"reals", true, {-21.08, 30.888, 7.512, -5, -13.152, 2.04}},
                        // onnxruntime 1.32 takes packed zero points for 8 where columns have groups; by its definition:
                        {"bytes", true, {-20.44, 33.32, 3.6, -6.76, -22, 16.92}}};
  for (const Case& each : cases) {
    const Result<std::vector<Numbers>> outputs = ProductOfFewBits(each.zeros, each.has_order);
    ASSERT_TRUE(outputs) << outputs.error().Text();
    ExpectNear((*outputs)[0], 1, each.wanted);
  }
}

TEST(Contributed, AGroupThatThereIsNotIsAnError) {
  ModelFileBuilder builder;
  builder.Floats("x", {1, 16}, Values(16)).Raw("w", {1, 1, 8}, kBytes, Counting(8, 256)).Floats("s", {1}, {1});
  builder.Raw("g", {16}, kInts, BytesOf(std::vector<int32_t>(16, 1)));
  builder.Node("MatMulNBits", {"x", "w", "s", "", "g"}, {"y"},
               {{"K", int64_t{16}}, {"N", int64_t{1}}, {"bits", int64_t{4}}, {"block_size", int64_t{16}}},
               "com.microsoft");
  builder.Output("y");
  const Result<std::vector<Numbers>> outputs = Computed(builder);
  ASSERT_FALSE(outputs);
  EXPECT_THAT(outputs.error().Text(), HasSubstr("g_idx 1 of 1 blocks"));
}

TEST(Contributed, FourBitsAreFloats) {
  for (int64_t kind : {0, 1}) {
    ModelFileBuilder builder;
    std::vector<float> one(16, 0);
    one[2] = 1;
    builder.Floats("x", {1, 16}, one)
        .Raw("w", {16}, kBytes, std::string("\x01\x23\x45\x67\x89\xab\xcd\xef", 8) + std::string(8, '\x60'));
    builder.Floats("s", {2}, {2, 3});
    builder.Node("MatMulBnb4", {"x", "w", "s"}, {"y"},
                 {{"K", int64_t{16}}, {"N", int64_t{2}}, {"block_size", int64_t{16}}, {"quant_type", kind}},
                 "com.microsoft");
    builder.Output("y");
    const Result<std::vector<Numbers>> outputs = Computed(builder);
    ASSERT_TRUE(outputs) << outputs.error().Text();
    if (kind == 0)
      ExpectNear((*outputs)[0], 1, {2 * 0.6666667, 3 * 0.1666667});
    else
      ExpectNear((*outputs)[0], 1, {2 * -0.5250731, 3 * -0.0910500});
  }
}

TEST(Contributed, TokensAreMultipliedByTheirExperts) {
  ModelFileBuilder builder;
  builder.Floats("x", {2, 4}, Values(8)).Floats("routes", {2, 3}, Values(6, 3)).Floats("b", {3, 6}, Values(18, 2));
  builder.Floats("w1", {3, 6, 4}, Values(72, 5)).Floats("w2", {3, 4, 3}, Values(36, 9));
  builder.Node("MoE", {"x", "routes", "w1", "b", "w2"}, {"y"},
               {{"k", int64_t{2}},
                {"activation_type", std::string("swiglu")},
                {"swiglu_fusion", int64_t{1}},
                {"activation_alpha", 1.5F},
                {"activation_beta", 1.0F},
                {"swiglu_limit", 0.9F},
                {"normalize_routing_weights", int64_t{1}}},
               "com.microsoft");
  builder.Output("y");
  const Result<std::vector<Numbers>> outputs = Computed(builder);
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ExpectNear((*outputs)[0], 1, {0.047981, 0.870694, -0.190449, 0.632263, 0.223799, -0.073241, -0.053241, -0.058492});
}

TEST(Contributed, ExpertsMayHaveWeightsOfFourBits) {
  std::vector<float> s1 = Values(48, 3), s2 = Values(48, 4);
  for (std::vector<float>* scales : {&s1, &s2})
    for (float& scale : *scales) scale = (scale + 2) * 0.05F;
  ModelFileBuilder builder;
  builder.Floats("x", {2, 16}, Values(32)).Floats("routes", {2, 3}, Values(6, 3));
  builder.Raw("w1", {3, 16, 8}, kBytes, Counting(384, 256)).Floats("s1", {3, 16}, s1);
  builder.Raw("w2", {3, 16, 8}, kBytes, Counting(384, 251)).Floats("s2", {3, 16}, s2);
  builder.Node("QMoE", {"x", "routes", "w1", "s1", "", "w2", "s2"}, {"y"},
               {{"k", int64_t{2}}, {"activation_type", std::string("silu")}, {"expert_weight_bits", int64_t{4}}},
               "com.microsoft");
  builder.Output("y");
  const Result<std::vector<Numbers>> outputs = Computed(builder);
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ExpectNear((*outputs)[0], 4, {-0.630113, -0.277312, -2.161504, 0.404948, 1.329223, -0.197497, -1.115824, 0.573172});
}

TEST(Contributed, TablesOfFewBitsGiveRows) {
  std::vector<float> scales = Values(6, 3);
  for (float& scale : scales) scale += 2;
  ModelFileBuilder builder;
  builder.Raw("table", {3, 16}, kBytes, Counting(48, 256)).Wholes("which", {2, 0}).Floats("s", {3, 2}, scales);
  builder.Raw("z", {3, 1}, kBytes, "\x53\x97\x1c");
  builder.Node("GatherBlockQuantized", {"table", "which", "s", "z"}, {"y"},
               {{"bits", int64_t{4}}, {"block_size", int64_t{16}}}, "com.microsoft");
  builder.Output("y");
  const Result<std::vector<Numbers>> outputs = Computed(builder);
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ASSERT_THAT((*outputs)[0].shape, ElementsAre(2, 32));
  const std::vector<double> first = {-14.4, 2.4, -3.6, -2.4, 1.8, 7.2, 18}, second = {-3, 1, 6, -3, -4.8, 9.6, 9.6};
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_NEAR((*outputs)[0].real[5 * i], first[i], kNear);
    EXPECT_NEAR((*outputs)[0].real[32 + 5 * i], second[i], kNear);
  }
}

TEST(Contributed, ProductsQuantiseWhatComes) {
  ModelFileBuilder builder;
  builder.Floats("x", {2, 8}, Values(16)).Raw("w", {8, 3}, kBytes, Counting(24, 120)).Scalar("s", 0.02F);
  builder.Raw("z", {}, kBytes, "\x3c").Floats("b", {3}, Values(3));
  builder.Node("DynamicQuantizeMatMul", {"x", "w", "s", "z", "b"}, {"y"}, {}, "com.microsoft").Output("y");
  const Result<std::vector<Numbers>> outputs = Computed(builder);
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ExpectNear((*outputs)[0], 1, {0.936, -0.229176, -1.222588, -0.074353, 1.645333, -1.206745});
}

TEST(Contributed, ChoicesAmongQuantisedNumbersAreRescaled) {
  ModelFileBuilder builder;
  builder.Truths("c", {4}, {true, false, true, false})
      .Raw("a", {4}, kBytes, "\x0a\x14\xc8\x28")
      .Raw("b", {4}, kBytes, "\x0a\x14\x1e\x28");
  builder.Scalar("a_s", 0.5F).Raw("a_z", {}, kBytes, "\x14").Scalar("b_s", 0.25F).Raw("b_z", {}, kBytes, "\x64");
  builder.Scalar("y_s", 1).Raw("y_z", {}, kBytes, "\x1e");
  builder.Node("QLinearWhere", {"c", "a", "a_s", "a_z", "b", "b_s", "b_z", "y_s", "y_z"}, {"y"}, {}, "com.microsoft");
  builder.Output("y", {4}, kBytes);
  const Result<std::vector<Numbers>> outputs = Computed(builder);
  ASSERT_TRUE(outputs) << outputs.error().Text();
  EXPECT_THAT((*outputs)[0].whole, ElementsAre(25, 10, 120, 15));
}

// A node of constants "a", "b", …, and what onnxruntime makes of it.
struct Small {
  std::string op;
  std::vector<std::pair<std::vector<int64_t>, std::vector<float>>> inputs;
  std::vector<ModelFileBuilder::Attribute> attributes;
  std::vector<double> wanted;
  std::string domain = "com.microsoft";
  int64_t opset = 18;
};

void ExpectSmall(const Small& each, const std::vector<std::string>& more = {},
                 const std::function<void(ModelFileBuilder&)>& add = {}) {
  ModelFileBuilder builder(each.opset);
  std::vector<std::string> names;
  for (const auto& [shape, values] : each.inputs) {
    names.emplace_back(1, static_cast<char>('a' + names.size()));
    builder.Floats(names.back(), shape, values);
  }
  if (add) add(builder);
  names.insert(names.end(), more.begin(), more.end());
  builder.Node(each.op, names, {"y"}, each.attributes, each.domain).Output("y");
  const Result<std::vector<Numbers>> outputs = Computed(builder);
  ASSERT_TRUE(outputs) << each.op << ": " << outputs.error().Text();
  SCOPED_TRACE(each.op);
  ExpectNear((*outputs)[0], 1, each.wanted);
}

TEST(Contributed, NormsAndGates) {
  const Small cases[] = {
      {"GatedRMSNorm",
       {{{1, 8}, Values(8)}, {{4}, Values(4, 3)}, {{1, 8}, Values(8, 5)}},
       {},
       {-0.353134, 0, -0.076793, -0.094575, -0.2165, -0.075554, 0.121556, 0}},
      {"BranchwiseRMSNorm",
       {{{2, 4}, Values(8)}, {{2, 2}, Values(4, 3)}},
       {{"num_branches", int64_t{2}}},
       {1.313053, -0.210088, -0.105044, 1.050442, -0.447202, 0.536643, 0.282838, 0}},
      {"LinearAttentionGate",
       {{{1, 2, 2}, Values(4)}, {{2}, Values(2, 3)}, {{2}, Values(2, 5)}},
       {},
       {-0.126928, 0, -0.220417, 0}},
      {"ScaledSiLU", {{{3}, Values(3)}, {{}, {2}}}, {}, {-0.238406, 0.55198, -0.24802}},
      {"GatedAdd", {{{2, 2}, Values(4)}, {{2, 2}, Values(4, 3)}, {{2, 1}, Values(2, 5)}}, {}, {0, 0.8, -0.4, 1}}};
  for (const Small& each : cases) ExpectSmall(each);
}

TEST(Contributed, RegionsWindowsAndPlaces) {
  ExpectSmall({"UnfoldTensor",
               {{{5}, Values(5)}},
               {{"size", int64_t{3}}, {"step", int64_t{2}}, {"dim", int64_t{0}}},
               {-1, 0.4, -0.4, -0.4, 1, 0.2}});
  ExpectSmall({"ExpandDims", {{{2, 2}, Values(4)}}, {}, {-1, 0.4, -0.4, 1}}, {"axis"},
              [](ModelFileBuilder& builder) { builder.Raw("axis", {}, kInts, BytesOf<int32_t>({-2})); });
  ExpectSmall({"ConvTransposeWithDynamicPads",
               {{{1, 1, 2, 2}, Values(4)}, {{1, 1, 3, 3}, Values(9, 3)}},
               {{"strides", std::vector<int64_t>{2, 2}}},
               {-1.8, -0.2, -0.48, -1.32, -1, -1.84, -1.32, -1, -1.32, -0.68, -0.12, -1.8, -1.16, -1.4, -0.36, 0}},
              {"pads", "bias"}, [](ModelFileBuilder& builder) {
                builder.Wholes("pads", {1, 0, 0, 1}).Floats("bias", {1}, Values(1, 2));
              });
  for (const bool is_nearest : {false, true}) {
    const std::vector<double> between = {-0.196, -0.033, 9, -0.008, 0.276, 9}, nearest = {0.4, -0.4, 1, 0.6, -0.2, -1};
    ExpectSmall({"CropAndResize",
                 {{{1, 1, 4, 4}, Values(16)}, {{1, 4}, {0.1F, 0.2F, 0.8F, is_nearest ? 1 : 1.1F}}},
                 {{"extrapolation_value", 9.0F}, {"mode", std::string(is_nearest ? "nearest" : "bilinear")}},
                 is_nearest ? nearest : between},
                {"image", "size"}, [](ModelFileBuilder& builder) {
                  builder.Raw("image", {1}, kInts, BytesOf<int32_t>({0}));
                  builder.Raw("size", {2}, kInts, BytesOf<int32_t>({2, 3}));
                });
  }
}

TEST(Contributed, WordsThatWouldRepeatARunAreRuledOut) {
  ModelFileBuilder builder;
  builder.Raw("words", {1, 5}, kWords, BytesOf<int64_t>({1, 2, 3, 1, 2})).Floats("scores", {1, 4}, Values(4));
  builder.Node("NGramRepeatBlock", {"words", "scores"}, {"y"}, {{"ngram_size", int64_t{3}}}, "com.microsoft");
  const Result<std::vector<Numbers>> outputs = Computed(builder.Output("y"));
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ExpectNear((*outputs)[0], 1, {-1, 0.4, -0.4});
  EXPECT_EQ((*outputs)[0].real[3], -std::numeric_limits<double>::infinity());
}

TEST(Contributed, PoolsOfBytesMayHaveTheirChannelsLast) {
  ModelFileBuilder builder;
  builder.Raw("x", {1, 2, 4, 2}, kBytes, Counting(16, 256)).Scalar("x_s", 0.02F).Raw("x_z", {}, kBytes, "\x64");
  builder.Scalar("y_s", 0.03F).Raw("y_z", {}, kBytes, "\x5a");
  builder.Node("QLinearAveragePool", {"x", "x_s", "x_z", "y_s", "y_z"}, {"y"},
               {{"channels_last", int64_t{1}},
                {"kernel_shape", std::vector<int64_t>{2, 2}},
                {"strides", std::vector<int64_t>{1, 2}}},
               "com.microsoft");
  builder.Output("y", {1, 1, 2, 2}, kBytes);
  const Result<std::vector<Numbers>> outputs = Computed(builder);
  ASSERT_TRUE(outputs) << outputs.error().Text();
  EXPECT_THAT((*outputs)[0].whole, ElementsAre(61, 86, 117, 99));
}

TEST(Contributed, ProductsOfSixteenBits) {
  ModelFileBuilder builder;
  builder.Raw("a", {1, 2}, 5, BytesOf<int16_t>({300, -200})).Raw("b", {2, 1}, 5, BytesOf<int16_t>({100, 7}));
  builder.Node("MatMulInteger16", {"a", "b"}, {"y"}, {}, "com.microsoft").Output("y", {1, 1}, kInts);
  const Result<std::vector<Numbers>> outputs = Computed(builder);
  ASSERT_TRUE(outputs) << outputs.error().Text();
  EXPECT_THAT((*outputs)[0].whole, ElementsAre(28600));
}

TEST(Contributed, TablesMayHaveNumbersOfFourBitsOfTheirOwn) {
  std::string halves;
  for (int i = 0; i < 32; i += 2)
    halves.push_back(static_cast<char>((i * 5 % 16 + 8) % 16 | (i * 5 % 16 + 13) % 16 << 4));
  ModelFileBuilder builder;
  builder.Raw("table", {2, 16}, 22, halves).Wholes("which", {1}).Floats("s", {2, 1}, {0.9F, 1.04F});
  builder.Node("GatherBlockQuantized", {"table", "which", "s"}, {"y"},
               {{"block_size", int64_t{16}}, {"gather_axis", int64_t{0}}, {"quantize_axis", int64_t{1}}},
               "com.microsoft");
  const Result<std::vector<Numbers>> outputs = Computed(builder.Output("y"));
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ExpectNear((*outputs)[0], 3, {-8.32, 7.28, 6.24, 5.2, 4.16, 3.12});
}

TEST(Contributed, OperatorsThatOnnxDroppedAreTaken) {
  using Floats = std::vector<float>;
  const std::pair<std::vector<int64_t>, Floats> image = {{1, 2, 2, 3}, Values(12)};
  const Small cases[] = {
      {"Affine", {image}, {{"alpha", 0.5F}, {"beta", 0.3F}}, {-0.2, 0.5, 0.1, 0.8, 0.4, 0, 0.7, 0.3, -0.1}, "", 8},
      {"ParametricSoftplus",
       {image},
       {{"alpha", 0.5F}, {"beta", 0.7F}},
       {0.201593, 0.421458, 0.281458, 0.551593},
       "",
       8},
      {"ScaledTanh", {image}, {{"alpha", 0.5F}, {"beta", 0.7F}}, {-0.302184, 0.136453, -0.136453, 0.302184}, "", 8},
      {"ImageScaler",
       {image},
       {{"scale", 0.5F}, {"bias", Floats{0.1F, 0.2F}}},
       {-0.4, 0.3, -0.1, 0.6, 0.2, -0.2, 0.6, 0.2, -0.2, 0.5, 0.1, -0.3},
       "",
       8},
      {"Scale", {image}, {{"scale", 0.3F}}, {-0.3, 0.12, -0.12, 0.3}, "", 8},
      {"Crop", {image}, {{"border", std::vector<int64_t>{1, 0, 0, 1}}}, {0.4, -0.4, 0, -0.8}, "", 8}};
  for (const Small& each : cases) ExpectSmall(each);
}

TEST(Contributed, NormalisationHadOtherAttributesInOldOpsets) {
  ExpectSmall({"MeanVarianceNormalization",
               {{{2, 2, 1, 2}, Values(8)}},
               {{"across_channels", int64_t{1}}, {"normalize_variance", int64_t{0}}},
               {-1.05, 0.35, -0.45, 0.95, 0.15, -0.65, 0.75, -0.05},
               "",
               8});
}

TEST(Contributed, OfLayoutsForOneProcessorItIsSaidWhatToDo) {
  ModelFileBuilder builder;
  builder.Floats("x", {1, 8, 2, 2}, Values(32)).Node("ReorderInput", {"x"}, {"y"}, {}, "com.microsoft.nchwc");
  const Result<std::vector<Numbers>> outputs = Computed(builder.Output("y"));
  ASSERT_FALSE(outputs);
  EXPECT_THAT(outputs.error().Text(), HasSubstr("save the model with ORT_ENABLE_EXTENDED"));
}

}  // namespace
}  // namespace hone::contributed_test
