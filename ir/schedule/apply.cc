#include "ir/schedule/apply.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ir/graph/stage_graph.h"
#include "ir/schedule/check_scheduled.h"
#include "ir/steps/schedule_state.h"
#include "ir/steps/step_type.h"

namespace hone {
namespace {

Result<void> Apply(const Step& step, ScheduleState& state) { return TypeOf(step).apply(step, state); }

Result<ScheduledKernel> FinishState(ScheduleState state) {
  HONE_TRY(CheckScheduled(state.scheduled()));
  return std::move(state).Take();
}

}  // namespace

bool IsForGpu(const ScheduledKernel& scheduled) {
  return std::any_of(scheduled.stages.begin(), scheduled.stages.end(), [](const StageSchedule& stage) {
    return stage.scope == Scope::kBlock || std::any_of(stage.loops.begin(), stage.loops.end(), [](const LoopDim& loop) {
             return loop.kind == LoopKind::kBound;
           });
  });
}

Scope EffectiveScope(const ScheduledKernel& scheduled, StageId stage) {
  const StageSchedule& schedule = scheduled.stages[stage];
  const Tensor& tensor = scheduled.kernel.tensors[scheduled.kernel.stages[stage].output];
  if (schedule.scope != Scope::kDefault || tensor.kind == TensorKind::kOutput) return schedule.scope;
  if (!schedule.attach_stage) return Scope::kWorkspace;
  return IsForGpu(scheduled) ? Scope::kBlock : Scope::kPerWorker;
}

Result<ScheduledKernel> ApplySchedule(const Kernel& kernel, const Schedule& schedule) {
  ScheduleState state(kernel);
  for (size_t i = 0; i < schedule.size(); ++i) {
    if (Result<void> applied = Apply(schedule[i], state); !applied)
      return std::move(applied).error().Context(fmt::format("step {} ({})", i + 1, PrintStep(schedule[i])));
  }
  return FinishState(std::move(state));
}

ScheduleBuilder::ScheduleBuilder(const Kernel& kernel)
    : kernel_(kernel), state_(std::make_unique<ScheduleState>(kernel)) {}
ScheduleBuilder::~ScheduleBuilder() = default;

Result<void> ScheduleBuilder::Add(const Step& step) {
  Result<void> applied = Apply(step, *state_);
  if (applied) {
    schedule_.push_back(step);
    return {};
  }
  // It may have been half done.
  state_ = std::make_unique<ScheduleState>(kernel_);
  for (const Step& before : schedule_) HONE_CHECK(Apply(before, *state_));
  return applied;
}

const ScheduledKernel& ScheduleBuilder::so_far() const { return state_->scheduled(); }
Result<ScheduledKernel> ScheduleBuilder::Finish() { return FinishState(std::move(*state_)); }

std::optional<int64_t> LoopTrips(const Kernel& kernel, const Stage& stage, const StageSchedule& schedule,
                                 const std::string& path) {
  if (const AxisId axis = FindAxis(stage, path)) return UpperExtent(kernel, stage.axis(axis).extent);
  for (const LoopRelation& relation : schedule.relations) {
    auto child = std::find(relation.children.begin(), relation.children.end(), path);
    if (child == relation.children.end()) continue;
    if (child != relation.children.begin())
      return relation.factors[static_cast<size_t>(child - relation.children.begin()) - 1];
    int64_t trips = 1;
    for (const std::string& parent : relation.parents) {
      std::optional<int64_t> of_parent = LoopTrips(kernel, stage, schedule, parent);
      if (!of_parent || __builtin_mul_overflow(trips, *of_parent, &trips)) return std::nullopt;
    }
    for (int64_t factor : relation.factors) trips = (trips + factor - 1) / factor;
    return trips;
  }
  return std::nullopt;
}

}  // namespace hone
