// Contractions by instructions on tiles (codegen/instructions.h): a few tiles of rows and lanes of the sum stay in
// registers of their own while groups of steps of both operands pass by. The operand that has the output's contiguous
// axis gives the lanes, the other one the rows; a constant is brought into tiles by hone_pack, what is computed or
// comes as an operand is copied where its tiles do not lie as the instruction takes them. A sum leaves the registers
// for a block of the worker's own, from which the stage that finishes it goes on in vectors.
#include <algorithm>
#include <array>

#include "base/arithmetic.h"
#include "codegen/instructions.h"
#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr int64_t kSums = 4;       // tiles of the sum: two by two, or in a row where there is but one of the others
constexpr double kWorthIt = 0.25;  // the least share of what tiles compute that is not padding

class TileRule {
 public:
  TileRule(SchedulePlanner& planner, const Instruction& instruction, ContractionPair pair, Contraction contraction,
           int lanes_operand, AxisId rows, AxisId lanes, AxisId grouped)
      : planner_(planner),
        instruction_(instruction),
        meaning_(MeaningOf(instruction)),
        pair_(std::move(pair)),
        c_(std::move(contraction)),
        lanes_operand_(lanes_operand),
        rows_(rows),
        lanes_(lanes),
        grouped_(grouped) {}

  void Emit() {
    const int64_t row_tiles = CeilDiv(c_.extents[rows_], meaning_.rows);
    const int64_t lane_tiles = CeilDiv(c_.extents[lanes_], meaning_.lanes);
    const int64_t preferred = row_tiles == 1 ? 1 : lane_tiles == 1 ? std::min(row_tiles, kSums) : 2;
    std::vector<int64_t> options;
    for (int64_t rows : {1, 2, 4})
      if (rows <= row_tiles) options.push_back(rows);
    row_tiles_ = planner_.Choose(pair_.sum, {"tile_rows", "tiles of rows that are kept in registers at once"},
                                 std::move(options), preferred);
    lane_tiles_ = std::min(lane_tiles, kSums / row_tiles_);
    Bring(1 - lanes_operand_, rows_, false);
    Bring(lanes_operand_, lanes_, true);
    ScheduleOut();
    ScheduleSum();
  }

 private:
  std::string Name(AxisId axis) const { return planner_.StageNamed(pair_.sum).axis(axis).name; }
  std::string OutName(AxisId axis) const { return planner_.StageNamed(pair_.out).axis(axis).name; }

  // Whether tiles of the operand lie in memory as they are: rows anywhere, in each all of its steps.
  bool LiesInTiles(const AccessPattern& access, const Tensor& tensor, bool has_lanes) const {
    return !has_lanes && tensor.kind == TensorKind::kInput && access.IsPlain() && access.strides[grouped_] == 1 &&
           c_.extents[rows_] % (meaning_.rows * row_tiles_) == 0;
  }

  // An operand in the order of its tiles: a row of [groups × steps], or of [lanes × steps] in each group.
  void Bring(int operand, AxisId own, bool has_lanes) {
    const AccessPattern& access = c_.operands[operand];
    const Tensor tensor = planner_.kernel().tensors[access.tensor];
    const bool is_const = IsOfAConstant(planner_, access.tensor);
    if (!is_const && LiesInTiles(access, tensor, has_lanes)) return;
    if (!is_const && has_lanes && access.strides[own] == 1) {
      const int64_t panel = access.IsPlain() ? meaning_.lanes : 0;
      return CopyInterleaved(planner_, access, pair_.sum, grouped_, meaning_.steps, panel);
    }
    const int64_t width = has_lanes ? meaning_.lanes : meaning_.rows;
    const int64_t steps = has_lanes ? meaning_.steps : meaning_.depth();
    // A copy with zeros at its end, or around its windows, is computed where it is read; else it is one of the operand.
    std::string copy = tensor.name;
    const bool is_alone = tensor.kind == TensorKind::kIntermediate && !planner_.IsScheduled(copy) &&
                          planner_.StageNamed(copy).reduction == Reduction::kNone &&
                          ReadersOf(planner_.kernel(), access.tensor).size() == 1;
    const Scope scope = is_const ? Scope::kConst : Scope::kWorkspace;
    if (!is_alone) {
      copy = planner_.FreshName(tensor.name + "_tiles");
      HONE_CHECK(planner_.CacheRead(tensor.name, copy, pair_.sum, scope));
    }
    const Stage stage = planner_.StageNamed(copy);
    const std::optional<size_t> own_dimension = access.dimension[own];
    const size_t grouped = *access.dimension[grouped_];
    const bool in_blocks = access.IsPlain();
    std::vector<LayoutDim> layout, innermost;
    std::vector<std::string> order;
    for (size_t d = 0; d < stage.axes.size(); ++d) {
      if (d == grouped) continue;
      const std::string& name = stage.axes[d].name;
      order.push_back(name);
      if (in_blocks && d == own_dimension)
        layout.push_back(Quotient(name, width)), innermost.push_back(Remainder(name, width));
      else
        layout.push_back(Whole(name));
    }
    layout.push_back(Quotient(stage.axes[grouped].name, steps));
    innermost.push_back(Remainder(stage.axes[grouped].name, steps));
    layout.insert(layout.end(), innermost.begin(), innermost.end());
    planner_.Store(copy, scope, layout);
    const std::string along = stage.axes[grouped].name;
    const std::vector<std::string> task = order;
    int64_t tasks = 1;
    for (size_t d = 0; d < stage.axes.size(); ++d)
      if (d != grouped) tasks *= planner_.Extent(stage.axes[d]);
    const int64_t vector = std::min<int64_t>(steps, planner_.machine().Lanes(meaning_.step_bytes));
    planner_.Split(copy, along, {vector});
    order.push_back(along + ".0");
    order.push_back(along + ".1");
    planner_.Reorder(copy, order);
    if (!is_const && !task.empty())
      planner_.Parallelize(copy, task, tasks, static_cast<double>(tasks * CeilDiv(c_.extents[grouped_], vector)) * 4);
    planner_.Vectorize(copy, {along + ".1"});
    planner_.MarkScheduled(copy);
  }

  void ScheduleOut() {
    const std::string& out = pair_.out;
    std::vector<std::string> task, inside;
    int64_t tasks = 1;
    for (const std::vector<AxisId>* axes : {&c_.batch, &c_.only[1 - lanes_operand_], &c_.only[lanes_operand_]})
      for (AxisId axis : *axes) {
        if (axis == rows_ || axis == lanes_) continue;
        task.push_back(OutName(axis));
        tasks *= c_.extents[axis];
      }
    const std::string rows = OutName(rows_), lanes = OutName(lanes_);
    planner_.Split(out, lanes, {lane_tiles_, meaning_.lanes});
    planner_.Split(out, rows, {row_tiles_ * meaning_.rows});
    task.push_back(lanes + ".0");
    task.push_back(rows + ".0");
    tasks *= CeilDiv(c_.extents[lanes_], lane_tiles_ * meaning_.lanes) *
             CeilDiv(c_.extents[rows_], row_tiles_ * meaning_.rows);
    std::vector<std::string> order = task;
    order.insert(order.end(), {rows + ".1", lanes + ".1", lanes + ".2"});
    planner_.Reorder(out, order);
    const double products = static_cast<double>(c_.reduction) * static_cast<double>(tasks) *
                            static_cast<double>(row_tiles_ * meaning_.rows * lane_tiles_ * meaning_.lanes);
    const double per_cycle = instruction_.per_fma * planner_.machine().fma_per_cycle *
                             static_cast<double>(meaning_.rows * meaning_.lanes * meaning_.depth());
    out_task_ = planner_.Parallelize(out, task, tasks, products / per_cycle);
    planner_.Unroll(out, {lanes + ".1"});
    planner_.Vectorize(out, {lanes + ".2"});
    planner_.MarkScheduled(out);
  }

  void ScheduleSum() {
    const std::string& sum = pair_.sum;
    planner_.ComputeAt(sum, pair_.out, out_task_);
    const std::string rows = Name(rows_), lanes = Name(lanes_), grouped = Name(grouped_);
    std::vector<LayoutDim> layout;
    std::vector<std::string> order;
    for (const std::vector<AxisId>* axes : {&c_.batch, &c_.only[1 - lanes_operand_], &c_.only[lanes_operand_]})
      for (AxisId axis : *axes) {
        if (axis == rows_ || axis == lanes_) continue;
        layout.push_back(Whole(Name(axis)));
        order.push_back(Name(axis));
      }
    layout.insert(layout.end(), {Quotient(rows, meaning_.rows), Quotient(lanes, meaning_.lanes),
                                 Remainder(rows, meaning_.rows), Remainder(lanes, meaning_.lanes)});
    planner_.Store(sum, Scope::kPerWorker, layout);
    planner_.Split(sum, rows, {row_tiles_, meaning_.rows});
    planner_.Split(sum, lanes, {lane_tiles_, meaning_.lanes});
    planner_.Split(sum, grouped, {meaning_.groups, meaning_.steps});
    order.insert(order.end(), {rows + ".0", lanes + ".0"});
    const std::string tile_loop = order.back();
    for (AxisId axis : c_.reduce) order.push_back(axis == grouped_ ? grouped + ".0" : Name(axis));
    const std::vector<std::string> unrolled = {rows + ".1", lanes + ".1"};
    const std::vector<std::string> at_once = {grouped + ".1", rows + ".2", grouped + ".2", lanes + ".2"};
    order.insert(order.end(), unrolled.begin(), unrolled.end());
    order.insert(order.end(), at_once.begin(), at_once.end());
    planner_.Reorder(sum, order);
    planner_.RegisterTile(sum, tile_loop);
    planner_.Unroll(sum, unrolled);
    planner_.Tensorize(std::string(instruction_.name), sum, at_once);
    planner_.MarkScheduled(sum);
  }

  SchedulePlanner& planner_;
  const Instruction& instruction_;
  const InstructionMeaning& meaning_;
  const ContractionPair pair_;
  const Contraction c_;
  const int lanes_operand_;
  const AxisId rows_, lanes_, grouped_;
  int64_t row_tiles_ = 1, lane_tiles_ = 1;
  std::string out_task_;
};

AxisId Longest(const Contraction& c, const std::vector<AxisId>& axes) {
  AxisId longest;
  for (AxisId axis : axes)
    if (!longest || c.extents[axis] >= c.extents[longest]) longest = axis;
  return longest;
}

double InUse(int64_t extent, int64_t tile) {
  return static_cast<double>(extent) / static_cast<double>(RoundUp(extent, tile));
}

// What the output's contiguous axis makes of the operands.
struct Roles {
  int lanes_operand = 0;
  AxisId rows, lanes, grouped;
};

std::optional<Roles> RolesFor(const SchedulePlanner& planner, const Contraction& c, const InstructionMeaning& meaning) {
  const Kernel& kernel = planner.kernel();
  const Stage& stage = planner.StageNamed(c.stage);
  Roles roles;
  roles.lanes = c.contiguous;
  const auto has = [&](int v) { return std::find(c.only[v].begin(), c.only[v].end(), roles.lanes) != c.only[v].end(); };
  if (!has(0) && !has(1)) return std::nullopt;
  roles.lanes_operand = has(0) ? 0 : 1;
  roles.rows = Longest(c, c.only[1 - roles.lanes_operand]);
  roles.grouped = GroupedAxis(planner, c, meaning.depth());
  if (!roles.rows || !roles.grouped) return std::nullopt;
  const AccessPattern& lanes = c.operands[roles.lanes_operand];
  const AccessPattern& rows = c.operands[1 - roles.lanes_operand];
  if (kernel.tensors[rows.tensor].dtype != meaning.operands[0] ||
      kernel.tensors[lanes.tensor].dtype != meaning.operands[1])
    return std::nullopt;
  for (int v : {0, 1})
    if (kernel.tensors[c.operands[v].tensor].is_const && !c.operands[v].IsPlain()) return std::nullopt;
  for (AxisId axis : stage.axis_ids())
    if (LowerExtent(kernel, stage.axis(axis).extent) != UpperExtent(kernel, stage.axis(axis).extent))
      return std::nullopt;
  return roles;
}

// The share of what tiles compute that is not padding.
double ShareInUse(const Contraction& c, const InstructionMeaning& meaning, const Roles& roles) {
  return InUse(c.extents[roles.rows], meaning.rows) * InUse(c.extents[roles.lanes], meaning.lanes) *
         InUse(c.extents[roles.grouped], meaning.depth());
}

// Of windows lanes lie side by side in a copy if nothing is left out between them, and else in the columns of im2col.
bool WantsColumns(const Contraction& c, const Roles& roles) {
  const AccessPattern& lanes = c.operands[roles.lanes_operand];
  return !lanes.IsPlain() && lanes.strides[roles.lanes] != 1;
}

// A stage whose only reader, if there is any, is a copy of it: computed there.
void Absorb(SchedulePlanner& planner, const std::string& tensor) {
  if (!FindStage(planner.kernel(), tensor) || planner.IsScheduled(tensor)) return;
  const Stage& stage = planner.StageNamed(tensor);
  if (stage.reduction == Reduction::kNone && ReadersOf(planner.kernel(), stage.output).size() <= 1)
    planner.Inline(tensor);
}

// The names of both factors' tensors.
std::array<std::string, 2> FactorsOf(const SchedulePlanner& planner, const Contraction& c) {
  return {planner.kernel().tensors[c.operands[0].tensor].name, planner.kernel().tensors[c.operands[1].tensor].name};
}

}  // namespace

bool ScheduleOnTiles(SchedulePlanner& planner, const Contraction& contraction) {
  const std::string name = contraction.stage;
  if (!IsProductOfElements(planner.StageNamed(name))) return false;
  for (const Instruction* instruction : planner.machine().instructions) {
    const InstructionMeaning& meaning = MeaningOf(*instruction);
    if (!meaning.is_on_tiles() || planner.kernel().tensors[planner.StageNamed(name).output].dtype != meaning.sum)
      continue;
    std::optional<Roles> roles = RolesFor(planner, contraction, meaning);
    if (!roles) continue;
    if (!planner.ChooseIf(name, {"on_tiles", "an instruction multiplies tiles in registers of their own"},
                          ShareInUse(contraction, meaning, *roles) >= kWorthIt))
      return false;
    Contraction fitted = contraction;
    if (WantsColumns(fitted, *roles)) {
      const std::string windows = FactorsOf(planner, fitted)[static_cast<size_t>(roles->lanes_operand)];
      if (!MakeColumns(planner, fitted, roles->lanes_operand)) return false;
      Absorb(planner, windows);
      fitted = *AnalyzeContraction(planner, name);
      roles = RolesFor(planner, fitted, meaning);
      if (!roles || WantsColumns(fitted, *roles)) return false;
    }
    if (fitted.extents[roles->grouped] % meaning.depth() != 0) {
      const std::array<std::string, 2> factors = FactorsOf(planner, fitted);
      std::vector<std::string> names = {planner.StageNamed(name).axis(roles->grouped).name,
                                        planner.FreshName(factors[0] + "_groups"),
                                        planner.FreshName(factors[1] + "_groups")};
      if (!planner.Rewrite({"pad_reduction", name, std::move(names), {meaning.depth()}})) return false;
      for (const std::string& factor : factors) Absorb(planner, factor);
    }
    const std::optional<ContractionPair> pair = FindPair(planner, name);
    if (!pair) return false;
    fitted = *AnalyzeContraction(planner, pair->sum);
    TileRule(planner, *instruction, *pair, fitted, roles->lanes_operand, roles->rows, roles->lanes, roles->grouped)
        .Emit();
    planner.Took("contraction", name, instruction->name);
    return true;
  }
  return false;
}

}  // namespace hone
