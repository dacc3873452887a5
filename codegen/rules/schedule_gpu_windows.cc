// Windows on GPUs whose elements are not summed over channels: depthwise convolutions, pooling, filters. A thread has
// a tile of outputs in registers, as high as a few rows, whose windows overlap: with all of them in one piece of code,
// what several rows read is loaded once. Nothing is copied into block storage; what other threads load, too, comes from
// the first-level cache.
#include <algorithm>
#include <optional>

#include "base/arithmetic.h"
#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/gpu_planning.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/op_traits.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr Decision kShareWindows{"share_windows", "what windows read is copied into block storage, as tiles",
                                 Decision::Kind::kAlternative};
constexpr Decision kWindowRows{.name = "rows", .meaning = "rows of a thread's tile", .grows_code = true};

constexpr Decision kPadsInPlace{"pads_in_place", "padding is decided where windows are read, not copied ahead",
                                Decision::Kind::kAlternative};

constexpr int64_t kLargestWindow = 128;   // terms
constexpr int64_t kMostUnrolled = 256;    // terms of a thread in one piece of code
constexpr int64_t kUsualThreads = 128;    // of a block
constexpr int64_t kThreadsOfAUnit = 512;  // that hide what each waits for
constexpr int64_t kTilesOfAUnit = 8;      // where a thread is a loop's trip: that none waits long for the others
constexpr int64_t kRowsOfWindows = 4;     // of a thread, where there are threads enough
constexpr int64_t kVectorsFrom = 24;      // columns; of fewer, threads side by side are lanes
constexpr int64_t kBlockAsLoops = 256;    // threads, where their loop is made vectors: few blocks are to be given out

// The operand that is read in windows, if all that is reduced slides along something.
std::optional<AccessPattern> WindowedOperand(const SchedulePlanner& planner, const Stage& stage) {
  std::optional<AccessPattern> data;
  for (const AccessPattern& access : planner.AccessesOf(stage)) {
    bool slides = false;
    for (AxisId axis : stage.spatial_ids())
      slides |= planner.Extent(stage, axis) > 1 && access.uses[axis] && !access.dimension[axis];
    if (!slides) continue;
    if (data || !access.affine) return std::nullopt;
    data = access;
  }
  if (!data) return std::nullopt;
  for (AxisId axis : stage.reduce_ids())
    if (planner.Extent(stage, axis) > 1 && (!data->uses[axis] || data->dimension[axis])) return std::nullopt;
  return data;
}

// The last axis before the columns along which windows slide, so that its outputs share what they read.
AxisId RowsOfWindows(const SchedulePlanner& planner, const Stage& stage, const AccessPattern& data, AxisId x) {
  for (AxisId axis = stage.last_axis(); axis; --axis)
    if (axis != x && planner.Extent(stage, axis) > 1 && data.uses[axis] && !data.dimension[axis]) return axis;
  return {};
}

// Where threads are loops: whether the compiler is left to make vectors of threads side by side, whose code has no
// loops or barriers of its own. Rows that are long enough are a thread's, which computes with vectors, unless they are
// sums of an image and a filter alone: with one buffer more the compiler gives up, since it has to see that they do not
// overlap. Windows that move by more than an element gather what they read, each term for itself: of long ones a
// thread's columns, which share it, are better, and of all where gathers are slow.
bool ThreadsAreLanes(const SchedulePlanner& planner, const Stage& stage, const AccessPattern& data, AxisId x) {
  if (!planner.machine().threads_are_loops || kRowsOfWindows * Terms(planner, stage) > kMostUnrolled) return false;
  const bool is_alone = stage.reduction == Reduction::kSum && planner.FinishingStage(planner.NameOf(stage)).empty();
  const int64_t stride = data.strides[x];
  const bool takes_lanes = is_alone && (stride == 1 || !planner.machine().gathers_slowly);
  if (planner.Extent(stage, x) >= kVectorsFrom && stride <= 2 && !takes_lanes) return false;
  for (AxisId axis : stage.reduce_ids())
    if (stride > 1 && data.strides[axis] == 1 && planner.Extent(stage, axis) > 2 * stride) return false;
  return true;
}

// Threads side by side and blocks below each other, where threads are lanes: of AVX2's and AVX-512's vectors two to
// eight. Measured for planes of 7 to 150 columns (docs/lab/gpus.md).
ThreadTile TileOfLanes(int64_t width, int64_t height, bool is_side_by_side) {
  ThreadTile tile;
  tile.rows = kRowsOfWindows;
  if (!is_side_by_side) {
    tile.threads_x = std::clamp<int64_t>(BitCeil(width), 8, 64);
    return tile;
  }
  tile.threads_x = width <= 16 ? 8 : width <= 32 ? 16 : 64;
  tile.threads_y = std::min({BitCeil(CeilDiv(height, tile.rows)), kBlockAsLoops / tile.threads_x, int64_t{16}});
  return tile;
}

// Those of a thread that makes vectors of them: of which none lies beyond the end, if that is possible.
int64_t ColumnsOfVectors(int64_t width) {
  for (int64_t columns : {16, 8})
    if (width % columns == 0) return columns;
  return width > 16 ? 16 : width % 4 == 0 ? 4 : width % 2 == 0 ? 2 : 1;
}

ThreadTile ChooseTile(SchedulePlanner& planner, const std::string& name, const Stage& stage,
                      const AccessPattern& data) {
  const MachineModel& machine = planner.machine();
  ThreadTile tile;
  tile.x = stage.last_axis();
  tile.y = RowsOfWindows(planner, stage, data, tile.x);
  const int64_t width = planner.Extent(stage, tile.x);
  const bool as_loops = machine.threads_are_loops;
  const bool as_lanes = ThreadsAreLanes(planner, stage, data, tile.x);
  const ThreadTile lanes = TileOfLanes(width, tile.y ? planner.Extent(stage, tile.y) : 1, data.strides[tile.x] == 1);
  std::vector<int64_t> columns{1, 2, 4}, threads_x{8, 16, 32, 64};
  if (as_loops) {
    columns.insert(columns.end(), {8, 16});
    threads_x.insert(threads_x.begin(), 1);
  }
  int64_t preferred = 1;  // threads side by side read elements side by side
  if (as_loops && !as_lanes) preferred = ColumnsOfVectors(width);
  tile.columns = planner.Choose(name, kColumns, columns, preferred);
  const int64_t across = CeilDiv(width, tile.columns);
  tile.threads_x =
      planner.Choose(name, kThreadsX, threads_x,
                     as_lanes   ? std::min(AllowedThreads(planner), lanes.threads_x)
                     : as_loops ? 1
                                : std::min(AllowedThreads(planner), std::clamp<int64_t>(BitCeil(across), 8, 32)));
  if (!tile.y) return tile;
  const int64_t height = planner.Extent(stage, tile.y);
  const int64_t enough = (as_loops && !as_lanes ? kTilesOfAUnit : kThreadsOfAUnit) * machine.cores;
  int64_t rows = kRowsOfWindows;
  while (rows > 1 && (rows > height || Outputs(planner, stage) / (tile.columns * rows) < enough)) rows /= 2;
  tile.rows = planner.Choose(name, kWindowRows, {1, 2, 4, 7, 8}, rows);
  const int64_t down = std::max<int64_t>(1, std::min(kUsualThreads, AllowedThreads(planner)) / tile.threads_x);
  tile.threads_y = planner.Choose(name, kThreadsY, {1, 2, 4, 8, 16},
                                  as_lanes   ? std::min(AllowedThreads(planner, tile.threads_x), lanes.threads_y)
                                  : as_loops ? 1
                                             : std::min({BitCeil(CeilDiv(height, tile.rows)), down, int64_t{16}}));
  return tile;
}

// A thread's tile: terms outside, as many of them unrolled as make one piece of code.
void ScheduleTerms(SchedulePlanner& planner, const std::string& name, const ThreadTile& tile) {
  const Stage sum = planner.StageNamed(name);
  std::vector<std::string> order, unrolled;
  for (AxisId axis : sum.spatial_ids())
    if (axis != tile.x && axis != tile.y) order.push_back(sum.axis(axis).name);
  int64_t terms = tile.rows * tile.columns;
  for (const Axis& axis : sum.reduce_axes) order.push_back(axis.name);
  for (auto axis = sum.reduce_axes.rbegin(); axis != sum.reduce_axes.rend(); ++axis) {
    terms *= planner.Extent(*axis);
    if (terms > kMostUnrolled) break;
    unrolled.push_back(axis->name);
  }
  if (tile.y) {
    order.push_back(sum.axis(tile.y).name);
    unrolled.push_back(order.back());
  }
  order.push_back(sum.axis(tile.x).name);
  planner.Reorder(name, order);
  planner.Unroll(name, unrolled);
  planner.Vectorize(name, {order.back()});
}

// Takes in the stage that makes the windowed operand for this one alone, padding it: zeros cost no memory then. Columns
// that lie side by side stay whole vectors if zeros are there to be read.
void TakePaddingIn(SchedulePlanner& planner, const std::string& stage, const AccessPattern& data, AxisId x) {
  const std::string name = planner.kernel().tensors[data.tensor].name;
  if (!IsMadeForOneReader(planner, name)) return;
  bool is_costly = false;
  Walk(planner.StageNamed(name).body, [&](const Expr& e) { is_costly |= IsCostly(e.op()); });
  if (is_costly) return;
  const bool is_in_vectors = planner.machine().threads_are_loops && data.strides[x] <= 2 &&
                             !ThreadsAreLanes(planner, planner.StageNamed(stage), data, x);
  if (planner.ChooseIf(stage, kPadsInPlace, !is_in_vectors)) planner.Inline(name);
}

}  // namespace

bool ScheduleGpuWindows(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  if (stage.axes.empty() || Terms(planner, stage) > kLargestWindow)
    return planner.Refuse("windows", name, "it is one number, or of many terms");
  const std::optional<AccessPattern> data = WindowedOperand(planner, stage);
  if (!data) return planner.Refuse("windows", name, "more than windows is reduced");
  if (planner.ChooseIf(name, kShareWindows, false))
    return planner.Refuse("windows", name, "left out by a choice of the search");
  const ThreadTile tile = ChooseTile(planner, name, stage, *data);
  TakePaddingIn(planner, name, *data, tile.x);
  const std::optional<ContractionPair> pair = FindPair(planner, name);
  if (!pair) return planner.Refuse("windows", name, "its sum cannot be a stage of its own");
  const auto& [sum, out] = *pair;
  planner.MarkScheduled(sum);
  planner.MarkScheduled(out);
  planner.Took("windows", name, "a thread per few rows of windows");
  planner.ComputeAt(sum, out, BindTile(planner, out, tile).thread);
  planner.Store(sum, Scope::kRegisters);
  ScheduleTerms(planner, sum, tile);
  return true;
}

}  // namespace hone
