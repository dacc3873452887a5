// Index expressions as linear forms over the axes of their stage.
#pragma once

#include <optional>

#include "ir/graph/kernel.h"
#include "ir/graph/linear.h"

namespace hone {

// Variables of the form are positions of axes; sizes take their upper bound. nullopt: not affine.
std::optional<Linear> AffineIndex(const Kernel& kernel, const Expr& index);

}  // namespace hone
