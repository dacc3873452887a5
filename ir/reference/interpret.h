// The reference: a kernel's value at chosen output elements, in double precision, with the magnitude that the accuracy
// bound is relative to. Compiled once to a strided program (innermost reduction runs in blocks), intermediates
// memoised.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/graph/kernel.h"

namespace hone {

// Read access to an operand's elements. `pages`-style repeated mappings look like plain memory here.
struct OperandView {
  const void* data = nullptr;
};

struct Reference {
  double value = 0;      // r
  double magnitude = 0;  // A: the same expression over absolute values (ir/reference/accuracy.h); of an integer or
                         // bool: how far it may be off because a float on the way sits at a jump (0 nearly always)
};

// Not thread-safe: one interpreter a thread.
class Interpreter {
 public:
  // REQUIRES: static, verified kernel. `inputs` are in the order of Kernel::operands, outputs left out, and live as
  // long as the interpreter.
  Interpreter(const Kernel& kernel, std::span<const OperandView> inputs);
  ~Interpreter();
  // Reference for one element of an output: `output` counts outputs from 0; `index` is its row-major element number.
  Reference At(int output, int64_t index);
  // The same for many elements; much faster than At where an output's last stage is element-wise. REQUIRES: equal
  // sizes.
  void Evaluate(int output, std::span<const int64_t> indices, std::span<Reference> results);
  // Multiply-adds (or the like) that At costs on average, to choose how many elements to sample.
  double CostPerElement(int output) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
