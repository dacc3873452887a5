#include "network/onnx/small_types.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "network/graph/walk.h"

namespace hone {
namespace {

using evaluating::Arguments;

// onnx.proto's TensorProto.DataType, and the formats that ONNX's documentation of floats of 8 and 4 bits defines.
constexpr SmallType kTypes[] = {
    {17, "float8e4m3fn", 8, DType::kF32, 4, 3, 7, 448},
    {18, "float8e4m3fnuz", 8, DType::kF32, 4, 3, 8, 240, false, false, true, false},
    {19, "float8e5m2", 8, DType::kF32, 5, 2, 15, 57344, false, true},
    {20, "float8e5m2fnuz", 8, DType::kF32, 5, 2, 16, 57344, false, false, true, false},
    {21, "uint4", 4, DType::kU8},
    {22, "int4", 4, DType::kI8},
    {23, "float4e2m1", 4, DType::kF32, 2, 1, 1, 6, false, false, false},
    {24, "float8e8m0", 8, DType::kF32, 8, 0, 127, 0x1p127F, true},
    {25, "uint2", 2, DType::kU8},
    {26, "int2", 2, DType::kI8},
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinite = std::numeric_limits<float>::infinity();

float FloatOf(const SmallType& type, int code) {
  const int magnitude = type.is_unsigned ? code : code & ((1 << (type.bits - 1)) - 1);
  const bool is_negative = magnitude != code;
  const int field = magnitude >> type.mantissa, fraction = magnitude & ((1 << type.mantissa) - 1);
  const bool has_all_ones = field == (1 << type.exponent) - 1;
  if (!type.has_negative_zero && is_negative && magnitude == 0) return kNan;
  if (type.has_infinity && has_all_ones) return fraction != 0 ? kNan : is_negative ? -kInfinite : kInfinite;
  if (type.has_nan && type.has_negative_zero && has_all_ones && fraction == (1 << type.mantissa) - 1) return kNan;
  const bool is_subnormal = field == 0 && !type.is_unsigned;
  const float whole = static_cast<float>(fraction + (is_subnormal ? 0 : 1 << type.mantissa));
  const float value = std::ldexp(whole, std::max(field, type.is_unsigned ? 0 : 1) - type.bias - type.mantissa);
  return is_negative ? -value : value;
}

// A power of two, of which there is no 0.
float PowerOf(const SmallType& type, float x, SmallRounding rounding) {
  if (std::isnan(x) || x < 0) return kNan;
  if (x > type.largest) return rounding.saturates ? type.largest : kNan;
  int exponent = 0;
  const float least = std::ldexp(1.0F, -type.bias);
  const float fraction = std::frexp(std::max(x, least), &exponent);  // 0.5 to 1
  const bool is_up = rounding.mode == SmallRounding::Mode::kUp        ? fraction > 0.5F
                     : rounding.mode == SmallRounding::Mode::kNearest ? fraction >= 0.75F
                                                                      : false;
  const float power = std::ldexp(1.0F, exponent - 1 + (is_up ? 1 : 0));
  return power > type.largest ? (rounding.saturates ? type.largest : kNan) : power;
}

}  // namespace

int64_t SmallType::lowest() const { return held_as == DType::kI8 ? -(int64_t{1} << (bits - 1)) : 0; }
int64_t SmallType::highest() const { return (int64_t{1} << (held_as == DType::kI8 ? bits - 1 : bits)) - 1; }

const SmallType* SmallTypeOf(int64_t onnx) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const SmallType& t) { return t.onnx == onnx; });
  return found == std::end(kTypes) ? nullptr : found;
}

uint64_t PackedBytes(const SmallType& type, uint64_t count) {
  const auto in_byte = static_cast<uint64_t>(8 / type.bits);
  return count / in_byte + (count % in_byte != 0 ? 1 : 0);
}

std::string Unpacked(const SmallType& type, std::string_view packed, int64_t count) {
  const auto many = static_cast<size_t>(count), in_byte = static_cast<size_t>(8 / type.bits);
  const int mask = (1 << type.bits) - 1;
  float floats[256];
  for (int code = 0; type.is_float() && code <= mask; ++code) floats[code] = FloatOf(type, code);
  std::string numbers(many * (type.is_float() ? sizeof(float) : 1), '\0');
  for (size_t i = 0; i < many; ++i) {
    const int code =
        static_cast<unsigned char>(packed[i / in_byte]) >> (i % in_byte * static_cast<size_t>(type.bits)) & mask;
    if (type.is_float())
      std::memcpy(numbers.data() + i * sizeof(float), &floats[code], sizeof(float));
    else
      numbers[i] = static_cast<char>(code > type.highest() ? code - (mask + 1) : code);
  }
  return numbers;
}

float RoundedTo(const SmallType& type, float x, SmallRounding rounding) {
  if (type.is_unsigned) return PowerOf(type, x, rounding);
  // What has no NaN takes it for nothing.
  if (std::isnan(x)) return type.has_nan ? x : -0.0F;
  const float magnitude = std::abs(x);
  float rounded = magnitude;
  if (magnitude > 0 && magnitude <= 2 * type.largest) {
    const int exponent = std::max(std::ilogb(magnitude), 1 - type.bias) - type.mantissa;
    rounded = std::ldexp(std::nearbyint(std::ldexp(magnitude, -exponent)), exponent);
  }
  if (rounded > type.largest)
    rounded = rounding.saturates || !type.has_nan ? type.largest : type.has_infinity ? kInfinite : kNan;
  if (rounded == 0 && !type.has_negative_zero) return 0;
  return std::copysign(rounded, x);
}

Result<ValueId> CastTo(Builder& build, const SmallType& type, ValueId x, SmallRounding rounding) {
  const Shape shape = build.shape(x);
  if (!type.is_float()) {  // to a whole number, of which the lowest bits count
    x = HONE_TRY(build.Cast(x, DType::kI32));
    HostOperation host{"Cast", "w", {{type.held_as, shape}}};
    const int64_t lowest = type.lowest(), span = type.highest() - lowest + 1;
    auto kept = [=](int64_t v) { return ((v - lowest) % span + span) % span + lowest; };
    host.compute = [=, held_as = type.held_as](Arguments in) -> Result<std::vector<Numbers>> {
      Numbers out = MakeNumbers(held_as, shape);
      for (size_t i = 0; i < out.whole.size(); ++i) out.whole[i] = kept(in[0]->whole[i]);
      return std::vector{std::move(out)};
    };
    return HONE_TRY(build.Host(std::move(host), {x}))[0];
  }
  x = HONE_TRY(build.Cast(x, DType::kF32));
  HostOperation host{"Cast", "r", {{DType::kF32, shape}}};
  host.compute = [=](Arguments in) -> Result<std::vector<Numbers>> {
    Numbers out = MakeNumbers(DType::kF32, shape);
    for (size_t i = 0; i < out.real.size(); ++i)
      out.real[i] = RoundedTo(type, static_cast<float>(in[0]->real[i]), rounding);
    return std::vector{std::move(out)};
  };
  host.run = [=](std::span<const void* const> in, std::span<void* const> out) -> Result<void> {
    const auto* from = static_cast<const float*>(in[0]);
    auto* to = static_cast<float*>(out[0]);
    for (int64_t i = 0; i < CountOf(shape); ++i) to[i] = RoundedTo(type, from[i], rounding);
    return {};
  };
  host.steps = static_cast<double>(CountOf(shape)) * 10;
  return HONE_TRY(build.Host(std::move(host), {x}))[0];
}

}  // namespace hone
