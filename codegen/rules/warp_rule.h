// What the rules for instructions of warps (schedule_gpu_warps.cc) and of groups of warps (schedule_gpu_groups.cc)
// share.
#pragma once

#include <optional>

#include "codegen/instructions.h"
#include "codegen/rules/contraction_rule.h"

namespace hone {

// Which axes of a contraction an instruction's rows, columns and steps are taken from.
struct WarpRoles {
  int column_operand = 0;
  AxisId rows, columns, grouped;
};

// nullopt: it has none, they are no constants, or the operands are of other types.
std::optional<WarpRoles> WarpRolesFor(const SchedulePlanner& planner, const Contraction& contraction,
                                      const InstructionMeaning& meaning);

// Whether the kernel's accuracy allows so long a sum by tensor cores, which cut off what is beyond an f32.
bool IsExactEnough(const SchedulePlanner& planner, const Contraction& contraction, const InstructionMeaning& meaning);

// The share of what tiles compute that is not padding.
double ShareUsed(int64_t extent, int64_t tile);

}  // namespace hone
