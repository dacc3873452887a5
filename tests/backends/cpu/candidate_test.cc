// When a time that was measured counts.
#include "backends/cpu/candidate.h"

#include <gtest/gtest.h>

namespace hone::candidate_test {
namespace {

TEST(IsDisturbed, ByPreemptionOrTimeOffTheProcessor) {
  constexpr int64_t kMs = 1'000'000;
  EXPECT_FALSE(IsDisturbed(kMs, kMs, 0));
  EXPECT_FALSE(IsDisturbed(kMs, kMs * 98 / 100, 0));
  EXPECT_TRUE(IsDisturbed(kMs, kMs * 97 / 100, 0));
  EXPECT_FALSE(IsDisturbed(kMs / 1000, 0, 0));  // the clocks' own grain
  EXPECT_TRUE(IsDisturbed(kMs, kMs, 1));
  EXPECT_FALSE(IsDisturbed(9 * kMs, 9 * kMs, 2));
  EXPECT_TRUE(IsDisturbed(9 * kMs, 9 * kMs, 3));
}

}  // namespace
}  // namespace hone::candidate_test
