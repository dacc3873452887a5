// Element types of ONNX that hone has none for: whole numbers of 2 and 4 bits, floats of 8 and of 4. Their numbers are
// held as those of the next type that has all of them, i8, u8 or f32, and whatever becomes one of them is rounded to
// it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "network/graph/graph_builder.h"

namespace hone {

struct SmallType {
  int onnx;  // ONNX's number of it
  std::string_view name;
  int bits;
  DType held_as;
  int exponent = 0, mantissa = 0;  // bits of a float; 0, 0: a whole number
  int bias = 0;
  float largest = 0;  // finite
  bool is_unsigned = false;
  bool has_infinity = false;
  bool has_nan = true;
  bool has_negative_zero = true;  // else its code is the NaN

  bool is_float() const { return exponent > 0; }
  int64_t lowest() const;  // of whole numbers
  int64_t highest() const;
};

// nullptr: any other type.
const SmallType* SmallTypeOf(int64_t onnx);

// The bytes that `count` numbers take in a file, where several may share one, and the numbers as `held_as` has them.
// REQUIRES: packed.size() == PackedBytes(type, count).
uint64_t PackedBytes(const SmallType& type, uint64_t count);
std::string Unpacked(const SmallType& type, std::string_view packed, int64_t count);

// How a float becomes a smaller one: beyond the largest it is the largest, or else infinity or NaN; powers of two alone
// are rounded up or down, too.
struct SmallRounding {
  enum class Mode : uint8_t { kNearest, kUp, kDown };
  bool saturates = true;
  Mode mode = Mode::kNearest;
};
float RoundedTo(const SmallType& type, float x, SmallRounding rounding);

// x, of any type, as numbers of this one: ONNX's Cast. Whole numbers keep their lowest bits.
Result<ValueId> CastTo(Builder& build, const SmallType& type, ValueId x, SmallRounding rounding = {});

}  // namespace hone
