// Factors of f32 as numbers of 16 bits: the kernel's function stays, but for rounding
// (tests/build/instruction_test.cc runs it).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/rewrites.h"
#include "tests/support/same_function.h"

namespace hone::bf16_factors_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kConv = "conv2d(C=3,H=6,W=5,O=4,R=3,S=3,pad=1,const=1)+bias+relu";
constexpr const char* kStrided =
    "kernel k(x: f32[C, 2*H + 1], const w: f32[O, C, 3], b: f32[O]) -> y: f32[O, H] where C=5, H=6, O=3 {\n"
    "  t: f32[O, H]\n  t[o, h] = sum(c, r < 3) w[o, c, r] * x[c, 2*h + r]\n  y[o, h] = t[o, h] + b[o]\n}";

Result<Kernel> Narrowed(const Kernel& kernel, const char* rewrite) {
  return RewriteStage(kernel, rewrite, FindStage(kernel, SumOf(kernel)), {"xb", "wb"});
}

TEST(Bf16Factors, KeepTheFunctionOverRealNumbers) {
  for (const char* text : {"dense(M=5,N=7,K=30,const=1)", "matmul(M=4,N=3,K=9,ta=1)", kConv, kStrided})
    for (const char* rewrite : {"bf16_factors", "bf16_pieces"}) {
      const Kernel before = Parsed(text);
      Kept(before, Narrowed(before, rewrite));
    }
}

TEST(Bf16Factors, ArePiecesAlongOneMoreAxisOfTheSum) {
  const Kernel before = Parsed("dense(M=5,N=7,K=30,const=1)");
  const Kernel rounded = *Narrowed(before, "bf16_factors"), in_pieces = *Narrowed(before, "bf16_pieces");
  EXPECT_THAT(StageNames(rounded), ElementsAre("xb", "wb", "y"));
  EXPECT_THAT(AxisNames(StageOf(rounded, "y").reduce_axes), ElementsAre("k"));
  EXPECT_THAT(AxisNames(StageOf(in_pieces, "y").reduce_axes), ElementsAre("k", "piece"));
  for (const char* factor : {"xb", "wb"})
    EXPECT_EQ(in_pieces.tensors[FindTensor(in_pieces, factor)].dtype, DType::kBF16);
}

TEST(Bf16Factors, RefuseWhatIsNoProductOfTwoElements) {
  auto refusal = [](const std::string& text, const std::string& second = "wb") {
    const Kernel kernel = Parsed(text);
    return RefusalOf(RewriteStage(kernel, "bf16_factors", FindStage(kernel, SumOf(kernel)), {"xb", second}));
  };
  const std::string none = "is no sum of products of two elements of f32";
  EXPECT_THAT(refusal("dense(M=5,N=7,K=30,dtype=bf16)"), HasSubstr(none));
  EXPECT_THAT(refusal("kernel k(x: f32[9]) -> y: f32[1] { y[i] = sum(j) x[j] }"), HasSubstr(none));
  EXPECT_THAT(refusal("kernel k(x: f32[9], w: f32[9]) -> y: f32[1] { y[i] = max(j) x[j] * w[j] }"), HasSubstr(none));
  EXPECT_THAT(refusal("kernel k(x: f32[9], w: f32[9]) -> y: f32[1] { y[i] = sum(j) (x[j] + 1) * w[j] }"),
              HasSubstr(none));
  // A border that is read: its zeros are no elements of x.
  EXPECT_THAT(refusal("kernel k(x: f32[9], w: f32[3]) -> y: f32[9] { y[i] = sum(j < 3) pad(x[i + j - 1], 0) * w[j] }"),
              HasSubstr(none));
  EXPECT_THAT(refusal("dense(M=5,N=7,K=30)", "x"), HasSubstr("the name x is taken"));
  EXPECT_THAT(refusal("dense(M=5,N=7,K=30)", "xb"), HasSubstr("the name xb is taken"));
}

}  // namespace
}  // namespace hone::bf16_factors_test
