// Windows of bytes without reuse across channels, as of depthwise convolutions, by instructions that sum several
// products in a lane (codegen/instructions.h): those of a window's row. The lanes' groups overlap in memory as the
// windows do. The row is padded with weights of zero to whole groups, and the plane copied with its margin, per task.
#include <algorithm>

#include "base/arithmetic.h"
#include "codegen/instructions.h"
#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr int64_t kMostUnrolledVectors = 8;  // of a row that is copied
constexpr int64_t kMostProducts = 64;        // of a tile: the code stays within a few hundred instructions

struct WindowUse {
  const Instruction* instruction = nullptr;
  AxisId grouped;  // along the window's row
  int data = 0;    // the operand that is read in windows; the other one is constant
  bool shifts = false;
};

// The operand that windows of this row are read of: lanes and steps move along it, and a step is one element.
bool ReadsWindows(const Stage& stage, const AccessPattern& data, const AccessPattern& weights, AxisId row,
                  int64_t steps) {
  const AxisId last = stage.last_axis();
  return data.affine && data.strides[last] >= 1 && data.strides[last] <= steps && data.strides[row] == 1 &&
         !data.dimension[row] && weights.dimension[row] && !weights.uses[last];
}

// Whether the length of a row is known: it is padded.
bool HasFixedRows(const Kernel& kernel, TensorId tensor) {
  const Expr& extent = kernel.tensors[tensor].shape.back();
  return LowerExtent(kernel, extent) == UpperExtent(kernel, extent);
}

std::optional<WindowUse> FindWindowInstruction(const SchedulePlanner& planner, const Stage& stage) {
  const Kernel& kernel = planner.kernel();
  if (stage.reduction != Reduction::kSum || !IsProductOfElements(stage)) return std::nullopt;
  const std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  if (accesses.size() != 2) return std::nullopt;
  std::optional<WindowUse> best;
  for (const Instruction* instruction : planner.machine().instructions) {
    const InstructionMeaning& meaning = MeaningOf(*instruction);
    if (meaning.is_on_tiles() || IsFloat(meaning.sum) || kernel.tensors[stage.output].dtype != meaning.sum ||
        stage.body.type() != meaning.sum)
      continue;
    for (int data : {0, 1}) {
      const AccessPattern &windows = accesses[static_cast<size_t>(data)],
                          &weights = accesses[static_cast<size_t>(1 - data)];
      if (!IsOfAConstant(planner, weights.tensor) || !HasFixedRows(kernel, windows.tensor)) continue;
      const std::optional<bool> shifts =
          ShiftsToFit(meaning, kernel.tensors[windows.tensor].dtype, kernel.tensors[weights.tensor].dtype);
      const double rate = RateOf(*instruction), known = best ? RateOf(*best->instruction) : 0;
      if (!shifts || rate < known || (rate == known && *shifts >= best->shifts)) continue;
      for (AxisId row : stage.reduce_ids())
        if (ReadsWindows(stage, windows, weights, row, meaning.steps) &&
            planner.Extent(stage, row) % meaning.steps != 0)
          best = {instruction, row, data, *shifts};
    }
  }
  return best;
}

// The plane with its margin: rows of bytes in whole registers, unrolled, so that masks are constants. `least`: bytes of
// a row that lanes read.
void SchedulePlane(SchedulePlanner& planner, const std::string& name, int64_t least) {
  const Stage& stage = planner.StageNamed(name);
  const std::string last = stage.axes.back().name;
  const int64_t bytes = std::max(planner.Extent(stage.axes.back()), least);
  const int64_t most = planner.machine().has_mask_registers ? planner.machine().Lanes(1) : planner.LanesFor(stage);
  const int64_t lanes = std::min(most, BitCeil(bytes));
  planner.Split(name, last, {std::min(CeilDiv(bytes, lanes), kMostUnrolledVectors), lanes});
  planner.Unroll(name, {last + ".1"});
  planner.Vectorize(name, {last + ".2"});
  planner.MarkScheduled(name);
}

}  // namespace

bool ScheduleWindowOfBytes(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  if (stage.axes.empty() || stage.reduce_axes.empty()) return false;
  const std::optional<WindowUse> use = FindWindowInstruction(planner, stage);
  if (!use) return planner.Refuse("window_of_bytes", name, "no instruction sums products of its windows' rows");
  const InstructionMeaning& meaning = MeaningOf(*use->instruction);
  int64_t products = 1;
  for (AxisId axis : stage.reduce_ids())
    products *= CeilDiv(planner.Extent(stage, axis), axis == use->grouped ? meaning.steps : 1);
  if (products > kMostProducts) return planner.Refuse("window_of_bytes", name, "the window is large");
  const std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  const AxisId last = stage.last_axis();
  const int64_t extent = planner.Extent(stage, last), stride = accesses[static_cast<size_t>(use->data)].strides[last];
  // Where most lanes would do nothing, or masks are no registers of their own, vectors of products are faster.
  const bool pays = planner.machine().has_mask_registers && (2 * extent > meaning.lanes || stride > 1);
  if (!planner.ChooseIf(name, {"instruction", "an instruction sums several products in a lane"}, pays))
    return planner.Refuse("window_of_bytes", name, "products in vectors of their own are faster here");

  // Rows of the output share what is loaded for a window of many, where they have the same weights.
  const size_t rank = stage.axes.size();
  const AxisId row(static_cast<int>(rank) - 2);
  const bool has_rows = rank >= 2 && !accesses[static_cast<size_t>(1 - use->data)].uses[row];
  const int64_t row_extent = has_rows ? planner.Extent(stage, row) : 1;
  const int64_t registers = planner.machine().vector_registers;
  const int64_t most = std::min({row_extent, registers / 4, std::max<int64_t>(1, kMostProducts / products)});
  std::vector<int64_t> options;
  for (int64_t rows = 1; rows <= std::min(row_extent, registers / 2); ++rows) options.push_back(rows);
  const int64_t rows = planner.Choose(name, kRows, std::move(options), CeilDiv(row_extent, CeilDiv(row_extent, most)));

  const std::optional<GroupedSum> grouped =
      MakeGroups(planner, name, use->grouped, 1 - use->data, meaning.steps, use->shifts);
  if (!grouped) return planner.Refuse("window_of_bytes", name, "its windows cannot be padded to whole groups");
  ScheduleCorrection(planner, grouped->correction);
  auto operand = [&](int which) {
    const Expr& factor = planner.StageNamed(grouped->sum).body.arg(static_cast<size_t>(which));
    return planner.kernel().tensors[factor.arg(0).tensor()].name;
  };
  const std::string plane = operand(use->data), weights = operand(1 - use->data);
  // Whatever else reads the padded weights, as a correction does, reads the operand.
  const std::string packed = planner.FreshName(weights + "_panel");
  HONE_CHECK(planner.CacheRead(weights, packed, grouped->sum, Scope::kWorkspace) && planner.Inline(weights));
  planner.Store(packed, Scope::kConst);
  planner.MarkScheduled(packed);
  const std::optional<ContractionPair> pair = FindPair(planner, grouped->sum);
  HONE_CHECK(pair.has_value());
  const Stage part = planner.StageNamed(pair->sum), result = planner.StageNamed(pair->out);

  const std::string w = result.axis(last).name;
  std::vector<std::string> outer, order;
  int64_t tasks = 1;
  double points = 1;
  for (AxisId axis : result.spatial_ids()) points *= static_cast<double>(planner.Extent(result, axis));
  for (size_t i = 0; i + (has_rows ? 2 : 1) < rank; ++i) {
    outer.push_back(result.axes[i].name);
    tasks *= planner.Extent(result.axes[i]);
  }
  order = outer;
  planner.Split(pair->out, w, {meaning.lanes});
  if (extent > meaning.lanes && extent % meaning.lanes != 0) planner.SetTail(pair->out, w, Tail::kShift);
  std::vector<std::string> unrolled;
  if (has_rows) {
    const std::string h = result.axis(row).name;
    planner.Split(pair->out, h, {rows});
    if (row_extent % rows != 0) planner.SetTail(pair->out, h, Tail::kShift);
    order.push_back(h + ".0");
    unrolled.push_back(h + ".1");
  }
  order.push_back(w + ".0");
  if (outer.empty()) {
    outer.push_back(order[0]);
    tasks = has_rows ? CeilDiv(row_extent, rows) : CeilDiv(extent, meaning.lanes);
  }
  const std::string tile = order.back();
  order.insert(order.end(), unrolled.begin(), unrolled.end());
  order.push_back(w + ".1");
  planner.Reorder(pair->out, order);
  const std::string task = planner.Parallelize(
      pair->out, outer, tasks, points * static_cast<double>(products + 8) / static_cast<double>(meaning.lanes));
  planner.Unroll(pair->out, unrolled);
  planner.Vectorize(pair->out, {w + ".1"});
  planner.MarkScheduled(pair->out);

  planner.ComputeAt(pair->sum, pair->out, tile == outer.back() ? task : tile);
  planner.Store(pair->sum, Scope::kRegisters);
  const std::string steps = part.axis(use->grouped).name, lanes = part.axis(last).name;
  planner.Split(pair->sum, steps, {meaning.steps});
  planner.Split(pair->sum, lanes, {meaning.lanes});
  std::vector<std::string> loops;
  for (AxisId axis : part.reduce_ids()) loops.push_back(part.axis(axis).name + (axis == use->grouped ? ".0" : ""));
  for (AxisId axis : part.spatial_ids()) loops.push_back(part.axis(axis).name + (axis == last ? ".0" : ""));
  std::vector<std::string> all = loops;
  all.insert(all.end(), {steps + ".1", lanes + ".1"});
  planner.Reorder(pair->sum, all);
  planner.Unroll(pair->sum, loops);
  planner.Tensorize(std::string(use->instruction->name), pair->sum, {steps + ".1", lanes + ".1"});
  planner.MarkScheduled(pair->sum);

  planner.ComputeAt(plane, pair->out, task);
  SchedulePlane(planner, plane, (meaning.lanes - 1) * stride + meaning.steps);
  planner.Took("window_of_bytes", name, use->instruction->name);
  return true;
}

}  // namespace hone
