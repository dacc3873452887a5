// A kernel at its sizes: what scheduling and lowering work on.
#pragma once

#include "ir/graph/kernel.h"

namespace hone {

// Constant sizes become numbers and fold; an axis of extent 1 is 0 where it indexes. The function, the operands, the
// axes and their names stay. So h·stride + r·dilation − pad is plainly h for a 1×1 convolution with stride 1.
Kernel Specialize(Kernel kernel);

}  // namespace hone
