// When the machine counts as idle.
#include "daemon/refine/idle_gate.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hone {
namespace {

using std::chrono::milliseconds;

// A machine whose time the test makes.
class Machine {
 public:
  explicit Machine(IdleLimits limits = {}) : gate(limits) { gate.Add(sample); }
  // Runs on, with so many cores used by others.
  void Run(milliseconds time, double cores) {
    for (auto left = time; left.count() > 0; left -= milliseconds(50)) {
      sample.at += milliseconds(50);
      sample.busy_s += cores * 0.05;
      gate.Add(sample);
    }
  }
  LoadSample sample{.at = MonotonicTime(std::chrono::seconds(1000)), .busy_s = 5000};
  IdleGate gate;
};

TEST(IdleGate, OpensAfterAQuietWhile) {
  Machine machine;
  EXPECT_FALSE(machine.gate.open());
  machine.Run(milliseconds(1900), 0);
  EXPECT_FALSE(machine.gate.open());
  EXPECT_NE(machine.gate.why().find("quiet for 1.9 s of 2.0 s"), std::string::npos) << machine.gate.why();
  machine.Run(milliseconds(200), 0.05);
  EXPECT_TRUE(machine.gate.open());
}

TEST(IdleGate, ClosesWithin200Milliseconds) {
  Machine machine;
  machine.Run(milliseconds(5000), 0);
  ASSERT_TRUE(machine.gate.open());
  machine.Run(milliseconds(200), 1);
  EXPECT_FALSE(machine.gate.open());
  EXPECT_NE(machine.gate.why().find("others use"), std::string::npos);
  machine.Run(milliseconds(1000), 0);
  EXPECT_FALSE(machine.gate.open());
  machine.Run(milliseconds(2000), 0);
  EXPECT_TRUE(machine.gate.open());
}

TEST(IdleGate, ShortBurstsAskForLessQuiet) {
  Machine machine;
  machine.Run(milliseconds(5000), 0);
  ASSERT_TRUE(machine.gate.open());
  for (int i = 0; i < 3; ++i) {  // something that looks after the machine every second
    machine.Run(milliseconds(50), 0.8);
    EXPECT_FALSE(machine.gate.open());
    machine.Run(milliseconds(350), 0);
    EXPECT_FALSE(machine.gate.open());
    EXPECT_NE(machine.gate.why().find(" s of 0.4 s"), std::string::npos) << machine.gate.why();
    machine.Run(milliseconds(600), 0);
    EXPECT_TRUE(machine.gate.open());
  }
  // Bursts while it is closed add up, to the whole and no further.
  machine.Run(milliseconds(50), 0.8);
  for (int i = 0; i < 10; ++i) machine.Run(milliseconds(200), i % 2 == 0 ? 1 : 0);
  machine.Run(milliseconds(1900), 0);
  EXPECT_FALSE(machine.gate.open());
  machine.Run(milliseconds(400), 0);
  EXPECT_TRUE(machine.gate.open());
}

// It asks for more than a burst does: another request may follow.
TEST(IdleGate, ServingAsksForAllTheQuiet) {
  Machine machine;
  machine.Run(milliseconds(5000), 0);
  machine.sample.is_serving = true;
  machine.Run(milliseconds(50), 0);
  machine.sample.is_serving = false;
  machine.Run(milliseconds(1900), 0);
  EXPECT_FALSE(machine.gate.open());
  machine.Run(milliseconds(150), 0);
  EXPECT_TRUE(machine.gate.open());
}

TEST(IdleGate, ALittleWorkOfOthersIsNoReason) {
  Machine machine;
  machine.Run(milliseconds(5000), 0.2);
  EXPECT_TRUE(machine.gate.open());
  machine.Run(milliseconds(400), 0.4);
  EXPECT_FALSE(machine.gate.open());
}

TEST(IdleGate, WhoWaitsComesFirst) {
  Machine machine;
  machine.Run(milliseconds(5000), 0);
  machine.sample.is_serving = true;
  machine.Run(milliseconds(50), 0);
  EXPECT_FALSE(machine.gate.open());
  EXPECT_EQ(machine.gate.why(), "serving");
}

TEST(IdleGate, SparesTheBattery) {
  Machine machine;
  machine.sample.on_battery = true;
  machine.Run(milliseconds(5000), 0);
  EXPECT_EQ(machine.gate.why(), "on battery");
  EXPECT_FALSE(machine.gate.open());
  Machine willing({.on_battery = true});
  willing.sample.on_battery = true;
  willing.Run(milliseconds(5000), 0);
  EXPECT_TRUE(willing.gate.open());
}

TEST(IdleGate, BeginsAnewAfterASleepOrAClockThatWentBack) {
  Machine machine;
  machine.Run(milliseconds(5000), 0);
  ASSERT_TRUE(machine.gate.open());
  machine.sample.busy_s = 3;
  machine.Run(milliseconds(50), 0);
  EXPECT_FALSE(machine.gate.open());
  machine.Run(milliseconds(2500), 0);
  EXPECT_TRUE(machine.gate.open());
}

TEST(IdleGate, WaitsWhileOthersWaitForMemoryOrTheDisk) {
  Machine machine;
  machine.Run(milliseconds(5000), 0);
  ASSERT_TRUE(machine.gate.open());
  machine.sample.stalled_s += 0.04;
  machine.Run(milliseconds(50), 0);
  EXPECT_FALSE(machine.gate.open());
  EXPECT_NE(machine.gate.why().find("memory or the disk 40 %"), std::string::npos) << machine.gate.why();
}

TEST(IdleGate, KeepsItsHours) {
  Machine machine({.hours = *ParseHours("22:00-07:00")});
  machine.sample.minute_of_day = 12 * 60;
  machine.Run(milliseconds(5000), 0);
  EXPECT_EQ(machine.gate.why(), "only from 22:00-07:00");
  machine.sample.minute_of_day = 22 * 60;
  machine.Run(milliseconds(50), 0);
  EXPECT_TRUE(machine.gate.open());
}

TEST(Hours, OfADay) {
  EXPECT_TRUE(IsWithin(*ParseHours(""), 0));
  Hours night = *ParseHours("22:30-07:00"), day = *ParseHours("09:00-17:00");
  EXPECT_EQ(PrintHours(night), "22:30-07:00");
  EXPECT_EQ(PrintHours({}), "");
  EXPECT_TRUE(IsWithin(night, 23 * 60) && IsWithin(night, 0) && IsWithin(night, 22 * 60 + 30));
  EXPECT_FALSE(IsWithin(night, 7 * 60) || IsWithin(night, 12 * 60));
  EXPECT_TRUE(IsWithin(day, 9 * 60) && !IsWithin(day, 17 * 60));
  for (const char* text : {"22", "24:00-07:00", "22:00-07:60", "22:00-07:00x", "-1:00-07:00", "a:00-07:00"})
    EXPECT_FALSE(ParseHours(text)) << text;
}

}  // namespace
}  // namespace hone
