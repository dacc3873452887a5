// An expression of the kernel language with its type, as the writer of kernels puts them together.
//
// Arithmetic on narrow floats is in f32 and on bytes in i32, as the language has it: what comes of it is made narrow
// where it is stored, and of bytes at once, since whole numbers wrap around in each operation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/graph/type.h"

namespace hone {

struct KernelTerm {
  std::string text;
  DType type = DType::kF32;
  std::optional<double> number = {};  // a literal, which takes the type of what it meets
};

// What arithmetic on a type gives.
DType Wide(DType type);

std::string Literal(double value, DType type);
// An index and a number: "(i0 + 3)", "(i0 - 3)", "i0".
std::string Shifted(const std::string& index, int64_t by);
// A term as one of another type.
std::string As(const KernelTerm& term, DType type);
// The type in which two terms go together without a change.
DType Common(const KernelTerm& a, const KernelTerm& b);

}  // namespace hone
