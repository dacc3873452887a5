#include "model/host_tensor.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace hone {
namespace {

constexpr size_t kMostDimensions = 8;
constexpr int64_t kMostElements = int64_t{1} << 40;

float FromHalf(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = (bits >> 10) & 31, fraction = bits & 0x3ff;
  if (exponent == 0) {
    float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

template <typename T>
T At(const std::string& data, size_t i) {
  T value;
  std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T, typename Values>
void Widen(const std::string& data, Values& values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<typename Values::value_type>(At<T>(data, i));
}

template <typename T, typename Values>
void Narrow(const Values& values, std::string& data) {
  data.resize(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    auto value = static_cast<T>(values[i]);
    std::memcpy(data.data() + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

int64_t CountOf(const Shape& shape) {
  int64_t count = 1;
  for (int64_t dimension : shape) count *= dimension;
  return count;
}

Result<void> CheckShape(const Shape& shape) {
  if (shape.size() > kMostDimensions) {
    return Error{
        ErrorKind::kLimit,
        "saw " + std::to_string(shape.size()) + " dimensions, hone's limit is " + std::to_string(kMostDimensions), ""};
  }
  int64_t count = 1;
  for (int64_t dimension : shape) {
    if (dimension < 0) return Error{ErrorKind::kInvalid, "saw a dimension of " + std::to_string(dimension), ""};
    if (__builtin_mul_overflow(count, std::max<int64_t>(dimension, 1), &count) || count > kMostElements) {
      return Error{ErrorKind::kLimit, "saw " + ShapeText(shape) + " elements, hone's limit is 2^40", ""};
    }
  }
  return {};
}

std::string ShapeText(const Shape& shape) {
  if (shape.empty()) return "a scalar";
  std::string text;
  for (int64_t dimension : shape) text += (text.empty() ? "" : "x") + std::to_string(dimension);
  return text;
}

Numbers MakeNumbers(DType dtype, Shape shape) {
  Numbers numbers{dtype, std::move(shape), {}, {}};
  auto count = static_cast<size_t>(CountOf(numbers.shape));
  if (numbers.is_real()) {
    numbers.real.resize(count);
  } else {
    numbers.whole.resize(count);
  }
  return numbers;
}

Numbers WholeNumbers(const std::vector<int64_t>& values, Shape shape) {
  Numbers numbers{DType::kI64, std::move(shape), {}, values};
  HONE_CHECK(CountOf(numbers.shape) == static_cast<int64_t>(values.size()));
  return numbers;
}

Numbers ToNumbers(const HostTensor& tensor) {
  Numbers numbers = MakeNumbers(tensor.dtype, tensor.shape);
  size_t count = numbers.real.size() + numbers.whole.size();
  HONE_CHECK(tensor.data.size() == count * static_cast<size_t>(ByteSize(tensor.dtype)));
  switch (tensor.dtype) {
    case DType::kBool:
    case DType::kI8: Widen<int8_t>(tensor.data, numbers.whole); break;
    case DType::kI32: Widen<int32_t>(tensor.data, numbers.whole); break;
    case DType::kI64: Widen<int64_t>(tensor.data, numbers.whole); break;
    case DType::kF16:
      for (size_t i = 0; i < count; ++i) numbers.real[i] = FromHalf(At<uint16_t>(tensor.data, i));
      break;
    case DType::kBF16:
      for (size_t i = 0; i < count; ++i) {
        numbers.real[i] = std::bit_cast<float>(static_cast<uint32_t>(At<uint16_t>(tensor.data, i)) << 16);
      }
      break;
    case DType::kF32: Widen<float>(tensor.data, numbers.real); break;
    case DType::kF64: Widen<double>(tensor.data, numbers.real); break;
  }
  return numbers;
}

HostTensor ToHost(const Numbers& numbers, DType dtype) {
  HostTensor tensor{dtype, numbers.shape, {}};
  auto fill = [&](const auto& values) {
    switch (dtype) {
      case DType::kBool:
        for (auto value : values) tensor.data.push_back(value != 0 ? 1 : 0);
        return;
      case DType::kI8: return Narrow<int8_t>(values, tensor.data);
      case DType::kI32: return Narrow<int32_t>(values, tensor.data);
      case DType::kI64: return Narrow<int64_t>(values, tensor.data);
      case DType::kF32: return Narrow<float>(values, tensor.data);
      case DType::kF64: return Narrow<double>(values, tensor.data);
      case DType::kF16:
      case DType::kBF16: HONE_CHECK(false);  // no kernel has operands of these types
    }
  };
  if (numbers.is_real()) {
    fill(numbers.real);
  } else {
    fill(numbers.whole);
  }
  return tensor;
}

}  // namespace hone
