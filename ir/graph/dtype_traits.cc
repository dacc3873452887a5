#include "ir/graph/dtype_traits.h"

#include <array>
#include <limits>

namespace hone {
namespace {

constexpr size_t kRows = 16;

template <typename T>
constexpr DTypeTraits Integer(std::string_view name, std::string_view numpy, int onnx, DType accumulator,
                              uint64_t unwritten) {
  return {.name = name,
          .numpy = numpy,
          .onnx = onnx,
          .bytes = sizeof(T),
          .is_computed = true,
          .lowest = static_cast<int64_t>(std::numeric_limits<T>::min()),
          .highest = static_cast<int64_t>(std::numeric_limits<T>::max()),
          .accumulator = accumulator,
          .unwritten = unwritten};
}

// A type that memory has and kernels do not compute with. The range is that of 64-bit numbers with a sign at most.
template <typename T>
constexpr DTypeTraits Held(std::string_view name, std::string_view numpy, int onnx, DType accumulator,
                           uint64_t unwritten) {
  DTypeTraits row = Integer<T>(name, numpy, onnx, accumulator, unwritten);
  row.is_computed = false;
  if (sizeof(T) == sizeof(int64_t)) row.highest = std::numeric_limits<int64_t>::max();
  return row;
}

template <typename T>
constexpr DTypeTraits Float(std::string_view name, std::string_view numpy, int onnx, DType accumulator,
                            uint64_t unwritten) {
  return {.name = name,
          .numpy = numpy,
          .onnx = onnx,
          .bytes = sizeof(T),
          .is_float = true,
          .is_computed = true,
          .unit_roundoff = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2,
          .largest = static_cast<double>(std::numeric_limits<T>::max()),
          .smallest = static_cast<double>(std::numeric_limits<T>::min()),
          .underflow = static_cast<double>(std::numeric_limits<T>::min()),
          .accumulator = accumulator,
          .unwritten = unwritten};
}

// One case a type: the compiler sees that none is missing.
constexpr DTypeTraits RowOf(DType type) {
  switch (type) {
    case DType::kBool: {
      DTypeTraits row = Integer<uint8_t>("bool", "bool", 9, DType::kBool, 0xa5);
      row.highest = 1;
      return row;
    }
    case DType::kI8: return Integer<int8_t>("i8", "int8", 3, DType::kI32, 0xa5);
    case DType::kU8: return Integer<uint8_t>("u8", "uint8", 2, DType::kI32, 0xa5);
    case DType::kI32: return Integer<int32_t>("i32", "int32", 6, DType::kI32, 0x7fc5a5a5);
    case DType::kI64: return Integer<int64_t>("i64", "int64", 7, DType::kI64, 0x7ffda5a5a5a5a5a5);
    case DType::kF16:
      return {.name = "f16",
              .numpy = "float16",
              .onnx = 10,
              .bytes = 2,
              .is_float = true,
              .is_computed = true,
              .unit_roundoff = 0x1p-11,
              .largest = 0x1.ffcp15,
              .smallest = 0x1p-14,
              .underflow = 0x1p-25,
              .accumulator = DType::kF32,
              .unwritten = 0x7fa5};
    case DType::kBF16:
      return {.name = "bf16",
              .numpy = "bfloat16",
              .onnx = 16,
              .bytes = 2,
              .is_float = true,
              .is_computed = true,
              .unit_roundoff = 0x1p-8,
              .largest = 0x1.fep127,
              .smallest = 0x1p-126,
              .underflow = 0x1p-126,
              .accumulator = DType::kF32,
              .unwritten = 0x7fe5};
    case DType::kF32: return Float<float>("f32", "float32", 1, DType::kF32, 0x7fc5a5a5);
    case DType::kF64: return Float<double>("f64", "float64", 11, DType::kF64, 0x7ffda5a5a5a5a5a5);
    case DType::kU16: return Held<uint16_t>("u16", "uint16", 4, DType::kI32, 0xa5a5);
    case DType::kI16: return Held<int16_t>("i16", "int16", 5, DType::kI32, 0x7fa5);
    case DType::kU32: return Held<uint32_t>("u32", "uint32", 12, DType::kU32, 0x7fc5a5a5);
    case DType::kU64: return Held<uint64_t>("u64", "uint64", 13, DType::kU64, 0x7ffda5a5a5a5a5a5);
  }
  return {.name = "?"};
}

constexpr std::array<DTypeTraits, kRows> kTable = [] {
  std::array<DTypeTraits, kRows> table;
  for (size_t i = 0; i < kRows; ++i) {
    table[i] = RowOf(static_cast<DType>(i));
    table[i].type = static_cast<DType>(i);
  }
  return table;
}();

}  // namespace

const DTypeTraits& TraitsOf(DType type) {
  const auto number = static_cast<size_t>(type);
  return kTable[number < kRows ? number : 0];
}

std::span<const DTypeTraits> DTypeTable() { return kTable; }

int64_t ByteSize(DType type) { return TraitsOf(type).bytes; }
bool IsFloat(DType type) { return TraitsOf(type).is_float; }
std::string_view Name(DType type) { return TraitsOf(type).name; }

bool IsNarrowFloat(DType type) {
  const DTypeTraits& row = TraitsOf(type);
  return row.is_float && row.accumulator != type;
}

bool IsByte(DType type) { return type == DType::kI8 || type == DType::kU8; }

std::string ElementTypes(bool numbers) {
  std::string text, last;
  for (const DTypeTraits& row : kTable) {
    if (!row.is_computed || row.type == DType::kI64 || (numbers && row.type == DType::kBool)) continue;
    if (!last.empty()) text += (text.empty() ? "" : ", ") + last;
    last = row.name;
  }
  return text + " or " + last;
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeTraits& row : kTable)
    if (row.bytes > 0 && row.name == name) return row.type;
  return std::nullopt;
}

}  // namespace hone
