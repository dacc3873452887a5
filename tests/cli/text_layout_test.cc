#include "client/cli/text_layout.h"

#include <gtest/gtest.h>

namespace hone::cli {
namespace {

TEST(TextLayout, WidthCountsCodePoints) {
  EXPECT_EQ(Width("abc"), 3u);
  EXPECT_EQ(Width("±µ…"), 3u);
}

TEST(TextLayout, CutLeavesOutTheMiddleAndFitsExactly) {
  EXPECT_EQ(Cut("short", 10), "short");
  EXPECT_EQ(Cut("two\nlines", 10), "two lines");
  std::string cut = Cut("conv2d(C=64,H=56,W=56,O=64,R=3,S=3,stride=1,pad=1)+bias+relu", 30);
  EXPECT_EQ(Width(cut), 30u);
  EXPECT_TRUE(cut.starts_with("conv2d(C=64,H=")) << cut;
  EXPECT_TRUE(cut.ends_with("+bias+relu")) << cut;
  for (size_t columns = 0; columns < 20; ++columns) EXPECT_EQ(Width(Cut("µµµµµµµµµµµµµµµµµµµµµµµµ", columns)), columns);
}

TEST(TextLayout, AKernelOnOneLineHasNoComments) {
  EXPECT_EQ(OneLine("# scores\nkernel k(a: f32[M])\n  where M=2 {  # two\n}\n"), "kernel k(a: f32[M]) where M=2 { }");
  EXPECT_EQ(OneLine(""), "");
}

TEST(TextLayout, WrapBreaksAfterCommas) {
  EXPECT_EQ(Wrap("matmul(M=256,N=256,K=256)", 20, 2), "matmul(M=256,N=256,\n  K=256)");
}

TEST(TextLayout, PadFillsAndCuts) {
  EXPECT_EQ(Pad("ab", 4), "ab  ");
  EXPECT_EQ(Width(Pad("a very long cell", 10)), 10u);
}

TEST(TextLayout, WrapBreaksAtBlanksAndIndents) {
  EXPECT_EQ(Wrap("one two three four", 13, 2), "one two three\n  four");
  EXPECT_EQ(Wrap("", 20, 2), "");
  // A word that fits no line is broken anywhere.
  EXPECT_EQ(Wrap("aaaaaaaaaaaaaaaaaaaa", 10, 0), "aaaaaaaaaa\naaaaaaaaaa");
  // However little room there is, it ends.
  EXPECT_FALSE(Wrap("some words", 1, 30).empty());
}

TEST(TextLayout, FactsWrapUnderTheirValues) {
  EXPECT_EQ(WrappedFacts({{"a", "one two three"}, {"long", "x"}}, 14, 0), "a     one two\n      three\nlong  x\n");
}

TEST(TextLayout, BarIsFullAtOneAndNeverFuller) {
  EXPECT_EQ(Bar(0, 6), "[----]");
  EXPECT_EQ(Bar(0.5, 6), "[##--]");
  EXPECT_EQ(Bar(7, 6), "[####]");
}

TEST(TextLayout, SideBySidePadsTheLeft) {
  EXPECT_EQ(SideBySide("a\nbb\n", "x\ny\nz\n", 3, 1), "a   x\nbb  y\n    z\n");
}

}  // namespace
}  // namespace hone::cli
