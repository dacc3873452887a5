// Linear forms: exact folding of floor divisions and remainders, against brute force.
#include "ir/graph/linear.h"

#include <gtest/gtest.h>

#include <random>

#include "ir/graph/expr.h"

namespace hone {
namespace {

TEST(Linear, SplitIndicesLeaveNoDivision) {
  VarTable vars;
  VarId outer = vars.AddLoop("n.0", 8), mid = vars.AddLoop("n.1", 2), inner = vars.AddLoop("n.2", 16);
  Linear n = Linear::Of(outer, 32) + Linear::Of(mid, 16) + Linear::Of(inner);
  EXPECT_EQ(vars.DivFloor(n, 32), Linear::Of(outer));
  EXPECT_EQ(vars.Mod(n, 32), Linear::Of(mid, 16) + Linear::Of(inner));
}

TEST(Linear, FusedIndexRecombines) {
  VarTable vars;
  VarId f = vars.AddLoop("h+w", 56 * 57);
  Linear h = vars.DivFloor(Linear::Of(f), 57), w = vars.Mod(Linear::Of(f), 57);
  EXPECT_EQ(h * 57 + w, Linear::Of(f));
  EXPECT_EQ(vars.Range(w).lo, 0);
  EXPECT_EQ(vars.Range(w).hi, 56);
}

// What is divided may hide in an axis; the axis' range, which its loops do not show, stays known.
TEST(Linear, AxesDivideByWhatTheyAreMadeOf) {
  VarTable vars;
  VarId block = vars.AddLoop("h.0", 4), row = vars.AddLoop("h.1", 2), in = vars.AddLoop("h.2", 4);
  VarId h = vars.AddAxis("h", Linear::Of(block, 8) + Linear::Of(row, 4) + Linear::Of(in), {0, 27});
  Linear quotient = vars.DivFloor(Linear::Of(h), 4);
  EXPECT_EQ(vars.ExpandAxes(quotient), Linear::Of(block, 2) + Linear::Of(row));
  EXPECT_EQ(vars.Range(quotient).hi, 6);
  EXPECT_EQ(vars.Mod(Linear::Of(h), 4), Linear::Of(in));
  // Fourteen lanes over rows of seven: the block is known, the row within it is not.
  VarId lane = vars.AddLoop("t.1", 14), tile = vars.AddLoop("t.0", 3);
  VarId t = vars.AddAxis("t", Linear::Of(tile, 14) + Linear::Of(lane), {0, 41});
  Linear line = vars.DivFloor(Linear::Of(t), 7), column = vars.Mod(Linear::Of(t), 7);
  EXPECT_EQ(vars.ExpandAxes(line), Linear::Of(tile, 2) + vars.DivFloor(Linear::Of(lane), 7));
  EXPECT_EQ(vars.Range(column).lo, 0);
  EXPECT_EQ(vars.Range(column).hi, 6);
  EXPECT_EQ(vars.ExpandAxes(line * 7 + column), vars.ExpandAxes(Linear::Of(t)));
}

// What is made of a number that nothing bounds has no bounds either, but for those that an operation gives it.
TEST(Linear, WhatNothingBoundsProvesNothing) {
  VarTable vars;
  const Linear z = Linear::Of(vars.Add({VarKind::kOpaque, "z", {-kUnbounded, kUnbounded}, 0, 0, 1, 0}));
  const Linear i = Linear::Of(vars.AddLoop("i", 10));
  for (int64_t scale : {1, 2, 3, 4, 7, 8, 9, 1000, -8, -16}) {
    SCOPED_TRACE(scale);
    for (const Linear& form :
         {z * scale, z * scale + i * 5 + Linear(-3), vars.DivFloor(z * scale, 5), vars.DivFloor(z * scale, 5) * 5,
          vars.Product(z * scale, i + Linear(1)), vars.Product(z * scale, z + i)}) {
      EXPECT_EQ(vars.Range(form).lo, -kUnbounded) << vars.Text(form);
      EXPECT_EQ(vars.Range(form).hi, kUnbounded) << vars.Text(form);
    }
    const Linear clamped = vars.Min(vars.Max(z * scale, 0), 999);
    EXPECT_EQ(vars.Range(clamped).lo, 0);
    EXPECT_EQ(vars.Range(clamped).hi, 999);
    EXPECT_FALSE(clamped == z * scale);
  }
  for (int64_t divisor : {3, 31, 1321, 1 << 20}) {
    const Linear rest = vars.Mod(z, divisor), shifted = rest - Linear(1);
    EXPECT_EQ(vars.Range(rest).lo, 0);
    EXPECT_EQ(vars.Range(rest).hi, divisor - 1);
    const Linear distance = vars.Max(shifted, shifted * -1);
    EXPECT_FALSE(distance == shifted || distance == shifted * -1) << divisor;
  }
}

// Ranges of thirty-two bits times coefficients of thirty-one.
TEST(Linear, RangesSaturate) {
  VarTable vars;
  const Linear z = Linear::Of(vars.Add({VarKind::kOpaque, "z", {INT32_MIN, INT32_MAX}, 0, 0, 1, 0}));
  EXPECT_EQ(vars.Range(z * 8).hi, int64_t{8} * INT32_MAX);
  const Linear most = z * INT32_MAX;
  EXPECT_EQ(vars.Range(vars.Product(most, z)).lo, -kUnbounded);
  EXPECT_EQ(vars.Range(vars.Product(most, z)).hi, kUnbounded);
  EXPECT_EQ(vars.Range(vars.Product(z, z)).hi, kUnbounded);
}

// Random forms over small loops: whatever DivFloor folds to must equal the true quotient at every point, and Range must
// contain every value.
TEST(Linear, DivFloorAgreesWithBruteForce) {
  std::mt19937 rng(7);
  auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  for (int round = 0; round < 400; ++round) {
    VarTable vars;
    VarId x = vars.AddLoop("x", pick(1, 5)), y = vars.AddLoop("y", pick(1, 5)), z = vars.AddLoop("z", pick(1, 4));
    Linear e = Linear::Of(x, pick(-12, 12)) + Linear::Of(y, pick(-12, 12)) + Linear::Of(z, pick(-3, 3)) +
               Linear(pick(-20, 20));
    int64_t divisor = pick(1, 12);
    Linear q = vars.DivFloor(e, divisor), m = vars.Mod(e, divisor);
    Linear nested = vars.Min(vars.DivFloor(q + Linear::Of(z), 3), m);
    for (int64_t a = 0; a <= vars[x].range.hi; ++a)
      for (int64_t b = 0; b <= vars[y].range.hi; ++b)
        for (int64_t c = 0; c <= vars[z].range.hi; ++c) {
          auto at = [&](const Linear& form) {
            Linear v = vars.Substitute(form, [&](VarId var, Linear* out) {
              if (var != x && var != y && var != z) return false;
              *out = Linear(var == x ? a : var == y ? b : c);
              return true;
            });
            EXPECT_TRUE(v.IsConstant());
            Interval range = vars.Range(form);
            EXPECT_LE(range.lo, v.constant());
            EXPECT_GE(range.hi, v.constant());
            return v.constant();
          };
          int64_t value = at(e);
          ASSERT_EQ(at(q), FloorDiv(value, divisor)) << vars.Text(e) << " / " << divisor;
          ASSERT_EQ(at(m), FloorMod(value, divisor));
          ASSERT_EQ(at(nested), std::min(FloorDiv(FloorDiv(value, divisor) + c, 3), FloorMod(value, divisor)));
        }
  }
}

}  // namespace
}  // namespace hone
