// The schedule that a kernel gets when nothing better is known. Derived from the stage graph and the target, by rules,
// not tabulated: what a user gets in the first 50 ms.
#pragma once

#include "base/result.h"
#include "codegen/rules/choices.h"
#include "ir/graph/kernel.h"
#include "ir/schedule/schedule.h"
#include "ir/target.h"

namespace hone {

// As the rules prefer it; on a device whose blocks have fewer bytes of storage than that takes, without copies there.
// Always applies to and lowers for the kernel. kUnsupported: a target of a kind that there is no backend for, here as
// below. REQUIRES: the kernel passed VerifyKernel.
Result<Schedule> DefaultSchedule(const Kernel& kernel, const Target& target);

// The same with as little unrolled as the rules allow: for kernels whose default schedule becomes more code than can be
// compiled while somebody waits.
Result<Schedule> ModestSchedule(const Kernel& kernel, const Target& target);
int64_t ChooseModestly(const Choice& choice);  // its chooser

// For a GPU, whatever its limits: a thread per output, no block storage, no tiles. Slow, and the last resort for what a
// rule lays out in a way that the device does not take.
Result<Schedule> PlainSchedule(const Kernel& kernel, const Target& target);

// A schedule by the same rules, steered: the space that a search walks through. Where the choices lead into something
// that does not apply or lower, that shows when it is applied or lowered.
struct Plan {
  Schedule schedule;
  std::vector<Choice> choices;  // in the order that they came up
  std::vector<RuleNote> notes;  // the rules that were tried, in order
};
Result<Plan> PlanSchedule(const Kernel& kernel, const Target& target, const Chooser& chooser);

}  // namespace hone
