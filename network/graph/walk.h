// Walking tensors of numbers: what operators that compute on the host share.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "network/graph/evaluate_internal.h"

namespace hone::evaluating {

// Of an element at a distance, in cubic convolution (Keys 1981) with the coefficient `a`.
inline double CubicWeight(double distance, double a) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// A tensor seen along one of its dimensions: `outer` blocks, in each `inner` lines of `extent` elements, `step` apart.
struct Lines {
  int64_t outer = 1, extent = 1, inner = 1;

  Lines(const Shape& shape, int64_t axis) {
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
      const int64_t size = shape[static_cast<size_t>(d)];
      if (d < axis) outer *= size;
      if (d == axis) extent = size;
      if (d > axis) inner *= size;
    }
  }
  int64_t count() const { return outer * inner; }
  // Where line number i begins; its elements are `inner` apart.
  size_t Begin(int64_t i) const { return static_cast<size_t>(i / inner * extent * inner + i % inner); }
  size_t At(int64_t i, int64_t k) const { return Begin(i) + static_cast<size_t>(k * inner); }
};

}  // namespace hone::evaluating
