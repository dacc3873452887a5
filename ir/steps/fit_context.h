// What fitting one step of a kernel's schedule to another kernel looks at. ir/schedule/fit_schedule fits whole
// schedules.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "ir/graph/kernel.h"
#include "ir/schedule/apply.h"

namespace hone {

struct FitContext {
  const Kernel& donor_kernel;     // as the donor's schedule found it
  const ScheduledKernel& donor;   // by all of its steps
  const Kernel& kernel;           // to fit to, as it was before any step
  const ScheduledKernel& before;  // after the steps fitted so far
  int workers;                    // threads that the kernel may use, at least 1
  // (axis, elements of it that a tile of the donor's covers) → that a tile covers here: what layouts follow.
  std::map<std::pair<std::string, int64_t>, int64_t>& tiles;
};

// nullptr: no such stage.
const StageSchedule* FindStageSchedule(const ScheduledKernel& scheduled, const std::string& stage);
// LoopTrips of a stage by name; nullopt: there is no such stage or loop.
std::optional<int64_t> TripsOf(const ScheduledKernel& scheduled, const std::string& stage, const std::string& path);
// What becomes of a loop in the end; a loop that was split or fused again counts as serial.
LoopKind KindOf(const StageSchedule& stage, const std::string& path);

}  // namespace hone
