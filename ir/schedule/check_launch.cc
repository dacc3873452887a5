#include "ir/schedule/check_launch.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/graph/stage_graph.h"
#include "ir/schedule/check_scheduled.h"
#include "ir/schedule/refuse.h"
#include "ir/steps/step_reader.h"

namespace hone {
namespace {

bool IsBound(const LoopDim& loop) { return loop.kind == LoopKind::kBound; }
bool IsThreads(const LoopDim& loop) { return IsBound(loop) && IsThreadAxis(loop.axis); }
bool IsBlocks(const LoopDim& loop) { return IsBound(loop) && IsBlockAxis(loop.axis); }
bool IsBoundTo(const LoopDim& loop, LaunchAxis axis) { return IsBound(loop) && loop.axis == axis; }

bool BindsThreads(const StageSchedule& stage) { return std::any_of(stage.loops.begin(), stage.loops.end(), IsThreads); }

class LaunchCheck {
 public:
  explicit LaunchCheck(const ScheduledKernel& scheduled) : scheduled_(scheduled) {}

  Result<void> CheckStage(StageId stage) const {
    HONE_TRY(CheckBlocks(stage));
    HONE_TRY(CheckThreads(stage));
    HONE_TRY(CheckStorage(stage));
    HONE_TRY(CheckLanes(stage));
    return CheckTiles(stage);
  }

 private:
  const StageSchedule& At(StageId stage) const { return scheduled_.stages[stage]; }
  std::string Name(StageId stage) const { return StageName(scheduled_, stage); }
  std::string LoopName(StageId stage, const LoopDim& loop) const { return Name(stage) + "." + loop.path; }

  // Blocks are the outermost loops of a launch.
  Result<void> CheckBlocks(StageId stage) const {
    bool only_blocks = true;
    for (const LoopDim& loop : At(stage).loops) {
      if (loop.kind == LoopKind::kParallel)
        return Refuse(
            fmt::format("{} is parallel in a schedule that binds loops: bind it to block.x", LoopName(stage, loop)));
      if (!IsBlocks(loop)) {
        only_blocks = false;
        continue;
      }
      if (At(stage).attach_stage)
        return Refuse(
            fmt::format("{} is bound to {} inside another stage: only loops of a stage at the root are blocks",
                        LoopName(stage, loop), LaunchAxisName(loop.axis)));
      if (!only_blocks)
        return Refuse(fmt::format("{} is bound to {} but not outermost: reorder", LoopName(stage, loop),
                                  LaunchAxisName(loop.axis)));
    }
    return {};
  }

  // Inside a loop of threads each of them is on its own, except for what the block computes together.
  Result<void> CheckThreads(StageId stage) const {
    for (const LoopDim& loop : At(stage).loops) {
      const bool is_of_threads = IsThreads(loop) || IsBoundTo(loop, LaunchAxis::kSubGroupX);
      if (!is_of_threads || ScopeOf(stage) == Scope::kBlock) continue;
      for (StageId inner = stage; At(inner).attach_stage && ScopeOf(inner) != Scope::kBlock;) {
        const StageId outer = At(inner).attach_stage;
        for (const LoopDim& around : At(outer).loops) {
          if (IsThreads(around) && DimensionOf(around.axis) == DimensionOf(loop.axis))
            return Refuse(fmt::format("{} is bound to {} inside {}, which is too: store {} block, or bind one of them",
                                      LoopName(stage, loop), LaunchAxisName(loop.axis), LoopName(outer, around),
                                      Name(stage)));
          if (around.path == At(inner).attach_loop) break;
        }
        inner = outer;
      }
    }
    return {};
  }

  Result<void> CheckStorage(StageId stage) const {
    const StageSchedule& schedule = At(stage);
    const bool is_at_root = !schedule.attach_stage;
    switch (ScopeOf(stage)) {
      case Scope::kPerWorker:
        return Refuse(
            fmt::format("{} is stored per worker in a schedule for a GPU: store it block or registers", Name(stage)));
      case Scope::kBlock:
        if (is_at_root)
          return Refuse(Name(stage) + " is stored per block but computed at the root: compute it inside a block");
        return {};
      case Scope::kRegisters:
        if (BindsThreads(schedule))
          return Refuse(
              fmt::format("{} is in registers, which other threads do not see, and binds a loop to threads: "
                          "store it block",
                          Name(stage)));
        return {};
      case Scope::kWorkspace: {
        if (is_at_root) return {};
        StageId root = stage;
        while (At(root).attach_stage) root = At(root).attach_stage;
        if (std::any_of(At(root).loops.begin(), At(root).loops.end(), IsBound))
          return Refuse(fmt::format("{} is in the workspace but computed inside bound loops of {}: blocks would race",
                                    Name(stage), Name(root)));
        return {};
      }
      default: return {};
    }
  }

  // What lanes reduce together begins in a register of each, and ends in all of them.
  Result<void> CheckLanes(StageId stage) const {
    const StageSchedule& schedule = At(stage);
    const LoopDim *lanes = nullptr, *groups = nullptr, *threads = nullptr;
    const LoopDim* outside = nullptr;  // of the register tile, and reduced over
    bool is_in_tile = ScopeOf(stage) == Scope::kRegisters;
    for (const LoopDim& loop : schedule.loops) {
      if (IsBoundTo(loop, LaunchAxis::kLaneX)) lanes = &loop;
      if (IsBoundTo(loop, LaunchAxis::kSubGroupX)) groups = &loop;
      if (IsBoundTo(loop, LaunchAxis::kThreadX)) threads = &loop;
      if (!is_in_tile && Reduces(stage, loop)) outside = &loop;
      is_in_tile |= loop.path == schedule.promote_loop;
    }
    if (groups != nullptr && lanes == nullptr)
      return Refuse(fmt::format("{} is bound to {}, and no loop of {} to lane.x", LoopName(stage, *groups),
                                LaunchAxisName(groups->axis), Name(stage)));
    if (lanes == nullptr) return {};
    if (threads != nullptr)
      return Refuse(fmt::format("{} is bound to thread.x, and {} to lanes of it: bind the first to subgroup.x",
                                LoopName(stage, *threads), LoopName(stage, *lanes)));
    if (!is_in_tile || outside != nullptr)
      return Refuse(
          fmt::format("{} is bound to lane.x, but what {} reduces is not in a register for all of its terms: "
                      "register_tile {} outside of them, or store it registers",
                      LoopName(stage, *lanes), Name(stage), Name(stage)));
    return {};
  }

  bool Reduces(StageId stage, const LoopDim& loop) const {
    const Stage& s = scheduled_.kernel.stages[stage];
    const AxisId axis = FindAxis(s, loop.path.substr(0, loop.path.find_first_of(".+")));
    return axis && s.Reduces(axis);
  }

  Result<void> CheckTiles(StageId stage) const {
    const StageSchedule& schedule = At(stage);
    const auto bound = std::find_if(schedule.loops.begin(), schedule.loops.end(), IsBound);
    if (bound == schedule.loops.end()) return {};
    for (const auto& [axis, tail] : schedule.tails)
      if (tail == Tail::kShift || tail == Tail::kPeel)
        return Refuse(
            fmt::format("tail {}.{}: {} is bound to {}, so that tiles cannot shift or be peeled; pad or guard",
                        Name(stage), axis, LoopName(stage, *bound), LaunchAxisName(bound->axis)));
    bool is_inside = false;
    for (const LoopDim& loop : schedule.loops) {
      if (is_inside && IsBound(loop) && loop.axis != LaunchAxis::kLaneX)
        return Refuse(
            fmt::format("the register tile at {}.{} lies outside {}, which is bound to {}: a tile is one "
                        "thread's",
                        Name(stage), schedule.promote_loop, LoopName(stage, loop), LaunchAxisName(loop.axis)));
      is_inside |= loop.path == schedule.promote_loop;
    }
    return {};
  }

  // As lowering takes it.
  Scope ScopeOf(StageId stage) const { return EffectiveScope(scheduled_, stage); }

  const ScheduledKernel& scheduled_;
};

}  // namespace

Result<void> CheckLaunches(const ScheduledKernel& scheduled) {
  if (!IsForGpu(scheduled)) return {};
  for (StageId stage : scheduled.stages.ids()) HONE_TRY(LaunchCheck(scheduled).CheckStage(stage));
  return {};
}

}  // namespace hone
