#include "ir/type.h"

namespace hone {

int64_t ByteSize(DType type) {
  switch (type) {
    case DType::kBool:
    case DType::kI8: return 1;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kI32:
    case DType::kF32: return 4;
    case DType::kI64:
    case DType::kF64: return 8;
  }
  return 0;
}

bool IsFloat(DType type) {
  return type == DType::kF16 || type == DType::kBF16 || type == DType::kF32 || type == DType::kF64;
}

std::string_view Name(DType type) {
  switch (type) {
    case DType::kBool: return "bool";
    case DType::kI8: return "i8";
    case DType::kI32: return "i32";
    case DType::kI64: return "i64";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kF32: return "f32";
    case DType::kF64: return "f64";
  }
  return "?";
}

std::optional<DType> ParseDType(std::string_view name) {
  for (DType type :
       {DType::kBool, DType::kI8, DType::kI32, DType::kI64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64})
    if (Name(type) == name) return type;
  return std::nullopt;
}

}  // namespace hone
