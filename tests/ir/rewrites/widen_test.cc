// Operands of 16-bit floats read as f32: the kernel's function stays, to the last bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/rewrites.h"
#include "tests/support/same_function.h"

namespace hone {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Kernel> Widened(const Kernel& kernel, const std::string& tensor, StageId stage = StageId(0)) {
  return RewriteStage(kernel, "widen", stage, {tensor, "wide"});
}

std::string DenseText(const std::string& type) {
  return "kernel d(x: " + type + "[5, 30], const w: " + type +
         "[7, 30]) -> y: f32[5, 7] { y[m, n] = sum(k) x[m, k] * w[n, k] }";
}

TEST(Widen, EitherFactorOfEitherType) {
  for (const char* type : {"bf16", "f16"})
    for (const char* operand : {"x", "w"}) {
      const Kernel before = Parsed(DenseText(type));
      const Kernel after = Kept(before, Widened(before, operand));
      EXPECT_THAT(StageNames(after), ElementsAre("wide", "y"));
      EXPECT_EQ(after.tensors[FindTensor(after, "wide")].dtype, DType::kF32);
      EXPECT_FALSE(ReadsTensor(StageOf(after, "y"), FindTensor(after, operand)));
    }
}

TEST(Widen, Windows) {
  const Kernel before = Parsed("conv2d(C=3,H=6,W=5,O=4,R=3,S=3,pad=1,const=1,dtype=bf16)+bias+relu");
  Kept(before, Widened(before, "xp", FindStage(before, SumOf(before))));
}

TEST(Widen, RefusesOtherReads) {
  auto refusal = [](const std::string& text, const std::string& tensor = "x", const std::string& name = "wide") {
    return RefusalOf(RewriteStage(Parsed(text), "widen", StageId(0), {tensor, name}));
  };
  EXPECT_THAT(refusal(DenseText("f32")), HasSubstr("x is f32: f16 and bf16 are widened"));
  EXPECT_THAT(refusal(DenseText("bf16"), "z"), HasSubstr("there is no tensor z"));
  EXPECT_THAT(refusal(DenseText("bf16"), "x", "w"), HasSubstr("the name w is taken"));
  EXPECT_THAT(refusal("kernel t(x: bf16[5, 9]) -> y: bf16[9, 5] { y[n, m] = x[m, n] }"),
              HasSubstr("y reads x otherwise than converted to f32"));
}

}  // namespace
}  // namespace hone
