#include "network/graph/host_tensor.h"

#include <cstring>

#include "base/check.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/element.h"

namespace hone {
namespace {

constexpr size_t kMostDimensions = 8;
constexpr int64_t kMostElements = int64_t{1} << 40;

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

TensorView ViewOf(const HostTensor& tensor) { return {tensor.dtype, tensor.shape, tensor.data.data()}; }

HostTensor CopyOf(const TensorView& view) {
  return {view.dtype, view.shape, std::string(static_cast<const char*>(view.data), view.bytes())};
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

Numbers ToNumbers(DType dtype, const Shape& shape, std::string_view data) {
  Numbers numbers = MakeNumbers(dtype, shape);
  size_t count = numbers.real.size() + numbers.whole.size();
  HONE_CHECK(data.size() == count * static_cast<size_t>(ByteSize(dtype)));
  VisitElement(dtype, [&]<typename T>(std::type_identity<T>) {
    for (size_t i = 0; i < count; ++i) {
      T element;
      std::memcpy(&element, data.data() + i * sizeof(T), sizeof(T));
      if constexpr (std::is_integral_v<T>)
        numbers.whole[i] = static_cast<int64_t>(element);
      else
        numbers.real[i] = static_cast<double>(element);
    }
  });
  return numbers;
}

void StoreElements(const Numbers& numbers, DType dtype, void* to) {
  auto store = [&](const auto& values) {
    VisitElement(dtype, [&]<typename T>(std::type_identity<T>) {
      auto* at = static_cast<std::byte*>(to);
      for (size_t i = 0; i < values.size(); ++i) {
        const auto element = dtype == DType::kBool ? static_cast<T>(values[i] != 0) : static_cast<T>(values[i]);
        std::memcpy(at + i * sizeof(T), &element, sizeof(T));
      }
    });
  };
  if (numbers.is_real()) {
    store(numbers.real);
  } else {
    store(numbers.whole);
  }
}

HostTensor ToHost(const Numbers& numbers, DType dtype) {
  std::string bytes((numbers.real.size() + numbers.whole.size()) * static_cast<size_t>(ByteSize(dtype)), '\0');
  StoreElements(numbers, dtype, bytes.data());
  return {dtype, numbers.shape, std::move(bytes)};
}

void SettleInType(Numbers& numbers) {
  if (IsNarrowFloat(numbers.dtype)) {
    for (double& value : numbers.real) value = RoundedTo(numbers.dtype, value);
  }
  if (numbers.is_real() || numbers.dtype == DType::kBool || ByteSize(numbers.dtype) == sizeof(int64_t)) return;
  VisitElement(numbers.dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>)
      for (int64_t& value : numbers.whole) value = static_cast<int64_t>(static_cast<T>(value));
  });
}

}  // namespace hone
