// Operands of an element type that an operator does not compute with are refused, and those that it does are taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/graph/graph_builder.h"
#include "network/onnx/import_network.h"
#include "tests/network/model_files.h"

namespace hone::operand_types_test {
namespace {

using testing::HasSubstr;
using Ints = std::vector<int64_t>;
using Attributes = std::vector<ModelFileBuilder::Attribute>;

// ONNX's numbers of element types.
constexpr int kF32 = 1, kU8 = 2, kI8 = 3, kI32 = 6, kI64 = 7, kBool = 9, kF64 = 11;

struct Operand {
  Shape shape;
  int right;
  std::vector<int> wrong = {};
};

struct Case {
  std::string op;
  std::vector<Operand> operands;
  Attributes attributes = {};
  int64_t opset = 21;
};

Result<Network> Import(const ModelFileBuilder& builder) {
  OnnxModel model = HONE_TRY(ParseOnnx(builder.Bytes(), {"m.onnx", ""}));
  ImportOptions options;
  options.in_stages = true;
  return BuildNetwork(model, "m.onnx", options);
}

// One operator whose operand number `at` is of type `type`; none: all as they should be.
Result<Network> ImportOne(const Case& of, size_t at = SIZE_MAX, int type = 0) {
  constexpr std::string_view kContributed = "com.microsoft.";
  const bool is_contributed = of.op.starts_with(kContributed);
  ModelFileBuilder builder(of.opset);
  std::vector<std::string> inputs;
  for (size_t i = 0; i < of.operands.size(); ++i) {
    inputs.push_back(of.operands[i].right == 0 ? "" : "x" + std::to_string(i));
    if (!inputs.back().empty())
      builder.Input(inputs.back(), of.operands[i].shape, i == at ? type : of.operands[i].right);
  }
  builder.Wholes("size", {2, 2}).Wholes("images", {1, 1, 2, 2});
  if (of.op == "com.microsoft.CropAndResize") inputs.push_back("size");
  if (of.op == "AffineGrid") inputs.push_back("images");
  builder.Node(is_contributed ? of.op.substr(kContributed.size()) : of.op, inputs, {"y"}, of.attributes,
               is_contributed ? "com.microsoft" : "");
  return Import(builder.Output("y"));
}

TEST(OperandTypes, OthersThanAnOperatorComputesWithAreRefused) {
  const std::vector<int> no_floats = {kF32, kF64}, no_wholes = {kI64, kBool};
  const std::vector<Case> cases = {
      {"RoiAlign", {{{1, 2, 8, 8}, kF32, no_wholes}, {{3, 4}, kF32, no_wholes}, {{3}, kI64, no_floats}}},
      {"com.microsoft.CropAndResize",
       {{{1, 2, 8, 8}, kF32, no_wholes}, {{3, 4}, kF32, no_wholes}, {{3}, kI32, no_floats}}},
      {"GridSample", {{{1, 1, 4, 4}, kF32, no_wholes}, {{1, 2, 2, 2}, kF32, no_wholes}}},
      {"AffineGrid", {{{1, 2, 3}, kF32, no_wholes}}},
      {"ReverseSequence", {{{4, 3, 2}, kF32}, {{3}, kI64, no_floats}}},
      {"TensorScatter",
       {{{1, 8, 2}, kF64, {kBool, kF32}}, {{1, 4, 2}, kF64, {kBool, kI64}}, {{1}, kI64, no_floats}},
       {{"axis", int64_t{1}}},
       24},
      {"ScatterElements", {{{4, 3}, kF32, {kI64, kF64}}, {{2, 3}, kI64, no_floats}, {{2, 3}, kF32, {kI64, kF64}}}},
      {"ScatterND", {{{4, 3}, kF32, {kI64, kF64}}, {{2, 1}, kI64, no_floats}, {{2, 3}, kF32, {kI64, kF64}}}},
      {"GatherElements", {{{4, 3}, kF32}, {{2, 3}, kI64, {kF32, kBool}}}},
      {"GatherND", {{{4, 3, 2}, kF32}, {{2, 2}, kI64, no_floats}}},
      {"MaxUnpool",
       {{{1, 1, 2, 2}, kF32}, {{1, 1, 2, 2}, kI64, no_floats}},
       {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}}},
      {"BitwiseAnd", {{{2, 4}, kI32, no_floats}, {{2, 4}, kI32, no_floats}}},
      {"BitShift", {{{2, 4}, kU8, no_floats}, {{2, 4}, kU8, no_floats}}, {{"direction", std::string("LEFT")}}},
      {"BitwiseNot", {{{2, 4}, kI32, no_floats}}},
      {"Not", {{{2, 4}, kBool, no_floats}}},
      {"NegativeLogLikelihoodLoss",
       {{{3, 5}, kF32, no_wholes}, {{3}, kI64, no_floats}, {{5}, kF32, {kI64, kF64}}},
       {{"reduction", std::string("sum")}}},
      {"SoftmaxCrossEntropyLoss", {{{3, 5}, kF32, no_wholes}, {{3}, kI64, no_floats}, {{5}, kF32, {kI64, kF64}}}},
      {"DeformConv",
       {{{1, 1, 3, 3}, kF32, {kI64, kF64}}, {{1, 1, 2, 2}, kF32, {kI64, kF64}}, {{1, 8, 2, 2}, kF32, {kI64, kF64}}}},
      {"GRU",
       {{{70, 1, 2}, kF32, {kI64, kF64}},
        {{1, 9, 2}, kF32, {kI64, kF64}},
        {{1, 9, 3}, kF32, {kI64, kF64}},
        {{1, 18}, kF32, {kI64, kF64}},
        {{1}, kI32, no_floats},
        {{1, 1, 3}, kF32, {kI64, kF64}}}},
      {"LSTM",
       {{{70, 1, 2}, kF32, {kI64, kF64}},
        {{1, 12, 2}, kF32, {kI64, kF64}},
        {{1, 12, 3}, kF32, {kI64, kF64}},
        {{}, 0},
        {{}, 0},
        {{1, 1, 3}, kF32, {kI64, kF64}},
        {{1, 1, 3}, kF32, {kI64, kF64}},
        {{1, 9}, kF32, {kI64, kF64}}}},
      {"com.microsoft.NGramRepeatBlock",
       {{{2, 6}, kI64, no_floats}, {{2, 9}, kF32, no_wholes}},
       {{"ngram_size", int64_t{2}}}},
      {"com.microsoft.MatMulBnb4",
       {{{2, 8}, kF32, no_wholes}, {{16}, kU8, no_floats}, {{2}, kF32, no_wholes}},
       {{"N", int64_t{4}}, {"K", int64_t{8}}, {"block_size", int64_t{16}}}},
      {"com.microsoft.MatMulNBits",
       {{{2, 16}, kF32, no_wholes}, {{4, 1, 8}, kU8, no_floats}, {{4}, kF32, no_wholes}},
       {{"N", int64_t{4}}, {"K", int64_t{16}}, {"block_size", int64_t{16}}}},
      {"DequantizeLinear", {{{2, 4}, kU8, {kF64}}, {{}, kF32, no_wholes}, {{}, kU8, no_floats}}},
      {"QuantizeLinear", {{{2, 4}, kF32}, {{}, kF32, no_wholes}, {{}, kI8, no_floats}}},
      {"Einsum", {{{2, 3}, kI32, {kF32}}, {{3, 4}, kI32, {kF32}}}, {{"equation", std::string("ij,jk->ik")}}},
      {"Multinomial", {{{2, 4}, kF32, no_wholes}}},
      {"DFT", {{{1, 8, 1}, kF32, no_wholes}}, {}, 20},
      {"Softmax", {{{2, 4}, kF32, no_wholes}}},
      {"ImageScaler", {{{1, 2, 4, 4}, kF32, {kI32}}}, {{"bias", std::vector<float>{1, 2}}, {"scale", 2.0F}}, 6}};
  for (const Case& each : cases) {
    const Result<Network> right = ImportOne(each);
    ASSERT_TRUE(right) << each.op << ": " << right.error().Text();
    EXPECT_TRUE(right->left_out.empty()) << each.op << ": " << right->left_out[0].reason;
    for (size_t i = 0; i < each.operands.size(); ++i) {
      for (int type : each.operands[i].wrong) {
        const Result<Network> wrong = ImportOne(each, i, type);
        EXPECT_FALSE(wrong && wrong->left_out.empty()) << each.op << " with operand " << i + 1 << " of type " << type;
      }
    }
  }
}

TEST(OperandTypes, AreWhatAHostOperationSays) {
  const std::vector<DType> right = {DType::kF64, DType::kBool, DType::kF64, DType::kI8};
  auto made = [&](size_t at, DType type) {
    Graph graph;
    Builder build(graph, "n");
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < right.size(); ++i) inputs.push_back(build.Scalar(1, i == at ? type : right[i]));
    return build.Host({"Op", "rw=.", {{DType::kF32, {}}}}, inputs);
  };
  EXPECT_TRUE(made(3, DType::kF16));
  EXPECT_TRUE(made(1, DType::kU64));
  for (const auto& [at, type, words] : {std::tuple(0, DType::kI32, "operand 1 of Op holds i32, wanted floats"),
                                        {1, DType::kF32, "operand 2 of Op holds f32, wanted whole numbers"},
                                        {2, DType::kF32, "operand 3 of Op holds f32, wanted f64"}}) {
    const auto wrong = made(static_cast<size_t>(at), type);
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().kind, ErrorKind::kInvalid);
    EXPECT_THAT(wrong.error().Text(), HasSubstr(words));
  }
}

}  // namespace
}  // namespace hone::operand_types_test
