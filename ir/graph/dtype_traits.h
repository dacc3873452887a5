// What is known about each element type, in one table. Memory of it: ir/graph/element.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ir/graph/type.h"

namespace hone {

struct DTypeTraits {
  DType type = DType::kBool;
  std::string_view name = {};   // in the kernel language
  std::string_view numpy = {};  // what NumPy calls it
  int onnx = 0;                 // its number in ONNX files (TensorProto.DataType)
  int64_t bytes = 0;
  bool is_float = false;
  bool is_computed = false;  // kernels may have tensors of it and convert to it
  // Floats: half the distance from 1 to the next one; the largest finite and the smallest normal number.
  double unit_roundoff = 0;
  double largest = 0;
  double smallest = 0;
  // How far below it a result may be off: by all of it where the processor may flush such numbers to zero, as it may
  // f32 and what is made of its bits; by half of the least number where they are always rounded.
  double underflow = 0;
  // Integers and bool: the range.
  int64_t lowest = 0;
  int64_t highest = 0;
  DType accumulator = DType::kBool;  // what sums and products of it are kept in
  // The bits of an output's elements before a run: a quiet NaN with a payload of its own, which arithmetic does not
  // make; no bool; an integer that is rarely a result.
  uint64_t unwritten = 0;
};

// The row of a type; one of no bytes for a number that none has.
const DTypeTraits& TraitsOf(DType type);

// f16 and bf16: held in memory, computed with in a wider type, and rounded to by a conversion alone.
bool IsNarrowFloat(DType type);

// What quantised values are held in: i8 and u8.
bool IsByte(DType type);

// What tensors of kernels may be made of, for messages: "bool, i8, … or f64". `numbers`: without bool.
std::string ElementTypes(bool numbers = false);

// Rows by number; those of no bytes are no types.
std::span<const DTypeTraits> DTypeTable();

}  // namespace hone
