#include "backends/machine_peaks.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(MachinePeaks, TextReadsBack) {
  MachinePeaks peaks{214.3, {380, 150.5, 80, 12.2}};
  EXPECT_EQ(PrintPeaks(peaks), "214.3 380.0 150.5 80.0 12.2");
  Result<MachinePeaks> read = ParsePeaks(PrintPeaks(peaks));
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, peaks);
  for (const char* text :
       {"", "1", "1 2 3 4", "1 2 3 4 5 6", "1 2 3 4 -5", "1 2 3 4 nan", "inf 2 3 4 5", "a b c d e"}) {
    Result<MachinePeaks> damaged = ParsePeaks(text);
    ASSERT_FALSE(damaged) << text;
    EXPECT_EQ(damaged.error().kind, ErrorKind::kCorrupt);
  }
}

TEST(MachinePeaks, HighestTakesEachRoofForItself) {
  EXPECT_EQ(Highest({10, {1, 8, 3, 4}}, {9, {5, 2, 3, 6}}), (MachinePeaks{10, {5, 8, 3, 6}}));
}

TEST(MachinePeaks, OperandsComeFromTheNearestLevelThatHoldsThem) {
  CpuTarget target;
  target.l1_bytes = 32 << 10;
  target.l2_bytes = 256 << 10;
  target.l3_bytes = 8 << 20;
  EXPECT_EQ(LevelOf(32 << 10, target, 1), 0);
  EXPECT_EQ(LevelOf((32 << 10) + 1, target, 1), 1);
  EXPECT_EQ(LevelOf(64 << 10, target, 2), 0);  // every core has its own
  EXPECT_EQ(LevelOf(8 << 20, target, 2), 2);   // the third level is shared
  EXPECT_EQ(LevelOf((8 << 20) + 1, target, 64), 1);
  EXPECT_EQ(LevelOf(9 << 20, target, 1), 3);
  EXPECT_EQ(MemoryLevelName(0), "L1");
  EXPECT_EQ(MemoryLevelName(3), "memory");
}

}  // namespace
}  // namespace hone
