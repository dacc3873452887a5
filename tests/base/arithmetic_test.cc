#include "base/arithmetic.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(Arithmetic, RoundsUp) {
  for (int64_t b = 1; b <= 9; ++b)
    for (int64_t a = 0; a <= 40; ++a) {
      int64_t quotient = 0;
      while (quotient * b < a) ++quotient;
      EXPECT_EQ(CeilDiv(a, b), quotient) << a << " " << b;
      EXPECT_EQ(RoundUp(a, b), quotient * b) << a << " " << b;
    }
}

TEST(Arithmetic, FindsThePowerOfTwoAbove) {
  for (int64_t value = 1; value <= 300; ++value) {
    int64_t power = 1;
    while (power < value) power *= 2;
    EXPECT_EQ(BitCeil(value), power);
  }
}

}  // namespace
}  // namespace hone
