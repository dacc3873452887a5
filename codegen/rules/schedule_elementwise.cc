// Stages without structure to use: vectors along the last axis, workers along the others. Transposes go through
// register tiles.
#include <algorithm>

#include "base/arithmetic.h"
#include "codegen/rules/schedule_planner.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/op_traits.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

// Vectors of a padded row that are still unrolled.
constexpr int64_t kPaddedRowVectors = 26;
// Of the last axis: so little to do that working out where it lies would take longer.
constexpr int64_t kShortRow = 4;

}  // namespace

void ScheduleInPlace(SchedulePlanner& planner, const std::string& name) {
  const Stage& stage = planner.StageNamed(name);
  planner.MarkScheduled(name);
  std::string last = stage.axes.back().name;
  int64_t extent = planner.Extent(stage.axes.back()), lanes = planner.LanesFor(stage);
  lanes = std::min(lanes, BitCeil(extent));
  planner.Split(name, last, {std::min<int64_t>(CeilDiv(extent, lanes) + 1, kPaddedRowVectors), lanes});
  planner.Unroll(name, {last + ".1"});
  planner.Vectorize(name, {last + ".2"});
}

bool ScheduleElementwise(SchedulePlanner& planner, const std::string& name) {
  const Stage& stage = planner.StageNamed(name);
  planner.MarkScheduled(name);
  planner.Took("elementwise", name, "each element on its own: vectors along the last axis");
  if (stage.axes.empty()) return true;
  std::vector<std::string> outer;
  int64_t tasks = 1, points = 1;
  for (size_t i = 0; i + 1 < stage.axes.size(); ++i) {
    outer.push_back(stage.axes[i].name);
    tasks *= planner.Extent(stage.axes[i]);
  }
  std::string last = stage.axes.back().name;
  int64_t extent = planner.Extent(stage.axes.back()), lanes = planner.LanesFor(stage);
  points = tasks * extent;
  lanes = std::min(lanes, BitCeil(extent));
  int64_t unroll = std::clamp<int64_t>(extent / lanes, 1, 4);
  while (unroll > 1 && extent % (unroll * lanes) != 0) --unroll;
  // A padded row is walked whole: only its first and last vectors need masks then.
  int64_t pads = 0;
  Walk(stage.body, [&](const Expr& e) { pads += e.op() == Op::kPad; });
  if (pads > 0 && stage.axes.size() > 1)
    unroll = std::min<int64_t>(CeilDiv(extent, lanes), std::max<int64_t>(kPaddedRowVectors / pads, 2));
  unroll = planner.Choose(name, kUnroll, {1, 2, 4, 8}, unroll);
  planner.Split(name, last, {unroll, lanes});
  std::vector<std::string> order = outer;
  order.push_back(last + ".0");
  if (outer.empty()) {
    outer.push_back(last + ".0");
    tasks = CeilDiv(extent, unroll * lanes);
  }
  order.push_back(last + ".1");
  order.push_back(last + ".2");
  planner.Reorder(name, order);
  // Loops over all axes but a short last one are not made one, whose trips would each take their indices apart.
  if (extent <= kShortRow && outer.size() > 1) {
    const int64_t inner = planner.Extent(stage.axes[stage.axes.size() - 2]);
    if (tasks / inner >= 2 * planner.machine().cores) {
      outer.pop_back();
      tasks /= inner;
    }
  }
  double work = 1;
  Walk(stage.body, [&](const Expr& e) { work += planner.machine().vector_operation.Of(e.op()); });
  planner.Parallelize(name, outer, tasks, static_cast<double>(points) / static_cast<double>(lanes) * work * 2);
  planner.Unroll(name, {last + ".1"});
  planner.Vectorize(name, {last + ".2"});
  return true;
}

bool ScheduleTranspose(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  const size_t rank = stage.axes.size();
  if (rank < 2) return planner.Refuse("transpose", name, "less than two axes");
  const int64_t lanes = planner.LanesFor(stage);
  // An operand that is contiguous along another axis than the output.
  const AxisId last = stage.last_axis();
  const std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  for (const AccessPattern& access : accesses) {
    if (!access.affine || access.strides[last] <= 1) continue;
    // The block is one tile of the tensor: other reads of it would need others.
    auto is_same = [&](const AccessPattern& other) { return other.tensor == access.tensor; };
    if (std::count_if(accesses.begin(), accesses.end(), is_same) > 1) continue;
    AxisId across;
    for (AxisId axis : stage.spatial_ids())
      if (axis != last && access.strides[axis] == 1) across = axis;
    if (!access.IsPlain() || !across || planner.Extent(stage, last) < 4 || planner.Extent(stage, across) < 4) continue;
    const std::string source = planner.kernel().tensors[access.tensor].name;
    std::vector<std::string> dims = planner.CopyAxes(source, name);
    std::string block = planner.FreshName(source + "_block");
    if (dims.empty() || !planner.CacheRead(source, block, name, Scope::kRegisters)) continue;

    std::string j = stage.axis(last).name, i = stage.axis(across).name;
    planner.Split(name, j, {lanes});
    planner.Split(name, i, {lanes});
    std::vector<std::string> order;
    int64_t tasks = 1;
    double points = 1;
    for (const Axis& axis : stage.axes) {
      points *= static_cast<double>(planner.Extent(axis));
      if (axis.name == i || axis.name == j) continue;
      order.push_back(axis.name);
      tasks *= planner.Extent(axis);
    }
    order.push_back(i + ".0");
    tasks *= CeilDiv(planner.Extent(stage, across), lanes);
    std::vector<std::string> outer = order;
    order.push_back(j + ".0");
    order.push_back(i + ".1");
    order.push_back(j + ".1");
    planner.Reorder(name, order);
    planner.Parallelize(name, outer, tasks, points / 4);
    planner.Unroll(name, {i + ".1"});
    planner.Vectorize(name, {j + ".1"});
    planner.ComputeAt(block, name, j + ".0");
    std::string along = dims.back();
    std::vector<std::string> block_order, unrolled;
    for (const std::string& dim : dims)
      if (dim != along) block_order.push_back(dim);
    unrolled = block_order;
    block_order.push_back(along);
    planner.Reorder(block, block_order);
    planner.Unroll(block, unrolled);
    planner.Vectorize(block, {along});
    planner.MarkScheduled(block);
    planner.MarkScheduled(name);
    planner.Took("transpose", name, "an operand is contiguous along another axis than the output");
    return true;
  }
  return planner.Refuse("transpose", name, "every operand is contiguous along the output's last axis, or along none");
}

bool ScheduleReduction(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  planner.MarkScheduled(name);
  planner.Took("reduction", name, "no other rule fits: vectors along the last axis, the reduction in serial loops");
  if (stage.axes.empty()) return true;
  std::string last = stage.axes.back().name;
  int64_t extent = planner.Extent(stage.axes.back());
  int64_t lanes = std::min<int64_t>(planner.LanesFor(stage), BitCeil(extent));
  // Vectors side by side: each step then reads a stretch of a row, not a line here and there.
  const int64_t in_row = CeilDiv(extent, lanes), most = planner.machine().vector_registers / 2;
  const int64_t together = planner.Choose(name, {"columns", "vectors of the last axis that are reduced at once"},
                                          {1, 2, 4, 8, 16}, std::min(CeilDiv(in_row, CeilDiv(in_row, most)), most));
  planner.Split(name, last, {together, lanes});
  std::vector<std::string> order, outer;
  int64_t tasks = 1;
  double points = 1;
  for (size_t i = 0; i + 1 < stage.axes.size(); ++i) {
    outer.push_back(stage.axes[i].name);
    tasks *= planner.Extent(stage.axes[i]);
  }
  outer.push_back(last + ".0");
  tasks *= CeilDiv(extent, lanes * together);
  order = outer;
  points = static_cast<double>(tasks);
  for (const Axis& axis : stage.reduce_axes) {
    order.push_back(axis.name);
    points *= static_cast<double>(planner.Extent(axis));
  }
  order.push_back(last + ".1");
  order.push_back(last + ".2");
  planner.Reorder(name, order);
  std::string task = planner.Parallelize(name, outer, tasks, points * 4 * static_cast<double>(together));
  planner.RegisterTile(name, task);
  planner.Unroll(name, {last + ".1"});
  planner.Vectorize(name, {last + ".2"});
  return true;
}

}  // namespace hone
