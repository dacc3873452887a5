// Steps that say where a stage is computed and stored, and how its ends and reads are treated.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "ir/graph/stage_graph.h"
#include "ir/schedule/check_scheduled.h"
#include "ir/schedule/refuse.h"
#include "ir/steps/layouts.h"
#include "ir/steps/step_type.h"

namespace hone {
namespace {

constexpr int64_t kFarthestPrefetch = 1 << 20;  // bytes
constexpr std::string_view kPanel = "panel";
constexpr int64_t kMostBuffers = 8;  // of a pipeline

bool IsOutput(const ScheduleState& state, StageId stage) {
  return state.kernel().tensors[state.stage(stage).output].kind == TensorKind::kOutput;
}

// ---- compute_at STAGE CONSUMER.LOOP [keep STAGE.LOOP]

Result<ComputeAtStep> ReadComputeAt(StepReader& in) {
  ComputeAtStep step;
  step.stage = HONE_TRY(in.Name("a stage"));
  step.loop = HONE_TRY(in.Loop(step.consumer));
  if (!in.Next()) return step;
  if (in.word() != "keep") return in.Wrong("keep, or the end of the line");
  step.keep_loop = HONE_TRY(in.Loop(step.keep_stage));
  return step;
}

std::string PrintComputeAt(const ComputeAtStep& step) {
  const std::string keep = step.keep_stage.empty() ? "" : fmt::format(" keep {}.{}", step.keep_stage, step.keep_loop);
  return fmt::format("compute_at {} {}.{}{}", step.stage, step.consumer, step.loop, keep);
}

Result<void> ApplyComputeAt(const ComputeAtStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage)), consumer = HONE_TRY(state.FindStage(step.consumer));
  HONE_TRY(state.FindLoop(consumer, step.loop));
  if (IsOutput(state, stage)) return Refuse(fmt::format("{} is an output: it is computed at the root", step.stage));
  if (consumer <= stage) return Refuse(fmt::format("{} does not come after {}", step.consumer, step.stage));
  StageId keeper;
  if (!step.keep_stage.empty()) {
    keeper = HONE_TRY(state.FindStage(step.keep_stage));
    HONE_TRY(state.FindLoop(keeper, step.keep_loop));
  }
  StageSchedule& schedule = state.schedule(stage);
  schedule.attach_stage = consumer;
  schedule.attach_loop = step.loop;
  schedule.keep_stage = keeper;
  schedule.keep_loop = step.keep_loop;
  return {};
}

// ---- store STAGE SCOPE [LAYOUT]

Result<StoreStep> ReadStore(StepReader& in) {
  StoreStep step;
  step.stage = HONE_TRY(in.Name("a stage"));
  step.scope = HONE_TRY(in.StorageScope());
  step.layout = HONE_TRY(in.OptionalLayout());
  return step;
}

std::string PrintStore(const StoreStep& step) {
  return fmt::format("store {} {}{}", step.stage, ScopeName(step.scope), LayoutText(step.layout));
}

// Whether hone_pack can compute the stage: from one constant operand.
Result<void> CheckComputedFromConstant(const ScheduleState& state, StageId stage) {
  const TensorId source = OnlyInputOf(state.kernel(), state.stage(stage));
  if (!source)
    return Refuse(fmt::format("{} does not come from one operand alone", StageName(state.scheduled(), stage)));
  const Tensor& operand = state.kernel().tensors[source];
  if (operand.kind != TensorKind::kInput || !operand.is_const)
    return Refuse(fmt::format("{} is no constant operand: only those are packed ahead of time", operand.name));
  return {};
}

Result<void> ApplyStore(const StoreStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  if (IsOutput(state, stage)) return Refuse(step.stage + " is an output: it is stored in its operand");
  if (step.scope == Scope::kConst) HONE_TRY(CheckComputedFromConstant(state, stage));
  HONE_TRY(CheckLayout(state, stage, step.layout));
  state.schedule(stage).scope = step.scope;
  state.schedule(stage).layout = step.layout;
  return {};
}

std::string FitStore(StoreStep& step, const FitContext& context) { return FitLayout(step.layout, context); }

// ---- register_tile STAGE.LOOP

Result<RegisterTileStep> ReadRegisterTile(StepReader& in) {
  RegisterTileStep step;
  step.loop = HONE_TRY(in.Loop(step.stage));
  return step;
}

// As it was once written: cache_write STAGE at STAGE.LOOP (ir/steps/old_words.h).
Result<RegisterTileStep> ReadOldRegisterTile(StepReader& in) {
  RegisterTileStep step;
  step.stage = HONE_TRY(in.Name("a stage"));
  HONE_TRY(in.Keyword("at"));
  step.loop = HONE_TRY(in.Loop(step.stage));
  return step;
}

std::string PrintRegisterTile(const RegisterTileStep& step) {
  return fmt::format("register_tile {}.{}", step.stage, step.loop);
}

Result<void> ApplyRegisterTile(const RegisterTileStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  if (state.stage(stage).reduction == Reduction::kNone)
    return Refuse(step.stage + " reduces nothing: it has no tile to keep");
  HONE_TRY(state.FindLoop(stage, step.loop));
  state.schedule(stage).promote_loop = step.loop;
  return {};
}

// ---- tail STAGE.AXIS TAIL

Result<TailStep> ReadTail(StepReader& in) {
  TailStep step;
  step.axis = HONE_TRY(in.Loop(step.stage));
  step.tail = HONE_TRY(in.TailChoice());
  return step;
}

std::string PrintTail(const TailStep& step) {
  return fmt::format("tail {}.{} {}", step.stage, step.axis, TailName(step.tail));
}

Result<void> ApplyTail(const TailStep& step, ScheduleState& state) {
  const StageId index = HONE_TRY(state.FindStage(step.stage));
  const Stage& stage = state.stage(index);
  const AxisId axis = FindAxis(stage, step.axis);
  if (!axis) return Refuse(fmt::format("{} has no axis {}", step.stage, step.axis));
  const bool is_reduced = stage.Reduces(axis);
  if (step.tail == Tail::kShift && is_reduced) return Refuse("a reduction cannot shift: it would count elements twice");
  if (step.tail == Tail::kPeel) {
    if (is_reduced) return Refuse("a reduction cannot be peeled: what is left would start from nothing again");
    const Expr& extent = stage.axis(axis).extent;
    if (LowerExtent(state.kernel(), extent) != UpperExtent(state.kernel(), extent))
      return Refuse(fmt::format("{} is a dynamic size: how much is left to peel is not known", step.axis));
  }
  state.schedule(index).tails[step.axis] = step.tail;
  return {};
}

// ---- prefetch TENSOR for STAGE BYTES|panel

Result<PrefetchStep> ReadPrefetch(StepReader& in) {
  PrefetchStep step;
  step.tensor = HONE_TRY(in.Name("a tensor"));
  HONE_TRY(in.Keyword("for"));
  step.stage = HONE_TRY(in.Name("the stage that reads it"));
  in.Next();
  step.bytes = in.word() == kPanel ? kNextPanel : HONE_TRY(in.NumberIn(in.word()));
  return step;
}

std::string PrintPrefetch(const PrefetchStep& step) {
  return fmt::format("prefetch {} for {} {}", step.tensor, step.stage,
                     step.bytes == kNextPanel ? std::string(kPanel) : std::to_string(step.bytes));
}

Result<void> ApplyPrefetch(const PrefetchStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  const TensorId tensor = HONE_TRY(state.FindTensor(step.tensor));
  if (!ReadsTensor(state.stage(stage), tensor))
    return Refuse(fmt::format("{} does not read {}", step.stage, step.tensor));
  if (step.bytes > kFarthestPrefetch)
    return Refuse(fmt::format("{} bytes ahead, at most {} are allowed", step.bytes, kFarthestPrefetch));
  state.schedule(stage).prefetches[step.tensor] = step.bytes;
  return {};
}

// ---- pipeline STAGE BUFFERS

Result<PipelineStep> ReadPipeline(StepReader& in) {
  PipelineStep step;
  step.stage = HONE_TRY(in.Name("a stage"));
  step.buffers = HONE_TRY(in.Number());
  return step;
}

std::string PrintPipeline(const PipelineStep& step) { return fmt::format("pipeline {} {}", step.stage, step.buffers); }

Result<void> ApplyPipeline(const PipelineStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  if (step.buffers < 2 || step.buffers > kMostBuffers)
    return Refuse(fmt::format("{} buffers: 2 to {} are what a pipeline has", step.buffers, kMostBuffers));
  state.schedule(stage).buffers = step.buffers;
  return {};
}

}  // namespace

namespace steps {

constinit const StepType kComputeAt =
    MakeStepType<ComputeAtStep, ReadComputeAt, PrintComputeAt, ApplyComputeAt>("compute_at");
constinit const StepType kStore = MakeStepType<StoreStep, ReadStore, PrintStore, ApplyStore, FitStore>("store");
constinit const StepType kRegisterTile =
    MakeStepType<RegisterTileStep, ReadRegisterTile, PrintRegisterTile, ApplyRegisterTile>("register_tile");
constinit const StepType kOldRegisterTile =
    MakeStepType<RegisterTileStep, ReadOldRegisterTile, PrintRegisterTile, ApplyRegisterTile>("cache_write");
constinit const StepType kTail = MakeStepType<TailStep, ReadTail, PrintTail, ApplyTail>("tail");
constinit const StepType kPipeline = MakeStepType<PipelineStep, ReadPipeline, PrintPipeline, ApplyPipeline>("pipeline");
constinit const StepType kPrefetch = MakeStepType<PrefetchStep, ReadPrefetch, PrintPrefetch, ApplyPrefetch>("prefetch");

}  // namespace steps
}  // namespace hone
