// Reductions of whole groups: zeros at the end of both factors change nothing.
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

Result<Kernel> Padded(const Kernel& kernel, const std::string& axis, int64_t multiple, StageId stage = StageId(0)) {
  return RewriteStage(kernel, "pad_reduction", stage, {axis, "a", "b"}, {multiple});
}

TEST(PadReduction, OfEveryTypeAndMultiple) {
  for (const char* type : {"i8", "u8", "i32", "bf16", "f16", "f32", "f64"})
    for (int64_t multiple : {2, 4, 16}) {
      const std::string product = std::string(type)[0] == 'f' || std::string(type)[0] == 'b' ? "f64(sum" : "(sum";
      const std::string text = std::string("kernel d(x: ") + type + "[3, 9], w: " + type +
                               "[4, 9]) -> y: " + (product[0] == 'f' ? "f64" : "i32") +
                               "[3, 4] { y[m, n] = " + product + "(k) x[m, k] * w[n, k]) }";
      const Kernel before = Parsed(text);
      const Kernel after = Kept(before, Padded(before, "k", multiple));
      ASSERT_GE(after.stages.size(), 3u) << text;
      const Stage& sum = after.stages[StageId(2)];
      EXPECT_EQ(EvalExtent(after, sum.reduce_axes[0].extent), (9 + multiple - 1) / multiple * multiple);
    }
}

// What is padded already is padded further: one copy of the image, not two.
TEST(PadReduction, OfChannelsOfAWindow) {
  const Kernel before = Parsed("conv2d(C=3,H=6,W=5,O=4,R=3,S=3,pad=1,const=1,dtype=u8)+bias");
  const StageId sum = FindStage(before, SumOf(before));
  const Kernel after = Kept(before, Padded(before, "c", 4, sum));
  EXPECT_THAT(StaticShape(after, after.tensors[FindTensor(after, "a")]), ElementsAre(1, 4, 8, 7));
  EXPECT_THAT(StaticShape(after, after.tensors[FindTensor(after, "b")]), ElementsAre(4, 4, 3, 3));
  EXPECT_FALSE(ReadsTensor(StageOf(after, "a"), FindTensor(after, "xp")));
}

// A factor that is read in windows goes on behind its end, into anything: the other one has zeros there.
TEST(PadReduction, OfAWindowsRow) {
  const Kernel before = Parsed("depthwise_conv2d(C=2,H=6,W=5,R=3,S=3,pad=1,const=1,dtype=u8)+bias");
  const StageId sum = FindStage(before, SumOf(before));
  const Kernel after = Kept(before, Padded(before, "s", 4, sum));
  EXPECT_THAT(StaticShape(after, after.tensors[FindTensor(after, "a")]), ElementsAre(1, 2, 8, 8));
  EXPECT_THAT(StaticShape(after, after.tensors[FindTensor(after, "b")]), ElementsAre(2, 1, 3, 4));
  EXPECT_FALSE(ReadsTensor(StageOf(after, "a"), FindTensor(after, "xp")));
  for (const char* text : {"kernel d(x: i8[3, 9], w: i8[5]) -> y: i32[3] { y[m] = sum(k < 5) x[m, k + 2] * w[k] }",
                           "kernel d(x: i8[9], w: i8[3]) -> y: i32[4] { y[m] = sum(k) x[2*m + k] * w[k] }",
                           "kernel d(x: u8[9], w: i8[3]) -> y: i32[9] { p: u8[12] p[i] = pad(x[i - 1], 3) y[m] = "
                           "sum(k) p[m + k] * w[k] }"}) {
    const Kernel windows = Parsed(text);
    Kept(windows, Padded(windows, "k", 4, FindStage(windows, "y")));
  }
}

// Infinity in one factor meets a zero of the other's nowhere.
TEST(PadReduction, OfInfinities) {
  const Kernel before =
      Parsed("kernel d(x: f32[2, 5], w: f32[3, 5]) -> y: f32[2, 3] { y[m, n] = sum(k) x[m, k] * w[n, k] }");
  const Result<Kernel> after = Padded(before, "k", 8);
  ASSERT_TRUE(after) << after.error().message;
  Rng rng(1);
  KernelInputs inputs(before, rng);
  std::fill_n(inputs.As<float>(0), 10, std::numeric_limits<float>::infinity());
  std::fill_n(inputs.As<float>(1), 15, 1.0f);
  for (const Reference& reference : WholeReference(*after, inputs))
    EXPECT_EQ(reference.value, std::numeric_limits<double>::infinity());
}

TEST(PadReduction, RefusesOtherReductions) {
  auto refusal = [](const std::string& text, const std::string& axis = "k", int64_t multiple = 4) {
    return RefusalOf(Padded(Parsed(text), axis, multiple));
  };
  const std::string dense = "kernel d(x: i8[3, 9], w: i8[4, 9]) -> y: i32[3, 4] { y[m, n] = sum(k) x[m, k] * w[n, k] }";
  EXPECT_THAT(refusal(dense, "m"), HasSubstr("y does not reduce over m"));
  EXPECT_THAT(refusal(dense, "k", 3), HasSubstr("k has 9 elements: nothing is left over"));
  EXPECT_THAT(refusal("kernel d(x: i8[3, 9]) -> y: i32[3] { y[m] = sum(k) x[m, k] * x[m, k] }"),
              HasSubstr("both factors of y are of one tensor"));
  EXPECT_THAT(refusal("kernel d(x: i8[3, 9]) -> y: i32[3] { y[m] = sum(k) x[m, k] }"),
              HasSubstr("y is no sum of products"));
  for (const char* windows :
       {"kernel d(x: f32[3, 9], w: f32[5]) -> y: f32[3] { y[m] = sum(k < 5) x[m, k + 2] * w[k] }",
        "kernel d(x: i8[3, 9], w: i8[5]) -> y: i32[3] { y[m] = sum(k < 5) x[m, 2*k] * w[k] }",
        "kernel d(x: i8[3, 9], w: i8[9]) -> y: i32[3] { y[m] = sum(k < 5) x[m, k + 2] * w[k + 1] }"})
    EXPECT_THAT(refusal(windows), HasSubstr("k does not index one dimension of x alone")) << windows;
  EXPECT_THAT(refusal("kernel d(x: i8[3, 9], w: i8[5]) -> y: i32[3] { y[m] = sum(k < 5) x[m, k] * w[k] }"),
              HasSubstr("k does not run over all of x"));
}

}  // namespace
}  // namespace hone
