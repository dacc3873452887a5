#include "ir/schedule/check_scheduled.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/graph/expr.h"
#include "ir/graph/stage_graph.h"
#include "ir/schedule/check_in_output.h"
#include "ir/schedule/check_launch.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

// Whether a stage is computed inside a loop of another, by its number, or is that stage.
bool LiesInside(const ScheduledKernel& scheduled, StageId at, StageId outer, size_t loop) {
  while (at && at != outer) {
    const StageSchedule& schedule = scheduled.stages[at];
    if (schedule.attach_stage == outer) {
      const Result<size_t> place = FindLoop(scheduled, outer, schedule.attach_loop);
      return place && *place >= loop;
    }
    at = schedule.attach_stage;
  }
  return at == outer;
}

// What is computed part by part inside a loop of its first reader and kept: whatever else reads it comes after that
// reader, inside the loop that it is kept in. That the parts are all there is to read: codegen/lower/lower_kept.cc.
Result<void> CheckKept(const ScheduledKernel& scheduled, StageId stage) {
  const StageSchedule& schedule = scheduled.stages[stage];
  const StageId first = schedule.attach_stage, keeper = schedule.keep_stage;
  const std::string& name = StageName(scheduled, stage);
  const size_t kept = HONE_TRY(FindLoop(scheduled, keeper, schedule.keep_loop));
  const size_t loop = HONE_TRY(FindLoop(scheduled, first, schedule.attach_loop));
  const StageSchedule& place = scheduled.stages[first];
  if (place.attach_stage != keeper || place.attach_loop != schedule.keep_loop)
    return Refuse(fmt::format("{} is kept in {}.{}, where {} is not computed", name, StageName(scheduled, keeper),
                              schedule.keep_loop, StageName(scheduled, first)));
  if (scheduled.kernel.stages[stage].reduction != Reduction::kNone || !schedule.layout.empty() ||
      schedule.buffers > 1 || EffectiveScope(scheduled, stage) == Scope::kRegisters || IsForGpu(scheduled))
    return Refuse(fmt::format(
        "{} is kept, as nothing may be that reduces, lies in registers or in another order, or runs on a GPU", name));
  for (StageId reader : ReadersOf(scheduled.kernel, scheduled.kernel.stages[stage].output)) {
    if (LiesInside(scheduled, reader, first, loop) || reader == keeper) continue;
    if (!LiesInside(scheduled, reader, keeper, kept))
      return Refuse(fmt::format("{} is kept inside {}, but {} reads it outside", name, StageName(scheduled, keeper),
                                StageName(scheduled, reader)));
    StageId at = reader;
    while (scheduled.stages[at].attach_stage != keeper) at = scheduled.stages[at].attach_stage;
    if (at <= first)
      return Refuse(fmt::format("{} is kept for what comes after {}, but {} reads it before that ends", name,
                                StageName(scheduled, first), StageName(scheduled, reader)));
  }
  return {};
}

// Every reader of an attached stage must be the stage that it is attached to, or lie inside the loop.
Result<void> CheckPlace(const ScheduledKernel& scheduled, StageId stage) {
  const StageSchedule& schedule = scheduled.stages[stage];
  if (!schedule.attach_stage) return {};
  if (schedule.keep_stage) return CheckKept(scheduled, stage);
  const StageId outer = schedule.attach_stage;
  const size_t loop = HONE_TRY(FindLoop(scheduled, outer, schedule.attach_loop));
  for (StageId reader : ReadersOf(scheduled.kernel, scheduled.kernel.stages[stage].output)) {
    StageId at = reader;
    while (at != schedule.attach_stage) {
      const StageSchedule& between = scheduled.stages[at];
      if (!between.attach_stage)
        return Refuse(fmt::format("{} is computed inside {}, but {} reads it outside", StageName(scheduled, stage),
                                  StageName(scheduled, outer), StageName(scheduled, reader)));
      if (between.attach_stage == schedule.attach_stage) {
        Result<size_t> place = FindLoop(scheduled, outer, between.attach_loop);
        if (place && *place < loop)
          return Refuse(fmt::format("{} is computed at {}, inside the loop where {} already needs it",
                                    StageName(scheduled, stage), schedule.attach_loop, StageName(scheduled, at)));
      }
      at = between.attach_stage;
    }
  }
  return {};
}

Result<void> CheckWorkers(const ScheduledKernel& scheduled, StageId stage) {
  const StageSchedule& schedule = scheduled.stages[stage];
  const std::string& name = StageName(scheduled, stage);
  for (size_t l = 0; l < schedule.loops.size(); ++l) {
    if (schedule.loops[l].kind != LoopKind::kParallel) continue;
    if (schedule.attach_stage)
      return Refuse(fmt::format("{}.{} is parallel inside another loop: only outermost loops run on workers", name,
                                schedule.loops[l].path));
    if (l != 0)
      return Refuse(fmt::format("{}.{} is parallel but not outermost: reorder or fuse", name, schedule.loops[l].path));
  }
  if (schedule.scope != Scope::kWorkspace || !schedule.attach_stage) return {};
  StageId root = schedule.attach_stage;
  while (scheduled.stages[root].attach_stage) root = scheduled.stages[root].attach_stage;
  if (scheduled.stages[root].loops[0].kind == LoopKind::kParallel)
    return Refuse(fmt::format("{} is in the workspace but computed inside a parallel loop of {}: workers would race",
                              name, StageName(scheduled, root)));
  return {};
}

Result<void> CheckStorage(const ScheduledKernel& scheduled, StageId stage) {
  const StageSchedule& schedule = scheduled.stages[stage];
  const std::string& name = StageName(scheduled, stage);
  const bool is_at_root = !schedule.attach_stage;
  if (schedule.buffers > 1 && (is_at_root || EffectiveScope(scheduled, stage) != Scope::kBlock))
    return Refuse(name + " is computed ahead by a pipeline: compute it inside a loop and store it block");
  if (schedule.scope == Scope::kPerWorker && is_at_root)
    return Refuse(name + " is stored per worker but computed at the root");
  if (schedule.scope == Scope::kRegisters && is_at_root)
    return Refuse(name + " is in registers but computed at the root");
  if (schedule.scope == Scope::kOutput) return CheckInOutput(scheduled, stage);
  if (schedule.scope != Scope::kConst) return {};
  if (!is_at_root) return Refuse(name + " is packed ahead of time: it is computed at the root");
  // hone_pack has no workspace: what it needs in between stays in registers.
  bool from_operand = true;
  Walk(scheduled.kernel.stages[stage].body, [&](const Expr& e) {
    if (e.op() != Op::kLoad) return;
    const Tensor& read = scheduled.kernel.tensors[e.tensor()];
    const StageId producer = FindStage(scheduled.kernel, read.name);
    if (!producer) return;
    const StageSchedule& inner = scheduled.stages[producer];
    from_operand &= inner.attach_stage == stage && inner.scope == Scope::kRegisters;
  });
  if (!from_operand)
    return Refuse(name + " is packed ahead of time: it can read nothing but its operand, and stages in registers");
  return {};
}

}  // namespace

const std::string& StageName(const ScheduledKernel& scheduled, StageId stage) {
  return scheduled.kernel.tensors[scheduled.kernel.stages[stage].output].name;
}

Result<size_t> FindLoop(const ScheduledKernel& scheduled, StageId stage, const std::string& path) {
  const auto& loops = scheduled.stages[stage].loops;
  for (size_t i = 0; i < loops.size(); ++i)
    if (loops[i].path == path) return i;
  std::string known;
  for (size_t i = 0; i < loops.size(); ++i) known += (i ? ", " : "") + loops[i].path;
  return Refuse(fmt::format("{} has no loop {}; it has {}", StageName(scheduled, stage), path, known));
}

namespace {

// An instruction has the innermost loops: a step that came later may have moved others between them.
Result<void> CheckInstruction(const ScheduledKernel& scheduled, StageId stage) {
  const StageSchedule& schedule = scheduled.stages[stage];
  if (schedule.instruction.empty()) return {};
  const std::vector<LoopDim>& loops = schedule.loops;
  for (size_t i = 0; i < schedule.instruction_loops; ++i)
    if (const LoopDim& loop = loops[loops.size() - 1 - i]; !loop.is_instruction)
      return Refuse(fmt::format("{} is done by {}, but {}.{} is inside its loops: tensorize after reordering",
                                StageName(scheduled, stage), schedule.instruction, StageName(scheduled, stage),
                                loop.path));
  return {};
}

}  // namespace

Result<void> CheckScheduled(const ScheduledKernel& scheduled) {
  for (StageId stage : scheduled.stages.ids()) {
    HONE_TRY(CheckPlace(scheduled, stage));
    HONE_TRY(CheckWorkers(scheduled, stage));
    const StageSchedule& schedule = scheduled.stages[stage];
    if (!schedule.promote_loop.empty()) HONE_TRY(FindLoop(scheduled, stage, schedule.promote_loop));
    for (const auto& [tensor, _] : schedule.prefetches)
      if (!ReadsTensor(scheduled.kernel.stages[stage], FindTensor(scheduled.kernel, tensor)))
        return Refuse(
            fmt::format("{} does not read {} any more: prefetch what it reads", StageName(scheduled, stage), tensor));
    HONE_TRY(CheckStorage(scheduled, stage));
    HONE_TRY(CheckInstruction(scheduled, stage));
  }
  return CheckLaunches(scheduled);
}

}  // namespace hone
