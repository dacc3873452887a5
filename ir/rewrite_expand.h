// An access that several axes share, as a tensor of its own: im2col where a convolution reads its input.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/kernel.h"

namespace hone {

// The stage reads `tensor` through a new stage over its own axes: cols[c, r, s, h, w] = x[c, h + r, w + s], placed just
// before it. `axes` names the stage's axes in the order of the new tensor's dimensions: exactly those that the access
// uses. Refuses where the tensor is read in two ways, or inside its bounds only by
// a condition.
Result<Kernel> ExpandAccess(Kernel kernel, int stage, TensorId tensor, const std::string& result,
                            const std::vector<std::string>& axes);

}  // namespace hone
