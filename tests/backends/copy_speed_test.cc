#include "backends/copy_speed.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(CopySpeed, TextReadsBack) {
  const CopySpeed speed{23.25, 20.5, 8.25, 9};
  EXPECT_EQ(PrintCopySpeed(speed), "23.25 20.5 8.25 9");
  EXPECT_EQ(*ParseCopySpeed(PrintCopySpeed(speed)), speed);
  EXPECT_EQ(*ParseCopySpeed(PrintCopySpeed({})), CopySpeed{});
  for (const char* text : {"", "1 2 3", "1 2 3 4 5", "1 2 3 -4", "1 2 3 nan", "inf 2 3 4", "a b c d"}) {
    const Result<CopySpeed> damaged = ParseCopySpeed(text);
    ASSERT_FALSE(damaged) << text;
    EXPECT_EQ(damaged.error().kind, ErrorKind::kCorrupt);
  }
}

TEST(CopySpeed, TheFastestOfEachIsKept) {
  EXPECT_EQ(Fastest({10, 2, 5, 6}, {8, 3, 4, 7}), (CopySpeed{10, 3, 4, 6}));
  EXPECT_EQ(Fastest({}, {8, 3, 4, 7}), (CopySpeed{8, 3, 4, 7}));
  EXPECT_EQ(Fastest({8, 3, 4, 7}, {}), (CopySpeed{8, 3, 4, 7}));
  EXPECT_TRUE(Fastest({}, {}).IsFree());
}

}  // namespace
}  // namespace hone
