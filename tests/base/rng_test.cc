// Random numbers: portable, reproducible, independent children, and not visibly uneven.
#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

namespace hone {
namespace {

TEST(Rng, IsTheSameEverywhere) {
  // From the authors' xoshiro256starstar.c and splitmix64.c, seeded with 42: a stored seed must mean the same for ever.
  Rng rng(42);
  EXPECT_EQ(rng.Next(), 1546998764402558742u);
  EXPECT_EQ(rng.Next(), 6990951692964543102u);
  EXPECT_EQ(rng.Next(), 12544586762248559009u);
}

TEST(Rng, ForksDependOnSeedAndNumberAlone) {
  Rng fresh(7), used(7);
  for (int i = 0; i < 100; ++i) used.Next();
  EXPECT_EQ(fresh.Fork(3).Next(), used.Fork(3).Next());
  std::set<uint64_t> firsts;
  for (uint64_t n = 0; n < 1000; ++n) {
    firsts.insert(fresh.Fork(n).Next());
    firsts.insert(fresh.Fork(n).Fork(n).Next());
    firsts.insert(Rng(n).Fork(7).Next());
  }
  EXPECT_EQ(firsts.size(), 3000u - 1u);  // Rng(7).Fork(7) is there twice: the same fork
}

TEST(Rng, BelowIsEvenAndInRange) {
  Rng rng(1);
  std::vector<int> counts(6);
  for (int i = 0; i < 60'000; ++i) ++counts[rng.Below(6)];
  for (int count : counts) EXPECT_NEAR(count, 10'000, 500);  // five deviations
  for (int i = 0; i < 100; ++i) EXPECT_EQ(rng.Below(1), 0u);
}

TEST(Rng, BetweenCoversItsEnds) {
  Rng rng(1);
  std::set<int64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(rng.Between(-2, 2));
  EXPECT_EQ(seen, (std::set<int64_t>{-2, -1, 0, 1, 2}));
  int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  rng.Between(low, high);  // no overflow
  EXPECT_EQ(rng.Between(high, high), high);
}

TEST(Rng, UniformAndNormalHaveTheirMoments) {
  Rng rng(5);
  double sum = 0, normal_sum = 0, normal_squares = 0;
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) {
    double uniform = rng.Uniform();
    ASSERT_GE(uniform, 0);
    ASSERT_LT(uniform, 1);
    sum += uniform;
    double normal = rng.Normal();
    ASSERT_TRUE(std::isfinite(normal));
    normal_sum += normal;
    normal_squares += normal * normal;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.01);
  EXPECT_NEAR(normal_sum / kDraws, 0, 0.02);
  EXPECT_NEAR(normal_squares / kDraws, 1, 0.03);
}

TEST(Rng, ShuffleKeepsWhatIsThere) {
  std::vector<int> items(50), sorted;
  std::iota(items.begin(), items.end(), 0);
  sorted = items;
  Rng(9).Shuffle(std::span(items));
  EXPECT_NE(items, sorted);
  std::sort(items.begin(), items.end());
  EXPECT_EQ(items, sorted);
}

}  // namespace
}  // namespace hone
