// How the reference computes: loops over columns, made of an operation's value at one point and the rule for its
// magnitude A (ir/reference/interpret_columns.h). Internal to ir/graph/op_traits and ir/reference/interpret.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/graph/dtype_traits.h"
#include "ir/graph/op_traits.h"

namespace hone::reference {

constexpr double kMaxDouble = std::numeric_limits<double>::max();

// Infinite and NaN values carry no error.
inline double Sane(double value, double magnitude) { return std::abs(value) <= kMaxDouble ? magnitude : 0; }

// Whether max (or min) of a and b is b. The first NaN stays.
inline bool TakesSecond(bool is_max, double a, double b) { return std::isnan(b) || (is_max ? b > a : b < a); }

// Both results are possible when the operands are this close.
inline double ExtremeMagnitude(bool takes_second, double a, double ma, double b, double mb, double tolerance) {
  if (std::abs(a - b) <= tolerance * (ma + mb)) return std::max(ma, mb);
  return takes_second ? mb : ma;
}

inline double ProductSlack(int64_t a, double sa, int64_t b, double sb) {
  return std::abs(static_cast<double>(a)) * sb + std::abs(static_cast<double>(b)) * sa + sa * sb;
}

// The low bits of a value as an integer type holds them: its sign bit counts negative.
class Wrap {
 public:
  explicit Wrap(DType type)
      : mask_(~uint64_t{0} >> (64 - 8 * ByteSize(type))), sign_(TraitsOf(type).lowest < 0 ? mask_ ^ mask_ >> 1 : 0) {}
  int64_t operator()(uint64_t value) const { return static_cast<int64_t>(((value & mask_) ^ sign_) - sign_); }

 private:
  uint64_t mask_;
  uint64_t sign_;
};

// A float argument at one lane.
struct Point {
  double value;
  double magnitude;
  bool exact;
};

// kValue(x) and kMagnitude(x, value, tolerance) with x a Point; of two arguments kValue(a, b), kMagnitude(a, b, …).
template <auto kValue, auto kMagnitude>
void OneFloat(const FloatColumns& columns) {
  const auto [n, tolerance, x, m, exact, v, out] = columns;
  for (size_t i = 0; i < n; ++i) v[i] = kValue(x[0][i]);
  if (!out) return;
  for (size_t i = 0; i < n; ++i) out[i] = Sane(v[i], kMagnitude(Point{x[0][i], m[0][i], exact[0]}, v[i], tolerance));
}

template <auto kValue, auto kMagnitude>
void TwoFloats(const FloatColumns& columns) {
  const auto [n, tolerance, x, m, exact, v, out] = columns;
  for (size_t i = 0; i < n; ++i) v[i] = kValue(x[0][i], x[1][i]);
  if (!out) return;
  for (size_t i = 0; i < n; ++i) {
    const Point a{x[0][i], m[0][i], exact[0]}, b{x[1][i], m[1][i], exact[1]};
    out[i] = Sane(v[i], kMagnitude(a, b, v[i], tolerance));
  }
}

// kValue(x) and kSlack(x, slack); of two arguments kValue(a, b) and kSlack(a, slack of a, b, slack of b).
template <auto kValue, auto kSlack>
void OneInteger(const IntegerColumns& columns) {
  const auto [n, type, x, slack, v, out] = columns;
  const Wrap wrap(type);
  for (size_t i = 0; i < n; ++i) v[i] = wrap(static_cast<uint64_t>(kValue(x[0][i])));
  if (!out) return;
  for (size_t i = 0; i < n; ++i) out[i] = kSlack(x[0][i], slack[0][i]);
}

template <auto kValue, auto kSlack>
void TwoIntegers(const IntegerColumns& columns) {
  const auto [n, type, x, slack, v, out] = columns;
  const Wrap wrap(type);
  for (size_t i = 0; i < n; ++i) v[i] = wrap(static_cast<uint64_t>(kValue(x[0][i], x[1][i])));
  if (!out) return;
  for (size_t i = 0; i < n; ++i) out[i] = kSlack(x[0][i], slack[0][i], x[1][i], slack[1][i]);
}

}  // namespace hone::reference
