// How large the floats of test data should be.
#pragma once

#include "ir/graph/kernel.h"

namespace hone {

// What float inputs are multiplied by, a power of two, at most 1. A kernel that rounds floats to bytes says little
// about itself where nearly everything is the byte's largest or smallest value: floats are so small that what is
// rounded is of some tens, as far as that can be told from the text. 1 for all other kernels.
double InputScale(const Kernel& kernel);

}  // namespace hone
