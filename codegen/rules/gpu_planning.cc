#include "codegen/rules/gpu_planning.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/arithmetic.h"
#include "ir/graph/stage_graph.h"

namespace hone {

std::string SpreadBlocks(SchedulePlanner& planner, const std::string& stage, const std::vector<BlockLoop>& loops) {
  const std::array<int64_t, 3>& grid = planner.machine().grid;
  std::vector<std::string> names;
  int64_t blocks = 1;
  bool fits = true;
  for (const BlockLoop& loop : loops) {
    names.push_back(loop.loop);
    blocks *= loop.blocks;
    fits &= loop.blocks <= grid[DimensionOf(loop.axis)];
  }
  if (fits) return "";
  const std::string row = Fused(planner, stage, names);
  if (blocks <= grid[0]) {
    planner.Bind(stage, row, LaunchAxis::kBlockX);
    return row;
  }
  // Layers of rows of columns, as few of each as there must be. What a reader needs beyond the end may add some.
  const int64_t in_rows = CeilDiv(blocks, std::max<int64_t>(1, grid[0]));
  const int64_t layers = CeilDiv(in_rows, std::max<int64_t>(1, grid[1]));
  const int64_t rows = CeilDiv(in_rows, layers), columns = CeilDiv(blocks, rows * layers);
  std::vector<int64_t> factors = {columns};
  std::vector<LaunchAxis> axes = {LaunchAxis::kBlockY, LaunchAxis::kBlockX};
  if (layers > 1) {
    factors.insert(factors.begin(), rows);
    axes.insert(axes.begin(), LaunchAxis::kBlockZ);
  }
  planner.Split(stage, row, factors);
  for (size_t i = 0; i < axes.size(); ++i) planner.Bind(stage, fmt::format("{}.{}", row, i), axes[i]);
  return fmt::format("{}.{}", row, factors.size());
}

std::string BindBlocks(SchedulePlanner& planner, const std::string& stage, const std::vector<BlockLoop>& loops) {
  if (const std::string spread = SpreadBlocks(planner, stage, loops); !spread.empty()) return spread;
  for (const BlockLoop& loop : loops) planner.Bind(stage, loop.loop, loop.axis);
  return loops.back().loop;
}

LoopsOfTile BindTile(SchedulePlanner& planner, const std::string& stage, const ThreadTile& tile) {
  const Stage out = planner.StageNamed(stage);
  const std::string x = out.axis(tile.x).name;
  const std::string y = tile.y ? out.axis(tile.y).name : "";
  planner.Split(stage, x, {tile.threads_x, tile.columns});
  if (!y.empty()) planner.Split(stage, y, {tile.threads_y, tile.rows});
  std::vector<std::string> others, order;
  for (AxisId axis : out.spatial_ids())
    if (axis != tile.x && axis != tile.y) others.push_back(out.axis(axis).name);
  order = others;
  for (const char* part : {".0", ".1", ".2"}) {
    if (!y.empty()) order.push_back(y + part);
    order.push_back(x + part);
  }
  planner.Reorder(stage, order);
  const int64_t width = planner.Extent(out, tile.x), height = tile.y ? planner.Extent(out, tile.y) : 1;
  std::vector<BlockLoop> blocks;
  if (!others.empty())
    blocks.push_back({Fused(planner, stage, others), Outputs(planner, out) / width / height, LaunchAxis::kBlockZ});
  const LaunchAxis first = LaunchAxis::kBlockX, then = LaunchAxis::kBlockY;
  if (!y.empty()) blocks.push_back({y + ".0", CeilDiv(height, tile.height()), tile.goes_down ? first : then});
  blocks.push_back({x + ".0", CeilDiv(width, tile.width()), tile.goes_down ? then : first});
  const std::string block = BindBlocks(planner, stage, blocks);
  planner.Bind(stage, x + ".1", LaunchAxis::kThreadX);
  if (!y.empty()) {
    planner.Bind(stage, y + ".1", LaunchAxis::kThreadY);
    planner.Unroll(stage, {y + ".2"});
  }
  planner.Vectorize(stage, {x + ".2"});
  return {block, x + ".1"};
}

bool IsMadeForOneReader(const SchedulePlanner& planner, const std::string& tensor) {
  const StageId producer = FindStage(planner.kernel(), tensor);
  if (!producer || planner.IsScheduled(tensor)) return false;
  const Stage& stage = planner.kernel().stages[producer];
  return stage.reduction == Reduction::kNone && !stage.axes.empty() &&
         planner.kernel().tensors[stage.output].kind == TensorKind::kIntermediate &&
         ReadersOf(planner.kernel(), stage.output).size() == 1;
}

std::optional<std::string> HoldInBlock(SchedulePlanner& planner, const std::string& tensor, const std::string& reader,
                                       const LayoutOfCopy& layout) {
  std::string copy = tensor;
  if (IsMadeForOneReader(planner, tensor)) {
    planner.Store(copy, Scope::kBlock, layout(NamesOf(planner.StageNamed(tensor).axes)));
  } else {
    copy = planner.FreshName(tensor + "_block");
    if (!planner.CacheRead(tensor, copy, reader, Scope::kBlock, layout(planner.CopyAxes(tensor, reader))))
      return std::nullopt;
  }
  planner.MarkScheduled(copy);
  return copy;
}

namespace {

void DivideAmongThreads(SchedulePlanner& planner, const std::string& stage, const std::string& loop,
                        const ThreadsOfBlock& threads) {
  std::vector<int64_t> factors{threads.y, threads.x};
  std::vector<LaunchAxis> axes{LaunchAxis::kThreadY, LaunchAxis::kThreadX};
  if (threads.z > 1) {
    factors.insert(factors.begin(), threads.z);
    axes.insert(axes.begin(), LaunchAxis::kThreadZ);
  }
  planner.Split(stage, loop, factors);
  for (size_t i = 0; i < axes.size(); ++i) planner.Bind(stage, loop + "." + std::to_string(i + 1), axes[i]);
}

}  // namespace

std::string CopyByAllThreads(SchedulePlanner& planner, const std::string& copy, const std::string& reader,
                             const std::string& at, int64_t lanes, const ThreadsOfBlock& threads, int64_t buffers,
                             const std::string& of_axis) {
  planner.ComputeAt(copy, reader, at);
  const Stage stage = planner.StageNamed(copy);
  if (stage.axes.empty()) return "";
  size_t last = stage.axes.size() - 1;
  while (last > 0 && (of_axis.empty() ? planner.Extent(stage.axes[last]) == 1 : stage.axes[last].name != of_axis))
    --last;
  const std::string along = stage.axes[last].name;
  planner.Split(copy, along, {lanes});
  std::vector<std::string> spread, order;
  for (size_t i = 0; i < stage.axes.size(); ++i) {
    // Threads beyond the last element would be given a second place along it, and the copy room for that.
    const bool is_left_out = !of_axis.empty() && i != last && planner.Extent(stage.axes[i]) == 1;
    (is_left_out ? order : spread).push_back(stage.axes[i].name + (i == last ? ".0" : ""));
  }
  // Nor along the axis itself, whose rows begin at multiples of what is read at once.
  if (!of_axis.empty() && spread.size() > 2 && spread[0] == along + ".0") std::swap(spread[0], spread[1]);
  if (last + 1 < stage.axes.size() || !order.empty()) {
    order.insert(order.end(), spread.begin(), spread.end());
    order.push_back(along + ".1");
    planner.Reorder(copy, order);
  }
  const std::string all = Fused(planner, copy, spread);
  DivideAmongThreads(planner, copy, all, threads);
  planner.Vectorize(copy, {along + ".1"});
  if (buffers > 1) planner.Pipeline(copy, buffers);
  return all + ".0";
}

void CopyInRuns(SchedulePlanner& planner, const std::string& copy, const std::string& reader, const std::string& at,
                const std::string& along, int64_t run, const ThreadsOfBlock& threads, int64_t buffers) {
  planner.ComputeAt(copy, reader, at);
  planner.Split(copy, along, {run});
  std::vector<std::string> order{along + ".0"};
  for (const std::string& axis : NamesOf(planner.StageNamed(copy).axes))
    if (axis != along) order.push_back(axis);
  order.push_back(along + ".1");
  planner.Reorder(copy, order);
  DivideAmongThreads(planner, copy, Fused(planner, copy, order), threads);
  if (buffers > 1) planner.Pipeline(copy, buffers);
}

}  // namespace hone
