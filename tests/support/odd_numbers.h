// NaN and infinities in rows of numbers: what a reduction along them must hand on.
#pragma once

#include <cstddef>
#include <limits>

#include "ir/graph/kernel.h"
#include "tests/support/kernel_inputs.h"
#include "tests/support/same_function.h"

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

// In an operand, along its last dimension. REQUIRES: it is an input of f32 or f64.
inline void PutOddNumbers(const Kernel& kernel, KernelInputs& inputs, size_t operand = 0) {
  const Tensor& x = kernel.tensors[kernel.operands[operand]];
  const size_t row = static_cast<size_t>(EvalExtent(kernel, x.shape.back()));
  const size_t rows = static_cast<size_t>(ElementCount(kernel, x)) / row;
  if (x.dtype == DType::kF64)
    PutOddNumbers(inputs.As<double>(operand), rows, row);
  else
    PutOddNumbers(inputs.As<float>(operand), rows, row);
}

// With such numbers in an operand every value is the same, too.
inline void ExpectSameWithOddNumbers(const Kernel& before, const Kernel& after, size_t operand = 0) {
  SCOPED_TRACE(PrintKernel(before) + "\nis now\n" + PrintKernel(after));
  Rng rng(1);
  KernelInputs inputs(before, rng);
  PutOddNumbers(before, inputs, operand);
  for (int output = 0; output < OutputCount(before); ++output) {
    const std::vector<Reference> wanted = WholeReference(before, inputs, output);
    const std::vector<Reference> got = WholeReference(after, inputs, output);
    ASSERT_EQ(wanted.size(), got.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      ASSERT_TRUE(IsSameValue(wanted[i], got[i]))
          << "output " << output << " element " << i << ": " << got[i].value << ", was " << wanted[i].value;
  }
}

}  // namespace hone
