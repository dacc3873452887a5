#include "codegen/rules/gpu_loops.h"

#include <algorithm>
#include <vector>

#include "base/arithmetic.h"
#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/row_group.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr int64_t kMostRows = 8;
constexpr int64_t kFewestLanes = 4;  // that are computed with as a vector
constexpr int64_t kPaysFrom = 16;    // readings of an element, each way of copying it counted as one

int64_t LargestPower(int64_t most) { return BitCeil(most + 1) / 2; }  // of two

// Whether what the columns depend on is computed here, and so has room for what lies beyond the last one: an operand
// has not, and each of its elements would be read under a condition of its own.
bool HasRoomBeyond(const SchedulePlanner& planner, const Stage& stage, AxisId x) {
  return std::ranges::all_of(planner.AccessesOf(stage), [&](const AccessPattern& access) {
    return !access.uses[x] || planner.kernel().tensors[access.tensor].kind == TensorKind::kIntermediate;
  });
}

const AccessPattern* AccessAlong(const std::vector<AccessPattern>& accesses, AxisId x) {
  const AccessPattern* found = nullptr;
  for (const AccessPattern& access : accesses) {
    if (!access.uses[x]) continue;
    if (found != nullptr) return nullptr;
    found = &access;
  }
  return found;
}

}  // namespace

Panels PanelsFor(const SchedulePlanner& planner, const Stage& stage, AxisId x) {
  const std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  const AccessPattern* access = AccessAlong(accesses, x);
  if (access == nullptr || !access->affine || !access->IsPlain() || !access->dimension[x]) return {};
  const Tensor& tensor = planner.kernel().tensors[access->tensor];
  if (tensor.kind != TensorKind::kInput) return {};
  int64_t readings = 1;
  for (AxisId axis : stage.spatial_ids())
    if (!access->uses[axis]) readings *= planner.Extent(stage, axis);
  Panels panels{tensor.name, tensor.is_const};
  const int64_t width = planner.Extent(stage, x), lanes = planner.machine().lanes;
  const bool is_in_vectors = access->strides[x] == 1 && (width <= 2 * lanes || width % (lanes / 2) == 0);
  panels.is_preferred = tensor.is_const || (readings >= kPaysFrom && !is_in_vectors);
  return panels;
}

ThreadTile TileOfLoops(const SchedulePlanner& planner, const Stage& stage, AxisId x, AxisId y, bool has_panels) {
  const int64_t width = planner.Extent(stage, x), height = y ? planner.Extent(stage, y) : 1;
  const int64_t lanes = planner.machine().lanes;
  const bool has_room = has_panels || HasRoomBeyond(planner, stage, x);
  // Of so many elements: shorter ones, and then numbers, of what is left.
  const auto vectors = [&](int64_t elements) {
    int64_t count = elements / lanes;
    for (int64_t shorter = lanes / 2; shorter >= kFewestLanes; shorter /= 2) count += elements / shorter % 2;
    return count + elements % kFewestLanes;
  };
  const auto of_row = [&](int64_t columns) { return CeilDiv(width, columns) * vectors(std::min(columns, width)); };
  ThreadTile tile{.x = x, .y = y, .columns = 0};
  for (int64_t columns = std::min(2 * lanes, BitCeil(width)); columns >= kFewestLanes; columns /= 2)
    if ((has_room || columns >= width || width % columns == 0) &&
        (tile.columns == 0 || of_row(columns) < of_row(tile.columns)))
      tile.columns = columns;
  if (tile.columns == 0) tile.columns = std::min(lanes, LargestPower(width));
  tile.rows = std::min<int64_t>(
      {kMostRows, LargestPower(height), planner.machine().vector_registers / 2 / CeilDiv(tile.columns, lanes)});
  while (tile.rows > kMostRows / 2 && height % tile.rows != 0) tile.rows /= 2;
  return tile;
}

void CopyPanels(SchedulePlanner& planner, const Panels& panels, const std::string& reader, AxisId x, int64_t columns) {
  const Stage stage = planner.StageNamed(reader);
  const std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  const AccessPattern* access = AccessAlong(accesses, x);
  const std::vector<std::string> names = planner.CopyAxes(panels.tensor, reader);
  if (access == nullptr || names.empty()) return;
  const size_t split = *access->dimension[x];
  // [other outputs, panel, steps, column]
  std::vector<size_t> outer, inner;
  for (AxisId axis : stage.axis_ids())
    if (const std::optional<size_t> d = access->dimension[axis]; d && *d != split)
      (stage.Reduces(axis) ? inner : outer).push_back(*d);
  std::vector<LayoutDim> layout;
  for (size_t d : outer) layout.push_back(Whole(names[d]));
  layout.push_back(Quotient(names[split], columns));
  for (size_t d : inner) layout.push_back(Whole(names[d]));
  layout.push_back(Remainder(names[split], columns));
  const std::string copy = planner.FreshName(panels.tensor + "_panels");
  if (layout.size() != names.size() + 1 ||
      !planner.CacheRead(panels.tensor, copy, reader, panels.is_const ? Scope::kConst : Scope::kWorkspace, layout))
    return;
  // A thread for each row of a panel.
  std::vector<std::string> loops;
  int64_t rows = 1;
  for (const LayoutDim& dim : layout) {
    if (dim.part == LayoutDim::Part::kRemainder) break;
    const bool is_panel = dim.part == LayoutDim::Part::kQuotient;
    loops.push_back(is_panel ? dim.axis + ".0" : dim.axis);
  }
  const Stage& made = planner.StageNamed(copy);
  for (const Axis& axis : made.axes) rows *= planner.Extent(axis);
  rows = CeilDiv(rows, columns);
  planner.Split(copy, names[split], {columns});
  std::vector<std::string> order = loops;
  order.push_back(names[split] + ".1");
  planner.Reorder(copy, order);
  BindBlocks(planner, copy, {{Fused(planner, copy, loops), rows}});
  planner.Vectorize(copy, {order.back()});
  planner.MarkScheduled(copy);
}

}  // namespace hone
