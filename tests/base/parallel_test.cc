// Loops on several threads: every iteration once, whatever the numbers.
#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/no_threads.h"

namespace hone {
namespace {

TEST(ForEachIndex, DoesEveryIterationOnce) {
  for (size_t count : {0, 1, 2, 7, 1000}) {
    for (int threads : {-1, 0, 1, 2, 9}) {
      std::vector<std::atomic<int>> done(count);
      ForEachIndex(count, threads, [&](size_t i) { ++done[i]; });
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(done[i], 1) << i << " of " << count << ", " << threads << " threads";
    }
  }
}

TEST(ForEachIndex, RunsOnAsManyThreadsAsItMay) {
  std::latch together(3);  // nobody goes on before three are there
  std::vector<std::thread::id> ids(3);
  ForEachIndex(3, 3, [&](size_t i) {
    ids[i] = std::this_thread::get_id();
    together.arrive_and_wait();
  });
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), 3u);
}

TEST(ForEachIndex, OneThreadIsTheCallers) {
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<size_t> order;
  ForEachIndex(5, 1, [&](size_t i) {
    order.push_back(i);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

TEST(ForEachIndex, WhereNoThreadCanBeStartedTheCallerDoesAll) {
  testing::NoThreads none;
  std::vector<int> done(100);
  ForEachIndex(100, 4, [&](size_t i) { ++done[i]; });
  EXPECT_EQ(done, std::vector<int>(100, 1));
}

}  // namespace
}  // namespace hone
