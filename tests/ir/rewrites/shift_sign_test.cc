// Bytes of the other sign: the kernel's function stays, for every byte that there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/rewrites.h"
#include "tests/support/same_function.h"

namespace hone {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Kernel> Shifted(const Kernel& kernel, const std::string& operand, StageId stage = StageId(0)) {
  return RewriteStage(kernel, "shift_sign", stage, {operand, "xs", "t", "ts"});
}

std::string DenseText(const std::string& x, const std::string& w) {
  return "kernel d(x: " + x + "[5, 300], const w: " + w +
         "[7, 300]) -> y: i32[5, 7] { y[m, n] = sum(k) x[m, k] * w[n, k] }";
}

TEST(ShiftSign, EitherFactorOfEitherSign) {
  for (const char* x : {"i8", "u8"})
    for (const char* w : {"i8", "u8"})
      for (const char* operand : {"x", "w"}) {
        const Kernel before = Parsed(DenseText(x, w));
        const Kernel after = Kept(before, Shifted(before, operand));
        ASSERT_EQ(after.stages.size(), 4u);
        EXPECT_THAT(StageNames(after), ElementsAre("xs", "ts", "t", "y"));
        const std::string was = operand[0] == 'x' ? x : w;
        EXPECT_EQ(after.tensors[FindTensor(after, "xs")].dtype, was == "i8" ? DType::kU8 : DType::kI8);
        // The correction does not depend on what was shifted.
        EXPECT_EQ(ReadsTensor(StageOf(after, "ts"), FindTensor(after, operand)), false);
        EXPECT_THAT(AxisNames(StageOf(after, "ts").axes), ElementsAre(operand[0] == 'x' ? "n" : "m"));
      }
}

// Sums that overflow wrap around with and without it.
TEST(ShiftSign, SumsThatWrapAround) {
  const Kernel before =
      Parsed("kernel d(x: u8[2, K], w: u8[3, K]) -> y: i32[2, 3] where K=40000 { y[m, n] = sum(k) x[m, k] * w[n, k] }");
  const Result<Kernel> after = Shifted(before, "x");
  ASSERT_TRUE(after) << after.error().message;
  Rng rng(1);
  KernelInputs inputs(before, rng);
  std::fill_n(inputs.As<uint8_t>(0), 80000, 255);
  std::fill_n(inputs.As<uint8_t>(1), 120000, 255);
  const std::vector<Reference> wanted = WholeReference(before, inputs), got = WholeReference(*after, inputs);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(wanted[i].value, got[i].value);
  EXPECT_EQ(wanted[0].value, static_cast<double>(static_cast<int32_t>(255u * 255u * 40000u)));
}

TEST(ShiftSign, Windows) {
  const Kernel before = Parsed("conv2d(C=3,H=6,W=5,O=4,R=3,S=3,pad=1,const=1,dtype=i8)+bias+relu");
  const StageId sum = FindStage(before, SumOf(before));
  const Kernel after = Kept(before, Shifted(before, "xp", sum));
  EXPECT_THAT(AxisNames(StageOf(after, "ts").axes), ElementsAre("o"));
}

TEST(ShiftSign, RefusesOtherSums) {
  auto refusal = [](const std::string& text, const std::string& operand = "x", std::vector<std::string> names = {}) {
    if (names.empty()) names = {operand, "xs", "t", "ts"};
    return RefusalOf(RewriteStage(Parsed(text), "shift_sign", StageId(0), names));
  };
  EXPECT_THAT(refusal("kernel d(x: f32[5, 9], w: f32[7, 9]) -> y: f32[5, 7] { y[m, n] = sum(k) x[m, k] * w[n, k] }"),
              HasSubstr("x is f32: only i8 and u8 have another sign"));
  EXPECT_THAT(refusal("kernel d(x: i8[5, 9]) -> y: i32[5] { y[m] = sum(k) x[m, k] }"),
              HasSubstr("y is no sum of products of i32"));
  EXPECT_THAT(refusal("kernel d(x: i8[5, 9]) -> y: i32[5] { y[m] = sum(k) x[m, k] * x[m, k] }"),
              HasSubstr("y multiplies no elements of x with others"));
  EXPECT_THAT(refusal(DenseText("i8", "i8"), "z"), HasSubstr("there is no tensor z"));
  EXPECT_THAT(refusal(DenseText("i8", "i8"), "x", {"x", "a", "a", "b"}), HasSubstr("the name a is taken"));
  EXPECT_THAT(refusal(DenseText("i8", "i8"), "x", {"x", "w", "t", "b"}), HasSubstr("the name w is taken"));
}

}  // namespace
}  // namespace hone
