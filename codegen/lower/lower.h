// Kernel + schedule -> loop program: infers what each stage must compute where it is placed, builds the nests, lays out
// storage, and guards each access that it cannot prove in bounds.
//
// The program depends on the kernel, the schedule and the limits alone: what a machine is like has its say before, in
// the schedule, and after, when an emitter makes code of the program.
#pragma once

#include "base/result.h"
#include "codegen/lower/program.h"

namespace hone {

struct LowerLimits {
  // Emitted vector operations, after unrolling; on a processor, lanes that a load or store has far apart are one each.
  int64_t instructions = 12'000;
  int64_t workspace_bytes = int64_t{4} << 30;
  int64_t registers_bytes = 16 << 10;  // of one tile
};

// kInvalid: the schedule cannot be lowered, with the reason; kLimit; kUnsupported: a data type or a dynamic size in a
// place that code generation does not know yet.
Result<LoopProgram> Lower(const ScheduledKernel& scheduled, const LowerLimits& limits = {});

}  // namespace hone
