// Tensors in this process's memory: what a model file brings along, what is folded, what a network computes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ir/graph/type.h"

namespace hone {

using Shape = std::vector<int64_t>;

// Product of the dimensions; 1 for a scalar. REQUIRES: CheckShape passed.
int64_t CountOf(const Shape& shape);
// kInvalid for a negative dimension, kLimit beyond rank 8 or 2^40 elements.
Result<void> CheckShape(const Shape& shape);
std::string ShapeText(const Shape& shape);  // "1x3x224x224"; "a scalar" for rank 0

// A tensor's bytes: its own, or a part of memory that is kept for as long as anybody reads it and that nobody writes,
// which copies share. Nothing of them changes: who has others makes a string of them first.
class TensorBytes {
 public:
  TensorBytes() = default;
  TensorBytes(std::string own) : own_(std::move(own)) {}  // NOLINT(google-explicit-constructor): it is bytes as well
  // `part` lies in what `memory` keeps.
  TensorBytes(std::shared_ptr<const void> memory, std::string_view part) : memory_(std::move(memory)), part_(part) {}

  std::string_view view() const { return memory_ ? part_ : std::string_view(own_); }
  operator std::string_view() const { return view(); }  // NOLINT(google-explicit-constructor)
  const char* data() const { return view().data(); }
  size_t size() const { return view().size(); }
  friend bool operator==(const TensorBytes& a, const TensorBytes& b) { return a.view() == b.view(); }

 private:
  std::string own_;
  std::shared_ptr<const void> memory_;  // null: `own_` has them
  std::string_view part_;
};

// Elements as a file or a kernel holds them: row-major, dense, little-endian.
struct HostTensor {
  DType dtype = DType::kF32;
  Shape shape;
  TensorBytes data;
};

// Elements in memory of somebody else.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const void* data = nullptr;

  size_t bytes() const { return static_cast<size_t>(CountOf(shape) * ByteSize(dtype)); }
};

TensorView ViewOf(const HostTensor& tensor);
HostTensor CopyOf(const TensorView& view);

// Elements to compute with: floats of any width as doubles, integers and truth values as 64-bit integers, those of u64
// as the bits that they have. One of the two vectors holds them, by the element type.
struct Numbers {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<double> real;
  std::vector<int64_t> whole;

  bool is_real() const { return IsFloat(dtype); }
  double RealAt(size_t i) const {
    if (is_real()) return real[i];
    return dtype == DType::kU64 ? static_cast<double>(static_cast<uint64_t>(whole[i])) : static_cast<double>(whole[i]);
  }
};

Numbers MakeNumbers(DType dtype, Shape shape);  // zeros
Numbers WholeNumbers(const std::vector<int64_t>& values, Shape shape);

// REQUIRES: `data` has the bytes that type and shape want.
Numbers ToNumbers(DType dtype, const Shape& shape, std::string_view data);
inline Numbers ToNumbers(const HostTensor& tensor) { return ToNumbers(tensor.dtype, tensor.shape, tensor.data); }
inline Numbers ToNumbers(const TensorView& view) {
  return ToNumbers(view.dtype, view.shape, {static_cast<const char*>(view.data), view.bytes()});
}
// Rounds floats to the type; integers are cut to its width.
HostTensor ToHost(const Numbers& numbers, DType dtype);
// The same to memory with room for all of them.
void StoreElements(const Numbers& numbers, DType dtype, void* to);
// What memory of their own type would hold of results: whole numbers wrap around, f16 and bf16 are rounded. f32 keeps
// the digits of double precision, which checks compare with.
void SettleInType(Numbers& numbers);

}  // namespace hone
