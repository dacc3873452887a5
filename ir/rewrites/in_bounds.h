// Whether a stage that only copies may read all that its axes lead to.
#pragma once

#include "ir/graph/kernel.h"

namespace hone {

// Whether a stage whose body is one load (or a pad of one) reads inside its tensor at every point of its axes, so that
// no condition around it is needed.
bool AlwaysInBounds(const Kernel& kernel, const Stage& stage);

}  // namespace hone
