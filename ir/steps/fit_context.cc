#include "ir/steps/fit_context.h"

#include "ir/graph/stage_graph.h"

namespace hone {

const StageSchedule* FindStageSchedule(const ScheduledKernel& scheduled, const std::string& stage) {
  const StageId index = FindStage(scheduled.kernel, stage);
  return index ? &scheduled.stages[index] : nullptr;
}

std::optional<int64_t> TripsOf(const ScheduledKernel& scheduled, const std::string& stage, const std::string& path) {
  const StageId index = FindStage(scheduled.kernel, stage);
  if (!index) return std::nullopt;
  return LoopTrips(scheduled.kernel, scheduled.kernel.stages[index], scheduled.stages[index], path);
}

LoopKind KindOf(const StageSchedule& stage, const std::string& path) {
  for (const LoopDim& loop : stage.loops)
    if (loop.path == path) return loop.kind;
  return LoopKind::kSerial;
}

}  // namespace hone
