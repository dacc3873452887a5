#include "ir/apply.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "ir/check_scheduled.h"
#include "ir/rewrite.h"
#include "ir/rewrite_expand.h"
#include "ir/rewrite_numbers.h"
#include "ir/rewrite_online.h"
#include "ir/rewrite_trim.h"
#include "ir/rewrite_winograd.h"

namespace hone {
namespace {

Error Refuse(std::string message) { return {ErrorKind::kInvalid, std::move(message), ""}; }

StageSchedule InitialSchedule(const Stage& stage) {
  StageSchedule schedule;
  for (const Axis& axis : stage.axes) schedule.loops.push_back({axis.name, LoopKind::kSerial, 1});
  for (const Axis& axis : stage.reduce_axes) schedule.loops.push_back({axis.name, LoopKind::kSerial, 1});
  return schedule;
}

// Whether a step other than a rewrite was applied to the stage: its axes must stay as they are then.
bool HasSteps(const StageSchedule& schedule) {
  return schedule.is_rewritten || schedule.attach_stage >= 0 || schedule.scope != Scope::kDefault ||
         !schedule.layout.empty() || !schedule.promote_loop.empty() || !schedule.tails.empty() ||
         !schedule.prefetches.empty() ||
         std::any_of(schedule.loops.begin(), schedule.loops.end(),
                     [](const LoopDim& loop) { return loop.kind != LoopKind::kSerial; });
}

}  // namespace

class ScheduleApplier {
 public:
  explicit ScheduleApplier(const Kernel& kernel) {
    result_.kernel = kernel;
    for (const Stage& stage : kernel.stages) result_.stages.push_back(InitialSchedule(stage));
  }

  Result<void> Apply(const Step& step);
  Result<ScheduledKernel> Finish() &&;
  const ScheduledKernel& so_far() const { return result_; }

 private:
  Result<size_t> StageOf(const std::string& name) const;
  Result<size_t> LoopOf(size_t stage, const std::string& path) const;
  // Replaces the kernel after a rewrite; loops of stages that it changed start afresh.
  Result<void> Rewritten(Kernel kernel);
  Result<void> Rewrite(const Step& step);
  Result<void> CacheRead(const Step& step);
  Result<void> Split(const Step& step);
  // 0: of a fused loop, whose trips depend on the part of the axes that is computed.
  int64_t TripsOfInnerPart(size_t stage, const std::string& path) const;
  Result<void> CheckDivides(size_t stage, const std::string& path, const std::vector<int64_t>& factors) const;
  Result<void> Fuse(const Step& step);
  Result<void> Reorder(const Step& step);
  Result<void> Annotate(const Step& step);
  Result<void> ComputeAt(const Step& step);
  Result<void> Prefetch(const Step& step);
  Result<void> CheckLayout(size_t stage, const std::vector<LayoutDim>& layout) const;
  Result<void> CheckComputedFromConstant(size_t stage) const;
  // Whether a loop comes from a reduction axis (also in part, by fusion).
  bool IsReduction(size_t stage, const std::string& path) const;
  // Whether a loop is an inner part of its axis: running it too far comes to elements that its next trip visits too.
  bool IsInnerPart(size_t stage, const std::string& path) const;

  ScheduledKernel result_;
};

Result<size_t> ScheduleApplier::StageOf(const std::string& name) const {
  int index = FindStage(result_.kernel, name);
  if (index >= 0) return static_cast<size_t>(index);
  std::string known;
  for (size_t i = 0; i < result_.kernel.stages.size(); ++i) known += (i ? ", " : "") + StageName(result_, i);
  return Refuse(fmt::format("there is no stage {}; there are {}", name, known));
}

Result<size_t> ScheduleApplier::LoopOf(size_t stage, const std::string& path) const {
  return FindLoop(result_, stage, path);
}

bool ScheduleApplier::IsReduction(size_t stage, const std::string& path) const {
  const Stage& s = result_.kernel.stages[stage];
  auto is_reduce_axis = [&](const std::string& name) {
    return std::any_of(s.reduce_axes.begin(), s.reduce_axes.end(), [&](const Axis& a) { return a.name == name; });
  };
  if (is_reduce_axis(path)) return true;
  for (const LoopRelation& relation : result_.stages[stage].relations)
    if (std::find(relation.children.begin(), relation.children.end(), path) != relation.children.end())
      return std::any_of(relation.parents.begin(), relation.parents.end(),
                         [&](const std::string& p) { return IsReduction(stage, p); });
  return false;
}

bool ScheduleApplier::IsInnerPart(size_t stage, const std::string& path) const {
  for (const LoopRelation& relation : result_.stages[stage].relations) {
    auto child = std::find(relation.children.begin(), relation.children.end(), path);
    if (child == relation.children.end()) continue;
    return child != relation.children.begin() || IsInnerPart(stage, relation.parents[0]);
  }
  return false;
}

Result<void> ScheduleApplier::Rewritten(Kernel kernel) {
  std::vector<StageSchedule> stages;
  for (const Stage& stage : kernel.stages) {
    const std::string& name = kernel.tensors[static_cast<size_t>(stage.output)].name;
    int old = FindStage(result_.kernel, name);
    if (old < 0) {
      stages.push_back(InitialSchedule(stage));
      continue;
    }
    const Stage& before = result_.kernel.stages[static_cast<size_t>(old)];
    StageSchedule& schedule = result_.stages[static_cast<size_t>(old)];
    auto same_axes = [](const std::vector<Axis>& a, const std::vector<Axis>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                        [](const Axis& x, const Axis& y) { return x.name == y.name && SameExpr(x.extent, y.extent); });
    };
    if (same_axes(before.axes, stage.axes) && same_axes(before.reduce_axes, stage.reduce_axes)) {
      if (schedule.attach_stage >= 0) {
        const std::string& consumer = StageName(result_, static_cast<size_t>(schedule.attach_stage));
        schedule.attach_stage = FindStage(kernel, consumer);
        if (schedule.attach_stage < 0)
          return Refuse(fmt::format("{} is computed inside {}: inline that first", name, consumer));
      }
      stages.push_back(std::move(schedule));
    } else {
      if (HasSteps(schedule))
        return Refuse(fmt::format("{} has loops, a place or storage already: rewrite its axes before that", name));
      stages.push_back(InitialSchedule(stage));
    }
  }
  result_.kernel = std::move(kernel);
  result_.stages = std::move(stages);
  return {};
}

Result<void> ScheduleApplier::Rewrite(const Step& step) {
  size_t stage = HONE_TRY(StageOf(step.stage));
  if (step.other == "separate") {
    if (step.names.size() != 1) return Refuse("separate takes one name, of the new stage");
    return Rewritten(HONE_TRY(SeparateReduction(result_.kernel, static_cast<int>(stage), step.names[0])));
  }
  if (step.other == "expand") {
    if (!step.factors.empty() || step.names.size() < 3)
      return Refuse("expand takes a tensor, a name for the new stage and the axes by which the tensor is read");
    const TensorId tensor = FindTensor(result_.kernel, step.names[0]);
    if (tensor < 0) return Refuse("there is no tensor " + step.names[0]);
    return Rewritten(HONE_TRY(ExpandAccess(result_.kernel, static_cast<int>(stage), tensor, step.names[1],
                                           {step.names.begin() + 2, step.names.end()})));
  }
  if (step.other == "trim") {
    if (!step.factors.empty() || step.names.size() < 3)
      return Refuse("trim takes a padded tensor, a name for the new stages and the axes whose padding is left out");
    const TensorId tensor = FindTensor(result_.kernel, step.names[0]);
    if (tensor < 0) return Refuse("there is no tensor " + step.names[0]);
    return Rewritten(HONE_TRY(TrimPadding(result_.kernel, static_cast<int>(stage), tensor, step.names[1],
                                          {step.names.begin() + 2, step.names.end()})));
  }
  if (step.other == "winograd") {
    if (step.names.size() != 1 || step.factors.size() != 2)
      return Refuse("winograd takes a name for the new stages, the tile and the number of tiles in a row");
    return Rewritten(HONE_TRY(
        WinogradConvolution(result_.kernel, static_cast<int>(stage), step.names[0], step.factors[0], step.factors[1])));
  }
  if (step.other == "online") {
    if (step.names.size() != 1 || step.factors.size() != 1)
      return Refuse("online takes a name for the new stages and the number of elements in a block of a row");
    return Rewritten(
        HONE_TRY(OnlineReductions(result_.kernel, static_cast<int>(stage), step.names[0], step.factors[0])));
  }
  if (!step.factors.empty()) return Refuse(step.other + " takes no numbers");
  if (step.other == "numbers") {
    if (!step.names.empty()) return Refuse("numbers takes no names");
    return Rewritten(HONE_TRY(MaxOfNumbers(result_.kernel, static_cast<int>(stage))));
  }
  if (step.other != "collapse")
    return Refuse(
        fmt::format("there is no rewrite {}; there are collapse, separate, expand, winograd, trim, online and numbers",
                    step.other));
  return Rewritten(HONE_TRY(CollapseAxes(result_.kernel, static_cast<int>(stage), step.names)));
}

Result<void> ScheduleApplier::CheckLayout(size_t stage, const std::vector<LayoutDim>& layout) const {
  if (layout.empty()) return {};
  const Stage& s = result_.kernel.stages[stage];
  for (const Axis& axis : s.axes) {
    int whole = 0, quotient = 0, remainder = 0;
    int64_t q = 0, r = 0;
    for (const LayoutDim& dim : layout) {
      if (dim.axis != axis.name) continue;
      if (dim.part == LayoutDim::Part::kWhole) ++whole;
      if (dim.part == LayoutDim::Part::kQuotient) ++quotient, q = dim.factor;
      if (dim.part == LayoutDim::Part::kRemainder) ++remainder, r = dim.factor;
    }
    bool as_whole = whole == 1 && quotient + remainder == 0,
         as_parts = whole == 0 && quotient == 1 && remainder == 1 && q == r;
    if (!as_whole && !as_parts)
      return Refuse(
          fmt::format("the layout must name {} once, or as {}/f and {}%f with one f", axis.name, axis.name, axis.name));
  }
  for (const LayoutDim& dim : layout)
    if (std::none_of(s.axes.begin(), s.axes.end(), [&](const Axis& a) { return a.name == dim.axis; }))
      return Refuse(fmt::format("the layout names {}, which is no axis of {}", dim.axis, StageName(result_, stage)));
  return {};
}

// Whether hone_pack can compute the stage: from one constant operand.
Result<void> ScheduleApplier::CheckComputedFromConstant(size_t index) const {
  const Stage& stage = result_.kernel.stages[index];
  const TensorId source = OnlyInputOf(result_.kernel, stage);
  if (source < 0) return Refuse(fmt::format("{} does not come from one operand alone", StageName(result_, index)));
  const Tensor& operand = result_.kernel.tensors[static_cast<size_t>(source)];
  if (operand.kind != TensorKind::kInput || !operand.is_const)
    return Refuse(fmt::format("{} is no constant operand: only those are packed ahead of time", operand.name));
  return {};
}

Result<void> ScheduleApplier::CacheRead(const Step& step) {
  size_t reader = HONE_TRY(StageOf(step.stage));
  TensorId tensor = FindTensor(result_.kernel, step.other);
  if (tensor < 0) return Refuse(fmt::format("there is no tensor {}", step.other));
  const Tensor& source = result_.kernel.tensors[static_cast<size_t>(tensor)];
  if (step.scope == Scope::kConst) {
    if (source.kind != TensorKind::kInput || !source.is_const)
      return Refuse(fmt::format("{} is no constant operand: only those are packed ahead of time", source.name));
  }
  HONE_TRY(Rewritten(HONE_TRY(hone::CacheRead(result_.kernel, tensor, static_cast<int>(reader), step.result))));
  size_t stage = HONE_TRY(StageOf(step.result));
  HONE_TRY(CheckLayout(stage, step.layout));
  result_.stages[stage].scope = step.scope;
  result_.stages[stage].layout = step.layout;
  return {};
}

int64_t ScheduleApplier::TripsOfInnerPart(size_t stage, const std::string& path) const {
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

// The last trips of an inner part that is split unevenly would come again with the next trip of the outer one: a sum
// would count them twice.
Result<void> ScheduleApplier::CheckDivides(size_t stage, const std::string& path,
                                           const std::vector<int64_t>& factors) const {
  const int64_t trips = TripsOfInnerPart(stage, path);
  if (trips == 0) return Refuse(fmt::format("{} is made of inner parts of a split: split before fusing", path));
  int64_t product = 1;
  for (int64_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product)) product = trips + 1;
  if (trips % product == 0) return {};
  return Refuse(fmt::format("{} has {} trips, which {} does not divide: split the axis into all its parts at once",
                            path, trips, product));
}

Result<void> ScheduleApplier::Split(const Step& step) {
  size_t stage = HONE_TRY(StageOf(step.stage));
  size_t loop = HONE_TRY(LoopOf(stage, step.names[0]));
  StageSchedule& schedule = result_.stages[stage];
  LoopDim parent = schedule.loops[loop];
  if (parent.kind != LoopKind::kSerial)
    return Refuse(fmt::format("{} is no serial loop any more: split first", parent.path));
  if (IsInnerPart(stage, parent.path)) HONE_TRY(CheckDivides(stage, parent.path, step.factors));
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

Result<void> ScheduleApplier::Fuse(const Step& step) {
  size_t stage = HONE_TRY(StageOf(step.stage));
  StageSchedule& schedule = result_.stages[stage];
  for (size_t i = 1; i < step.names.size(); ++i) {
    // n loops: fuse the first two, then the result with the third, and so on.
    std::string left = i == 1 ? step.names[0] : schedule.relations.back().children[0];
    size_t a = HONE_TRY(LoopOf(stage, left)), b = HONE_TRY(LoopOf(stage, step.names[i]));
    if (b != a + 1) return Refuse(fmt::format("{} does not follow {} directly: reorder first", step.names[i], left));
    if (IsReduction(stage, left) != IsReduction(stage, step.names[i]))
      return Refuse(
          fmt::format("{} and {} cannot be fused: one is reduced over, the other is not", left, step.names[i]));
    if (schedule.loops[a].kind != LoopKind::kSerial || schedule.loops[b].kind != LoopKind::kSerial)
      return Refuse("only serial loops can be fused");
    std::string path = left + "+" + step.names[i];
    schedule.relations.push_back({{left, step.names[i]}, {path}, {}});
    schedule.loops[a] = {path, LoopKind::kSerial, 1};
    schedule.loops.erase(schedule.loops.begin() + static_cast<int64_t>(b));
  }
  schedule.is_rewritten = true;
  return {};
}

Result<void> ScheduleApplier::Reorder(const Step& step) {
  size_t stage = HONE_TRY(StageOf(step.stage));
  StageSchedule& schedule = result_.stages[stage];
  if (step.names.size() != schedule.loops.size())
    return Refuse(fmt::format("{} loops named, {} has {}", step.names.size(), step.stage, schedule.loops.size()));
  std::vector<LoopDim> order;
  std::set<std::string> seen;
  for (const std::string& name : step.names) {
    size_t loop = HONE_TRY(LoopOf(stage, name));
    if (!seen.insert(name).second) return Refuse(fmt::format("{} is named twice", name));
    order.push_back(schedule.loops[loop]);
  }
  schedule.loops = std::move(order);
  schedule.is_rewritten = true;
  return {};
}

Result<void> ScheduleApplier::Annotate(const Step& step) {
  size_t stage = HONE_TRY(StageOf(step.stage));
  StageSchedule& schedule = result_.stages[stage];
  for (const std::string& name : step.names) {
    LoopDim& loop = schedule.loops[HONE_TRY(LoopOf(stage, name))];
    if (loop.kind != LoopKind::kSerial) return Refuse(fmt::format("{} has a kind already", name));
    switch (step.kind) {
      case StepKind::kUnroll: loop.kind = LoopKind::kUnrolled; break;
      case StepKind::kVectorize:
        if (std::any_of(schedule.loops.begin(), schedule.loops.end(),
                        [](const LoopDim& l) { return l.kind == LoopKind::kVectorized; }))
          return Refuse(fmt::format("{} has a vectorised loop already", step.stage));
        loop.kind = LoopKind::kVectorized;
        break;
      case StepKind::kParallel:
        if (IsReduction(stage, name)) return Refuse(fmt::format("{} is reduced over: workers would race", name));
        loop.kind = LoopKind::kParallel;
        loop.grain = step.factors[0];
        break;
      default: HONE_CHECK(!"an annotation");
    }
  }
  return {};
}

Result<void> ScheduleApplier::ComputeAt(const Step& step) {
  size_t stage = HONE_TRY(StageOf(step.stage)), consumer = HONE_TRY(StageOf(step.other));
  HONE_TRY(LoopOf(consumer, step.names[0]));
  if (result_.kernel.tensors[static_cast<size_t>(result_.kernel.stages[stage].output)].kind == TensorKind::kOutput)
    return Refuse(fmt::format("{} is an output: it is computed at the root", step.stage));
  if (consumer <= stage) return Refuse(fmt::format("{} does not come after {}", step.other, step.stage));
  result_.stages[stage].attach_stage = static_cast<int>(consumer);
  result_.stages[stage].attach_loop = step.names[0];
  return {};
}

Result<void> ScheduleApplier::Prefetch(const Step& step) {
  constexpr int64_t kFarthest = 1 << 20;
  const size_t stage = HONE_TRY(StageOf(step.stage));
  const TensorId tensor = FindTensor(result_.kernel, step.other);
  if (tensor < 0) return Refuse("there is no tensor " + step.other);
  if (!ReadsTensor(result_.kernel.stages[stage], tensor))
    return Refuse(fmt::format("{} does not read {}", step.stage, step.other));
  if (step.factors[0] > kFarthest)
    return Refuse(fmt::format("{} bytes ahead, at most {} are allowed", step.factors[0], kFarthest));
  result_.stages[stage].prefetches[step.other] = step.factors[0];
  return {};
}

Result<void> ScheduleApplier::Apply(const Step& step) {
  switch (step.kind) {
    case StepKind::kRewrite: return Rewrite(step);
    case StepKind::kInline: {
      size_t stage = HONE_TRY(StageOf(step.stage));
      return Rewritten(HONE_TRY(InlineStage(result_.kernel, static_cast<int>(stage))));
    }
    case StepKind::kCacheRead: return CacheRead(step);
    case StepKind::kRfactor: {
      size_t stage = HONE_TRY(StageOf(step.stage));
      return Rewritten(
          HONE_TRY(hone::Rfactor(result_.kernel, static_cast<int>(stage), step.other, step.factors[0], step.result)));
    }
    case StepKind::kSplit: return Split(step);
    case StepKind::kFuse: return Fuse(step);
    case StepKind::kReorder: return Reorder(step);
    case StepKind::kParallel:
    case StepKind::kVectorize:
    case StepKind::kUnroll: return Annotate(step);
    case StepKind::kComputeAt: return ComputeAt(step);
    case StepKind::kStore: {
      size_t stage = HONE_TRY(StageOf(step.stage));
      const Tensor& tensor = result_.kernel.tensors[static_cast<size_t>(result_.kernel.stages[stage].output)];
      if (tensor.kind == TensorKind::kOutput) return Refuse(step.stage + " is an output: it is stored in its operand");
      if (step.scope == Scope::kConst) HONE_TRY(CheckComputedFromConstant(stage));
      HONE_TRY(CheckLayout(stage, step.layout));
      result_.stages[stage].scope = step.scope;
      result_.stages[stage].layout = step.layout;
      return {};
    }
    case StepKind::kCacheWrite: {
      size_t stage = HONE_TRY(StageOf(step.stage));
      if (result_.kernel.stages[stage].reduction == Reduction::kNone)
        return Refuse(step.stage + " reduces nothing: it has no tile to keep");
      HONE_TRY(LoopOf(stage, step.names[0]));
      result_.stages[stage].promote_loop = step.names[0];
      return {};
    }
    case StepKind::kTail: {
      size_t stage = HONE_TRY(StageOf(step.stage));
      const Stage& s = result_.kernel.stages[stage];
      auto has = [&](const std::vector<Axis>& axes) {
        return std::any_of(axes.begin(), axes.end(), [&](const Axis& a) { return a.name == step.names[0]; });
      };
      if (!has(s.axes) && !has(s.reduce_axes))
        return Refuse(fmt::format("{} has no axis {}", step.stage, step.names[0]));
      if (step.tail == Tail::kShift && !has(s.axes))
        return Refuse("a reduction cannot shift: it would count elements twice");
      if (step.tail == Tail::kPeel) {
        auto axis = std::find_if(s.axes.begin(), s.axes.end(), [&](const Axis& a) { return a.name == step.names[0]; });
        if (axis == s.axes.end())
          return Refuse("a reduction cannot be peeled: what is left would start from nothing again");
        if (LowerExtent(result_.kernel, axis->extent) != UpperExtent(result_.kernel, axis->extent))
          return Refuse(fmt::format("{} is a dynamic size: how much is left to peel is not known", step.names[0]));
      }
      result_.stages[stage].tails[step.names[0]] = step.tail;
      return {};
    }
    case StepKind::kPrefetch: return Prefetch(step);
  }
  return Refuse("an unknown step");
}

Result<ScheduledKernel> ScheduleApplier::Finish() && {
  HONE_TRY(CheckScheduled(result_));
  return std::move(result_);
}

Result<ScheduledKernel> ApplySchedule(const Kernel& kernel, const Schedule& schedule) {
  ScheduleApplier applier(kernel);
  for (size_t i = 0; i < schedule.size(); ++i) {
    if (Result<void> applied = applier.Apply(schedule[i]); !applied)
      return std::move(applied).error().Context(fmt::format("step {} ({})", i + 1, PrintStep(schedule[i])));
  }
  return std::move(applier).Finish();
}

ScheduleBuilder::ScheduleBuilder(const Kernel& kernel)
    : kernel_(kernel), applier_(std::make_unique<ScheduleApplier>(kernel)) {}
ScheduleBuilder::~ScheduleBuilder() = default;

Result<void> ScheduleBuilder::Add(const Step& step) {
  Result<void> applied = applier_->Apply(step);
  if (applied) {
    schedule_.push_back(step);
    return {};
  }
  // It may have been half done.
  applier_ = std::make_unique<ScheduleApplier>(kernel_);
  for (const Step& before : schedule_) HONE_CHECK(applier_->Apply(before));
  return applied;
}

const ScheduledKernel& ScheduleBuilder::so_far() const { return applier_->so_far(); }
Result<ScheduledKernel> ScheduleBuilder::Finish() { return std::move(*applier_).Finish(); }

std::optional<int64_t> LoopTrips(const Kernel& kernel, const Stage& stage, const StageSchedule& schedule,
                                 const std::string& path) {
  for (const std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
    for (const Axis& axis : *axes)
      if (axis.name == path) return UpperExtent(kernel, axis.extent);
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
