#include "daemon/serve/failures.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

using std::chrono::seconds;

TEST(Failures, AreRememberedForAWhileAndLongerEachTime) {
  Failures failures;
  Failures::Clock::time_point now{};
  const Error error{ErrorKind::kBuildFailed, "no", "here"};
  EXPECT_EQ(failures.Find("k", now), nullptr);
  for (seconds time : {seconds(10), seconds(20), seconds(40)}) {
    failures.Note("k", error, now);
    ASSERT_NE(failures.Find("k", now + time - seconds(1)), nullptr);
    EXPECT_EQ(failures.Find("k", now + time - seconds(1))->message, "no");
    EXPECT_EQ(failures.Find("k", now + time), nullptr);
    now += time;
  }
  for (int i = 0; i < 20; ++i) failures.Note("k", error, now);
  EXPECT_EQ(failures.Find("k", now + Failures::kLongest), nullptr);
  EXPECT_NE(failures.Find("k", now + Failures::kLongest - seconds(1)), nullptr);
}

TEST(Failures, ASuccessIsTheEndOfThem) {
  Failures failures;
  Failures::Clock::time_point now{};
  for (int i = 0; i < 5; ++i) failures.Note("k", {ErrorKind::kBuildFailed, "no", ""}, now);
  failures.Forget("k");
  EXPECT_EQ(failures.Find("k", now), nullptr);
  failures.Note("k", {ErrorKind::kBuildFailed, "no", ""}, now);
  EXPECT_EQ(failures.Find("k", now + Failures::kFirst), nullptr);
}

TEST(Failures, AreBounded) {
  Failures failures;
  Failures::Clock::time_point now{};
  failures.Note("last", {ErrorKind::kBuildFailed, "no", ""}, now + seconds(100));
  for (size_t i = 0; i < Failures::kMost; ++i)
    failures.Note(std::to_string(i), {ErrorKind::kBuildFailed, "no", ""}, now + seconds(static_cast<int>(i % 7)));
  EXPECT_NE(failures.Find("last", now + seconds(100)), nullptr);
  size_t known = 0;
  for (size_t i = 0; i < Failures::kMost; ++i) known += failures.Find(std::to_string(i), now) != nullptr;
  EXPECT_EQ(known, Failures::kMost - 1);
}

}  // namespace
}  // namespace hone
