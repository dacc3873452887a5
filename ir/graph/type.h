// Element types of tensors and of the expressions over them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hone {

// Stored and sent: never reuse a number.
enum class DType : uint8_t {
  kBool = 1,
  kI8 = 2,
  kI32 = 3,
  kI64 = 4,  // index arithmetic
  kF16 = 5,
  kBF16 = 6,
  kF32 = 7,
  kF64 = 8,
  kU8 = 9,
  // What networks hand in and out; no kernel computes with them yet.
  kU16 = 10,
  kI16 = 11,
  kU32 = 12,
  kU64 = 13,
};

int64_t ByteSize(DType type);
bool IsFloat(DType type);
std::string_view Name(DType type);                       // "f32"
std::optional<DType> ParseDType(std::string_view name);  // nullopt if unknown

}  // namespace hone
