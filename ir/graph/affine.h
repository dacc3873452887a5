// Index expressions as linear forms over the axes of their stage.
#pragma once

#include <optional>

#include "ir/graph/kernel.h"
#include "ir/graph/linear.h"

namespace hone {

// The variables of such a form are the stage's axes.
inline VarId VarOf(AxisId axis) { return VarId(axis.value); }
inline AxisId AxisOf(VarId var) { return AxisId(var.value); }

// Sizes take their upper bound. nullopt: not affine.
std::optional<Linear> AffineIndex(const Kernel& kernel, const Expr& index);

}  // namespace hone
