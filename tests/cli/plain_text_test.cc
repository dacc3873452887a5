#include "client/cli/plain_text.h"

#include <gtest/gtest.h>

#include "client/cli/json.h"
#include "client/cli/print_values.h"

namespace hone::cli {
namespace {

TEST(PlainText, LeavesTextAsItIs) {
  for (const char* text : {"", "matmul(M=1)\n\tnext", "±µ… 雪 🜁", "\xc2\xa0"}) EXPECT_EQ(Plain(text), text);
}

TEST(PlainText, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(Plain("\x1b[2J\x07\r\x7f"), "\\x1b[2J\\x07\\x0d\\x7f");
  EXPECT_EQ(Plain("\xc2\x9b"
                  "31m"),
            "\\xc2\\x9b31m");  // CSI as one character
  EXPECT_EQ(Plain("\x9b"
                  "31m \xff \xe2\x82"),
            "\\x9b31m \\xff \\xe2\\x82");                                   // no UTF-8
  EXPECT_EQ(Plain("\xc0\x9b \xed\xa0\x80"), "\\xc0\\x9b \\xed\\xa0\\x80");  // too long; a surrogate
  EXPECT_EQ(PlainLine("a\nb\tc\x1b"), "a b c\\x1b");
}

TEST(PlainText, TablesLineUpWhateverIsInThem) {
  Table table({{"name"}, {"next"}});
  table.Add({"\x1b[1m", "a"});
  table.Add({"plain", "b"});
  EXPECT_EQ(table.Text(), "name     next\n\\x1b[1m  a\nplain    b\n");
}

TEST(PlainText, JsonHasNoControlCharacters) {
  EXPECT_EQ(Json().Set("k", "\x1b\x7f\xc2\x9b±").Dump(), R"({"k":"\u001b\u007f\u009b±"})");
}

}  // namespace
}  // namespace hone::cli
