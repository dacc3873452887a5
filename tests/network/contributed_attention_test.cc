// onnxruntime's operators of language models beside what onnxruntime 1.32 computes: caches and states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/network/contributed_models.h"

namespace hone::contributed_test {
namespace {

using testing::HasSubstr;

// A batch of two whose caches hold three and one keys before a step of one, a window, angles. Or before chunks of three
// keys, of which so many of each count.
ModelFileBuilder Grouped(bool slides, const std::vector<int32_t>& lengths = {}, int64_t window = 3) {
  const int64_t step = lengths.empty() ? 1 : 3;
  ModelFileBuilder builder;
  builder.Floats("q", {2, step, 32}, Values(64 * step))
      .Floats("k", {2, step, 16}, Values(32 * step, 3))
      .Floats("v", {2, step, 16}, Values(32 * step, 5));
  builder.Floats("past_k", {2, 1, 3, 16}, Values(96, 4)).Floats("past_v", {2, 1, 3, 16}, Values(96, 9));
  builder.Raw("last", {2}, kInts, BytesOf<int32_t>({3, 1})).Raw("total", {1}, kInts, BytesOf<int32_t>({4}));
  builder.Floats("cos", {8, 8}, Values(64, 2)).Floats("sin", {8, 8}, Values(64, 6));
  std::vector<std::string> inputs = {"q", "k", "v", "past_k", "past_v", "last", "total", "cos", "sin"};
  if (!lengths.empty()) {
    builder.Raw("lengths", {2}, kInts, BytesOf(lengths));
    inputs.resize(16);
    inputs.push_back("lengths");
  }
  builder.Node("GroupQueryAttention", inputs, {"y", "k_out", "v_out"},
               {{"num_heads", int64_t{2}},
                {"kv_num_heads", int64_t{1}},
                {"do_rotary", int64_t{1}},
                {"local_window_size", window},
                {"sliding_window_cache", int64_t{slides}}},
               "com.microsoft");
  builder.Output("y").Output("k_out").Output("v_out");
  return builder;
}

TEST(ContributedAttention, GroupedQueriesReadTheirPartOfACache) {
  const Result<std::vector<Numbers>> outputs = Computed(Grouped(false));
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ExpectNear((*outputs)[0], 8, {-0.818871, 0.462895, -0.781995, 0.480603, -0.4, 0.914732, -0.4, 0.893668});
  ExpectNear((*outputs)[1], 8, {-1, 1, 0.8, 0.6, 0.4, 0.2, -0.28, 0.92, 0, -0.2, 0.04, 0.04, 0, 0, 0, 0});
  ExpectNear((*outputs)[2], 16, {-1, -0.8, -0.6, -1, -0.4, -0.4, 0, 0});
}

// As long as all keys of the window are there, what is computed is the same.
TEST(ContributedAttention, ACacheOfAWindowDropsItsFirstKeys) {
  const Result<std::vector<Numbers>> outputs = Computed(Grouped(true));
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ExpectNear((*outputs)[0], 8, {-0.818871, 0.462895, -0.781995, 0.480603, -0.4, 0.914732, -0.4, 0.893668});
  ExpectNear((*outputs)[1], 8, {0.8, 0.6, 0.4, 0.2, -0.28, 0.92, 0, -0.2, 0.04, 0.04});
  ExpectNear((*outputs)[2], 16, {-0.8, -0.6, -1, -0.4, -0.4});
}

TEST(ContributedAttention, OfAChunkTheKeysThatCountAreKept) {
  const Result<std::vector<Numbers>> outputs = Computed(Grouped(true, {2, 1}));
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ExpectNear((*outputs)[0], 8, {-0.978268, 0.343921, -0.888449, 0.355811, -0.736479, 0.597304, -0.659248, 0.670144});
  ExpectNear((*outputs)[1], 8, {0.8, 0.6, -0.64, -1.2, 0.2, 0.12, 0, -0.2, -0.08, 0.16});
  ExpectNear((*outputs)[2], 16, {-0.8, -1, -0.4, -0.4, 0.8});
}

TEST(ContributedAttention, ACacheThatIsShorterThanItsWindowIsRefused) {
  const Result<std::vector<Numbers>> outputs = Computed(Grouped(true, {}, 4));
  ASSERT_FALSE(outputs);
  EXPECT_THAT(outputs.error().Text(), HasSubstr("a cache of 3 keys and 3 values slides over a window of 4"));
}

TEST(ContributedAttention, CachesOfBytesAreWidenedAndWrittenTo) {
  struct Case {
    int64_t bits;
    std::vector<double> y, keys, values;
  };
  const Case cases[] = {{8,
                         {-0.133251, -0.233388, -0.378733, 0.567514, -0.123692, -0.216073, -0.43276, 0.576789},
                         {0, -71, -86, -101, -116, 125, 110, 95, 80, 65, 19, 83, -43},
                         {0, -71, -76, -81, -86, -91, -96, -101, -106, -111, 104, -65, 0}},
                        {4,
                         {-0.248816, 0.180657, 0.165932, 0.130767, -0.145605, 0.001992, 0.055071, 0.178145},
                         {0, 111, 222, 77, 188, 43, 154, 9, 64, 252, 164},
                         {0, 111, 222, 82, 193, 53, 164, 24, 128, 31, 248}}};
  for (const Case& each : cases) {
    const bool is_byte = each.bits == 8;
    const int64_t width = is_byte ? 16 : 8, stride = is_byte ? 5 : 3;
    const int type = is_byte ? kSignedBytes : kBytes;
    std::vector<float> scales[2] = {Values(16, 3), Values(16, 2)};
    for (std::vector<float>& of : scales)
      for (float& scale : of) scale = is_byte ? scale * 0.002F + 0.01F : scale * 0.02F + 0.1F;
    ModelFileBuilder builder;
    builder.Floats("q", {1, 1, 32}, Values(32)).Floats("k", {1, 1, 16}, Values(16, 3));
    builder.Floats("v", {1, 1, 16}, Values(16, 5));
    builder.Raw("past_k", {1, 1, 3, width}, type, Counting(static_cast<int>(3 * width), is_byte ? 200 : 256));
    builder.Raw("past_v", {1, 1, 3, width}, type, Counting(static_cast<int>(3 * width), is_byte ? 190 : 251));
    builder.Raw("last", {1}, kInts, BytesOf<int32_t>({3})).Raw("total", {1}, kInts, BytesOf<int32_t>({4}));
    builder.Floats("k_s", {1, 1, 1, 16}, scales[0]).Floats("v_s", {1, 1, 1, 16}, scales[1]);
    builder.Node("GroupQueryAttention",
                 {"q", "k", "v", "past_k", "past_v", "last", "total", "", "", "", "", "", "k_s", "v_s"},
                 {"y", "k_out", "v_out"},
                 {{"num_heads", int64_t{2}},
                  {"kv_num_heads", int64_t{1}},
                  {"k_quant_type", std::string("PER_CHANNEL")},
                  {"v_quant_type", std::string("PER_CHANNEL")},
                  {"kv_cache_bit_width", each.bits}},
                 "com.microsoft");
    builder.Output("y").Output("k_out", {}, type).Output("v_out", {}, type);
    const Result<std::vector<Numbers>> outputs = Computed(builder);
    ASSERT_TRUE(outputs) << outputs.error().Text();
    ExpectNear((*outputs)[0], 4, each.y);
    for (size_t i = 0; i < each.keys.size(); ++i) {
      EXPECT_EQ((*outputs)[1].whole[i * static_cast<size_t>(stride)], each.keys[i]) << each.bits << " bits, " << i;
      EXPECT_EQ((*outputs)[2].whole[i * static_cast<size_t>(stride)], each.values[i]) << each.bits << " bits, " << i;
    }
  }
}

// onnxruntime's zeros there keep what follows from being no number.
TEST(ContributedAttention, QueriesBehindTheirSequenceThatSeeNoKeyGetZeros) {
  ModelFileBuilder builder;
  builder.Floats("q", {1, 3, 8}, Values(24))
      .Floats("k", {1, 3, 8}, Values(24, 3))
      .Floats("v", {1, 3, 8}, Values(24, 5));
  builder.Raw("last", {1}, kInts, BytesOf<int32_t>({0})).Raw("total", {1}, kInts, BytesOf<int32_t>({3}));
  builder.Node("GroupQueryAttention", {"q", "k", "v", "", "", "last", "total"}, {"y", "k_out", "v_out"},
               {{"num_heads", int64_t{1}}, {"kv_num_heads", int64_t{1}}, {"local_window_size", int64_t{1}}},
               "com.microsoft");
  const Result<std::vector<Numbers>> outputs = Computed(builder.Output("y"));
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ExpectNear((*outputs)[0], 8, {-1, 0, 0});
}

TEST(ContributedAttention, DecodersWriteTheirKeyIntoACacheOfAFixedLength) {
  ModelFileBuilder builder;
  builder.Floats("q", {2, 1, 16}, Values(32)).Floats("k", {2, 1, 16}, Values(32, 3));
  builder.Floats("v", {2, 1, 16}, Values(32, 5)).Floats("bias", {48}, Values(48, 2));
  builder.Raw("mask", {2, 3}, kInts, BytesOf<int32_t>({1, 0, 1, 1, 1, 1}));
  builder.Floats("past_k", {2, 2, 4, 8}, Values(128, 4)).Floats("past_v", {2, 2, 4, 8}, Values(128, 9));
  builder.Raw("before", {1}, kInts, BytesOf<int32_t>({2}));
  builder.Node("DecoderMaskedMultiHeadAttention",
               {"q", "k", "v", "mask", "", "past_k", "past_v", "before", "", "", "bias"}, {"y", "k_out", "v_out"},
               {{"num_heads", int64_t{2}}, {"past_present_share_buffer", int64_t{1}}}, "com.microsoft");
  builder.Output("y").Output("k_out").Output("v_out");
  const Result<std::vector<Numbers>> outputs = Computed(builder);
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ExpectNear((*outputs)[0], 4, {-0.591516, 0.314847, -0.09977, -0.833717, 0.398257, -0.393118, 0.21634, 0.220005});
  ExpectNear((*outputs)[1], 8, {-1, 1, 0, 0.6, 0.4, 0.2, -0.8, -0.2, -0.4, -0.6, 0.8, -1, 1, 0.8, 0, 0.4});
  ExpectNear((*outputs)[2], 8, {-1, 0.2, -0.2, 0.4, -0.6, 0.6, 0, 0.8, -0.2, 1, 0.4, -1, 0.2, -0.8, 0.6, -0.6});
}

// `steps` of two heads of keys of 4 and values of 2 elements.
ModelFileBuilder Linear(int64_t steps) {
  ModelFileBuilder builder;
  builder.Floats("q", {1, steps, 8}, Values(8 * steps)).Floats("k", {1, steps, 8}, Values(8 * steps, 3));
  builder.Floats("v", {1, steps, 4}, Values(4 * steps, 5)).Floats("s", {1, 2, 4, 2}, Values(16, 4));
  std::vector<float> decay = Values(2 * steps, 9), share = Values(steps, 2);
  if (steps > 2) {  // so that nothing grows without end
    for (float& each : decay) each -= 1;
    for (float& each : share) each *= 0.2F;
  }
  builder.Floats("g", {1, steps, 2}, decay).Floats("b", {1, steps, 1}, share);
  builder.Node("LinearAttention", {"q", "k", "v", "s", "g", "b"}, {"y", "s_out"},
               {{"q_num_heads", int64_t{2}}, {"kv_num_heads", int64_t{2}}}, "com.microsoft");
  builder.Output("y").Output("s_out");
  return builder;
}

TEST(ContributedAttention, StatesDecayForgetAndTakeIn) {
  const Result<std::vector<Numbers>> outputs = Computed(Linear(2));
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ExpectNear((*outputs)[0], 1, {0.978066, 0.196889, -0.910927, 1.377568, 0.141175, -0.013417, -0.929847, 1.419296});
  ExpectNear((*outputs)[1], 2, {-2.096, -0.32891, 0.230795, 1.150946, 5.981628, 1.962344, -2.05694, -7.052334});
}

TEST(ContributedAttention, ManyStepsOnTheHostAreThoseOfKernels) {
  const Result<std::vector<Numbers>> few = Computed(Linear(32)), many = Computed(Linear(33));
  ASSERT_TRUE(few) << few.error().Text();
  ASSERT_TRUE(many) << many.error().Text();
  for (size_t i = 0; i < (*few)[0].real.size(); ++i) ASSERT_NEAR((*few)[0].real[i], (*many)[0].real[i], 1e-6) << i;
}

TEST(ContributedAttention, ConvolutionsGoOnFromWhatCameBefore) {
  ModelFileBuilder builder;
  builder.Floats("x", {1, 3, 4}, Values(12)).Floats("w", {3, 1, 3}, Values(9, 3));
  builder.Floats("b", {3}, Values(3, 5)).Floats("s", {1, 3, 2}, Values(6, 4));
  builder.Node("CausalConvWithState", {"x", "w", "b", "s"}, {"y", "s_out"}, {{"activation", std::string("silu")}},
               "com.microsoft");
  builder.Output("y").Output("s_out");
  const Result<std::vector<Numbers>> outputs = Computed(builder);
  ASSERT_TRUE(outputs) << outputs.error().Text();
  ExpectNear((*outputs)[0], 1,
             {-0.056404, -0.134616, -0.105669, -0.271596, 0.806214, -0.228658, 0.296519, -0.275533, 2.068432, 0.086386,
              1.123057, 1.373557});
  ExpectNear((*outputs)[1], 1, {-0.4, 1, 0.8, 0, -0.2, -1});
}

TEST(ContributedAttention, AnglesAreOfTimeHeightOrWidth) {
  const std::vector<double> wanted[] = {{1.8, 0.24, 0.16, 0.2, -0.32, -0.16, -0.32, -0.2, -0.96, -0.16, 1.24, -0.24},
                                        {1.8, -0.16, 0.32, 0.2, 0.08, -0.08, -0.32, 0.28, -0.4, -0.16, -0.92, 1.6}};
  for (int64_t layout : {0, 1}) {
    ModelFileBuilder builder;
    builder.Floats("x", {1, 2, 12}, Values(24))
        .Floats("cos", {4, 6}, Values(24, 2))
        .Floats("sin", {4, 6}, Values(24, 6));
    builder.Raw("at", {3, 1, 2}, kWords, BytesOf<int64_t>({0, 1, 2, 3, 1, 0}));
    builder.Node(
        "MRotaryEmbedding", {"x", "at", "cos", "sin"}, {"y"},
        {{"num_heads", int64_t{1}}, {"mrope_section", std::vector<int64_t>{2, 2, 2}}, {"mrope_layout", layout}},
        "com.microsoft");
    builder.Output("y");
    const Result<std::vector<Numbers>> outputs = Computed(builder);
    ASSERT_TRUE(outputs) << outputs.error().Text();
    ExpectNear((*outputs)[0], 2, wanted[layout]);
  }
}

}  // namespace
}  // namespace hone::contributed_test
