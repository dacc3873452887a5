// Memory planned by lifetime: nothing alive shares bytes, and what is not alive does.
#include "network/run/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace hone::memory_plan_test {
namespace {

bool Overlap(const Lifetime& a, int64_t a_offset, const Lifetime& b, int64_t b_offset) {
  bool in_time = a.first <= b.last && b.first <= a.last;
  return in_time && a_offset < b_offset + b.bytes && b_offset < a_offset + a.bytes;
}

TEST(Arena, AChainNeedsTwoBuffers) {
  std::vector<Lifetime> chain;
  for (int i = 0; i < 10; ++i) chain.push_back({1000, i, i + 1});
  ArenaPlan plan = PlanArena(chain);
  EXPECT_EQ(plan.bytes, 2 * 1024);
  EXPECT_EQ(plan.sum, 10 * 1024);
}

TEST(Arena, WhatIsAliveTogetherIsApart) {
  Rng random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> lifetimes;
    for (int i = 0; i < 40; ++i) {
      int first = static_cast<int>(random.Below(30));
      lifetimes.push_back({random.Between(1, 5000), first, first + static_cast<int>(random.Below(8))});
    }
    ArenaPlan plan = PlanArena(lifetimes);
    int64_t most = 0;  // bytes alive at once: no plan needs fewer
    for (int step = 0; step < 40; ++step) {
      int64_t alive = 0;
      for (const Lifetime& each : lifetimes)
        alive += each.first <= step && step <= each.last ? (each.bytes + 63) / 64 * 64 : 0;
      most = std::max(most, alive);
    }
    EXPECT_GE(plan.bytes, most);
    EXPECT_LE(plan.bytes, plan.sum);
    for (size_t a = 0; a < lifetimes.size(); ++a) {
      EXPECT_EQ(plan.offsets[a] % kArenaAlignment, 0);
      EXPECT_LE(plan.offsets[a] + lifetimes[a].bytes, plan.bytes);
      for (size_t b = 0; b < a; ++b)
        EXPECT_FALSE(Overlap(lifetimes[a], plan.offsets[a], lifetimes[b], plan.offsets[b]));
    }
  }
}

// Of two gaps that are large enough, the smaller one.
TEST(Arena, BestFit) {
  // Placed by size, one after another. When the last comes, the first and the third are not alive any more.
  std::vector<Lifetime> lifetimes = {{9024, 0, 1}, {8000, 0, 9}, {4032, 0, 1}, {3008, 0, 9}, {1024, 3, 4}};
  ArenaPlan plan = PlanArena(lifetimes);
  EXPECT_EQ(plan.bytes, 9024 + 8000 + 4032 + 3008);
  EXPECT_EQ(plan.offsets[4], plan.offsets[2]);
}

TEST(Arena, NothingAtAll) { EXPECT_EQ(PlanArena({}).bytes, 0); }

}  // namespace
}  // namespace hone::memory_plan_test
