#include "base/clock.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(Clock, FakeMovesWhenTold) {
  FakeClock clock;
  WallTime wall = clock.WallNow();
  MonotonicTime now = clock.Now();
  EXPECT_EQ(clock.WallNow(), wall);
  clock.Advance(std::chrono::milliseconds(1500));
  EXPECT_EQ(clock.WallNow() - wall, std::chrono::milliseconds(1500));
  EXPECT_EQ(clock.Now() - now, std::chrono::milliseconds(1500));
}

TEST(Clock, RealMovesByItself) {
  const Clock& clock = Clock::Real();
  MonotonicTime start = clock.Now();
  while (clock.Now() == start) {}
  EXPECT_GT(clock.Now(), start);
  EXPECT_GT(clock.WallNow(), WallTime(std::chrono::seconds(1'500'000'000)));
}

}  // namespace
}  // namespace hone
