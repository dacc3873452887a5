// layout=nhwc: the same operation on images whose channels come last, weights as they are. And weights of 16 bits.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/kernel_inputs.h"
#include "tests/support/same_function.h"

namespace hone::channels_last_test {
namespace {

struct Image {
  int64_t n, c, h, w;
};

Image ImageOf(const Kernel& kernel, size_t operand, bool is_last) {
  std::vector<int64_t> shape;
  for (const Expr& extent : kernel.tensors[kernel.operands[operand]].shape) shape.push_back(EvalExtent(kernel, extent));
  if (is_last) return {shape[0], shape[3], shape[1], shape[2]};
  return {shape[0], shape[1], shape[2], shape[3]};
}

// Where element (n, c, h, w) lies, channels first and last.
template <typename Visit>
void ForEach(const Image& image, const Visit& visit) {
  for (int64_t n = 0; n < image.n; ++n)
    for (int64_t c = 0; c < image.c; ++c)
      for (int64_t h = 0; h < image.h; ++h)
        for (int64_t w = 0; w < image.w; ++w)
          visit(static_cast<size_t>(((n * image.c + c) * image.h + h) * image.w + w),
                static_cast<size_t>(((n * image.h + h) * image.w + w) * image.c + c));
}

TEST(ChannelsLast, TheSameOperationOnImagesInAnotherOrder) {
  for (const char* start :
       {"conv2d(N=2,C=5,H=7,W=6,O=4,R=3,S=2,stride=[2,1],pad=[1,0,2,1]", "conv2d(C=4,H=9,W=8,O=3,R=3,S=3,dilation=2",
        "depthwise_conv2d(N=2,C=3,H=8,W=7,R=3,S=5,pad=2,stride=2", "conv2d(C=3,H=8,W=7,O=3,R=3,S=3,pad=1,groups=3",
        "maxpool2d(N=2,C=3,H=9,W=8,R=3,S=2,stride=2,pad=1,ceil=1", "avgpool2d(C=3,H=9,W=8,R=3,S=2,stride=2,pad=1",
        "global_avgpool(N=2,C=5,H=4,W=3"}) {
    for (const char* epilogues : {"", "+bias+relu", "+add"}) {
      const std::string text = start;
      const Kernel first = Parsed(text + ")" + epilogues), last = Parsed(text + ",layout=nhwc)" + epilogues);
      Rng rng(3);
      KernelInputs inputs(first, rng), moved = inputs;
      const size_t operands = first.operands.size();
      const bool adds = std::string(epilogues) == "+add";
      for (size_t operand : {size_t{0}, operands - 2}) {
        if (operand != 0 && !adds) continue;
        ForEach(ImageOf(first, operand, false),
                [&](size_t from, size_t to) { moved.As<float>(operand)[to] = inputs.As<float>(operand)[from]; });
      }
      const Image image = ImageOf(first, operands - 1, false), other = ImageOf(last, operands - 1, true);
      EXPECT_EQ(image.c, other.c);
      EXPECT_EQ(image.w, other.w) << text;
      const std::vector<Reference> wanted = WholeReference(first, inputs), got = WholeReference(last, moved);
      ASSERT_EQ(wanted.size(), got.size());
      ForEach(image, [&](size_t at, size_t is) { EXPECT_TRUE(IsSameValue(wanted[at], got[is])) << text << epilogues; });
    }
  }
}

TEST(ChannelsLast, IsOfImagesAlone) {
  for (const char* text : {"dense(M=2,N=3,K=4,layout=nhwc)", "softmax(M=2,N=3,layout=nhwc)",
                           "conv2d(C=4,H=8,W=8,O=4,R=3,S=3,groups=2,layout=nhwc)"}) {
    const Result<Kernel> kernel = ParseKernel(text);
    ASSERT_FALSE(kernel) << text;
    EXPECT_NE(kernel.error().message.find("has no layout nhwc"), std::string::npos) << kernel.error().Text();
  }
}

TEST(NarrowWeights, OfFloatsMultiplyAsTheyAre) {
  for (const char* type : {"bf16", "f16"}) {
    const std::string name = type;
    const Kernel dense = Parsed("dense(M=3,N=4,K=5,const=1,weights=" + name + ")+bias");
    const Kernel written =
        Parsed("kernel d(x: f32[3, 5], const w: " + name + "[4, 5], const b: f32[4]) -> y: f32[3, 4] { " +
               "y[m, n] = (sum(k) x[m, k] * float(w[n, k])) + b[n] }");
    Rng rng(5);
    KernelInputs inputs(dense, rng);
    const std::vector<Reference> wanted = WholeReference(written, inputs), got = WholeReference(dense, inputs);
    ASSERT_EQ(wanted.size(), got.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(IsSameValue(wanted[i], got[i])) << type;
  }
  EXPECT_FALSE(ParseKernel("dense(M=3,N=4,K=5,weights=bf16,zero=1)"));
  EXPECT_FALSE(ParseKernel("dense(M=3,N=4,K=4,weights=bf16,block=2)"));
}

}  // namespace
}  // namespace hone::channels_last_test
