// The canonical form of a kernel: what the cache compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/kernel.h"

namespace hone {

struct Canonical {
  std::string text;        // kernel language; parses back to an equal kernel; equal texts, equal functions
  std::string class_text;  // the same with sizes abstracted: two kernels with the same operations are of one class
  std::vector<int64_t> shape;  // values of the abstracted sizes in order of first appearance in class_text; a range gives lo, hi
};

// Tensors, axes and sizes are renamed by first appearance; operands keep their order, dtypes stay.
Canonical Canonicalize(const Kernel& kernel);

}  // namespace hone
