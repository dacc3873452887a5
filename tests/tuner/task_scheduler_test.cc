// What is refined next.
#include "tuner/task_scheduler.h"

#include <gtest/gtest.h>

#include <vector>

namespace hone {
namespace {

RefineTask Task(double calls, double time_us, int64_t trials = 0, int64_t stale = 0) {
  RefineTask task;
  task.calls = calls;
  task.time_us = time_us;
  task.trials = trials;
  task.stale = stale;
  return task;
}

TEST(TaskScheduler, TakesWhatTakesMostTime) {
  std::vector<RefineTask> tasks{Task(10, 100), Task(2, 1000), Task(1000, 1)};
  EXPECT_EQ(NextTask(tasks, 1), 1u);
  tasks[0].calls = 30;
  EXPECT_EQ(NextTask(tasks, 1), 0u);
}

TEST(TaskScheduler, WhatWasSearchedPromisesLess) {
  std::vector<RefineTask> tasks{Task(1, 1000, 192), Task(1, 400)};
  EXPECT_EQ(NextTask(tasks, 1), 1u);
  tasks[0].last_gain = 0.5;  // but it still gets faster
  EXPECT_EQ(NextTask(tasks, 1), 0u);
}

TEST(TaskScheduler, AKernelNeverMeasuredCountsToo) {
  EXPECT_GT(ExpectedGain(Task(0, 0)), 0);
  EXPECT_EQ(NextTask(std::vector<RefineTask>{Task(0, 0)}, 1), 0u);
}

TEST(TaskScheduler, ADoubtfulGuessComesFirst) {
  std::vector<RefineTask> tasks{Task(1000, 1000), Task(1, 10)};
  tasks[1].is_doubtful = true;
  EXPECT_EQ(NextTask(tasks, 1), 1u);
  tasks[1].stale = kRefined;
  EXPECT_EQ(NextTask(tasks, 1), 0u);
}

TEST(TaskScheduler, EndsWhenAllAreRefined) {
  EXPECT_EQ(NextTask({}, 1), std::nullopt);
  std::vector<RefineTask> tasks{Task(5, 100, 600, kRefined), Task(5, 100, 600, kRefined - 1)};
  EXPECT_EQ(NextTask(tasks, 1), 1u);
  tasks[1].stale = kRefined;
  EXPECT_EQ(NextTask(tasks, 8), std::nullopt);
}

// However large the first is, the small ones have their turns.
TEST(TaskScheduler, NobodyStarves) {
  std::vector<RefineTask> tasks(20, Task(1, 1));
  tasks[0] = Task(1e6, 1e6);
  tasks[0].last_gain = 1;
  std::vector<int> turns(tasks.size());
  for (int64_t turn = 1; turn <= 8 * 20; ++turn) {
    size_t next = NextTask(tasks, turn).value();
    ++turns[next];
    tasks[next].last_turn = turn;
  }
  for (int count : turns) EXPECT_GE(count, 1);
  EXPECT_GE(turns[0], 8 * 20 * 3 / 4);
}

}  // namespace
}  // namespace hone
