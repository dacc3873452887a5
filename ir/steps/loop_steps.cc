// Steps that shape a stage's loops, and say how these run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/schedule/refuse.h"
#include "ir/steps/step_type.h"

namespace hone {
namespace {

// A register tile may compute so much more than there is before a fit cuts it evenly.
constexpr double kTolerableWaste = 1.125;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Factors from that position on, multiplied; beyond any extent if that overflows.
int64_t Product(const std::vector<int64_t>& factors, size_t from = 0) {
  int64_t product = 1;
  for (size_t i = from; i < factors.size(); ++i)
    if (__builtin_mul_overflow(product, factors[i], &product)) return INT64_MAX / 2;
  return product;
}

bool HasLoop(const StageSchedule& stage, const std::string& path) {
  return std::any_of(stage.loops.begin(), stage.loops.end(), [&](const LoopDim& loop) { return loop.path == path; });
}

// ---- split STAGE.LOOP FACTOR…

Result<SplitStep> ReadSplit(StepReader& in) {
  SplitStep step;
  step.loop = HONE_TRY(in.Loop(step.stage));
  while (in.Next()) step.factors.push_back(HONE_TRY(in.NumberIn(in.word())));
  if (step.factors.empty()) return in.Wrong("inner factors");
  return step;
}

std::string PrintSplit(const SplitStep& step) {
  return fmt::format("split {}.{} {}", step.stage, step.loop, fmt::join(step.factors, " "));
}

// The last trips of an inner part that is split unevenly would come again with the next trip of the outer one: a sum
// would count them twice.
Result<void> CheckDivides(const ScheduleState& state, StageId stage, const std::string& path,
                          const std::vector<int64_t>& factors) {
  const int64_t trips = state.TripsOfInnerPart(stage, path);
  if (trips == 0) return Refuse(fmt::format("{} is made of inner parts of a split: split before fusing", path));
  int64_t product = 1;
  for (int64_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product)) product = trips + 1;
  if (trips % product == 0) return {};
  return Refuse(fmt::format("{} has {} trips, which {} does not divide: split the axis into all its parts at once",
                            path, trips, product));
}

Result<void> ApplySplit(const SplitStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  const size_t loop = HONE_TRY(state.FindLoop(stage, step.loop));
  StageSchedule& schedule = state.schedule(stage);
  const LoopDim parent = schedule.loops[loop];
  if (parent.kind != LoopKind::kSerial)
    return Refuse(fmt::format("{} is no serial loop any more: split first", parent.path));
  if (state.IsInnerPart(stage, parent.path)) HONE_TRY(CheckDivides(state, stage, parent.path, step.factors));
  LoopRelation relation{{parent.path}, {}, step.factors};
  std::vector<LoopDim> children;
  for (size_t i = 0; i <= step.factors.size(); ++i) {
    relation.children.push_back(fmt::format("{}.{}", parent.path, i));
    children.push_back({relation.children.back(), LoopKind::kSerial, 1});
  }
  schedule.loops.erase(schedule.loops.begin() + static_cast<int64_t>(loop));
  schedule.loops.insert(schedule.loops.begin() + static_cast<int64_t>(loop), children.begin(), children.end());
  schedule.relations.push_back(std::move(relation));
  schedule.is_rewritten = true;
  return {};
}

// Whether a stage's loop is bound to threads of a block.
bool IsOfThreads(const StageSchedule& stage, const std::string& path) {
  return std::any_of(stage.loops.begin(), stage.loops.end(), [&](const LoopDim& loop) {
    return loop.path == path && loop.kind == LoopKind::kBound && !IsBlockAxis(loop.axis);
  });
}

// What a factor becomes where `left` elements are to be covered. `was_whole`: it covered all there was.
int64_t FitFactor(int64_t factor, int64_t left, bool was_whole, LoopKind kind, bool is_of_threads, std::string& why) {
  auto changed = [&](int64_t now, std::string reason) {
    if (now != factor && why.empty()) why = std::move(reason);
    return now;
  };
  if (kind == LoopKind::kVectorized || is_of_threads) {
    // Lanes stay, and what is beyond the end is masked; a vector that would be half empty is halved. So are threads,
    // which devices run in warps, or make vectors of: a row of 28 would leave them in pieces.
    int64_t lanes = factor;
    while (lanes > 1 && lanes / 2 >= left) lanes /= 2;
    return changed(lanes,
                   fmt::format("{} elements do not fill {} {}", left, factor, is_of_threads ? "threads" : "lanes"));
  }
  if (was_whole && kind == LoopKind::kSerial) return changed(left, fmt::format("the whole of it, which is {}", left));
  if (factor >= left) return changed(left, fmt::format("there are {}", left));
  if (kind != LoopKind::kUnrolled) return factor;
  const int64_t tiles = DivideUp(left, factor);
  const double waste = static_cast<double>(tiles * factor) / static_cast<double>(left);
  if (waste <= kTolerableWaste) return factor;
  return changed(DivideUp(left, tiles), fmt::format("{} tiles of {} would compute {:.0f} % too much of {}", tiles,
                                                    factor, 100 * (waste - 1), left));
}

std::string FitSplit(SplitStep& step, const FitContext& context) {
  const std::string& path = step.loop;
  const std::optional<int64_t> here = TripsOf(context.before, step.stage, path);
  const std::optional<int64_t> there = TripsOf(context.donor, step.stage, path);
  const StageSchedule* loops = FindStageSchedule(context.donor, step.stage);
  if (!here || !there || loops == nullptr) return "";
  const std::string axis = path.substr(0, path.find_first_of(".+"));
  const std::vector<int64_t> donor_factors = step.factors;
  const StageSchedule* now = FindStageSchedule(context.before, step.stage);
  const bool is_inner = std::any_of(now->relations.begin(), now->relations.end(), [&](const LoopRelation& relation) {
    return std::find(relation.children.begin(), relation.children.end(), path) != relation.children.end();
  });
  std::string why;
  // From the innermost loop outwards: each takes its part of what the ones inside it leave.
  int64_t inside = 1;
  for (size_t i = step.factors.size(); i-- > 0;) {
    const std::string child = fmt::format("{}.{}", path, i + 1);
    const int64_t donor_inside = Product(donor_factors, i);
    const bool was_whole = donor_inside >= *there && donor_factors[i] > 1;
    int64_t& factor = step.factors[i];
    factor = FitFactor(factor, std::max<int64_t>(1, DivideUp(*here, inside)), was_whole, KindOf(*loops, child),
                       IsOfThreads(*loops, child), why);
    // An inner part can be split into equal parts only: visiting elements twice would sum them twice.
    if (is_inner) {
      while (*here % (inside * factor) != 0) --factor;
      if (factor != donor_factors[i] && why.empty()) why = fmt::format("{} has {} trips", path, *here);
    }
    inside *= factor;
    context.tiles[{axis, donor_inside}] = inside;
  }
  return why;
}

// ---- fuse STAGE.LOOP STAGE.LOOP…

Result<FuseStep> ReadFuse(StepReader& in) {
  FuseStep step;
  step.loops = HONE_TRY(in.Loops(step.stage));
  if (step.loops.size() < 2) return in.Wrong("at least two loops");
  return step;
}

std::string PrintFuse(const FuseStep& step) { return "fuse" + LoopsText(step.stage, step.loops); }

Result<void> ApplyFuse(const FuseStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  StageSchedule& schedule = state.schedule(stage);
  for (size_t i = 1; i < step.loops.size(); ++i) {
    // n loops: fuse the first two, then the result with the third, and so on.
    const std::string left = i == 1 ? step.loops[0] : schedule.relations.back().children[0];
    const size_t a = HONE_TRY(state.FindLoop(stage, left)), b = HONE_TRY(state.FindLoop(stage, step.loops[i]));
    if (b != a + 1) return Refuse(fmt::format("{} does not follow {} directly: reorder first", step.loops[i], left));
    if (state.IsReduction(stage, left) != state.IsReduction(stage, step.loops[i]))
      return Refuse(
          fmt::format("{} and {} cannot be fused: one is reduced over, the other is not", left, step.loops[i]));
    if (schedule.loops[a].kind != LoopKind::kSerial || schedule.loops[b].kind != LoopKind::kSerial)
      return Refuse("only serial loops can be fused");
    const std::string path = left + "+" + step.loops[i];
    schedule.relations.push_back({{left, step.loops[i]}, {path}, {}});
    schedule.loops[a] = {path, LoopKind::kSerial, 1};
    schedule.loops.erase(schedule.loops.begin() + static_cast<int64_t>(b));
  }
  schedule.is_rewritten = true;
  return {};
}

std::optional<FuseStep> RepairFuse(const FuseStep& step, const StageSchedule& stage) {
  FuseStep repaired = step;
  std::erase_if(repaired.loops, [&](const std::string& loop) { return !HasLoop(stage, loop); });
  if (repaired.loops.size() < 2 || repaired.loops.size() == step.loops.size()) return std::nullopt;
  return repaired;
}

// ---- reorder STAGE.LOOP STAGE.LOOP…

Result<ReorderStep> ReadReorder(StepReader& in) {
  ReorderStep step;
  step.loops = HONE_TRY(in.Loops(step.stage));
  if (step.loops.size() < 2) return in.Wrong("at least two loops");
  return step;
}

std::string PrintReorder(const ReorderStep& step) { return "reorder" + LoopsText(step.stage, step.loops); }

Result<void> ApplyReorder(const ReorderStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  StageSchedule& schedule = state.schedule(stage);
  if (step.loops.size() != schedule.loops.size())
    return Refuse(fmt::format("{} loops named, {} has {}", step.loops.size(), step.stage, schedule.loops.size()));
  std::vector<LoopDim> order;
  std::set<std::string> seen;
  for (const std::string& name : step.loops) {
    const size_t loop = HONE_TRY(state.FindLoop(stage, name));
    if (!seen.insert(name).second) return Refuse(fmt::format("{} is named twice", name));
    order.push_back(schedule.loops[loop]);
  }
  schedule.loops = std::move(order);
  schedule.is_rewritten = true;
  return {};
}

// Those that are there, in the donor's order; the others stay behind what precedes them now.
std::optional<ReorderStep> RepairReorder(const ReorderStep& step, const StageSchedule& stage) {
  ReorderStep repaired = step;
  std::vector<std::string>& order = repaired.loops;
  std::erase_if(order, [&](const std::string& loop) { return !HasLoop(stage, loop); });
  for (size_t i = 0; i < stage.loops.size(); ++i) {
    const std::string& path = stage.loops[i].path;
    if (std::find(order.begin(), order.end(), path) != order.end()) continue;
    auto after = order.begin();
    if (i > 0) after = std::find(order.begin(), order.end(), stage.loops[i - 1].path) + 1;
    order.insert(after, path);
  }
  return repaired;
}

// The loop, which no step has given a kind yet.
Result<LoopDim*> SerialLoop(ScheduleState& state, StageId stage, const std::string& path) {
  LoopDim& loop = state.schedule(stage).loops[HONE_TRY(state.FindLoop(stage, path))];
  if (loop.kind != LoopKind::kSerial) return Refuse(fmt::format("{} has a kind already", path));
  return &loop;
}

// ---- parallel STAGE.LOOP [grain=N]

Result<ParallelStep> ReadParallel(StepReader& in) {
  constexpr std::string_view kGrain = "grain=";
  ParallelStep step;
  step.loop = HONE_TRY(in.Loop(step.stage));
  if (!in.Next()) return step;
  if (!in.word().starts_with(kGrain)) return in.Wrong("grain=N");
  step.grain = HONE_TRY(in.NumberIn(in.word().substr(kGrain.size())));
  return step;
}

std::string PrintParallel(const ParallelStep& step) {
  return fmt::format("parallel {}.{} grain={}", step.stage, step.loop, step.grain);
}

Result<void> ApplyParallel(const ParallelStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  LoopDim* loop = HONE_TRY(SerialLoop(state, stage, step.loop));
  if (state.IsReduction(stage, step.loop))
    return Refuse(fmt::format("{} is reduced over: workers would race", step.loop));
  loop->kind = LoopKind::kParallel;
  loop->grain = step.grain;
  return {};
}

// Work of one trip of the loop; 0: unknown.
double WorkPerTrip(const Kernel& kernel, const ScheduledKernel& scheduled, const ParallelStep& step) {
  const std::optional<int64_t> trips = TripsOf(scheduled, step.stage, step.loop);
  if (!trips || *trips < 1 || !IsStatic(kernel)) return 0;
  return FlopCount(kernel) / static_cast<double>(*trips);
}

// Grains follow the work of an iteration.
std::string FitParallel(ParallelStep& step, const FitContext& context) {
  const std::optional<int64_t> trips = TripsOf(context.before, step.stage, step.loop);
  if (!trips) return "";
  int64_t grain = step.grain;
  const double there = WorkPerTrip(context.donor_kernel, context.donor, step);
  const double here = WorkPerTrip(context.kernel, context.before, step);
  if (there > 0 && here > 0 && grain > 1)
    grain = std::max<int64_t>(1, std::llround(static_cast<double>(grain) * std::min(1e6, there / here)));
  grain = std::clamp<int64_t>(grain, 1, std::max<int64_t>(1, DivideUp(*trips, context.workers)));
  if (grain == step.grain) return "";
  step.grain = grain;
  return fmt::format("{} trips for {} workers, each {:.2g} times the work", *trips, context.workers,
                     there > 0 && here > 0 ? here / there : 1.0);
}

// ---- vectorize STAGE.LOOP and unroll STAGE.LOOP…

template <typename S>
Result<S> ReadLoops(StepReader& in) {
  S step;
  step.loops = HONE_TRY(in.Loops(step.stage));
  if (step.loops.empty()) return in.Wrong("a loop, as stage.axis");
  return step;
}

template <typename S>
std::optional<S> RepairLoops(const S& step, const StageSchedule& stage) {
  S repaired = step;
  std::erase_if(repaired.loops, [&](const std::string& loop) { return !HasLoop(stage, loop); });
  if (repaired.loops.empty() || repaired.loops.size() == step.loops.size()) return std::nullopt;
  return repaired;
}

std::string PrintVectorize(const VectorizeStep& step) { return "vectorize" + LoopsText(step.stage, step.loops); }

Result<void> ApplyVectorize(const VectorizeStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  const std::vector<LoopDim>& loops = state.schedule(stage).loops;
  for (const std::string& path : step.loops) {
    LoopDim* loop = HONE_TRY(SerialLoop(state, stage, path));
    if (std::any_of(loops.begin(), loops.end(), [](const LoopDim& l) { return l.kind == LoopKind::kVectorized; }))
      return Refuse(fmt::format("{} has a vectorised loop already", step.stage));
    loop->kind = LoopKind::kVectorized;
  }
  return {};
}

std::string PrintUnroll(const UnrollStep& step) { return "unroll" + LoopsText(step.stage, step.loops); }

Result<void> ApplyUnroll(const UnrollStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  for (const std::string& path : step.loops) HONE_TRY(SerialLoop(state, stage, path))->kind = LoopKind::kUnrolled;
  return {};
}

// ---- bind STAGE.LOOP AXIS

Result<BindStep> ReadBind(StepReader& in) {
  BindStep step;
  step.loop = HONE_TRY(in.Loop(step.stage));
  step.axis = HONE_TRY(in.AxisOfLaunch());
  return step;
}

std::string PrintBind(const BindStep& step) {
  return fmt::format("bind {}.{} {}", step.stage, step.loop, LaunchAxisName(step.axis));
}

Result<void> ApplyBind(const BindStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  LoopDim* loop = HONE_TRY(SerialLoop(state, stage, step.loop));
  const bool reduces = state.IsReduction(stage, step.loop);
  if (reduces && step.axis != LaunchAxis::kLaneX)
    return Refuse(fmt::format("{} is reduced over: threads would race; rfactor it first", step.loop));
  if (!reduces && step.axis == LaunchAxis::kLaneX)
    return Refuse(fmt::format("{} is not reduced over: lanes reduce together; bind it to thread.x", step.loop));
  for (const LoopDim& other : state.schedule(stage).loops)
    if (other.kind == LoopKind::kBound && other.axis == step.axis)
      return Refuse(fmt::format("{}.{} is bound to {} already", step.stage, other.path, LaunchAxisName(step.axis)));
  loop->kind = LoopKind::kBound;
  loop->axis = step.axis;
  return {};
}

}  // namespace

namespace steps {

constinit const StepType kSplit = MakeStepType<SplitStep, ReadSplit, PrintSplit, ApplySplit, FitSplit>("split");
constinit const StepType kFuse = MakeStepType<FuseStep, ReadFuse, PrintFuse, ApplyFuse, nullptr, RepairFuse>("fuse");
constinit const StepType kReorder =
    MakeStepType<ReorderStep, ReadReorder, PrintReorder, ApplyReorder, nullptr, RepairReorder>("reorder");
constinit const StepType kParallel =
    MakeStepType<ParallelStep, ReadParallel, PrintParallel, ApplyParallel, FitParallel>("parallel");
constinit const StepType kVectorize = MakeStepType<VectorizeStep, ReadLoops<VectorizeStep>, PrintVectorize,
                                                   ApplyVectorize, nullptr, RepairLoops<VectorizeStep>>("vectorize");
constinit const StepType kUnroll =
    MakeStepType<UnrollStep, ReadLoops<UnrollStep>, PrintUnroll, ApplyUnroll, nullptr, RepairLoops<UnrollStep>>(
        "unroll");
constinit const StepType kBind = MakeStepType<BindStep, ReadBind, PrintBind, ApplyBind>("bind");

}  // namespace steps
}  // namespace hone
