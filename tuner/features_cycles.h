// What operations cost: enough to rank programs, measured nowhere exactly.
#pragma once

#include "codegen/lower/program.h"
#include "codegen/machine_model.h"

namespace hone::features {

// Cycles from operands to the value.
double PathOf(const ValueNode& value, const MachineModel& machine);

}  // namespace hone::features
