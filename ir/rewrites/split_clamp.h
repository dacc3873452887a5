// Loads through a clamp, as what they are: a border, the inside, a border.
#pragma once

#include "ir/graph/kernel.h"

namespace hone {

// `load` with its last index `clamp(i, lo, hi)` taken apart: `if(i < lo, x[…, lo], if(i > hi, x[…, hi], pad(x[…,
// i])))`. The inside is read where it lies, a whole vector at once. The load itself if its last index is no clamp
// between bounds that no axis changes, or the upper one may be below the lower one: then what `clamp` is written with
// decides, and there is no inside. REQUIRES: the load is of the kernel's.
Expr SplitClamp(const Kernel& kernel, const Expr& load);

}  // namespace hone
