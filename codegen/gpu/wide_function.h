#pragma once

#include "codegen/gpu/straight.h"

namespace hone::straight {

// The function of Program::functions that computes each lane of a vector as function `number`, of numbers, computes
// one; made if it is not there.
int64_t WideFunction(Program& program, int64_t number, int lanes);

}  // namespace hone::straight
