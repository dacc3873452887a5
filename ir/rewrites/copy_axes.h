// Axes of a stage that copies a tensor for a reader.
#pragma once

#include <vector>

#include "ir/graph/kernel.h"

namespace hone {

// One a dimension of the tensor that `load` reads, behind those that the copy has: with the names that the reader has
// for them, where one of its axes alone is the index and the name is not taken; else d0, d1, …
void AddCopyAxes(Stage& copy, const Kernel& kernel, const Stage& reader, const Expr& load);

}  // namespace hone
