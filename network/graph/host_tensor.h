// Tensors in this process's memory: what a model file brings along, what is folded, what a network computes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
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

// Elements as a file or a kernel holds them: row-major, dense, little-endian.
struct HostTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::string data;
};

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

// REQUIRES: `tensor.data` has the bytes that type and shape want.
Numbers ToNumbers(const HostTensor& tensor);
// Rounds floats to the type; integers are cut to its width.
HostTensor ToHost(const Numbers& numbers, DType dtype);
// What memory of their own type would hold of results: whole numbers wrap around, f16 and bf16 are rounded. f32 keeps
// the digits of double precision, which checks compare with.
void SettleInType(Numbers& numbers);

}  // namespace hone
