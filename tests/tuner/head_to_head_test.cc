// Which program is faster, on a made-up device that is disturbed.
#include "tuner/head_to_head.h"

#include <gtest/gtest.h>

#include <stop_token>
#include <string>

#include "tests/tuner/scripted_evaluator.h"

namespace hone {
namespace {

using testing::ScriptedEvaluator;

TEST(Fastest, FindsOutWhoWasFirstByLuck) {
  ScriptedEvaluator evaluator;
  std::vector<SealedMemfd> files;
  for (const char* text : {"30", "10", "20"}) files.push_back(*SealedMemfd::Create(AsBytes(std::string_view(text))));
  std::vector<const SealedMemfd*> codes;
  for (const SealedMemfd& file : files) codes.push_back(&file);
  evaluator.time_of = [](const std::string& text) { return std::stod(text); };
  EXPECT_EQ(*Fastest(evaluator, codes, 1, 3, {}), 1u);
}

TEST(Compare, GivesTheMedianAndItsInterval) {
  ScriptedEvaluator evaluator;
  SealedMemfd slow = *SealedMemfd::Create(AsBytes(std::string_view("30")));
  SealedMemfd fast = *SealedMemfd::Create(AsBytes(std::string_view("20")));
  evaluator.time_of = [&evaluator](const std::string& text) {
    // One turn in seven is disturbed by half.
    return std::stod(text) * (evaluator.timed.size() % 7 == 0 ? 1.5 : 1);
  };
  Result<HeadToHead> duel = Compare(evaluator, slow, fast, 1, 15, {});
  ASSERT_TRUE(duel);
  EXPECT_DOUBLE_EQ(duel->ratio, 1.5);
  EXPECT_GE(duel->low, 1.0);
  EXPECT_LE(duel->low, duel->ratio);
  EXPECT_GE(duel->high, duel->ratio);
  evaluator.timed.clear();
  Result<HeadToHead> same = Compare(evaluator, slow, slow, 1, 15, {});
  ASSERT_TRUE(same);
  EXPECT_LE(same->low, 1);
  EXPECT_EQ(evaluator.timed.size(), 2 * 15u);  // nothing seems to be won
}

TEST(Compare, GoesOnWhereAWinIsNotBeyondTheNoise) {
  ScriptedEvaluator evaluator;
  SealedMemfd slow = *SealedMemfd::Create(AsBytes(std::string_view("30")));
  SealedMemfd fast = *SealedMemfd::Create(AsBytes(std::string_view("20")));
  evaluator.time_of = [&evaluator](const std::string& text) {
    // In one round of three somebody else has half of the processor while the faster one runs.
    const size_t round = (evaluator.timed.size() - 1) / 2;
    return std::stod(text) * (text == "20" && round % 3 == 0 ? 2 : 1);
  };
  Result<HeadToHead> duel = Compare(evaluator, slow, fast, 1, 15, {});
  ASSERT_TRUE(duel);
  EXPECT_GT(evaluator.timed.size(), 2 * 15u);
  EXPECT_DOUBLE_EQ(duel->ratio, 1.5);
  EXPECT_GT(duel->low, 1.0);
}

// Five rounds agree by chance once in 32 times; fewer say nothing.
TEST(Compare, JudgesByTheRoundsThatThereWereWhenItIsStopped) {
  for (const size_t rounds : {0, 4, 5}) {
    ScriptedEvaluator evaluator;
    SealedMemfd slow = *SealedMemfd::Create(AsBytes(std::string_view("30")));
    SealedMemfd fast = *SealedMemfd::Create(AsBytes(std::string_view("20")));
    std::stop_source stop;
    if (rounds == 0) stop.request_stop();
    evaluator.time_of = [&](const std::string& text) {
      if (evaluator.timed.size() == 2 * rounds) stop.request_stop();
      return std::stod(text);
    };
    Result<HeadToHead> duel = Compare(evaluator, slow, fast, 1, 15, stop.get_token());
    EXPECT_EQ(evaluator.timed.size(), 2 * rounds);
    ASSERT_EQ(duel.has_value(), rounds == 5) << rounds;
    if (duel) {
      EXPECT_GT(duel->low, 1.0);
    } else {
      EXPECT_EQ(duel.error().kind, ErrorKind::kTimeout);
    }
  }
}

}  // namespace
}  // namespace hone
