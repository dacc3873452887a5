#include "ir/steps/schedule_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ir/graph/stage_graph.h"
#include "ir/schedule/check_scheduled.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

StageSchedule InitialSchedule(const Stage& stage) {
  StageSchedule schedule;
  for (const Axis& axis : stage.axes) schedule.loops.push_back({axis.name, LoopKind::kSerial, 1});
  for (const Axis& axis : stage.reduce_axes) schedule.loops.push_back({axis.name, LoopKind::kSerial, 1});
  return schedule;
}

// Whether a step other than a rewrite was applied to the stage: its axes must stay as they are then.
bool HasSteps(const StageSchedule& schedule) {
  return schedule.is_rewritten || schedule.attach_stage || schedule.scope != Scope::kDefault ||
         !schedule.layout.empty() || !schedule.promote_loop.empty() || !schedule.tails.empty() ||
         !schedule.prefetches.empty() || !schedule.instruction.empty() ||
         std::any_of(schedule.loops.begin(), schedule.loops.end(),
                     [](const LoopDim& loop) { return loop.kind != LoopKind::kSerial; });
}

}  // namespace

ScheduleState::ScheduleState(const Kernel& kernel) {
  result_.kernel = kernel;
  for (const Stage& stage : kernel.stages) result_.stages.Add(InitialSchedule(stage));
}

Result<StageId> ScheduleState::FindStage(const std::string& name) const {
  const StageId found = hone::FindStage(result_.kernel, name);
  if (found) return found;
  std::string known;
  for (StageId stage : result_.kernel.stages.ids()) known += (known.empty() ? "" : ", ") + StageName(result_, stage);
  return Refuse(fmt::format("there is no stage {}; there are {}", name, known));
}

Result<size_t> ScheduleState::FindLoop(StageId stage, const std::string& path) const {
  return hone::FindLoop(result_, stage, path);
}

Result<TensorId> ScheduleState::FindTensor(const std::string& name) const {
  const TensorId tensor = hone::FindTensor(result_.kernel, name);
  if (!tensor) return Refuse("there is no tensor " + name);
  return tensor;
}

Result<void> ScheduleState::Rewritten(Kernel kernel) {
  IdVector<StageId, StageSchedule> stages;
  for (const Stage& stage : kernel.stages) {
    const std::string& name = kernel.tensors[stage.output].name;
    const StageId old = hone::FindStage(result_.kernel, name);
    if (!old) {
      stages.Add(InitialSchedule(stage));
      continue;
    }
    const Stage& before = result_.kernel.stages[old];
    StageSchedule& schedule = result_.stages[old];
    auto same_axes = [](const std::vector<Axis>& a, const std::vector<Axis>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                        [](const Axis& x, const Axis& y) { return x.name == y.name && SameExpr(x.extent, y.extent); });
    };
    if (same_axes(before.axes, stage.axes) && same_axes(before.reduce_axes, stage.reduce_axes)) {
      if (schedule.attach_stage) {
        const std::string& consumer = StageName(result_, schedule.attach_stage);
        schedule.attach_stage = hone::FindStage(kernel, consumer);
        if (!schedule.attach_stage)
          return Refuse(fmt::format("{} is computed inside {}: inline that first", name, consumer));
      }
      if (schedule.keep_stage) {
        const std::string& keeper = StageName(result_, schedule.keep_stage);
        schedule.keep_stage = hone::FindStage(kernel, keeper);
        if (!schedule.keep_stage) return Refuse(fmt::format("{} is kept inside {}: inline that first", name, keeper));
      }
      stages.Add(std::move(schedule));
    } else {
      if (HasSteps(schedule))
        return Refuse(fmt::format("{} has loops, a place or storage already: rewrite its axes before that", name));
      stages.Add(InitialSchedule(stage));
    }
  }
  result_.kernel = std::move(kernel);
  result_.stages = std::move(stages);
  return {};
}

bool ScheduleState::IsReduction(StageId stage, const std::string& path) const {
  const Stage& s = result_.kernel.stages[stage];
  if (const AxisId axis = FindAxis(s, path); axis && s.Reduces(axis)) return true;
  for (const LoopRelation& relation : result_.stages[stage].relations)
    if (std::find(relation.children.begin(), relation.children.end(), path) != relation.children.end())
      return std::any_of(relation.parents.begin(), relation.parents.end(),
                         [&](const std::string& p) { return IsReduction(stage, p); });
  return false;
}

bool ScheduleState::IsInnerPart(StageId stage, const std::string& path) const {
  for (const LoopRelation& relation : result_.stages[stage].relations) {
    auto child = std::find(relation.children.begin(), relation.children.end(), path);
    if (child == relation.children.end()) continue;
    return child != relation.children.begin() || IsInnerPart(stage, relation.parents[0]);
  }
  return false;
}

int64_t ScheduleState::TripsOfInnerPart(StageId stage, const std::string& path) const {
  for (const LoopRelation& relation : result_.stages[stage].relations) {
    auto child = std::find(relation.children.begin(), relation.children.end(), path);
    if (child == relation.children.end() || relation.factors.empty()) continue;
    if (child != relation.children.begin())
      return relation.factors[static_cast<size_t>(child - relation.children.begin()) - 1];
    int64_t trips = TripsOfInnerPart(stage, relation.parents[0]);
    for (int64_t factor : relation.factors) trips /= factor;
    return trips;
  }
  return 0;
}

}  // namespace hone
