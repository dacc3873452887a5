// What the machine model computes: values of one thread, and what the operations of straight code make of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "codegen/gpu/straight.h"

namespace hone::simt {

// A lane: floats in `real`, integers and conditions in `number`.
struct Lane {
  double real = 0;
  int64_t number = 0;
};
struct Slot {
  std::array<Lane, 4> lanes = {};
  bool is_set = false;
  std::vector<std::array<Lane, 4>> words = {};  // of Do::kMatrices
};

// As an element of that type.
Lane Convert(DType from, DType to, const Lane& x);
Lane Bits(DType from, DType to, const Lane& x);
// Of floats and of integers; `a`: as many arguments as the operation has.
Lane Floating(straight::Do what, DType type, const Lane* a);
Lane Integral(straight::Do what, DType type, const Lane* a);

}  // namespace hone::simt
