// Loads from block storage of elements side by side become one load of a vector, as wide as a thread moves at once.
// Compilers of devices do so where they can tell how elements are aligned, and often cannot.
#pragma once

#include "codegen/gpu/straight.h"

namespace hone::straight {

// Elements of 32 bits, four or two whose place is a multiple of as many for certain, all of which the code loads
// between the same two of its stores, barriers, loops and conditions. `program` has the code's buffers.
void MergeLoads(Code& code, const Program& program);

}  // namespace hone::straight
