// Random inputs for a kernel, and its reference over all elements.
#pragma once

#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "ir/graph/element.h"
#include "ir/graph/kernel.h"
#include "ir/reference/interpret.h"

namespace hone {

// One buffer per input, in the order of the operands: floats uniform in [-1, 1), integers over their small range.
class KernelInputs {
 public:
  KernelInputs(const Kernel& kernel, Rng& rng) {
    for (TensorId id : kernel.operands) {
      const Tensor& tensor = kernel.tensors[id];
      if (tensor.kind != TensorKind::kInput) continue;
      size_t count = static_cast<size_t>(ElementCount(kernel, tensor));
      std::vector<std::byte> bytes(count * static_cast<size_t>(ByteSize(tensor.dtype)));
      for (size_t i = 0; i < count; ++i) Fill(tensor.dtype, bytes.data(), i, rng);
      buffers_.push_back(std::move(bytes));
    }
  }

  std::vector<OperandView> Views() const {
    std::vector<OperandView> views;
    for (const auto& buffer : buffers_) views.push_back({buffer.data()});
    return views;
  }
  size_t size() const { return buffers_.size(); }
  std::byte* buffer(size_t input) { return buffers_[input].data(); }
  template <typename T>
  T* As(size_t input) {
    return reinterpret_cast<T*>(buffers_[input].data());
  }

 private:
  static void Fill(DType type, std::byte* data, size_t i, Rng& rng) {
    auto store = [&](auto value) { std::memcpy(data + i * sizeof value, &value, sizeof value); };
    switch (type) {
      case DType::kF64: return store(rng.Uniform() * 2 - 1);
      case DType::kI32: return store(static_cast<int32_t>(rng.Between(-9, 9)));
      case DType::kI8: return store(static_cast<int8_t>(rng.Between(-128, 127)));
      case DType::kU8: return store(static_cast<uint8_t>(rng.Below(256)));
      case DType::kBool: return store(static_cast<uint8_t>(rng.Below(2)));
      default: return StoreElement(type, rng.Uniform() * 2 - 1, data, i);
    }
  }
  std::vector<std::vector<std::byte>> buffers_;
};

// The reference of every element of an output.
inline std::vector<Reference> WholeReference(const Kernel& kernel, const KernelInputs& inputs, int output = 0) {
  std::vector<OperandView> views = inputs.Views();
  Interpreter interpreter(kernel, views);
  int seen = 0;
  for (TensorId id : kernel.operands) {
    const Tensor& tensor = kernel.tensors[id];
    if (tensor.kind != TensorKind::kOutput || seen++ != output) continue;
    std::vector<int64_t> indices(static_cast<size_t>(ElementCount(kernel, tensor)));
    std::iota(indices.begin(), indices.end(), 0);
    std::vector<Reference> results(indices.size());
    interpreter.Evaluate(output, indices, results);
    return results;
  }
  return {};
}

}  // namespace hone
