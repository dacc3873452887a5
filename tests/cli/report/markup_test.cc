#include "client/cli/report/markup.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/cli/xml_check.h"

namespace hone::cli {
namespace {

TEST(Markup, EscapesWhatMarkupIsMadeOf) {
  EXPECT_EQ(Escaped("<a href=\"x\">'&'"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
  EXPECT_EQ(Escaped("µs → é 😀\n"), "µs → é 😀\n");
}

TEST(Markup, ReplacesWhatXmlHasNoCharacterFor) {
  EXPECT_EQ(Escaped(std::string_view("a\0b\x1b", 4)), "a\uFFFDb\uFFFD");
  EXPECT_EQ(Escaped("\xff"), "\uFFFD");
  EXPECT_EQ(Escaped("\xc3"), "\uFFFD");                      // cut off
  EXPECT_EQ(Escaped("\xc0\xaf"), "\uFFFD\uFFFD");            // a slash, said in two bytes
  EXPECT_EQ(Escaped("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");  // half of a surrogate pair
  EXPECT_EQ(Escaped("\xef\xbf\xbe"), "\uFFFD\uFFFD\uFFFD");  // U+FFFE
  EXPECT_EQ(Escaped("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Markup, AnyBytesAreWellFormed) {
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    for (int i = 0; i < 40; ++i) bytes += static_cast<char>(rng.Below(256));
    Markup out;
    out.Element("p", bytes, {{"title", bytes}});
    EXPECT_TRUE(IsWellFormed(std::move(out).Take()));
  }
}

TEST(Markup, ElementsNest) {
  Markup out;
  out.Open("ul", {{"class", "a b"}}).Element("li", "1 < 2").Open("li").Empty("wbr").Text("x").Close("li").Close("ul");
  EXPECT_EQ(std::move(out).Take(), "<ul class=\"a b\"><li>1 &lt; 2</li><li><wbr/>x</li></ul>");
}

TEST(MarkupDeathTest, WhatIsNotClosedIsOurBug) {
  EXPECT_DEATH(
      {
        Markup out;
        out.Open("p").Close("div");
      },
      "");
  EXPECT_DEATH(
      {
        Markup out;
        out.Open("p");
        (void)std::move(out).Take();
      },
      "");
}

}  // namespace
}  // namespace hone::cli
