#include "codegen/gpu/simt_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ir/graph/element.h"

namespace hone::simt {

using straight::Do;

namespace {

int64_t Wrapped(DType type, int64_t value) {
  switch (type) {
    case DType::kBool: return value != 0;
    case DType::kI8: return static_cast<int8_t>(value);
    case DType::kU8: return static_cast<uint8_t>(value);
    case DType::kI64: return value;
    default: return static_cast<int32_t>(value);
  }
}

double Rounded(DType type, double value) { return type == DType::kF64 ? value : RoundedTo(type, value); }

int64_t Saturated(DType type, double value) {
  if (std::isnan(value)) return 0;
  const double lo = type == DType::kI8 ? -128 : -2147483648.0, hi = type == DType::kI8 ? 127 : 2147483647.0;
  return static_cast<int64_t>(std::clamp(std::trunc(value), lo, hi));
}

double Extreme(bool is_max, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return is_max ? std::max(a, b) : std::min(a, b);
}

// As an element of that type.
Lane Convert(DType from, DType to, const Lane& x) {
  const bool is_float = IsFloat(from);
  if (to == DType::kBool) return {0, is_float ? x.real != 0 : x.number != 0};
  if (IsFloat(to)) return {Rounded(to, is_float ? x.real : static_cast<double>(x.number)), 0};
  return {0, is_float ? Saturated(to, x.real) : Wrapped(to, x.number)};
}

Lane Bits(DType from, DType to, const Lane& x) {
  switch (to) {
    case DType::kI32: return {0, std::bit_cast<int32_t>(static_cast<float>(x.real))};
    case DType::kI64: return {0, std::bit_cast<int64_t>(x.real)};
    case DType::kF32: return {std::bit_cast<float>(static_cast<int32_t>(x.number)), 0};
    default: return {std::bit_cast<double>(x.number), 0};
  }
}

Lane Floating(Do what, DType type, const Lane* a) {
  const double x = a[0].real, y = a[1].real;
  switch (what) {
    case Do::kAdd: return {Rounded(type, x + y), 0};
    case Do::kSub: return {Rounded(type, x - y), 0};
    case Do::kMul: return {Rounded(type, x * y), 0};
    case Do::kDiv: return {Rounded(type, x / y), 0};
    case Do::kFma:
      if (type == DType::kF32)
        return {std::fma(static_cast<float>(x), static_cast<float>(y), static_cast<float>(a[2].real)), 0};
      return {std::fma(x, y, a[2].real), 0};
    case Do::kMin:
    case Do::kMax: return {Extreme(what == Do::kMax, x, y), 0};
    case Do::kLargerNumber: return {y > x ? y : x, 0};
    case Do::kNeg: return {-x, 0};
    case Do::kAbs: return {std::fabs(x), 0};
    case Do::kFloor: return {std::floor(x), 0};
    case Do::kRound: return {std::nearbyint(x), 0};
    case Do::kSqrt: return {Rounded(type, std::sqrt(x)), 0};
    case Do::kCopySign: return {std::copysign(x, y), 0};
    case Do::kEq: return {0, x == y};
    case Do::kNe: return {0, x != y};
    case Do::kLt: return {0, x < y};
    case Do::kLe: return {0, x <= y};
    default: HONE_CHECK(!"an operation on floats");
  }
  return {};
}

Lane Integral(Do what, DType type, const Lane* a) {
  const int64_t x = a[0].number, y = a[1].number;
  const auto ux = static_cast<uint64_t>(x), uy = static_cast<uint64_t>(y);
  const bool is_wide = type == DType::kI64;
  switch (what) {
    case Do::kAdd: return {0, Wrapped(type, static_cast<int64_t>(ux + uy))};
    case Do::kSub: return {0, Wrapped(type, static_cast<int64_t>(ux - uy))};
    case Do::kMul: return {0, Wrapped(type, static_cast<int64_t>(ux * uy))};
    case Do::kQuotient: return {0, y == 0 ? 0 : Wrapped(type, x / y)};
    case Do::kMin: return {0, std::min(x, y)};
    case Do::kMax:
    case Do::kLargerNumber: return {0, std::max(x, y)};
    case Do::kNeg: return {0, Wrapped(type, static_cast<int64_t>(0 - ux))};
    case Do::kAbs: return {0, Wrapped(type, x < 0 ? static_cast<int64_t>(0 - ux) : x)};
    case Do::kEq: return {0, x == y};
    case Do::kNe: return {0, x != y};
    case Do::kLt: return {0, x < y};
    case Do::kLe: return {0, x <= y};
    case Do::kAnd: return {0, x != 0 && y != 0};
    case Do::kOr: return {0, x != 0 || y != 0};
    case Do::kNot: return {0, x == 0};
    case Do::kBitAnd: return {0, x & y};
    case Do::kBitOr: return {0, x | y};
    case Do::kBitXor: return {0, x ^ y};
    case Do::kShiftLeft: return {0, Wrapped(type, static_cast<int64_t>(ux << y))};
    case Do::kShiftRight:
      return {0, is_wide ? static_cast<int64_t>(ux >> y) : static_cast<int64_t>(static_cast<uint32_t>(x) >> y)};
    default: HONE_CHECK(!"an operation on integers");
  }
  return {};
}

}  // namespace

Slot Arranged(const straight::Value& value, std::span<const Slot* const> of) {
  Slot slot;
  slot.is_set = true;
  slot.Widen(value.lanes);
  const auto first = static_cast<size_t>(value.number), count = static_cast<size_t>(value.lanes), half = count / 2;
  for (size_t lane = 0; lane < count; ++lane) {
    if (value.what == Do::kPack)
      slot.At(lane) = of[lane]->At(0);
    else if (value.what == Do::kEverySecond)
      slot.At(lane) = lane < half ? of[0]->At(2 * lane) : of[1]->At(2 * (lane - half) + 1);
    else
      slot.At(lane) = of[0]->At(first + lane);
  }
  return slot;
}

Lane Computed(const straight::Value& value, DType from, const Lane* a) {
  switch (value.what) {
    case Do::kSelect: return a[0].number != 0 ? a[1] : a[2];  // both are computed, whichever is taken
    case Do::kConvert: return Convert(from, value.type, a[0]);
    case Do::kBits: return Bits(from, value.type, a[0]);
    default: return IsFloat(from) ? Floating(value.what, value.type, a) : Integral(value.what, value.type, a);
  }
}

}  // namespace hone::simt
