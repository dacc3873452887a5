// Contractions by instructions that sum several products in a lane (codegen/instructions.h). Groups of steps of the
// reduction take the place of steps; everything else is as the rule for contractions has it. Both operands are brought
// into an order in which a group lies side by side: a constant by hone_pack, the other one by a copy where it is not.
#include <algorithm>

#include "base/arithmetic.h"
#include "codegen/instructions.h"
#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr double kMostPadding = 2;  // groups may come to so many times the steps that there are

DType OtherSign(DType type) { return type == DType::kI8 ? DType::kU8 : type == DType::kU8 ? DType::kI8 : type; }

bool Takes(const InstructionMeaning& meaning, DType a, DType b) {
  return (a == meaning.operands[0] && b == meaning.operands[1]) ||
         (b == meaning.operands[0] && a == meaning.operands[1]);
}

// The contraction in groups.
void InGroups(Contraction& c, const InstructionUse& use) {
  const InstructionMeaning& meaning = MeaningOf(*use.instruction);
  c.use = use;
  c.group = meaning.steps;
  c.lanes = static_cast<int>(meaning.lanes);
  c.element_bytes = meaning.steps * meaning.step_bytes;
  int64_t& extent = c.extents[use.grouped];
  c.reduction /= extent;
  extent = CeilDiv(extent, meaning.steps);
  c.reduction *= extent;
}

struct Fitting {
  InstructionUse use;
  bool shifts = false;  // the sign of the operand that is not packed
};

// The target's fastest instruction that does this sum; of equals one that needs no other sign, then the first.
std::optional<Fitting> FindInstruction(const SchedulePlanner& planner, const Contraction& c) {
  const Kernel& kernel = planner.kernel();
  const Stage& stage = planner.StageNamed(c.stage);
  if (!IsProductOfElements(stage)) return std::nullopt;
  std::optional<Fitting> best;
  auto is_better = [&](const Fitting& fitting) {
    if (!best) return true;
    const double rate = RateOf(*fitting.use.instruction), most = RateOf(*best->use.instruction);
    return rate != most ? rate > most : best->shifts && !fitting.shifts;
  };
  for (const Instruction* instruction : planner.machine().instructions) {
    const InstructionMeaning& meaning = MeaningOf(*instruction);
    if (meaning.is_on_tiles()) continue;  // schedule_on_tiles.cc
    if (kernel.tensors[stage.output].dtype != meaning.sum || stage.body.type() != meaning.sum) continue;
    for (int packed : {1, 0}) {
      if (!IsOfAConstant(planner, c.operands[packed].tensor)) continue;
      const DType constant = kernel.tensors[c.operands[packed].tensor].dtype;
      const DType other = kernel.tensors[c.operands[1 - packed].tensor].dtype;
      const std::optional<bool> shifts = ShiftsToFit(meaning, other, constant);
      if (!shifts) continue;
      const std::optional<int> windows = IsFloat(meaning.sum) ? std::nullopt : std::optional<int>(1 - packed);
      const Fitting fitting{{instruction, packed, GroupedAxis(planner, c, meaning.steps, windows)}, *shifts};
      if (!fitting.use.grouped || !is_better(fitting)) continue;
      Contraction grouped = c;
      InGroups(grouped, fitting.use);
      if (!RegisterTiles(planner, grouped).empty()) best = fitting;
    }
  }
  return best;
}

}  // namespace

std::optional<bool> ShiftsToFit(const InstructionMeaning& meaning, DType other, DType constant) {
  if (Takes(meaning, other, constant)) return false;
  if (Takes(meaning, OtherSign(other), constant)) return true;
  return std::nullopt;
}

double RateOf(const Instruction& instruction) {
  const InstructionMeaning& meaning = MeaningOf(instruction);
  return instruction.per_fma * static_cast<double>(meaning.rows * meaning.lanes * meaning.depth());
}

bool IsProductOfElements(const Stage& stage) {
  const Expr& body = stage.body;
  return body.op() == Op::kMul && std::all_of(body.args().begin(), body.args().end(), [](const Expr& factor) {
           return factor.op() == Op::kCast && factor.arg(0).op() == Op::kLoad;
         });
}

AxisId GroupedAxis(const SchedulePlanner& planner, const Contraction& c, int64_t group, std::optional<int> windows) {
  const Stage& stage = planner.StageNamed(c.stage);
  auto is_read_so = [&](int operand, AxisId axis) {
    const AccessPattern& access = c.operands[operand];
    if (access.dimension[axis]) return true;
    // In place, so it has to be a copy that goes on behind its end (pad_reduction). A window that is used once, as of a
    // depthwise convolution, is another rule's (schedule_window_instruction.cc).
    return operand == windows && access.strides[axis] == 1 && c.extents[axis] % group != 0 &&
           std::ranges::any_of(c.only[1 - operand], [&](AxisId own) { return c.extents[own] > 1; });
  };
  auto padding = [&](AxisId axis) {  // times the steps that there are
    return static_cast<double>(RoundUp(c.extents[axis], group)) / static_cast<double>(c.extents[axis]);
  };
  AxisId best;
  for (AxisId axis : c.reduce) {
    const Expr& extent = stage.axis(axis).extent;
    if (!is_read_so(0, axis) || !is_read_so(1, axis) || padding(axis) > kMostPadding) continue;
    if (LowerExtent(planner.kernel(), extent) != UpperExtent(planner.kernel(), extent)) continue;
    const bool is_longer = best && c.extents[axis] > c.extents[best];
    if (!best || (windows && padding(axis) != padding(best) ? padding(axis) < padding(best) : is_longer)) best = axis;
  }
  return best;
}

double GroupPadding(const SchedulePlanner& planner, const Contraction& c) {
  const std::optional<Fitting> fitting = FindInstruction(planner, c);
  if (!fitting) return 1;
  const int64_t steps = c.extents[fitting->use.grouped];
  return static_cast<double>(RoundUp(steps, MeaningOf(*fitting->use.instruction).steps)) / static_cast<double>(steps);
}

std::optional<GroupedSum> MakeGroups(SchedulePlanner& planner, const std::string& name, AxisId grouped, int packed,
                                     int64_t group, bool shifts) {
  auto tensor_of = [&](int operand) {
    const Expr& load = planner.StageNamed(name).body.arg(static_cast<size_t>(operand)).arg(0);
    return planner.kernel().tensors[load.tensor()].name;
  };
  // An element-wise stage that only the copy of it reads, or nobody any more, is computed there.
  auto absorb = [&](const std::string& producer) {
    if (!FindStage(planner.kernel(), producer) || planner.IsScheduled(producer)) return;
    const Stage& stage = planner.StageNamed(producer);
    if (stage.reduction == Reduction::kNone && ReadersOf(planner.kernel(), stage.output).size() <= 1)
      planner.Inline(producer);
  };
  const Axis axis = planner.StageNamed(name).axis(grouped);
  if (planner.Extent(axis) % group != 0) {
    const std::string tensors[2] = {tensor_of(0), tensor_of(1)};
    const std::string copies[2] = {planner.FreshName(tensors[0] + "_groups"),
                                   planner.FreshName(tensors[1] + "_groups")};
    if (!planner.Rewrite({"pad_reduction", name, {axis.name, copies[0], copies[1]}, {group}})) return std::nullopt;
    for (const std::string& tensor : tensors) absorb(tensor);
  }
  GroupedSum result{name, ""};
  if (!shifts) return result;
  const std::string operand = tensor_of(1 - packed);
  const std::string products = planner.FreshName(name + "_products"), correction = planner.FreshName(name + "_shift");
  if (!planner.Rewrite({"shift_sign", name, {operand, planner.FreshName(operand + "_shifted"), products, correction}}))
    return result;
  absorb(operand);
  if (!planner.FinishingStage(name).empty()) planner.Inline(name);
  return GroupedSum{products, correction};
}

void ScheduleCorrection(SchedulePlanner& planner, const std::string& name) {
  if (name.empty()) return;
  const Stage correction = planner.StageNamed(name);
  planner.Store(name, Scope::kConst);
  if (!correction.axes.empty()) planner.RegisterTile(name, correction.axes.back().name);
  planner.MarkScheduled(name);
}

Contraction UseInstruction(SchedulePlanner& planner, Contraction contraction) {
  const std::optional<Fitting> fitting = FindInstruction(planner, contraction);
  if (!fitting ||
      !planner.ChooseIf(contraction.stage, {"instruction", "an instruction sums several products in a lane"}, true))
    return contraction;
  const InstructionUse& use = fitting->use;
  const int64_t group = MeaningOf(*use.instruction).steps;
  const std::optional<GroupedSum> grouped =
      MakeGroups(planner, contraction.stage, use.grouped, use.packed, group, fitting->shifts);
  if (!grouped) return contraction;
  std::optional<Contraction> fitted = AnalyzeContraction(planner, grouped->sum);
  HONE_CHECK(fitted.has_value());
  fitted->correction = grouped->correction;
  InGroups(*fitted, use);
  planner.Took("instruction", grouped->sum, use.instruction->name);
  return *std::move(fitted);
}

// ---- ContractionRule

// [axis / width, the rest, the grouped axis / group in its place, axis % width, grouped axis % group]
std::vector<LayoutDim> ContractionRule::GroupedLayout(const std::vector<std::string>& names,
                                                      const AccessPattern& access, AxisId axis, int64_t width) const {
  std::vector<LayoutDim> layout, innermost;
  std::vector<bool> placed(names.size());
  auto place = [&](AxisId axis, int64_t factor) {
    const std::optional<size_t> dimension = access.dimension[axis];
    if (!dimension || placed[*dimension]) return;
    const std::string& name = names[*dimension];
    placed[*dimension] = true;
    layout.push_back(factor > 1 ? Quotient(name, factor) : Whole(name));
    if (factor > 1) innermost.push_back(Remainder(name, factor));
  };
  if (width > 1) place(axis, width);
  for (const std::vector<AxisId>* axes : {&c_.batch, &c_.only[0], &c_.only[1], &c_.reduce})
    for (AxisId other : *axes) place(other, other == c_.use.grouped ? c_.group : 1);
  for (size_t d = 0; d < names.size(); ++d)
    if (!placed[d]) layout.insert(layout.begin(), Whole(names[d]));
  layout.insert(layout.end(), innermost.begin(), innermost.end());
  return layout;
}

// The constant, ahead of time: a group is moved at once. Vectors are read of it, or its rows.
void ContractionRule::PackGroups() {
  const AccessPattern& access = c_.operands[c_.use.packed];
  const bool is_rows = c_.use.packed != tile_.vector_operand;
  row_is_packed_const_ = is_rows;
  const Tensor tensor = planner_.kernel().tensors[access.tensor];
  const std::string name = tensor.name, copy = planner_.FreshName(name + "_panel");
  const std::string grouped = Name(c_.use.grouped);
  const std::vector<std::string> names = planner_.CopyAxes(name, pair_.sum);
  const std::vector<LayoutDim> layout = is_rows ? GroupedLayout(names, access, tile_.row_axis[1], tile_.rows[1])
                                                : GroupedLayout(names, access, tile_.vector_axis, width_);
  HONE_CHECK(CacheReadConst(name, copy, layout));  // of one with zeros at its end, too
  std::vector<std::string> order;
  for (const Axis& axis : planner_.StageNamed(copy).axes)
    if (axis.name != grouped) order.push_back(axis.name);
  planner_.Split(copy, grouped, {c_.group});
  order.push_back(grouped + ".0");
  order.push_back(grouped + ".1");
  planner_.Reorder(copy, order);
  planner_.Vectorize(copy, {grouped + ".1"});
  planner_.MarkScheduled(copy);
  if (!is_rows && planner_.Bytes(access.tensor) > planner_.machine().l2_bytes / 8) streamed_ = copy;
  ScheduleCorrection(planner_, c_.correction);
}

// The other operand, where a group of it does not lie side by side.
void ContractionRule::CopyGroups() {
  const AccessPattern& access = c_.operands[1 - c_.use.packed];
  if (access.strides[c_.use.grouped] == 1) {
    // Windows are read of the copy that was made for them.
    const std::string name = planner_.kernel().tensors[access.tensor].name;
    if (!access.dimension[c_.use.grouped] && !planner_.IsScheduled(name)) ScheduleElementwise(planner_, name);
    return;
  }
  row_is_total_ = true;
  const bool in_panels = c_.use.packed != tile_.vector_operand && access.IsPlain();
  CopyInterleaved(planner_, access, pair_.sum, c_.use.grouped, c_.group, in_panels ? width_ : 0);
}

// Vectors along what is contiguous go through registers, whatever makes them of the operand.
void CopyInterleaved(SchedulePlanner& planner, const AccessPattern& access, const std::string& reader,
                     AxisId grouped_axis, int64_t group, int64_t panel) {
  const Tensor tensor = planner.kernel().tensors[access.tensor];
  const std::string copy = planner.FreshName(tensor.name + "_interleaved");
  HONE_CHECK(planner.CacheRead(tensor.name, copy, reader, Scope::kWorkspace));
  std::string rows = tensor.name;
  const bool is_alone = tensor.kind == TensorKind::kIntermediate && !planner.IsScheduled(rows) &&
                        planner.StageNamed(rows).reduction == Reduction::kNone &&
                        ReadersOf(planner.kernel(), access.tensor).size() == 1;
  if (!is_alone) {
    rows = planner.FreshName(tensor.name + "_rows");
    HONE_CHECK(planner.CacheRead(tensor.name, rows, copy, Scope::kWorkspace));
  }
  const Stage stage = planner.StageNamed(copy), source = planner.StageNamed(rows);
  const size_t grouped = *access.dimension[grouped_axis];
  const size_t last = stage.axes.size() - 1;
  std::vector<LayoutDim> layout;
  if (panel > 0) layout.push_back(Quotient(stage.axes[last].name, panel));
  for (size_t d = 0; d < last; ++d)
    layout.push_back(d == grouped ? Quotient(stage.axes[d].name, group) : Whole(stage.axes[d].name));
  layout.push_back(panel > 0 ? Remainder(stage.axes[last].name, panel) : Whole(stage.axes[last].name));
  layout.push_back(Remainder(stage.axes[grouped].name, group));
  planner.Store(copy, Scope::kWorkspace, layout);

  const int64_t extent = planner.Extent(stage.axes[last]);
  const int64_t lanes = std::min<int64_t>(planner.machine().Lanes(4), BitCeil(extent));
  const std::string along = stage.axes[last].name, across = stage.axes[grouped].name;
  planner.Split(copy, across, {group});
  planner.Split(copy, along, {lanes});
  std::vector<std::string> order;
  int64_t tasks = 1;
  for (size_t d = 0; d < last; ++d) {
    order.push_back(d == grouped ? across + ".0" : stage.axes[d].name);
    tasks *= d == grouped ? CeilDiv(planner.Extent(stage.axes[d]), group) : planner.Extent(stage.axes[d]);
  }
  const std::vector<std::string> task = order;
  order.insert(order.end(), {along + ".0", along + ".1", across + ".1"});
  planner.Reorder(copy, order);
  planner.Fuse(copy, {along + ".1", across + ".1"});
  constexpr double kCyclesOfAVector = 8;
  planner.Parallelize(copy, task, tasks, static_cast<double>(tasks * CeilDiv(extent, lanes)) * kCyclesOfAVector);
  planner.Vectorize(copy, {along + ".1+" + across + ".1"});
  planner.MarkScheduled(copy);

  planner.ComputeAt(rows, copy, along + ".0");
  planner.Store(rows, Scope::kRegisters);
  order.clear();
  for (size_t d = 0; d < last; ++d) order.push_back(source.axes[d].name);
  planner.Unroll(rows, order);
  planner.Vectorize(rows, {source.axes[last].name});
  planner.MarkScheduled(rows);
}

}  // namespace hone
