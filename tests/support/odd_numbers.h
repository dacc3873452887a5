// NaN and infinities in rows of numbers: what a reduction along them must hand on.
#pragma once

#include <cstddef>
#include <limits>

#include "ir/kernel.h"
#include "tests/support/kernel_inputs.h"

namespace hone {

// Rows without, with one and with nothing but NaN; with infinities of either sign or both, here and there or in whole
// stretches, so that some blocks of a row hold nothing else.
template <typename T>
void PutOddNumbers(T* values, size_t rows, size_t row) {
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  for (size_t r = 0; r < rows; ++r)
    for (size_t i = 0; i < row; ++i) {
      T& value = values[r * row + i];
      switch (r % 11) {
        case 1: value = i == r % row ? nan : value; break;
        case 2: value = nan; break;
        case 3: value = i % 3 == 0 ? inf : value; break;
        case 4: value = i % 2 == 0 ? -inf : value; break;
        case 5: value = i < row / 2 ? -inf : value; break;
        case 6: value = -inf; break;
        case 7: value = i + 1 == row ? value : -inf; break;
        case 8: value = i < row / 2 ? -inf : i + 1 == row ? inf : value; break;
        case 9: value = i == 0 ? -inf : i + 1 == row ? nan : value; break;
        case 10: value = i * 2 < row ? inf : -inf; break;
        default: break;
      }
    }
}

// In the first operand, along its last dimension. REQUIRES: it is an input of f32 or f64.
inline void PutOddNumbers(const Kernel& kernel, KernelInputs& inputs) {
  const Tensor& x = kernel.tensors[static_cast<size_t>(kernel.operands[0])];
  const size_t row = static_cast<size_t>(EvalExtent(kernel, x.shape.back()));
  const size_t rows = static_cast<size_t>(ElementCount(kernel, x)) / row;
  if (x.dtype == DType::kF64)
    PutOddNumbers(inputs.As<double>(0), rows, row);
  else
    PutOddNumbers(inputs.As<float>(0), rows, row);
}

}  // namespace hone
