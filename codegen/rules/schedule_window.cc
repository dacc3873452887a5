// Small windows without reuse across channels: depthwise convolution and pooling. Rows of the output are blocked in
// registers, so that each input row is loaded once for all the output rows that it touches; padding happens in a
// private copy of the plane.
#include <algorithm>
#include <utility>

#include "base/arithmetic.h"
#include "codegen/rules/schedule_planner.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

// Multiply-adds of a tile that is unrolled whole: the code stays within a few hundred instructions.
constexpr int64_t kMostUnrolled = 200;

constexpr int64_t kLargestWindow = 200, kLargeWindow = 25, kFewComparedMasks = 16;

// The stage that pads the windowed operand for this stage alone; nullptr if there is none.
const Stage* PadOf(const SchedulePlanner& planner, TensorId tensor) {
  const Tensor& source = planner.kernel().tensors[tensor];
  const Stage* pad = ProducerOf(planner.kernel(), tensor);
  bool is_alone = pad && source.kind == TensorKind::kIntermediate && !planner.IsScheduled(source.name) &&
                  pad->reduction == Reduction::kNone && ReadersOf(planner.kernel(), tensor).size() == 1;
  return is_alone ? pad : nullptr;
}

// Rows of the output in a tile: those that leave the least work, where loads shared by the rows are paid once.
int64_t ChooseRows(int64_t extent, int64_t most) {
  int64_t rows = 1;
  double best = 1e30;
  for (int64_t r = 1; r <= std::min(extent, most); ++r) {
    double tiles = static_cast<double>(CeilDiv(extent, r));
    double cost = tiles * (static_cast<double>(r) + 1.5);
    if (cost < best - 1e-9) best = cost, rows = r;
  }
  return rows;
}

// The axis of the window along which rows of a tile read what other rows read, too, with other weights. `row`: the
// output's axis of rows.
std::optional<AxisId> SharedAlong(const SchedulePlanner& planner, const Stage& stage, const AccessPattern& data,
                                  AxisId row, int64_t rows) {
  const int64_t step = data.strides[row];
  for (const AxisId axis : stage.reduce_ids()) {
    const int64_t own = data.strides[axis];
    if (step <= 0 || own <= 0) continue;
    const bool meets =
        step % own == 0 ? step / own < planner.Extent(stage, axis) : own % step == 0 && own / step < rows;
    if (meets) return axis;
  }
  return std::nullopt;
}

// Whether masks that leave out what lies outside cost less than a padded copy. Those of rows of one vector are known
// when the code is made. Those of longer rows are compared in each tile, for each column of a window, which pays for
// few columns and lanes that lie side by side, if masks have registers of their own.
bool MasksPay(const SchedulePlanner& planner, const Stage& stage, const AccessPattern& data, int64_t window) {
  const AxisId last = stage.last_axis();
  if (planner.Extent(stage, last) > planner.LanesFor(stage))
    return planner.machine().has_mask_registers && data.strides[last] == 1 && window <= kFewComparedMasks;
  const int64_t rows = stage.axes.size() >= 2 ? planner.Extent(stage.axes[stage.axes.size() - 2]) : 1;
  return window * std::min<int64_t>(rows, 3) <= kMostUnrolled / 2;
}

// Lanes of vectors along an axis: half of `most` where they leave less to be computed in vain than they cost.
int64_t ChooseLanes(SchedulePlanner& planner, const std::string& name, int64_t most, int64_t extent) {
  if (most < 8) return most;
  auto cost = [&](int64_t lanes, double cycles) { return static_cast<double>(CeilDiv(extent, lanes)) * cycles; };
  const bool is_full = most == planner.LanesFor(planner.StageNamed(name));
  const bool halves = is_full && cost(most / 2, planner.machine().half_vector_cycles) < cost(most, 1);
  return planner.Choose(name, {"lanes", "lanes of a vector"}, {most / 2, most}, halves ? most / 2 : most);
}

struct WindowOrder {
  std::vector<std::string> order, unrolled;
};

// The loops of the window, outermost first. A padded copy is read without masks, so that all that differs between its
// elements is an address: loads that rows share cost less than a body of the whole window, if it is large or registers
// are many.
WindowOrder OrderWindow(SchedulePlanner& planner, const std::string& name, const Stage& part,
                        std::optional<AxisId> shared, int64_t window, int64_t rows, bool is_copied) {
  const bool is_large = window >= kLargeWindow || planner.machine().vector_registers > 16;
  const bool unroll_all =
      planner.ChooseIf(name, {.name = "unroll_window", .meaning = "the window is unrolled whole", .grows_code = true},
                       window * rows <= kMostUnrolled && (!is_copied || !shared || !is_large));
  const bool shares_rows =
      !unroll_all && shared.has_value() &&
      planner.ChooseIf(
          name,
          {.name = "share_rows",
           .meaning = "the window's rows are unrolled: what is loaded for a row of the output serves others",
           .grows_code = true},
          planner.Extent(part, *shared) * rows <= kMostUnrolled);
  WindowOrder loops;
  auto add = [&](AxisId axis, bool is_unrolled) {
    loops.order.push_back(part.axis(axis).name);
    if (is_unrolled) loops.unrolled.push_back(part.axis(axis).name);
  };
  for (const AxisId axis : part.reduce_ids())
    if (!shares_rows || axis != *shared) add(axis, unroll_all);
  if (shares_rows) add(*shared, true);
  return loops;
}

}  // namespace

bool ScheduleWindow(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  const size_t rank = stage.axes.size();
  if (rank < 1 || stage.reduce_axes.empty()) return planner.Refuse("window", name, "no window to reduce over");
  // Every reduction axis is short, and the windowed operand reads an axis of the output and one of the window together.
  int64_t window = 1;
  for (const Axis& axis : stage.reduce_axes) window *= planner.Extent(axis);
  if (window > kLargestWindow) return planner.Refuse("window", name, "it reduces over more than a small window");
  std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  const AxisId last = stage.last_axis();
  const AccessPattern* data = nullptr;
  for (const AccessPattern& access : accesses)
    if (access.affine && access.uses[last] && access.strides[last] >= 1) data = &access;
  if (!data) return planner.Refuse("window", name, "nothing is read along the last axis of the output");
  // Vectors of a few lanes are not worth it, nor is a window along an axis that lies far apart in memory.
  if (data->strides[last] > planner.machine().widest_lane_stride)
    return planner.Refuse("window", name, "what a vector would read lies far apart in memory");
  const int64_t extent = planner.Extent(stage, last);
  const int64_t row_extent = rank >= 2 ? planner.Extent(stage.axes[rank - 2]) : 1;
  const int64_t registers = planner.machine().vector_registers;

  const Stage* pad = PadOf(planner, data->tensor);
  const bool is_padded = pad != nullptr;  // `pad` itself may be rewritten away
  std::string padded = pad ? planner.NameOf(*pad) : "";
  // More rows share what is loaded for a window of many.
  int64_t most_rows = registers / (window >= kLargeWindow ? 3 : 4);
  if (is_padded && planner.machine().has_masked_access &&
      planner.ChooseIf(name, {"masked", "padding by masks, without a padded copy"},
                       MasksPay(planner, stage, *data, window)) &&
      planner.Inline(padded)) {
    most_rows = std::max<int64_t>(1, std::min(registers / 4, kMostUnrolled / window));
    planner.MarkScheduled(std::exchange(padded, {}));
  }

  // The stage and its reader, or a reader made for it.
  std::string sum = name, out = planner.FinishingStage(name);
  if (out.empty()) {
    sum = planner.FreshName("tile");
    out = name;
    if (!planner.Rewrite({"cache_write", name, {sum}}))
      return planner.Refuse("window", name, "the reduction cannot be separated from what it is written to");
  }

  const Stage result = planner.StageNamed(out), part = planner.StageNamed(sum);
  const int64_t lanes = ChooseLanes(planner, name, std::min<int64_t>(planner.LanesFor(stage), BitCeil(extent)), extent);
  std::vector<int64_t> row_options;
  for (int64_t rows = 1; rows <= std::min(row_extent, registers / 2); ++rows) row_options.push_back(rows);
  const int64_t rows = planner.Choose(name, kRows, std::move(row_options), ChooseRows(row_extent, most_rows));
  std::string w = result.axis(last).name, h = rank >= 2 ? result.axes[rank - 2].name : "";
  std::vector<std::string> outer, order, unrolled;
  int64_t tasks = 1;
  for (size_t i = 0; i + 2 < rank; ++i) {
    outer.push_back(result.axes[i].name);
    tasks *= planner.Extent(result.axes[i]);
  }
  planner.Split(out, w, {lanes});
  // An operand that is read where it lies ends with its last element. Masks for the last vector, which are known only
  // when it is reached, make every strided load a gather, which costs more than computing some outputs twice.
  if (extent > lanes && extent % lanes != 0 &&
      planner.ChooseIf(
          name, {"shift", "the last vector of a row starts early and computes some outputs again, instead of masks"},
          padded.empty()))
    planner.SetTail(out, w, Tail::kShift);
  order = outer;
  std::string tile_loop = w + ".0";
  if (rank >= 2) {
    planner.Split(out, h, {rows});
    order.push_back(h + ".0");
    if (outer.empty()) {
      outer.push_back(h + ".0");
      tasks = CeilDiv(row_extent, rows);
    }
    order.push_back(tile_loop);
    order.push_back(h + ".1");
    unrolled.push_back(h + ".1");
    if (row_extent % rows != 0 && row_extent >= rows) planner.SetTail(out, h, Tail::kShift);
  } else {
    order.push_back(tile_loop);
    outer.push_back(tile_loop);
    tasks = CeilDiv(extent, lanes);
  }
  order.push_back(w + ".1");
  planner.Reorder(out, order);
  double points = 1;
  for (const Axis& axis : result.axes) points *= static_cast<double>(planner.Extent(axis));
  std::string task = planner.Parallelize(
      out, outer, tasks, points * static_cast<double>(window) / static_cast<double>(lanes) + points / 4);
  if (rank == 1) tile_loop = task;
  planner.Unroll(out, unrolled);
  planner.Vectorize(out, {w + ".1"});
  planner.MarkScheduled(out);

  planner.ComputeAt(sum, out, tile_loop);
  planner.Store(sum, Scope::kRegisters);
  std::optional<AxisId> shared;
  if (rank >= 2) shared = SharedAlong(planner, stage, *data, AxisId(static_cast<int>(rank) - 2), rows);
  auto [sum_order, sum_unrolled] = OrderWindow(planner, name, part, shared, window, rows, !padded.empty());
  for (size_t i = 0; i + 1 < rank; ++i) {
    sum_order.push_back(part.axes[i].name);
    sum_unrolled.push_back(part.axes[i].name);
  }
  sum_order.push_back(part.axis(last).name);
  planner.Reorder(sum, sum_order);
  planner.Unroll(sum, sum_unrolled);
  planner.Vectorize(sum, {part.axis(last).name});
  planner.MarkScheduled(sum);

  // The padded plane, per task.
  if (!padded.empty()) {
    planner.ComputeAt(padded, out, task);
    ScheduleInPlace(planner, padded);
  }
  planner.Took("window", name,
               !is_padded       ? "a small window, rows of the output side by side in registers"
               : padded.empty() ? "a small window, rows of the output side by side in registers, padding by masks"
                                : "a small window, rows of the output side by side in registers, over a padded copy");
  return true;
}

}  // namespace hone
