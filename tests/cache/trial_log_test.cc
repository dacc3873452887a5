// The log of trials and the models: what searches leave behind.
#include "cache/trial.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "base/envelope.h"
#include "cache/schedule_cache.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

using namespace std::chrono_literals;

TrialRecord Trial(int n) {
  return {"acc.rows=" + std::to_string(n), 0x0123456789abcdefu + static_cast<uint64_t>(n), 1, 1000ns * n, 10ns, {}, {}};
}

std::vector<std::string> Choices(ScheduleCache& cache, const CacheKey& key) {
  std::vector<std::string> choices;
  EXPECT_TRUE(cache.ForEachTrial(key, [&](const TrialRecord& trial) {
    choices.push_back(trial.choices);
    return true;
  }));
  return choices;
}

TEST(TrialRecord, KeepsEveryFieldAndNothingElse) {
  TrialRecord trial = Trial(7);
  trial.at = WallTime(123456789ms);
  trial.why = "the device's compiler refuses the code: line 4: nonsense";
  std::string bytes = EncodeTrial(trial);
  Result<TrialRecord> back = DecodeTrial(bytes);
  ASSERT_TRUE(back) << back.error().Text();
  EXPECT_EQ(*back, trial);
  for (size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(DecodeTrial(bytes.substr(0, length)));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    EXPECT_FALSE(DecodeTrial(damaged)) << i;
  }
}

TEST(TrialRecord, OfAReasonTheBeginningIsKept) {
  TrialRecord trial = Trial(7);
  trial.why = std::string(5000, 'x');
  EXPECT_EQ(DecodeTrial(EncodeTrial(trial)).value().why, std::string(kTrialReasonBytes, 'x'));
}

TEST(TrialRecord, OlderOnesHaveNoReason) {
  ByteWriter body;
  body.String("acc.rows=7");
  body.U64(1);
  body.U8(2);
  body.Varint(3000);
  body.Varint(10);
  body.SignedVarint(123456789);
  const TrialRecord trial = DecodeTrial(Seal(ValueType::kTrial, 1, body.view())).value();
  EXPECT_EQ(trial, (TrialRecord{"acc.rows=7", 1, 2, 3000ns, 10ns, WallTime(123456789ms), ""}));
}

TEST(TrialLog, KeepsTheOrderInWhichTrialsWereMadeAlsoWhenTheClockGoesBack) {
  TemporaryDirectory directory;
  FakeClock clock;
  CacheOptions options;
  options.directory = directory / "cache";
  options.clock = &clock;
  CacheKey key = SampleKey(1), other = SampleKey(2);
  {
    auto cache = ScheduleCache::Open(options);
    ASSERT_TRUE(cache);
    std::vector<TrialRecord> some{Trial(3), Trial(1), Trial(2)};
    ASSERT_TRUE((*cache)->AppendTrials(key, some));
    ASSERT_TRUE((*cache)->AppendTrials(other, std::vector{Trial(9)}));
    ASSERT_TRUE((*cache)->AppendTrials(key, std::vector{Trial(5)}));  // in the same millisecond
    EXPECT_EQ(Choices(**cache, key),
              (std::vector<std::string>{"acc.rows=3", "acc.rows=1", "acc.rows=2", "acc.rows=5"}));
  }
  auto cache = ScheduleCache::Open(options);
  ASSERT_TRUE(cache);
  EXPECT_EQ(Choices(**cache, key).size(), 4u);
  EXPECT_EQ(Choices(**cache, other), std::vector<std::string>{"acc.rows=9"});
  // A visitor that has seen enough.
  int seen = 0;
  EXPECT_TRUE((*cache)->ForEachTrial(key, [&](const TrialRecord&) { return ++seen < 2; }));
  EXPECT_EQ(seen, 2);
}

// By the processor's time: of a long log one trial takes far less than a tenth of it.
TEST(TrialLog, WhoHasSeenEnoughDoesNotPayForTheRest) {
  TemporaryDirectory directory;
  CacheOptions options;
  options.directory = directory / "cache";
  auto cache = ScheduleCache::Open(options);
  ASSERT_TRUE(cache);
  const CacheKey key = SampleKey(1);
  ASSERT_TRUE((*cache)->AppendTrials(key, std::vector<TrialRecord>(50'000, Trial(1))));
  const auto thread_s = [] {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
  };
  const auto cost = [&](bool goes_on) {
    const double begin = thread_s();
    EXPECT_TRUE((*cache)->ForEachTrial(key, [&](const TrialRecord&) { return goes_on; }));
    return thread_s() - begin;
  };
  const double all = cost(true);
  EXPECT_LT(10 * std::min({cost(false), cost(false), cost(false)}), all);
}

// A day back, and the same microsecond as trials of before: none is overwritten, and the order stays.
TEST(TrialLog, AClockSetBackWhileNobodyLookedOverwritesNothing) {
  TemporaryDirectory directory;
  FakeClock clock;
  clock.Advance(std::chrono::hours(48));
  CacheOptions options;
  options.directory = directory / "cache";
  options.clock = &clock;
  CacheKey key = SampleKey(1);
  std::vector<std::string> wanted;
  for (int day = 0; day < 3; ++day) {
    auto cache = ScheduleCache::Open(options);
    ASSERT_TRUE(cache);
    for (int n = 1; n <= 3; ++n) {
      ASSERT_TRUE((*cache)->AppendTrials(key, std::vector{Trial(10 * day + n)}));
      wanted.push_back("acc.rows=" + std::to_string(10 * day + n));
    }
    EXPECT_EQ(Choices(**cache, key), wanted);
    if (day == 0) clock.Advance(-std::chrono::hours(24));
  }
}

TEST(Models, AreKeptByName) {
  TemporaryDirectory directory;
  CacheOptions options;
  options.directory = directory / "cache";
  {
    auto cache = ScheduleCache::Open(options);
    ASSERT_TRUE(cache);
    EXPECT_EQ((*cache)->GetModel("cpu").value(), std::nullopt);
    ASSERT_TRUE((*cache)->PutModel("cpu", std::string("a\0b", 3)));
    ASSERT_TRUE((*cache)->PutModel("gpu", "another"));
  }
  auto cache = ScheduleCache::Open(options);
  ASSERT_TRUE(cache);
  EXPECT_EQ((*cache)->GetModel("cpu").value(), std::string("a\0b", 3));
  EXPECT_EQ((*cache)->GetModel("gpu").value(), "another");
}

}  // namespace
}  // namespace hone
