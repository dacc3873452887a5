// Element types that are held as wider ones: every code of every format, and networks that round to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "network/onnx/small_types.h"
#include "tests/network/contributed_models.h"

namespace hone::small_types_test {
namespace {

using namespace contributed_test;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kFloat8e4m3 = 17, kFloat8e5m2 = 19, kUint4 = 21, kInt4 = 22, kInt2 = 26;
constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

const SmallType& Type(int onnx) { return *SmallTypeOf(onnx); }

// What each code of a float means, in order.
std::vector<float> Codes(const SmallType& type) {
  std::string packed;
  const int64_t count = int64_t{1} << type.bits;
  for (int64_t code = 0; code < count; code += 8 / type.bits)
    packed.push_back(static_cast<char>(type.bits == 8 ? code : code | (code + 1) << 4));
  const std::string unpacked = Unpacked(type, packed, count);
  std::vector<float> values(static_cast<size_t>(count));
  std::memcpy(values.data(), unpacked.data(), unpacked.size());
  return values;
}

TEST(SmallTypes, FloatsAreThoseOfTheirDefinitions) {
  struct Case {
    int onnx;
    float least, largest;  // above 0
    int nans, infinities;
  };
  const Case cases[] = {{17, 0x1p-9F, 448, 2, 0},    {18, 0x1p-10F, 240, 1, 0}, {19, 0x1p-16F, 57344, 6, 2},
                        {20, 0x1p-17F, 57344, 1, 0}, {23, 0.5F, 6, 0, 0},       {24, 0x1p-127F, 0x1p127F, 1, 0}};
  for (const Case& each : cases) {
    SCOPED_TRACE(Type(each.onnx).name);
    float least = kInfinite, largest = 0;
    int nans = 0, infinities = 0;
    for (float value : Codes(Type(each.onnx))) {
      nans += static_cast<int>(std::isnan(value));
      infinities += static_cast<int>(std::isinf(value));
      if (!std::isfinite(value)) continue;
      if (value > 0) least = std::min(least, value);
      largest = std::max(largest, value);
    }
    EXPECT_EQ(least, each.least);
    EXPECT_EQ(largest, each.largest);
    EXPECT_EQ(nans, each.nans);
    EXPECT_EQ(infinities, each.infinities);
  }
}

// The nearest of all codes; of two that are equally near the one whose last bit is 0.
TEST(SmallTypes, FloatsAreRoundedToTheNearestCode) {
  std::mt19937 random(7);
  for (int onnx : {17, 18, 19, 20, 23}) {
    const SmallType& type = Type(onnx);
    SCOPED_TRACE(type.name);
    const std::vector<float> codes = Codes(type);
    std::vector<float> numbers;
    for (float value : codes)
      if (std::isfinite(value)) numbers.push_back(value);
    for (size_t i = 0; i + 1 < codes.size() / 2; ++i)  // the middle between neighbours
      if (std::isfinite(codes[i + 1])) numbers.push_back((codes[i] + codes[i + 1]) / 2);
    std::uniform_real_distribution<float> exponents(-20, 18);
    for (int i = 0; i < 2000; ++i) numbers.push_back((i % 2 == 0 ? 1.0F : -1.0F) * std::exp2(exponents(random)));
    for (float x : numbers) {
      float nearest = 0, distance = kInfinite;
      bool is_even = false;
      for (size_t code = 0; code < codes.size(); ++code) {
        if (!std::isfinite(codes[code]) || std::abs(codes[code]) > type.largest) continue;
        const float off = std::abs(codes[code] - x);
        if (off < distance || (off == distance && !is_even))
          nearest = codes[code], distance = off, is_even = code % 2 == 0;
      }
      EXPECT_EQ(RoundedTo(type, x, {}), nearest) << x;
    }
  }
}

TEST(SmallTypes, WhatIsTooLargeSaturatesOrIsNone) {
  for (float x : {1e9F, kInfinite}) {
    EXPECT_EQ(RoundedTo(Type(kFloat8e4m3), x, {}), 448);
    EXPECT_EQ(RoundedTo(Type(kFloat8e5m2), -x, {}), -57344);
    EXPECT_TRUE(std::isnan(RoundedTo(Type(kFloat8e4m3), x, {false, {}})));
    EXPECT_EQ(RoundedTo(Type(kFloat8e5m2), -x, {false, {}}), -kInfinite);
  }
  EXPECT_TRUE(std::isnan(RoundedTo(Type(kFloat8e4m3), kNan, {})));
  EXPECT_TRUE(std::signbit(RoundedTo(Type(17), -0.0F, {})));
  EXPECT_FALSE(std::signbit(RoundedTo(Type(18), -0.0F, {})));  // its code is the NaN
}

TEST(SmallTypes, PowersOfTwoAreRoundedAsWanted) {
  using Mode = SmallRounding::Mode;
  for (auto [x, up, nearest, down] :
       {std::array{1.1F, 2.0F, 1.0F, 1.0F}, std::array{1.5F, 2.0F, 2.0F, 1.0F}, std::array{4.0F, 4.0F, 4.0F, 4.0F},
        std::array{0.0F, 0x1p-127F, 0x1p-127F, 0x1p-127F}}) {
    EXPECT_EQ(RoundedTo(Type(24), x, {true, Mode::kUp}), up) << x;
    EXPECT_EQ(RoundedTo(Type(24), x, {true, Mode::kNearest}), nearest) << x;
    EXPECT_EQ(RoundedTo(Type(24), x, {true, Mode::kDown}), down) << x;
  }
}

TEST(SmallTypes, WholeNumbersShareBytes) {
  EXPECT_EQ(Unpacked(Type(kUint4), "\x21\xf3", 3), std::string("\x01\x02\x03"));
  EXPECT_EQ(Unpacked(Type(kInt4), "\x8f", 2), std::string("\xff\xf8"));
  EXPECT_EQ(Unpacked(Type(kInt2), "\xe4", 4), std::string("\x00\x01\xfe\xff", 4));
  EXPECT_EQ(PackedBytes(Type(kInt2), 5), 2U);
}

// x quantised to what its zero point is of, and back: by one scale, or one for each column.
Result<std::vector<double>> ThereAndBack(int type, const std::string& zero, const std::vector<float>& scale) {
  ModelFileBuilder builder;
  const auto many = static_cast<int64_t>(scale.size());
  const std::vector<int64_t> shape = many == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{many};
  builder.Floats("x", {2, 2}, {0.3F, -1000, 1.9F, 5}).Floats("s", shape, scale).Raw("z", shape, type, zero);
  builder.Node("QuantizeLinear", {"x", "s", "z"}, {"q"}).Node("DequantizeLinear", {"q", "s", "z"}, {"y"});
  return HONE_TRY(Computed(builder.Output("y")))[0].real;
}

TEST(SmallTypes, NetworksRoundToThem) {
  EXPECT_THAT(*ThereAndBack(kFloat8e4m3, std::string(1, '\0'), {0.5F}), ElementsAre(0.3125, -224, 1.875, 5));
  EXPECT_THAT(*ThereAndBack(kFloat8e5m2, std::string(2, '\0'), {1, 2}), ElementsAre(0.3125, -1024, 2, 5));
  EXPECT_THAT(ThereAndBack(kFloat8e4m3, "\x38", {0.5F}).error().Text(), HasSubstr("a zero point that is not 0"));
  EXPECT_THAT(*ThereAndBack(kInt4, std::string("\x01"), {0.5F}), ElementsAre(0.5, -4.5, 2, 3));
  EXPECT_THAT(*ThereAndBack(kUint4, std::string("\x21"), {0.5F, 1}), ElementsAre(0.5, -2, 2, 5));
}

// x with a scale of 1 to what `z` is of, and back: values that four bits do not hold.
ModelFileBuilder& Round(ModelFileBuilder& builder, const std::string& x, const std::string& z, const std::string& y) {
  return builder.Node("QuantizeLinear", {x, "s", z}, {y + " q"}).Node("DequantizeLinear", {y + " q", "s"}, {y});
}

ModelFileBuilder OfX() {
  ModelFileBuilder builder(21);
  builder.Floats("x", {4}, {100, -100, 3, -3}).Scalar("s", 1).Truths("yes", {}, {true}).Output("y");
  return builder;
}

TEST(SmallTypes, NetworksRoundToThemInFunctions) {
  ModelFileBuilder body(21), model = OfX();
  body.Input("x", {}).Input("s", {}).Node("Constant", {}, {"z"}).Tensor("value", {}, kInt4, std::string(1, '\0'));
  Round(body, "x", "z", "y").Output("y");
  model.Function("There", body).Node("There", {"x", "s"}, {"y"}, {}, "functions");
  EXPECT_THAT((*Computed(model))[0].real, ElementsAre(7, -8, 3, -3));
}

TEST(SmallTypes, NetworksRoundToThemInBranches) {
  for (bool is_own : {false, true}) {
    ModelFileBuilder there(21), same(21), model = OfX();
    if (is_own) there.Raw("z", {}, kInt4, std::string(1, '\0'));
    Round(there, "x", "z", "b").Output("b");
    same.Node("Identity", {"x"}, {"o"}).Output("o");
    model.Raw("z", {}, is_own ? kSignedBytes : kInt4, std::string(1, '\0')).Node("If", {"yes"}, {"y"});
    model.Body("then_branch", there).Body("else_branch", same);
    EXPECT_THAT((*Computed(model))[0].real, ElementsAre(7, -8, 3, -3)) << is_own;
  }
}

TEST(SmallTypes, TypesFollowWhatOnlyMovesAndCasts) {
  const std::vector<std::pair<std::string, std::vector<ModelFileBuilder::Attribute>>> makers = {
      {"Identity", {}}, {"Transpose", {}}, {"Squeeze", {}}, {"Cast", {{"to", int64_t{kInt4}}}}};
  for (const auto& [op, attributes] : makers) {
    ModelFileBuilder model = OfX();
    model.Raw("first", {}, op == "Cast" ? kSignedBytes : kInt4, std::string(1, '\0'));
    model.Node(op, {"first"}, {"z"}, attributes);
    EXPECT_THAT((*Computed(Round(model, "x", "z", "y")))[0].real, ElementsAre(7, -8, 3, -3)) << op;
  }
  ModelFileBuilder model = OfX();  // twice there and back: the second's type is the first's
  model.Raw("first", {}, kInt4, std::string(1, '\0')).Floats("none", {}, {0});
  model.Node("QuantizeLinear", {"none", "s", "first"}, {"z"});
  EXPECT_THAT((*Computed(Round(model, "x", "z", "y")))[0].real, ElementsAre(7, -8, 3, -3));
}

TEST(SmallTypes, ANameInAFunctionSaysNothingOfTheGraphs) {
  ModelFileBuilder body(21), model = OfX();
  body.Input("x", {}).Node("Constant", {}, {"z"}).Tensor("value", {}, kInt4, std::string(1, '\0'));
  body.Node("Identity", {"x"}, {"y"}).Output("y");
  model.Raw("z", {}, kSignedBytes, std::string(1, '\0')).Function("Same", body);
  model.Node("Same", {"x"}, {"w"}, {}, "functions");
  EXPECT_THAT((*Computed(Round(model, "w", "z", "y")))[0].real, ElementsAre(100, -100, 3, -3));
}

}  // namespace
}  // namespace hone::small_types_test
