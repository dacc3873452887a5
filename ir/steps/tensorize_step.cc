// tensorize INSTRUCTION STAGE.LOOP…: an instruction does the stage's innermost loops at once. Which instructions there
// are, and whether the stage computes what one means, is known where code is generated
// (codegen/lower/lower_instruction).
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "ir/schedule/refuse.h"
#include "ir/steps/step_type.h"

namespace hone {
namespace {

Result<TensorizeStep> ReadTensorize(StepReader& in) {
  TensorizeStep step;
  step.instruction = HONE_TRY(in.Name("an instruction, such as vpdpbusd_512"));
  step.loops = HONE_TRY(in.Loops(step.stage));
  if (step.loops.size() < 2) return in.Wrong("at least two loops, as stage.axis");
  return step;
}

std::string PrintTensorize(const TensorizeStep& step) {
  return fmt::format("tensorize {}{}", step.instruction, LoopsText(step.stage, step.loops));
}

// Whoever generates code for a processor without the instruction runs the loops instead: the innermost one that is not
// reduced over in vectors, the one around it unrolled. Those further out stay loops, in copies they would be too many.
Result<void> ApplyTensorize(const TensorizeStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  StageSchedule& schedule = state.schedule(stage);
  std::vector<LoopDim>& loops = schedule.loops;
  if (!schedule.instruction.empty())
    return Refuse(fmt::format("{} is done by {} already", step.stage, schedule.instruction));
  for (const std::string& path : step.loops) HONE_TRY(state.FindLoop(stage, path));
  std::string innermost;
  bool matches = step.loops.size() <= loops.size();
  for (size_t i = loops.size() - std::min(step.loops.size(), loops.size()); i < loops.size(); ++i) {
    innermost += (innermost.empty() ? "" : ", ") + loops[i].path;
    matches = matches && loops[i].path == step.loops[i + step.loops.size() - loops.size()];
  }
  if (!matches)
    return Refuse(
        fmt::format("an instruction does the innermost loops, in their order, which are {}: reorder first", innermost));
  std::optional<size_t> lanes;
  for (size_t i = loops.size() - step.loops.size(); i < loops.size(); ++i) {
    if (loops[i].kind != LoopKind::kSerial) return Refuse(fmt::format("{} has a kind already", loops[i].path));
    if (!state.IsReduction(stage, loops[i].path)) lanes = i;
  }
  if (!lanes) return Refuse("all of these loops are reduced over: an instruction has lanes");
  for (const LoopDim& loop : loops)
    if (loop.kind == LoopKind::kVectorized) return Refuse(fmt::format("{} is vectorised already", loop.path));
  for (size_t i = loops.size() - step.loops.size(); i < loops.size(); ++i) {
    const bool is_outer = i + 2 < loops.size();
    loops[i].kind = i == *lanes ? LoopKind::kVectorized : is_outer ? LoopKind::kSerial : LoopKind::kUnrolled;
    loops[i].is_instruction = true;
  }
  schedule.instruction = step.instruction;
  schedule.instruction_loops = step.loops.size();
  return {};
}

}  // namespace

namespace steps {

constinit const StepType kTensorize =
    MakeStepType<TensorizeStep, ReadTensorize, PrintTensorize, ApplyTensorize>("tensorize");

}  // namespace steps
}  // namespace hone
