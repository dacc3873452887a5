// A stage that is stored in the output (Scope::kOutput): each element in the place of the output's element that is
// computed from it.
#pragma once

#include <string_view>

#include "base/result.h"
#include "ir/schedule/apply.h"

namespace hone {

// The stage whose elements take the places of `stage`'s: the one that it is computed or kept inside.
StageId OutputUnder(const ScheduledKernel& scheduled, StageId stage);

// Its loop inside of which the elements are there, and are all read. REQUIRES: CheckInOutput passed.
const std::string& LoopOfOutput(const ScheduledKernel& scheduled, StageId stage);

// "" if an output has room for each element of a stage, and computes from it the one that takes its place and no other;
// why not, otherwise.
std::string_view ReasonAgainstOutput(const Kernel& kernel, const Stage& stage, const Stage& output);

// kInvalid, with the reason, unless there is none against it and the output is computed after everybody else has read
// it. That a trip of the loop writes all that is stored in it, and nothing of another trip's:
// codegen/lower/lower_in_output.cc.
Result<void> CheckInOutput(const ScheduledKernel& scheduled, StageId stage);

}  // namespace hone
