// Values that are vectors, for devices whose threads are loops of a processor: what straight code does to elements side
// by side becomes one value of as many lanes (superword-level parallelism; Larsen and Amarasinghe 2000). It begins
// where elements lie side by side for certain, at rows of register tiles and at stores, and goes from there to what
// they are made of.
#pragma once

#include "codegen/gpu/straight.h"

namespace hone::straight {

// The code with vectors of at most `lanes` elements of 32 bits, and half as many of 64. A row of a tile becomes one
// register where all that is done to it is done to its elements in turn; what else reads them reads lanes. Code with
// instructions of warps stays as it is. Functions of vectors are added to `program`, which has the code's buffers.
Code PackLanes(const Code& code, Program& program, int lanes);

}  // namespace hone::straight
