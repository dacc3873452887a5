#include "ir/steps/fit_context.h"

#include "ir/graph/stage_graph.h"

namespace hone {

const StageSchedule* FindStageSchedule(const ScheduledKernel& scheduled, const std::string& stage) {
  const int index = FindStage(scheduled.kernel, stage);
  return index < 0 ? nullptr : &scheduled.stages[static_cast<size_t>(index)];
}

std::optional<int64_t> TripsOf(const ScheduledKernel& scheduled, const std::string& stage, const std::string& path) {
  const int index = FindStage(scheduled.kernel, stage);
  if (index < 0) return std::nullopt;
  return LoopTrips(scheduled.kernel, scheduled.kernel.stages[static_cast<size_t>(index)],
                   scheduled.stages[static_cast<size_t>(index)], path);
}

LoopKind KindOf(const StageSchedule& stage, const std::string& path) {
  for (const LoopDim& loop : stage.loops)
    if (loop.path == path) return loop.kind;
  return LoopKind::kSerial;
}

}  // namespace hone
