// How much one may hold of what all share.
#include "daemon/serve/shares.h"

#include <gtest/gtest.h>

#include <vector>

namespace hone {
namespace {

// Takes one by one, as long as it may.
uint64_t TakeAll(Shares::Part& part) {
  while (part.TryTake(1)) continue;
  return part.held();
}

TEST(Shares, OneMayHoldAsMuchAsItLeavesFree) {
  Shares shares(80);  // 60 of them shared, 20 for who holds nothing
  Shares::Part first = shares.Of({1000, 1}), second = shares.Of({1000, 2});
  EXPECT_EQ(TakeAll(first), 30u);
  EXPECT_EQ(TakeAll(second), 15u);
  first.Give(30);
  EXPECT_EQ(TakeAll(second), 30u);
  // Two that take in turns come to a third each.
  first.Give(first.held());
  second.Give(second.held());
  while (first.TryTake(1) && second.TryTake(1)) continue;
  EXPECT_EQ(first.held(), 20u);
  EXPECT_EQ(second.held(), 20u);
}

TEST(Shares, ManyWhoTakeWhatTheyCanLeaveSomethingForWhoHoldsNothing) {
  Shares shares(80);
  std::vector<Shares::Part> greedy;
  for (int pid = 1; pid <= 20; ++pid) {
    greedy.push_back(shares.Of({1000, pid}));
    EXPECT_GE(TakeAll(greedy.back()), 1u) << pid;
  }
  EXPECT_LE(shares.held(), 60u + 20u);
  Shares::Part honest = shares.Of({1000, 100});
  EXPECT_TRUE(honest.TryTake(1));
  for (int pid = 101; shares.held() < 80; ++pid) {
    greedy.push_back(shares.Of({1000, pid}));
    ASSERT_TRUE(greedy.back().TryTake(1));
  }
  EXPECT_FALSE(shares.Of({1000, 99}).MayTake(1));  // it is all that there is
}

TEST(Shares, PartsOfOneClientAddUpAndAreGivenBack) {
  Shares shares(80);
  {
    Shares::Part first = shares.Of({1000, 1}), second = shares.Of({1000, 1});
    first.Take(20);
    EXPECT_EQ(TakeAll(second), 10u);
    EXPECT_EQ(first.process_held(), 30u);
    Shares::Part moved = std::move(first);
    first = {};
    EXPECT_EQ(shares.held(), 30u);
    first = std::move(moved);
    EXPECT_FALSE(second.MayTake(1));
    first = {};
    EXPECT_EQ(shares.held(), 10u);
    EXPECT_TRUE(second.MayTake(20));
    EXPECT_FALSE(second.MayTake(21));
  }
  EXPECT_EQ(shares.held(), 0u);
}

TEST(Shares, AUserOfSeveralIsOneHowManyProcessesItHas) {
  Shares shares(80, /*several_users=*/true);
  std::vector<Shares::Part> greedy;
  uint64_t held = 0;
  for (int pid = 1; pid <= 100; ++pid) {
    greedy.push_back(shares.Of({1000, pid}));
    held += TakeAll(greedy.back());
  }
  EXPECT_LE(held, 30u);
  EXPECT_GE(held, 28u);
  Shares::Part other = shares.Of({1001, 1});
  EXPECT_GE(TakeAll(other), 8u);  // half of what is left free, and half of that, as another process may come
  // The same processes where one user is welcome.
  shares.SetWhole(80, false);
  EXPECT_TRUE(greedy.back().MayTake(1));
}

TEST(Shares, OneOfOneCanBeHad) {
  for (uint64_t whole : {1, 2, 3, 4}) {
    for (bool several : {false, true}) {
      Shares shares(whole, several);
      Shares::Part part = shares.Of({1000, 1});
      EXPECT_TRUE(part.TryTake(1)) << whole;
      EXPECT_LE(TakeAll(part), (whole + 1) / 2) << whole;
    }
  }
}

}  // namespace
}  // namespace hone
