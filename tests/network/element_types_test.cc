// Every element type computes what ONNX says: whole numbers of 64 bits in 64 bits, narrow ones wrap around, small
// floats round once an operation; indices from data are checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "network/graph/simplify.h"
#include "network/onnx/import_network.h"
#include "network/onnx/onnx_model.h"
#include "network/run/kernel_calls.h"
#include "network/run/missing_operators.h"
#include "tests/network/model_files.h"
#include "tests/network/plan_interpreter.h"

namespace hone::element_types_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// ONNX's numbers.
constexpr int kUint8 = 2, kInt32 = 6, kInt64 = 7, kBool = 9, kHalf = 10, kUint32 = 12, kUint64 = 13;

Numbers Wholes(DType dtype, Shape shape, std::vector<int64_t> values) {
  Numbers numbers = MakeNumbers(dtype, std::move(shape));
  numbers.whole = std::move(values);
  return numbers;
}

Numbers Reals(DType dtype, Shape shape, std::vector<double> values) {
  Numbers numbers = MakeNumbers(dtype, std::move(shape));
  numbers.real = std::move(values);
  return numbers;
}

// The model's outputs, as its plan computes them.
Result<std::vector<Numbers>> RunPlan(const ModelFileBuilder& builder, const std::vector<Numbers>& data) {
  OnnxModel model = HONE_TRY(ParseOnnx(builder.Bytes(), {"types.onnx", ""}));
  Network network = HONE_TRY(BuildNetwork(model, "types.onnx", {}));
  HONE_TRY(CheckComplete(network, "types.onnx"));
  HONE_TRY(Simplify(network.graph));
  CallPlan plan = Lower(network.graph);
  ValueNumbers inputs;
  for (size_t i = 0; i < data.size(); ++i) inputs.emplace(network.graph.inputs[i], data[i]);
  return InterpretPlan(network.graph, plan, inputs);
}

std::vector<int64_t> WholesOf(const ModelFileBuilder& builder, const std::vector<Numbers>& data) {
  Result<std::vector<Numbers>> outputs = RunPlan(builder, data);
  EXPECT_TRUE(outputs) << outputs.error().Text();
  return outputs ? (*outputs)[0].whole : std::vector<int64_t>();
}

std::vector<double> RealsOf(const ModelFileBuilder& builder, const std::vector<Numbers>& data) {
  Result<std::vector<Numbers>> outputs = RunPlan(builder, data);
  EXPECT_TRUE(outputs) << outputs.error().Text();
  return outputs ? (*outputs)[0].real : std::vector<double>();
}

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(ElementTypes, RangesOfWholeNumbersAreExact) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
  auto range = [](int64_t start, int64_t limit, int64_t step) {
    ModelFileBuilder builder;
    builder.WholeScalar("start", start).WholeScalar("limit", limit).WholeScalar("step", step);
    builder.Node("Range", {"start", "limit", "step"}, {"y"}).Output("y", {}, kInt64);
    return builder;
  };
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;  // no double is this number
  EXPECT_THAT(WholesOf(range(kOdd, kOdd + 3, 2), {}), ElementsAre(kOdd, kOdd + 2));
  EXPECT_THAT(WholesOf(range(kMost, kLeast, kLeast), {}), ElementsAre(kMost, -1));
  EXPECT_THAT(WholesOf(range(10, 0, -3), {}), ElementsAre(10, 7, 4, 1));
  EXPECT_THAT(WholesOf(range(0, 9, 3), {}), ElementsAre(0, 3, 6));
  EXPECT_THAT(WholesOf(range(3, 0, 1), {}), ElementsAre());
  for (const auto& [start, limit, step] : {std::tuple{kLeast, kMost, int64_t{1}}, {int64_t{0}, int64_t{5}, int64_t{0}}})
    EXPECT_FALSE(RunPlan(range(start, limit, step), {}));
}

TEST(WideNumbers, SumsAndProductsHave64Bits) {
  ModelFileBuilder sum;
  sum.Input("x", {2}, kInt64)
      .Wholes("far", {int64_t{1} << 40})
      .Node("Add", {"x", "far"}, {"y"})
      .Output("y", {2}, kInt64);
  EXPECT_THAT(WholesOf(sum, {Wholes(DType::kI64, {2}, {1, -1})}),
              ElementsAre((int64_t{1} << 40) + 1, (int64_t{1} << 40) - 1));
  ModelFileBuilder product;
  product.Input("x", {2}, kInt64).Input("z", {2}, kInt64).Node("Mul", {"x", "z"}, {"y"}).Output("y", {2}, kInt64);
  EXPECT_THAT(WholesOf(product, {Wholes(DType::kI64, {2}, {100000, kMost}), Wholes(DType::kI64, {2}, {100000, -1})}),
              ElementsAre(10'000'000'000, -kMost));
}

TEST(WideNumbers, ReductionsAndMatrixProductsHave64Bits) {
  ModelFileBuilder total;
  total.Input("x", {3}, kInt64).Node("ReduceSum", {"x"}, {"y"}).Output("y", {1}, kInt64);
  EXPECT_THAT(WholesOf(total, {Wholes(DType::kI64, {3}, {1 << 30, 1 << 30, 1 << 30})}), ElementsAre(3'221'225'472));
  ModelFileBuilder largest;
  largest.Input("x", {3}, kInt64).Node("ReduceMax", {"x"}, {"y"}).Output("y", {1}, kInt64);
  EXPECT_THAT(WholesOf(largest, {Wholes(DType::kI64, {3}, {kMost - 1, kMost, -kMost})}), ElementsAre(kMost));
  ModelFileBuilder product;
  product.Input("x", {1, 2}, kInt64).Input("z", {2, 1}, kInt64).Node("MatMul", {"x", "z"}, {"y"});
  product.Output("y", {1, 1}, kInt64);
  EXPECT_THAT(WholesOf(product,
                       {Wholes(DType::kI64, {1, 2}, {(int64_t{1} << 53) + 1, 2}), Wholes(DType::kI64, {2, 1}, {1, 0})}),
              ElementsAre((int64_t{1} << 53) + 1));
}

TEST(WideNumbers, CastsKeepWhatFits64Bits) {
  ModelFileBuilder widened;
  widened.Input("x", {2}).Node("Cast", {"x"}, {"y"}, {{"to", int64_t{kInt64}}}).Output("y", {2}, kInt64);
  EXPECT_THAT(WholesOf(widened, {Reals(DType::kF32, {2}, {3e9, -3e9})}), ElementsAre(3'000'000'000, -3'000'000'000));
  ModelFileBuilder compared;
  compared.Input("x", {1}, kInt64).Wholes("far", {(int64_t{1} << 32) + 5}).Node("Equal", {"x", "far"}, {"y"});
  compared.Output("y", {1}, kBool);
  EXPECT_THAT(WholesOf(compared, {Wholes(DType::kI64, {1}, {5})}), ElementsAre(0));
}

TEST(NarrowNumbers, WrapAroundInTheirWidth) {
  ModelFileBuilder bytes;
  bytes.Input("x", {2}, kUint8).Input("z", {2}, kUint8).Node("Add", {"x", "z"}, {"y"}).Output("y", {2}, kUint8);
  EXPECT_THAT(WholesOf(bytes, {Wholes(DType::kU8, {2}, {200, 3}), Wholes(DType::kU8, {2}, {100, 4})}),
              ElementsAre(44, 7));
  ModelFileBuilder words;
  words.Input("x", {1}, kUint32).Input("z", {1}, kUint32).Node("Sub", {"x", "z"}, {"y"}).Output("y", {1}, kUint32);
  EXPECT_THAT(WholesOf(words, {Wholes(DType::kU32, {1}, {1}), Wholes(DType::kU32, {1}, {2})}),
              ElementsAre(4'294'967'295));
  ModelFileBuilder signs;
  signs.Input("x", {1}, kInt32).Input("z", {1}, kInt32).Node("Mul", {"x", "z"}, {"y"}).Output("y", {1}, kInt32);
  EXPECT_THAT(WholesOf(signs, {Wholes(DType::kI32, {1}, {1 << 30}), Wholes(DType::kI32, {1}, {4})}), ElementsAre(0));
}

// The highest bit is no sign.
TEST(NarrowNumbers, ThoseWithoutASignOf64BitsHaveNone) {
  ModelFileBuilder builder;
  builder.Input("x", {2}, kUint64)
      .Input("z", {2}, kUint64)
      .Node("Max", {"x", "z"}, {"m"})
      .Node("Div", {"m", "z"}, {"y"});
  builder.Output("y", {2}, kUint64);
  EXPECT_THAT(WholesOf(builder, {Wholes(DType::kU64, {2}, {-1, 6}), Wholes(DType::kU64, {2}, {2, 3})}),
              ElementsAre(kMost, 2));
}

TEST(WideNumbers, WithoutASignAreTheirOwnMagnitude) {
  ModelFileBuilder builder;
  builder.Input("x", {2}, kUint64).Node("Abs", {"x"}, {"a"}).Node("BitwiseNot", {"a"}, {"y"}).Output("y", {}, kUint64);
  EXPECT_THAT(WholesOf(builder, {Wholes(DType::kU64, {2}, {-5, 7})}), ElementsAre(4, ~int64_t{7}));
}

// 2048 + 1 is no f16, 1 + 0.5 is one.
TEST(SmallFloats, RoundWhereTheyAreStored) {
  ModelFileBuilder builder;
  builder.Input("x", {2}, kHalf).Input("z", {2}, kHalf).Node("Add", {"x", "z"}, {"a"}).Node("Sub", {"a", "x"}, {"y"});
  builder.Output("y", {2}, kHalf);
  const std::vector<Numbers> data = {Reals(DType::kF16, {2}, {2048, 1}), Reals(DType::kF16, {2}, {1, 0.5})};
  EXPECT_THAT(RealsOf(builder, data), ElementsAre(1, 0.5));
  builder.Output("a", {2}, kHalf);
  EXPECT_THAT(RealsOf(builder, data), ElementsAre(0, 0.5));
}

TEST(Indices, CountFromTheEndAndAreRefusedOutside) {
  for (const char* op : {"Gather", "GatherElements"}) {
    SCOPED_TRACE(op);
    ModelFileBuilder builder;
    builder.Input("x", {4}).Input("at", {2}, kInt64).Node(op, {"x", "at"}, {"y"}).Output("y", {2});
    const Numbers x = Reals(DType::kF32, {4}, {1, 2, 3, 4});
    EXPECT_THAT(RealsOf(builder, {x, Wholes(DType::kI64, {2}, {-4, 3})}), ElementsAre(1, 4));
    for (int64_t outside : {int64_t{4}, int64_t{-5}, (int64_t{1} << 32) + 1}) {
      Result<std::vector<Numbers>> refused = RunPlan(builder, {x, Wholes(DType::kI64, {2}, {0, outside})});
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().kind, ErrorKind::kInvalid);
      EXPECT_THAT(refused.error().Text(), HasSubstr("index " + std::to_string(outside) + " of 4 elements"));
      EXPECT_THAT(refused.error().Text(), HasSubstr("node n_y"));
    }
  }
}

TEST(Indices, OfAFileAreCheckedWhenItIsRead) {
  ModelFileBuilder fits;
  fits.Input("x", {4}).Wholes("at", {-1, 0}).Node("Gather", {"x", "at"}, {"y"}).Output("y", {2});
  EXPECT_THAT(RealsOf(fits, {Reals(DType::kF32, {4}, {1, 2, 3, 4})}), ElementsAre(4, 1));
  ModelFileBuilder outside;
  outside.Input("x", {4}).Wholes("at", {0, 4}).Node("Gather", {"x", "at"}, {"y"}).Output("y", {2});
  Result<std::vector<Numbers>> refused = RunPlan(outside, {Reals(DType::kF32, {4}, {1, 2, 3, 4})});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().Text(), HasSubstr("node n_y (Gather): index 4 of 4 elements"));
}

TEST(Quantized, RoundToEvenAndSaturate) {
  ModelFileBuilder builder(13);
  builder.Input("x", {4}).Scalar("scale", 2).Input("zero", {}, kUint8);
  builder.Node("QuantizeLinear", {"x", "scale", "zero"}, {"q"}).Output("q", {4}, kUint8);
  EXPECT_THAT(WholesOf(builder, {Reals(DType::kF32, {4}, {1, 3, 1000, -1000}), Wholes(DType::kU8, {}, {128})}),
              ElementsAre(128, 130, 255, 0));
}

TEST(Quantized, ProductsAreOfCentredNumbers) {
  ModelFileBuilder builder(13);
  builder.Input("a", {1, 2}, kUint8).Input("b", {2, 1}, kUint8).Input("za", {1}, kUint8).Input("zb", {1}, kUint8);
  builder.Node("MatMulInteger", {"a", "b", "za", "zb"}, {"y"}).Output("y", {1, 1}, kInt32);
  EXPECT_THAT(WholesOf(builder, {Wholes(DType::kU8, {1, 2}, {0, 255}), Wholes(DType::kU8, {2, 1}, {255, 0}),
                                 Wholes(DType::kU8, {1}, {255}), Wholes(DType::kU8, {1}, {255})}),
              ElementsAre(0));
  EXPECT_THAT(WholesOf(builder, {Wholes(DType::kU8, {1, 2}, {0, 255}), Wholes(DType::kU8, {2, 1}, {0, 0}),
                                 Wholes(DType::kU8, {1}, {1}), Wholes(DType::kU8, {1}, {2})}),
              ElementsAre(2 - 508));
}

// onnxruntime's own operators, as its exporters write them.
TEST(Quantized, ScalesOfBlocksMayBeNegativeOrZero) {
  ModelFileBuilder builder(21);
  builder.Input("x", {4, 1}).Raw("w", {4, 2}, 3, std::string("\1\2\3\4\5\6\7\10", 8));
  builder.Floats("s", {2, 2}, {-0.5F, 0.5F, 0, 2}).Output("y");
  builder.Node("DequantizeLinear", {"w", "s"}, {"d"}, {{"axis", int64_t{0}}, {"block_size", int64_t{2}}});
  builder.Node("Add", {"x", "d"}, {"y"});
  EXPECT_THAT(RealsOf(builder, {Reals(DType::kF32, {4, 1}, {0, 0, 0, 0})}),
              ElementsAre(-0.5, 1, -1.5, 2, 0, 12, 0, 16));
}

TEST(Contributed, ActivationsWithABias) {
  ModelFileBuilder builder;
  builder.Input("x", {2}).Floats("b", {2}, {1, -1}).Node("BiasGelu", {"x", "b"}, {"y"}, {}, "com.microsoft");
  builder.Output("y", {2});
  const std::vector<double> seen = RealsOf(builder, {Reals(DType::kF32, {2}, {0, 3})});
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_NEAR(seen[0], 0.5 * (1 + std::erf(std::sqrt(0.5))), 1e-6);
  EXPECT_NEAR(seen[1], 1 + std::erf(std::sqrt(2)), 1e-6);
}

TEST(RmsNormalization, DividesByTheRootOfTheMeanSquare) {
  ModelFileBuilder builder(23);
  builder.Input("x", {1, 2}).Floats("scale", {2}, {1, 10});
  builder.Node("RMSNormalization", {"x", "scale"}, {"y"}, {{"epsilon", 0.0F}}).Output("y", {1, 2});
  const std::vector<double> seen = RealsOf(builder, {Reals(DType::kF32, {1, 2}, {1, 7})});  // a mean square of 25
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_NEAR(seen[0], 0.2, 1e-6);
  EXPECT_NEAR(seen[1], 14, 1e-5);
}

TEST(Pad, RepeatsMirrorsAndWrapsAround) {
  struct Case {
    const char* mode;
    std::vector<double> wanted;
  };
  for (const Case& each :
       {Case{"edge", {1, 1, 1, 2, 3, 3}}, Case{"reflect", {3, 2, 1, 2, 3, 2}}, Case{"wrap", {2, 3, 1, 2, 3, 1}}}) {
    SCOPED_TRACE(each.mode);
    ModelFileBuilder builder(19);
    builder.Input("x", {3})
        .Wholes("pads", {2, 1})
        .Node("Pad", {"x", "pads"}, {"y"}, {{"mode", std::string(each.mode)}});
    builder.Output("y", {6});
    EXPECT_EQ(RealsOf(builder, {Reals(DType::kF32, {3}, {1, 2, 3})}), each.wanted);
  }
}

// 0, 1, 2 … as many as `extent`, resized to the nearest ones.
std::vector<double> ResizedToNearest(int64_t extent, float scale, const std::string& nearest) {
  ModelFileBuilder builder;
  builder.Input("x", {extent}).Floats("scales", {1}, {scale}).Output("y");
  builder.Node("Resize", {"x", "", "scales"}, {"y"},
               {{"mode", std::string("nearest")},
                {"coordinate_transformation_mode", std::string("asymmetric")},
                {"nearest_mode", nearest}});
  std::vector<double> x;
  for (int64_t i = 0; i < extent; ++i) x.push_back(static_cast<double>(i));
  return RealsOf(builder, {Reals(DType::kF32, {extent}, x)});
}

// As onnxruntime has them: 9/5 as a float is less than 9/5, 11/5 is more, and so is 2/14, by which 1 is 6.9999995.
TEST(Pad, WithWholeNumbersThatNoDoubleHolds) {
  for (int64_t fill : {(int64_t{1} << 53) + 1, kMost, -kMost}) {
    ModelFileBuilder builder;
    builder.Input("x", {2}, kInt64).Wholes("pads", {1, 1}).WholeScalar("fill", fill);
    builder.Node("Pad", {"x", "pads", "fill"}, {"y"}).Output("y", {}, kInt64);
    EXPECT_THAT(WholesOf(builder, {Wholes(DType::kI64, {2}, {1, 2})}), ElementsAre(fill, 1, 2, fill));
  }
}

TEST(Resize, SizesAndPlacesAreThoseOfFloats) {
  EXPECT_EQ(ResizedToNearest(5, 9.0F / 5, "floor").size(), 9U);
  EXPECT_EQ(ResizedToNearest(10, 11.0F / 5, "floor")[11], 5);
  EXPECT_EQ(ResizedToNearest(14, 2.0F / 14, "floor")[1], 6);
}

// 3.4999998 and 3.5000002, of 2 and 38 elements from 7.
TEST(Resize, APlaceInTheMiddleIsOneThoughRoundingMovesIt) {
  EXPECT_EQ(ResizedToNearest(7, 2.0F / 7, "round_prefer_ceil")[1], 4);
  EXPECT_EQ(ResizedToNearest(7, 38.0F / 7, "round_prefer_floor")[19], 3);
}

TEST(Empty, ReductionsOfNothingHaveTheirNeutralElement) {
  struct Case {
    const char* op;
    double wanted;
  };
  for (const Case& each :
       {Case{"ReduceSum", 0}, Case{"ReduceProd", 1}, Case{"ReduceMax", -INFINITY}, Case{"ReduceMin", INFINITY}}) {
    SCOPED_TRACE(each.op);
    ModelFileBuilder builder(13);
    builder.Input("x", {2, 0}).Node(each.op, {"x"}, {"y"}).Output("y", {1, 1});
    EXPECT_THAT(RealsOf(builder, {Reals(DType::kF32, {2, 0}, {})}), ElementsAre(each.wanted));
  }
}

TEST(Empty, TensorsFlowThrough) {
  ModelFileBuilder builder;
  builder.Input("x", {2, 0}).Input("z", {2, 3}).Node("Relu", {"x"}, {"r"});
  builder.Node("Concat", {"r", "z"}, {"y"}, {{"axis", int64_t{1}}}).Output("y", {2, 3}).Output("r", {2, 0});
  Result<std::vector<Numbers>> outputs =
      RunPlan(builder, {Reals(DType::kF32, {2, 0}, {}), Reals(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6})});
  ASSERT_TRUE(outputs) << outputs.error().Text();
  EXPECT_THAT((*outputs)[0].real, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_TRUE((*outputs)[1].real.empty());
}

}  // namespace
}  // namespace hone::element_types_test
