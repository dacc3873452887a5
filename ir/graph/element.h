// Elements as memory holds them: the C++ type of each DType, and conversion from and to double. f16 and bf16 are
// computed with as what they are converted to; the conversions round to nearest, ties to even.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "ir/graph/dtype_traits.h"

namespace hone {

// A float of 16 bits as IEEE 754 lays it out: sign, exponent, fraction. Subnormal numbers, infinities and NaN included;
// what is too large becomes infinite. NaN keeps the part of its payload that fits, and becomes quiet.
template <int kExponentBits, int kFractionBits>
class SmallFloat {
  static_assert(1 + kExponentBits + kFractionBits == 16);

 public:
  SmallFloat() = default;
  constexpr explicit SmallFloat(double x) : bits_(Encode(x)) {}
  static constexpr SmallFloat FromBits(uint16_t bits) {
    SmallFloat made;
    made.bits_ = bits;
    return made;
  }
  constexpr uint16_t bits() const { return bits_; }

  constexpr explicit operator double() const {
    const uint64_t sign = static_cast<uint64_t>(bits_ >> 15) << 63;
    const uint64_t exponent = bits_ >> kFractionBits & kSpecial, fraction = bits_ & kFraction;
    if (exponent == 0) {
      const double size = static_cast<double>(fraction) * kLeast;
      return sign != 0 ? -size : size;
    }
    const uint64_t wide = exponent == kSpecial ? 0x7ff : exponent - kBias + 1023;
    return std::bit_cast<double>(sign | wide << 52 | fraction << (52 - kFractionBits));
  }

 private:
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr uint64_t kSpecial = (1 << kExponentBits) - 1;  // exponent of infinities and NaN
  static constexpr uint64_t kFraction = (1 << kFractionBits) - 1;
  static constexpr double kLeast = std::bit_cast<double>(uint64_t{1024 - kBias - kFractionBits} << 52);

  static constexpr uint16_t Encode(double x) {
    const uint64_t wide = std::bit_cast<uint64_t>(x), fraction = wide & 0xfffffffffffff;
    const auto sign = static_cast<uint64_t>(wide >> 63 << 15);
    const int exponent = static_cast<int>(wide >> 52 & 0x7ff) - 1023;
    if (exponent == 1024 && fraction != 0) {
      constexpr uint64_t kQuiet = uint64_t{1} << (kFractionBits - 1);
      return static_cast<uint16_t>(sign | kSpecial << kFractionBits | kQuiet | fraction >> (52 - kFractionBits));
    }
    if (exponent > kBias) return static_cast<uint16_t>(sign | kSpecial << kFractionBits);
    // In units of the last place: of the number's own exponent, or of the smallest normal one.
    const int below = exponent < 1 - kBias ? 1 - kBias - exponent : 0;
    const int shift = 52 - kFractionBits + below;
    if (shift > 53) return static_cast<uint16_t>(sign);  // less than half of the least number
    const uint64_t significand = fraction | uint64_t{1} << 52;
    uint64_t units = significand >> shift;
    const uint64_t rest = significand & ((uint64_t{1} << shift) - 1), half = uint64_t{1} << (shift - 1);
    if (rest > half || (rest == half && (units & 1) != 0)) ++units;
    // A carry goes on into the exponent, up to infinity.
    const uint64_t base = below > 0 ? 0 : static_cast<uint64_t>(exponent + kBias - 1) << kFractionBits;
    return static_cast<uint16_t>(sign | (base + units));
  }

  uint16_t bits_;
};

using Half = SmallFloat<5, 10>;
using BFloat16 = SmallFloat<8, 7>;

// Calls visit(std::type_identity<T>()) with the type of an element in memory; bool is a uint8_t of 0 or 1.
template <typename Visit>
decltype(auto) VisitElement(DType type, Visit&& visit) {
  switch (type) {
    case DType::kBool: return visit(std::type_identity<uint8_t>());
    case DType::kI8: return visit(std::type_identity<int8_t>());
    case DType::kU8: return visit(std::type_identity<uint8_t>());
    case DType::kI32: return visit(std::type_identity<int32_t>());
    case DType::kI64: return visit(std::type_identity<int64_t>());
    case DType::kF16: return visit(std::type_identity<Half>());
    case DType::kBF16: return visit(std::type_identity<BFloat16>());
    case DType::kF32: return visit(std::type_identity<float>());
    case DType::kF64: return visit(std::type_identity<double>());
    case DType::kU16: return visit(std::type_identity<uint16_t>());
    case DType::kI16: return visit(std::type_identity<int16_t>());
    case DType::kU32: return visit(std::type_identity<uint32_t>());
    case DType::kU64: return visit(std::type_identity<uint64_t>());
  }
  HONE_CHECK(!"an element type");
  __builtin_unreachable();
}

// An element's value, exact but for i64 beyond 2^53. `data` need not be aligned.
inline double LoadElement(DType type, const void* data, size_t index) {
  return VisitElement(type, [&]<typename T>(std::type_identity<T>) {
    T element;
    std::memcpy(&element, static_cast<const std::byte*>(data) + index * sizeof(T), sizeof(T));
    return static_cast<double>(element);
  });
}

// The nearest element: floats round, numbers beyond an integer's range become its ends and NaN 0, fractions are cut
// off; of bool anything but 0 is true.
inline void StoreElement(DType type, double value, void* data, size_t index) {
  VisitElement(type, [&]<typename T>(std::type_identity<T>) {
    T element;
    if constexpr (std::is_integral_v<T>) {
      const DTypeTraits& traits = TraitsOf(type);
      if (type == DType::kBool)
        element = value != 0;
      else if (!(value > static_cast<double>(traits.lowest)))
        element = std::isnan(value) ? T{0} : static_cast<T>(traits.lowest);
      else
        element = value < static_cast<double>(traits.highest) ? static_cast<T>(value) : static_cast<T>(traits.highest);
    } else {
      element = static_cast<T>(value);
    }
    std::memcpy(static_cast<std::byte*>(data) + index * sizeof(T), &element, sizeof(T));
  });
}

// What is left of a value once it was an element.
inline double RoundedTo(DType type, double value) {
  alignas(8) std::byte memory[8];
  StoreElement(type, value, memory, 0);
  return LoadElement(type, memory, 0);
}

}  // namespace hone
