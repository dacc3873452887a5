// Loop program for a GPU -> straight code: a launch for each nest.
#pragma once

#include "base/result.h"
#include "codegen/gpu/straight.h"

namespace hone {

// kInvalid: the schedule leaves something that has no meaning in a launch, such as a register tile under a serial loop;
// kLimit: more threads, storage or blocks than the limits allow; kUnsupported: an element type or a size that code for
// GPUs does not know yet.
Result<straight::Program> Straighten(const LoopProgram& program, const straight::DeviceLimits& limits = {});

}  // namespace hone
