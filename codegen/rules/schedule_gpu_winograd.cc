// 3×3 convolutions by Winograd's minimal filtering, on GPUs: a launch transforms the image, a thread per tile and
// channel; one multiplies matrices, as many as there are frequencies, like any product; one transforms back, a thread
// per tile and filter, and finishes the outputs. The filter is transformed once, when it is bound.
#include <algorithm>
#include <optional>

#include "base/arithmetic.h"
#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/gpu_planning.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/winograd.h"

namespace hone {
namespace {

constexpr double kOperationsOfAByte = 12;  // arithmetic in the time that memory takes to move a byte, on large devices
constexpr int64_t kThreadsOfTransforms = 128;

// Whether the filter is a constant of this stage alone.
bool TransformsItsFilterOnce(const SchedulePlanner& planner, const Stage& stage) {
  const Kernel& kernel = planner.kernel();
  const AxisId last = stage.last_axis();
  for (const AccessPattern& access : planner.AccessesOf(stage)) {
    const Tensor& tensor = kernel.tensors[access.tensor];
    if (access.uses[last]) continue;  // the image
    return tensor.is_const && tensor.kind == TensorKind::kInput && ReadersOf(kernel, access.tensor).size() == 1;
  }
  return false;
}

// Of a pixel of the output: operations that the direct form (m = 0) and this one come to, memory's time among them.
double Cost(int64_t m, double channels, double filters) {
  if (m == 0) return 2 * 9 * channels * filters;
  const double frequencies = static_cast<double>((m + 2) * (m + 2)) / static_cast<double>(m * m);
  const double bytes = 4 * (channels * (1 + 2 * frequencies) + filters * (1 + 2 * frequencies));
  return 2 * frequencies * channels * filters + bytes * kOperationsOfAByte;
}

// A thread for each trip of `loops`, with `inside` left to it; the loop of threads.
std::string ThreadEach(SchedulePlanner& planner, const std::string& stage, const std::vector<std::string>& loops,
                       int64_t trips, const std::vector<std::string>& inside) {
  std::vector<std::string> order = loops;
  order.insert(order.end(), inside.begin(), inside.end());
  planner.Reorder(stage, order);
  const std::string all = Fused(planner, stage, loops);
  const int64_t threads = std::min({kThreadsOfTransforms, BitCeil(trips), AllowedThreads(planner)});
  planner.Split(stage, all, {threads});
  BindBlocks(planner, stage, {{all + ".0", CeilDiv(trips, threads)}});
  planner.Bind(stage, all + ".1", LaunchAxis::kThreadX);
  planner.Unroll(stage, inside);
  return all + ".1";
}

// What a thread needs in between: all of it in registers.
void InRegisters(SchedulePlanner& planner, const std::string& stage, const std::string& of, const std::string& at) {
  planner.ComputeAt(stage, of, at);
  planner.Store(stage, Scope::kRegisters);
  planner.Unroll(stage, NamesOf(planner.StageNamed(stage).axes));
}

// i and j are the first axes of tiles and of the filter; the others are the threads'.
void Transform(SchedulePlanner& planner, const std::string& name, const std::string& rows) {
  const Stage stage = planner.StageNamed(name);
  std::vector<std::string> loops = NamesOf(stage.axes);
  const std::vector<std::string> inside(loops.begin(), loops.begin() + 2);
  loops.erase(loops.begin(), loops.begin() + 2);
  const int64_t frequencies = planner.Extent(stage.axes[0]) * planner.Extent(stage.axes[1]);
  const std::string thread = ThreadEach(planner, name, loops, Outputs(planner, stage) / frequencies, inside);
  InRegisters(planner, rows, name, thread);
}

void TransformBack(SchedulePlanner& planner, const std::string& out, const WinogradNames& names, AxisId rows,
                   int64_t m) {
  const Stage stage = planner.StageNamed(out);
  const std::string height = stage.axis(rows).name, width = stage.axes.back().name;
  planner.Split(out, height, {m});
  planner.Split(out, width, {m});
  std::vector<std::string> loops;
  int64_t trips = 1;
  for (AxisId axis : stage.spatial_ids()) {
    const bool is_tiled = axis == rows || axis == stage.last_axis();
    loops.push_back(stage.axis(axis).name + (is_tiled ? ".0" : ""));
    trips *= CeilDiv(planner.Extent(stage, axis), is_tiled ? m : 1);
  }
  const std::string thread = ThreadEach(planner, out, loops, trips, {height + ".1", width + ".1"});
  for (const std::string& name : {names.result, names.half}) InRegisters(planner, name, out, thread);
}

// The axis of the image's rows: the last but one along which the image moves and the filter does not.
std::optional<AxisId> RowsOfImage(const SchedulePlanner& planner, const Stage& stage) {
  std::optional<AxisId> rows;
  const std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  if (accesses.size() != 2) return rows;
  const AxisId last = stage.last_axis();
  const int image = accesses[0].uses[last] ? 0 : 1;
  for (AxisId axis : stage.spatial_ids())
    if (axis != last && accesses[image].uses[axis] && !accesses[1 - image].uses[axis]) rows = axis;
  return rows;
}

}  // namespace

bool ScheduleGpuWinograd(SchedulePlanner& planner, const std::string& sum) {
  const auto refuse = [&](std::string_view why) { return planner.Refuse("winograd", sum, why); };
  const Stage stage = planner.StageNamed(sum);
  const auto is_three = [&](const Axis& axis) { return planner.Extent(axis) == 3; };
  if (stage.reduction != Reduction::kSum || stage.axes.size() < 2 ||
      std::ranges::count_if(stage.reduce_axes, is_three) < 2)
    return refuse("not a 3x3 convolution with stride 1");
  if (!planner.Admits("winograd")) return refuse("only accuracy=relaxed admits it");
  const int64_t width = planner.Extent(stage.axes.back());
  if (const Result<void> fits = CheckWinograd(planner.kernel(), FindStage(planner.kernel(), sum), 2, CeilDiv(width, 2));
      !fits)
    return refuse(fits.error().message);
  const std::optional<AxisId> rows = RowsOfImage(planner, stage);
  if (!rows || !TransformsItsFilterOnce(planner, stage)) return refuse("the filter would be transformed on every call");

  const double channels = static_cast<double>(Terms(planner, stage)) / 9;
  double filters = 1;
  for (const AccessPattern& access : planner.AccessesOf(stage))
    for (AxisId axis : stage.spatial_ids())
      if (!access.uses[stage.last_axis()] && access.uses[axis])
        filters *= static_cast<double>(planner.Extent(stage, axis));
  int64_t preferred = 0;
  for (int64_t m : {2, 4})
    if (Cost(m, channels, filters) < Cost(preferred, channels, filters)) preferred = m;
  const int64_t m = planner.Choose(
      sum, {"winograd", "outputs of a Winograd tile along an axis; 0: direct", Decision::Kind::kAlternative}, {0, 2, 4},
      preferred);
  if (m == 0)
    return refuse(preferred == 0 ? "the transforms would cost more than the products that they save"
                                 : "left out by a choice of the search");
  const std::string base = planner.FreshName("wino");
  if (!planner.Rewrite({"winograd", sum, {base}, {m, CeilDiv(width, m)}}))
    return refuse("the rewrite refused these sizes");
  const WinogradNames names(base);
  std::string out = sum;  // by now a copy
  if (std::string finisher = planner.FinishingStage(sum); !finisher.empty() && planner.Inline(sum)) out = finisher;
  for (const std::string& name :
       {out, names.result, names.half, names.filter, names.filter_rows, names.tiles, names.rows})
    planner.MarkScheduled(name);
  planner.Took("winograd", sum,
               m == 2 ? "F(2x2,3x3): 2.25 times fewer products" : "F(4x4,3x3): 4 times fewer products");
  planner.Inline(names.input);
  TransformBack(planner, out, names, *rows, m);
  if (!ScheduleGpuTiles(planner, names.product)) ScheduleGpuOutputs(planner, names.product);
  Transform(planner, names.tiles, names.rows);
  std::vector<LayoutDim> layout;
  for (const Axis& axis : planner.StageNamed(names.filter).axes) layout.push_back(Whole(axis.name));
  planner.Store(names.filter, Scope::kConst, layout);
  Transform(planner, names.filter, names.filter_rows);
  return true;
}

}  // namespace hone
