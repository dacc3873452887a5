#include "codegen/rules/gpu_loops.h"

#include <algorithm>
#include <numeric>
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
constexpr int64_t kPaysFrom = 16;    // times that an element is read, for which copying it pays
constexpr int64_t kLineBytes = 64, kPageBytes = 4096;

int64_t LargestPower(int64_t most) { return BitCeil(most + 1) / 2; }  // of two

// Whether what the columns depend on is computed here, and so has room for what lies beyond the last one: an operand
// has not, and each of its elements would be read under a condition of its own.
bool HasRoomBeyond(const SchedulePlanner& planner, const Stage& stage, AxisId x) {
  return std::ranges::all_of(planner.AccessesOf(stage), [&](const AccessPattern& access) {
    return !access.uses[x] || planner.kernel().tensors[access.tensor].kind == TensorKind::kIntermediate;
  });
}

// Of a row of so many elements, in tiles of as many columns: shorter ones, and then numbers, of what is left.
int64_t VectorsOfRow(const SchedulePlanner& planner, int64_t width, int64_t columns) {
  const int64_t lanes = planner.machine().lanes, elements = std::min(columns, width);
  int64_t count = elements / lanes;
  for (int64_t shorter = lanes / 2; shorter >= kFewestLanes; shorter /= 2) count += elements / shorter % 2;
  return CeilDiv(width, columns) * (count + elements % kFewestLanes);
}

// Those with the fewest vectors, two at most side by side.
int64_t PreferredColumns(const SchedulePlanner& planner, int64_t width, bool has_room) {
  const int64_t lanes = planner.machine().lanes;
  int64_t best = 0;
  for (int64_t columns = std::min(2 * lanes, BitCeil(width)); columns >= kFewestLanes; columns /= 2)
    if ((has_room || columns >= width || width % columns == 0) &&
        (best == 0 || VectorsOfRow(planner, width, columns) < VectorsOfRow(planner, width, best)))
      best = columns;
  return best > 0 ? best : std::min(lanes, LargestPower(width));
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

// Whether what a block reads of an operand for its columns is too much for the cache to keep until the next block,
// which reads the same. Rows whose distance has a large power of two as a factor begin at few places of a page, and so
// find room in few of the cache's sets. A core's cache of the second level is what OpenCL for processors takes for
// block storage.
bool OutgrowsCache(const SchedulePlanner& planner, const Stage& stage, const AccessPattern& access) {
  const int64_t bytes = ByteSize(planner.kernel().tensors[access.tensor].dtype);
  const int64_t lines_of_row = std::max<int64_t>(1, 2 * planner.machine().lanes * bytes / kLineBytes);
  constexpr int64_t kLinesOfPage = kPageBytes / kLineBytes;
  int64_t rows = 1, places = 1;
  for (AxisId axis : stage.reduce_ids()) {
    if (!access.uses[axis]) continue;
    const int64_t extent = planner.Extent(stage, axis);
    rows *= extent;
    places *= std::min(extent, kPageBytes / std::gcd(access.strides[axis] * bytes, kPageBytes));
  }
  const int64_t sets = std::min(kLinesOfPage, places * lines_of_row);  // of as many, by the place in a page
  return rows * lines_of_row >= planner.machine().block_bytes / kLineBytes * sets / kLinesOfPage;
}

}  // namespace

Panels PanelsFor(const SchedulePlanner& planner, const Stage& stage, AxisId x) {
  const std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  const AccessPattern* access = AccessAlong(accesses, x);
  if (access == nullptr || !access->affine || !access->IsPlain() || !access->dimension[x]) return {};
  const Tensor& tensor = planner.kernel().tensors[access->tensor];
  if (IsMadeForOneReader(planner, tensor.name) && !planner.IsScheduled(tensor.name))
    return {.tensor = tensor.name, .is_made_here = true, .is_preferred = true};
  if (tensor.kind != TensorKind::kInput) return {};
  int64_t readings = 1;
  for (AxisId axis : stage.spatial_ids())
    if (!access->uses[axis]) readings *= planner.Extent(stage, axis);
  Panels panels{tensor.name, tensor.is_const};
  const int64_t width = planner.Extent(stage, x), lanes = planner.machine().lanes;
  const bool is_in_vectors = access->strides[x] == 1 && (width <= 2 * lanes || width % (lanes / 2) == 0);
  panels.is_preferred =
      tensor.is_const || (readings >= kPaysFrom && (!is_in_vectors || OutgrowsCache(planner, stage, *access)));
  return panels;
}

bool PaysAsOneAxis(const SchedulePlanner& planner, const Stage& stage, const AccessPattern& operand) {
  constexpr double kCopy = 6, kGain = 0.7;  // vectors in the time of copying an element
  const int64_t width = planner.Extent(stage, stage.last_axis());
  int64_t own = 1, others = 1;
  for (AxisId axis : stage.spatial_ids()) (operand.uses[axis] ? own : others) *= planner.Extent(stage, axis);
  if (!operand.uses[stage.last_axis()] || own == width) return false;
  const bool has_room = HasRoomBeyond(planner, stage, stage.last_axis());
  const auto vectors = [&](int64_t elements, bool room) {
    return VectorsOfRow(planner, elements, PreferredColumns(planner, elements, room));
  };
  const auto rows = static_cast<double>(own / width), outputs = static_cast<double>(others);
  const double apart = rows * static_cast<double>(vectors(width, has_room));
  const double as_one = static_cast<double>(vectors(own, true)) + kCopy * static_cast<double>(own) / outputs;
  return as_one < kGain * apart;
}

ThreadTile TileOfLoops(const SchedulePlanner& planner, const Stage& stage, AxisId x, AxisId y, bool has_panels) {
  const int64_t width = planner.Extent(stage, x), height = y ? planner.Extent(stage, y) : 1;
  const int64_t lanes = planner.machine().lanes;
  ThreadTile tile{.x = x, .y = y};
  tile.columns = PreferredColumns(planner, width, has_panels || HasRoomBeyond(planner, stage, x));
  tile.rows = std::min<int64_t>(
      {kMostRows, LargestPower(height), planner.machine().vector_registers / 2 / CeilDiv(tile.columns, lanes)});
  while (tile.rows > kMostRows / 2 && height % tile.rows != 0) tile.rows /= 2;
  return tile;
}

void CopyPanels(SchedulePlanner& planner, const Panels& panels, const std::string& reader, AxisId x, int64_t columns) {
  const Stage stage = planner.StageNamed(reader);
  const std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  const AccessPattern* access = AccessAlong(accesses, x);
  const std::vector<std::string> names =
      panels.is_made_here ? NamesOf(planner.StageNamed(panels.tensor).axes) : planner.CopyAxes(panels.tensor, reader);
  if (access == nullptr || names.empty()) return;
  const size_t split = *access->dimension[x];
  // [other outputs, panel, steps, column]
  std::vector<size_t> outer, inner;
  for (AxisId axis : stage.axis_ids())
    if (const std::optional<size_t> d = access->dimension[axis]; d && *d != split && stage.Reduces(axis))
      inner.push_back(*d);
  for (size_t d = 0; d < names.size(); ++d)
    if (d != split && std::ranges::find(inner, d) == inner.end()) outer.push_back(d);
  std::vector<LayoutDim> layout;
  for (size_t d : outer) layout.push_back(Whole(names[d]));
  layout.push_back(Quotient(names[split], columns));
  for (size_t d : inner) layout.push_back(Whole(names[d]));
  layout.push_back(Remainder(names[split], columns));
  if (layout.size() != names.size() + 1) return;
  const std::string copy = panels.is_made_here ? panels.tensor : planner.FreshName(panels.tensor + "_panels");
  if (panels.is_made_here)
    planner.Store(copy, Scope::kWorkspace, layout);
  else if (!planner.CacheRead(panels.tensor, copy, reader, panels.is_const ? Scope::kConst : Scope::kWorkspace, layout))
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
