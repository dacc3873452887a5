// Weights of whole numbers stay what they are, in whichever way a file writes that they are dequantised.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "network/graph/evaluate_network.h"
#include "network/graph/keep_narrow.h"
#include "network/graph/simplify.h"
#include "network/onnx/import_network.h"
#include "network/run/lower_served.h"
#include "tests/network/model_files.h"
#include "tests/network/plan_interpreter.h"

namespace hone::narrow_weights_test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kBytes8 = 2, kSigned8 = 3, kBits4 = 21, kSigned4 = 22;  // ONNX's element types
constexpr int64_t kChannels = 96, kSteps = 192, kBlock = 48;          // enough to be worth it

std::string AnyNarrowBytes(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(random()));
  return bytes;
}

std::vector<float> AnyScales(int64_t count) {
  std::vector<float> scales;
  for (int64_t i = 0; i < count; ++i) scales.push_back(0.25F + static_cast<float>(i % 7) / 8);
  return scales;
}

Result<Network> ImportedNarrow(const ModelFileBuilder& builder) {
  OnnxModel model = HONE_TRY(ParseOnnx(builder.Bytes(), {"narrow.onnx", ""}));
  Network network = HONE_TRY(BuildNetwork(model, "narrow.onnx", {}));
  if (!network.left_out.empty()) return Error{ErrorKind::kUnsupported, network.left_out[0].reason, ""};
  return network;
}

// The kernels of a network, which compute what the file says. `widens`: as of a device without bytes.
std::vector<std::string> NarrowKernelsOf(const ModelFileBuilder& builder, bool widens = false) {
  Result<Network> plain = ImportedNarrow(builder), network = ImportedNarrow(builder);
  EXPECT_TRUE(plain && network) << (plain ? network : plain).error().Text();
  if (!plain || !network) return {};
  EXPECT_TRUE(Simplify(network->graph));
  const CallPlan plan = LowerServed(network->graph, {}, [&](const CallPlan& tried) {
                          Refusals refused;
                          for (const KernelCall& call : tried.calls)
                            if (widens && call.kernel.find("weights=") != std::string::npos)
                              refused.emplace(call.kernel, Error{ErrorKind::kUnsupported, "no i8", ""});
                          return refused;
                        }).value();
  const ValueNumbers inputs = RandomInputs(plain->graph, 11);
  std::vector<Numbers> data;
  for (ValueId input : plain->graph.inputs) data.push_back(inputs.at(input));
  const Result<std::vector<Numbers>> expected = EvaluateNetwork(plain->graph, data);
  const Result<std::vector<Numbers>> seen = InterpretPlan(network->graph, plan, inputs);
  EXPECT_TRUE(expected && seen) << (expected ? seen : expected).error().Text();
  constexpr double kNear = 1e-2;  // of sums of hundreds
  for (size_t i = 0; expected && seen && i < (*expected)[0].real.size(); ++i)
    EXPECT_NEAR((*seen)[0].real[i], (*expected)[0].real[i], kNear) << "element " << i;
  std::vector<std::string> kernels;
  for (const KernelCall& call : plan.calls) kernels.push_back(call.kernel);
  return kernels;
}

struct Way {
  std::string name;
  int type = kSigned8;
  bool is_by_rows = false;  // [N, K], transposed before the product
  enum Scales { kOne, kByChannel, kByBlock } scales = kByChannel;
  bool has_zeros = false;
  std::string wanted;
};

ModelFileBuilder WrittenNarrow(const Way& way) {
  const bool is_half = way.type == kSigned4 || way.type == kBits4;
  const Shape shape = way.is_by_rows ? Shape{kChannels, kSteps} : Shape{kSteps, kChannels};
  Shape parameters;
  std::vector<ModelFileBuilder::Attribute> attributes;
  if (way.scales == Way::kByChannel) {
    parameters = {kChannels};
    attributes = {{"axis", int64_t{way.is_by_rows ? 0 : 1}}};
  } else if (way.scales == Way::kByBlock) {
    parameters = way.is_by_rows ? Shape{kChannels, kSteps / kBlock} : Shape{kSteps / kBlock, kChannels};
    attributes = {{"axis", int64_t{way.is_by_rows ? 1 : 0}}, {"block_size", kBlock}};
  }
  ModelFileBuilder builder(21);
  builder.Input("x", {2, kSteps}).Floats("s", parameters, AnyScales(CountOf(parameters)));
  builder.Raw("q", shape, way.type, AnyNarrowBytes(is_half ? CountOf(shape) / 2 : CountOf(shape), 5));
  const int64_t zeros = CountOf(parameters);
  std::string zero_bytes = AnyNarrowBytes(is_half ? (zeros + 1) / 2 : zeros, 6);
  if (way.has_zeros) builder.Raw("z", parameters, way.type, zero_bytes);
  builder.Node("DequantizeLinear", {"q", "s", way.has_zeros ? "z" : ""}, {"w"}, attributes);
  if (way.is_by_rows) builder.Node("Transpose", {"w"}, {"t"}, {{"perm", std::vector<int64_t>{1, 0}}});
  builder.Node("MatMul", {"x", way.is_by_rows ? "t" : "w"}, {"y"}).Output("y", {2, kChannels});
  return builder;
}

class NarrowWeights : public testing::TestWithParam<Way> {};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

TEST_P(NarrowWeights, AreMultipliedAsTheyAre) {
  const std::vector<std::string> kernels = NarrowKernelsOf(WrittenNarrow(GetParam()));
  ASSERT_EQ(kernels.size(), 1U) << testing::PrintToString(kernels);
  EXPECT_EQ(kernels[0], "dense(M=2,N=96,K=192,weights=" + GetParam().wanted + ",const=1)");
}

const Way kWays[] = {
    {"OneScale", kSigned8, false, Way::kOne, false, "i8"},
    {"OneScaleAndZeroPoint", kBytes8, false, Way::kOne, true, "u8,zero=1"},
    {"ByColumn", kSigned8, false, Way::kByChannel, false, "i8"},
    {"ByRow", kSigned8, true, Way::kByChannel, true, "i8,zero=1"},
    {"InBlocksOfColumns", kBytes8, false, Way::kByBlock, true, "u8,block=48,zero=1"},
    {"InBlocksOfRows", kSigned8, true, Way::kByBlock, false, "i8,block=48"},
    {"FourBits", kSigned4, false, Way::kByBlock, false, "u4,block=48"},
    {"FourBitsWithZeroPoints", kBits4, true, Way::kByBlock, true, "u4,block=48,zero=1"},
    {"FourBitsWithoutSign", kBits4, true, Way::kByChannel, false, "u4,zero=1"},
};
INSTANTIATE_TEST_SUITE_P(AsFilesWriteThem, NarrowWeights, testing::ValuesIn(kWays),
                         [](const testing::TestParamInfo<Way>& info) { return info.param.name; });

TEST(NarrowWeights, AreFloatsForDevicesWithoutBytes) {
  const std::vector<std::string> kernels = NarrowKernelsOf(WrittenNarrow(kWays[7]), true);
  EXPECT_THAT(kernels, testing::ElementsAre("dense(M=2,N=96,K=192,const=1)"));
}

TEST(NarrowWeights, ScalesAlongTheSumAreNoScalesOfRows) {
  ModelFileBuilder builder(21);
  builder.Input("x", {2, kSteps}).Floats("s", {kSteps}, AnyScales(kSteps));
  builder.Raw("q", {kSteps, kChannels}, kSigned8, AnyNarrowBytes(kSteps * kChannels, 5));
  builder.Node("DequantizeLinear", {"q", "s"}, {"w"}, {{"axis", int64_t{0}}});
  builder.Node("MatMul", {"x", "w"}, {"y"}).Output("y", {2, kChannels});
  const std::vector<std::string> kernels = NarrowKernelsOf(builder);
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_THAT(kernels[0], Not(HasSubstr("weights")));
}

// Weights in the form of MatMulNBits, with what comes after the product in its kernel.
TEST(NarrowWeights, OfMatMulNBitsAreReadAsTheFileHasThem) {
  ModelFileBuilder builder;
  builder.Input("x", {1, 1, 64}).Input("r", {1, 1, 24});
  builder.Raw("w", {24, 2, 16}, kBytes8, AnyNarrowBytes(24 * 32, 7)).Floats("s", {48}, AnyScales(48));
  builder.Raw("z", {24}, kBytes8, AnyNarrowBytes(24, 8));
  builder.Node("MatMulNBits", {"x", "w", "s", "z"}, {"p"},
               {{"K", int64_t{64}}, {"N", int64_t{24}}, {"bits", int64_t{4}}, {"block_size", int64_t{32}}},
               "com.microsoft");
  builder.Node("Add", {"r", "p"}, {"y"}).Output("y", {1, 1, 24});
  const std::vector<std::string> kernels = NarrowKernelsOf(builder);
  EXPECT_THAT(kernels, testing::ElementsAre("dense(M=1,N=24,K=64,weights=u4,block=32,zero=1,const=1)+add"));
}

}  // namespace
}  // namespace hone::narrow_weights_test
