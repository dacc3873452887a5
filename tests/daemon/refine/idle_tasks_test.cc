// What there is to refine: as the cache has it, with what is known of each kernel.
#include "daemon/refine/idle_tasks.h"

#include <gtest/gtest.h>

#include "tests/daemon/test_server.h"

namespace hone::idle_tasks_test {
namespace {

using testing::TestServer;

std::string Add(int n) { return "add(M=4,N=" + std::to_string(n) + ")"; }

Tuning::Outcome Won(double ratio, int64_t trials) {
  Tuning::Outcome outcome;
  outcome.ratio = ratio;
  outcome.served_us = 10;
  outcome.search.progress.trials = trials;
  return outcome;
}

class IdleTasksTest : public ::testing::Test {
 protected:
  void Ask(const std::string& kernel) {
    ASSERT_TRUE(server_.Get(kernel));
    ASSERT_TRUE(tasks_.Look(server_.metrics.misses, nullptr));
  }
  Fingerprint FingerprintOfKernel(const std::string& kernel) {
    return server_.path->Identify({kernel, "", 0})->key.fingerprint;
  }

  TestServer server_;
  IdleTasks tasks_{*server_.cache, server_.path->devices()};
};

TEST_F(IdleTasksTest, NothingIsRefinedOfAnEmptyCache) {
  ASSERT_TRUE(tasks_.Look(0, nullptr));
  EXPECT_FALSE(tasks_.Next());
  EXPECT_EQ(tasks_.MakePlan().refinable, 0u);
}

TEST_F(IdleTasksTest, WhatATurnCameToIsKnownAfterTheCacheIsReadAgainAndInAnotherDaemon) {
  Ask(Add(1));
  std::optional<IdleTasks::Turn> turn = tasks_.Next();
  ASSERT_TRUE(turn);
  EXPECT_EQ(turn->record.request, Add(1));
  ASSERT_TRUE(tasks_.Refined(*turn, Won(2, 64), false));
  Ask(Add(2));
  IdleTasks others(*server_.cache, server_.path->devices());
  ASSERT_TRUE(others.Look(0, nullptr));
  for (IdleTasks* tasks : {&tasks_, &others}) {
    const IdleTasks::Plan plan = tasks->MakePlan();
    ASSERT_EQ(plan.tasks.size(), 2u);
    const TopTask& refined = plan.tasks[plan.tasks[0].kernel == Add(1) ? 0 : 1];
    EXPECT_EQ(refined.kernel, Add(1));
    EXPECT_EQ(refined.trials, 64u);
    EXPECT_EQ(refined.won, 2);
  }
}

TEST_F(IdleTasksTest, WhatIsRemovedAndAskedForAgainBeginsAnew) {
  Ask(Add(1));
  ASSERT_TRUE(tasks_.Refined(*tasks_.Next(), Won(1, kRefined), false));
  EXPECT_FALSE(tasks_.Next());
  ASSERT_TRUE(server_.cache->Remove(FingerprintOfKernel(Add(1))));
  server_.Do([&] { server_.hot->Forget(FingerprintOfKernel(Add(1))); });
  Ask(Add(2));
  EXPECT_EQ(tasks_.MakePlan().refinable, 1u);
  Ask(Add(1));
  const IdleTasks::Plan plan = tasks_.MakePlan();
  EXPECT_EQ(plan.refinable, 2u);
  EXPECT_EQ(plan.waiting, 2u);
}

TEST_F(IdleTasksTest, WhatIsPinnedOrRemovedSinceHasNoTurn) {
  for (int n = 1; n <= 3; ++n) Ask(Add(n));
  ASSERT_TRUE(server_.cache->Remove(FingerprintOfKernel(Add(1))));
  ASSERT_TRUE(server_.cache->Pin(FingerprintOfKernel(Add(3)), true));
  for (int turns = 0; turns < 3; ++turns) {
    std::optional<IdleTasks::Turn> turn = tasks_.Next();
    ASSERT_TRUE(turn);
    EXPECT_EQ(turn->record.request, Add(2));
    tasks_.Failed(*turn, 64);
  }
}

TEST_F(IdleTasksTest, WhatCannotBeMeasuredLeavesTheTurnToOthers) {
  Ask(Add(1));
  Ask(Add(2));
  std::map<std::string, int> turns;
  while (std::optional<IdleTasks::Turn> turn = tasks_.Next()) {
    ++turns[turn->record.request];
    tasks_.Failed(*turn, 64);
  }
  EXPECT_EQ(turns[Add(1)], kRefined / 64);
  EXPECT_EQ(turns[Add(2)], kRefined / 64);
}

}  // namespace
}  // namespace hone::idle_tasks_test
