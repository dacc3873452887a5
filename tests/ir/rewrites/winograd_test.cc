// Winograd's convolutions keep the function, up to rounding in double precision, or are refused.
#include "ir/rewrites/winograd.h"

#include <gtest/gtest.h>

#include <string>

#include "ir/graph/specialize.h"
#include "tests/support/rewrites.h"
#include "tests/support/same_function.h"

namespace hone {
namespace {

Result<Kernel> Winograd(const Kernel& kernel, int64_t m, int64_t columns) {
  return Winograd(kernel, FindStage(kernel, SumOf(kernel)), "wino", m, columns);
}

TEST(Winograd, KeepsConvolutions) {
  for (const char* text : {
           "conv2d(C=3,H=8,W=8,O=4,R=3,S=3,pad=1)+bias+relu",
           "conv2d(C=2,H=7,W=5,O=3,R=3,S=3)",
           "conv2d(N=2,C=3,H=5,W=9,O=2,R=3,S=3,pad=[0,2,1,3])+add",
           "conv2d(C=6,H=6,W=7,O=4,R=3,S=3,groups=2,pad=1)",
           "conv2d(C=2,H=9,W=4,O=2,R=3,S=3,pad=1,dtype=f64)",
       }) {
    const Kernel before = Specialize(Parsed(text));
    const int64_t width = EvalExtent(before, StageOf(before, SumOf(before)).axes.back().extent);
    for (int64_t m : {2, 4})
      for (int64_t more : {0, 3}) Kept(before, Winograd(before, m, (width + m - 1) / m + more));
  }
}

// The same with windows that a kernel writes itself: no padded copy, a fill, other orders of dimensions.
TEST(Winograd, KeepsWindowsOfTheLanguage) {
  for (const char* body :
       {"y[h, w, o] = sum(c, r < 3, s < 3) f[o, r, s, c] * x[c, h + r, w + s]",
        "y[h, w, o] = sum(c, r < 3, s < 3) pad(x[c, h + r - 2, w + s + 1], 0) * f[o, r, s, c]",
        "t[c, h, w] = x[c, h, w] + 1 y[h, w, o] = sum(r < 3, c, s < 3) t[c, h + r, w + s] * f[o, r, s, c]"}) {
    std::string declared = std::string(body).starts_with("t") ? "t: f32[C, H + 2, W + 2] " : "";
    const Kernel before =
        Specialize(Parsed("kernel k(x: f32[C, H + 2, W + 2], f: f32[O, 3, 3, C]) -> y: f32[H, W, O] where C=3, "
                          "H=6, W=5, O=2 { " +
                          declared + body + " }"));
    // The columns are not the last axis of this result.
    EXPECT_EQ(RefusalOf(Winograd(before, 2, 3)), "the window is not over rows and columns in this order");
  }
  for (const char* body :
       {"y[o, h, w] = sum(c, r < 3, s < 3) f[o, r, s, c] * x[c, h + r, w + s]",
        "y[o, h, w] = sum(c, r < 3, s < 3) pad(x[c, h + r - 2, w + s + 1], 0) * f[o, r, s, c]",
        "t[c, h, w] = x[c, h, w] + 1 y[o, h, w] = sum(r < 3, c, s < 3) t[c, h + r, w + s] * f[o, r, s, c]"}) {
    std::string declared = std::string(body).starts_with("t") ? "t: f32[C, H + 2, W + 2] " : "";
    const Kernel before =
        Specialize(Parsed("kernel k(x: f32[C, H + 2, W + 2], f: f32[O, 3, 3, C]) -> y: f32[O, H, W] where C=3, "
                          "H=6, W=5, O=2 { " +
                          declared + body + " }"));
    for (int64_t m : {2, 4}) Kept(before, Winograd(before, m, (5 + m - 1) / m));
  }
}

TEST(Winograd, RefusesWhatIsNoSuchConvolution) {
  auto refusal = [](const char* text, int64_t m = 2, int64_t columns = 8) {
    return RefusalOf(Winograd(Specialize(Parsed(text)), m, columns));
  };
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=5,S=3,pad=1)"), "a window that is not 3×3");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3,stride=2)"),
            "a window with strides or dilation, or of more dimensions");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3,dilation=2)"),
            "a window with strides or dilation, or of more dimensions");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3,dtype=i8)"), "no convolution of floats");
  EXPECT_EQ(refusal("maxpool2d(C=3,H=8,W=8,R=3,S=3)"), "no convolution of floats");
  EXPECT_EQ(refusal("matmul(M=8,N=8,K=9)"), "no window over two dimensions");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3)", 3), "winograd takes tiles of 2 or 4");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3,pad=1)", 4, 1), "1 tiles of 4 do not cover a row");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3)", 2, int64_t{1} << 60), "more tiles than can be counted, or none");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3)", 4, INT64_MAX), "more tiles than can be counted, or none");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3)", 4, 0), "more tiles than can be counted, or none");
  EXPECT_EQ(refusal("conv2d(N=1..4,C=3,H=8,W=8,O=4,R=3,S=3)"), "winograd takes constant sizes");
}

}  // namespace
}  // namespace hone
