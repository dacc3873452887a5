// Rules for GPUs. Reductions that read an operand again for many outputs are computed in tiles: one of a block, whose
// operands its threads copy into block storage together, and one of each thread, in registers. Long reductions to few
// outputs are shared among the threads of a block. Everything else is a thread per element, or per vector.
#include <algorithm>

#include "base/arithmetic.h"
#include "codegen/rules/row_group.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr Decision kThreadsX{"threads_x", "threads of a block along the last axis"};
constexpr Decision kThreadsY{"threads_y", "threads of a block along the axis of rows"};
constexpr Decision kColumns{
    .name = "columns", .meaning = "elements of a thread along the last axis", .grows_code = true};
constexpr Decision kThreadRows{.name = "rows", .meaning = "rows of a thread's tile", .grows_code = true};
constexpr Decision kSteps{.name = "steps",
                          .meaning = "steps of the reduction whose operands are in block storage at once",
                          .grows_code = true};
constexpr Decision kShare{"share", "operands are copied into block storage", Decision::Kind::kAlternative};
constexpr Decision kThreads{"threads", "threads of a block"};
constexpr Decision kLanes{"lanes", "threads among which a reduction is divided"};

constexpr int64_t kFewTerms = 64;       // a reduction that one thread makes alone
constexpr int64_t kManyOutputs = 8192;  // enough threads without dividing reductions

// Threads of a block that the device allows, `taken` times fewer.
int64_t Allowed(const SchedulePlanner& planner, int64_t taken = 1) {
  return std::max<int64_t>(1, planner.machine().block_threads / taken);
}

int64_t Terms(const SchedulePlanner& planner, const Stage& stage) {
  int64_t terms = 1;
  for (const Axis& axis : stage.reduce_axes) terms *= planner.Extent(axis);
  return terms;
}

int64_t Outputs(const SchedulePlanner& planner, const Stage& stage) {
  int64_t outputs = 1;
  for (const Axis& axis : stage.axes) outputs *= planner.Extent(axis);
  return outputs;
}

// Fuses the loops, which stand next to each other; the name of what comes of it.
std::string Fused(SchedulePlanner& planner, const std::string& stage, const std::vector<std::string>& loops) {
  std::string name = loops[0];
  for (size_t i = 1; i < loops.size(); ++i) name += "+" + loops[i];
  if (loops.size() > 1) planner.Fuse(stage, loops);
  return name;
}

std::vector<std::string> NamesOf(const std::vector<Axis>& axes) {
  std::vector<std::string> names;
  for (const Axis& axis : axes) names.push_back(axis.name);
  return names;
}

// A thread per output, blocks of them in a row.
void BindOutputs(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  if (stage.axes.empty()) return;
  const int64_t outputs = Outputs(planner, stage);
  const int64_t threads =
      planner.Choose(name, kThreads, {32, 64, 128, 256}, std::min({int64_t{128}, BitCeil(outputs), Allowed(planner)}));
  const std::string all = Fused(planner, name, NamesOf(stage.axes));
  planner.Split(name, all, {threads});
  planner.Bind(name, all + ".0", LaunchAxis::kBlockX);
  planner.Bind(name, all + ".1", LaunchAxis::kThreadX);
  if (stage.reduction != Reduction::kNone) planner.RegisterTile(name, all + ".1");
}

struct Tile {
  AxisId x;  // axis of columns
  AxisId y;  // axis of rows; none: there is none
  int64_t threads_x = 1, threads_y = 1;
  int64_t columns = 1, rows = 1;  // of a thread
  int64_t steps = 1;
  bool shares = true;
};

// The axis of rows: one that an operand depends on which does not depend on the columns, else the one before.
AxisId RowAxis(const Stage& stage, const std::vector<AccessPattern>& accesses, AxisId x) {
  for (AxisId axis = stage.last_axis(); axis; --axis) {
    if (axis == x) continue;
    for (const AccessPattern& access : accesses)
      if (access.uses[axis] && !access.uses[x]) return axis;
  }
  AxisId before = stage.last_axis();
  return --before;
}

class TiledReduction {
 public:
  TiledReduction(SchedulePlanner& planner, std::string sum, std::string out, const Tile& tile)
      : planner_(planner), sum_(std::move(sum)), out_(std::move(out)), tile_(tile) {}

  void Emit() {
    const std::string inside = ScheduleOut();
    // Copies are stages of their own, which change what the sum reads: before its loops.
    std::vector<std::string> copies;
    if (tile_.shares) copies = MakeCopies();
    planner_.ComputeAt(sum_, out_, inside);
    planner_.Store(sum_, Scope::kRegisters);
    const std::string at = ScheduleSum();
    for (const std::string& copy : copies) ScheduleCopy(copy, at);
  }

 private:
  bool IsTiled(AxisId axis) const { return axis == tile_.x || axis == tile_.y; }

  // The innermost loop of threads.
  std::string ScheduleOut() {
    const Stage out = planner_.StageNamed(out_);
    const std::string x = out.axis(tile_.x).name;
    const std::string y = tile_.y ? out.axis(tile_.y).name : "";
    planner_.Split(out_, x, {tile_.threads_x, tile_.columns});
    if (!y.empty()) planner_.Split(out_, y, {tile_.threads_y, tile_.rows});
    std::vector<std::string> others, order;
    for (AxisId axis : out.spatial_ids())
      if (!IsTiled(axis)) others.push_back(out.axis(axis).name);
    order = others;
    for (const char* part : {".0", ".1", ".2"}) {
      if (!y.empty()) order.push_back(y + part);
      order.push_back(x + part);
    }
    planner_.Reorder(out_, order);
    if (!others.empty()) planner_.Bind(out_, Fused(planner_, out_, others), LaunchAxis::kBlockZ);
    planner_.Bind(out_, x + ".0", LaunchAxis::kBlockX);
    planner_.Bind(out_, x + ".1", LaunchAxis::kThreadX);
    if (!y.empty()) {
      planner_.Bind(out_, y + ".0", LaunchAxis::kBlockY);
      planner_.Bind(out_, y + ".1", LaunchAxis::kThreadY);
      planner_.Unroll(out_, {y + ".2"});
    }
    planner_.Vectorize(out_, {x + ".2"});
    return x + ".1";
  }

  // The loop at which copies are made.
  std::string ScheduleSum() {
    const Stage sum = planner_.StageNamed(sum_);
    const std::string k = sum.reduce_axes[0].name;
    planner_.Split(sum_, k, {tile_.steps});
    std::vector<std::string> order, unrolled{k + ".1"};
    for (AxisId axis : sum.spatial_ids())
      if (!IsTiled(axis)) order.push_back(sum.axis(axis).name);
    order.push_back(k + ".0");
    for (size_t axis = 1; axis < sum.reduce_axes.size(); ++axis) order.push_back(sum.reduce_axes[axis].name);
    order.push_back(k + ".1");
    if (tile_.y) {
      order.push_back(sum.axis(tile_.y).name);
      unrolled.push_back(order.back());
    }
    order.push_back(sum.axis(tile_.x).name);
    planner_.Reorder(sum_, order);
    planner_.Unroll(sum_, unrolled);
    planner_.Vectorize(sum_, {order.back()});
    return k + ".0";
  }

  // What the sum reads, as stages that blocks compute: an element-wise stage that nobody else reads, or a copy.
  std::vector<std::string> MakeCopies() {
    std::vector<std::string> copies;
    const Stage sum = planner_.StageNamed(sum_);
    std::vector<std::string> tensors;
    for (const AccessPattern& access : planner_.AccessesOf(sum)) {
      const std::string name = planner_.kernel().tensors[access.tensor].name;
      if (access.affine && std::find(tensors.begin(), tensors.end(), name) == tensors.end()) tensors.push_back(name);
    }
    for (const std::string& name : tensors) {
      if (IsOnlyForSum(name)) {
        copies.push_back(name);
        planner_.Store(name, Scope::kBlock);
        planner_.MarkScheduled(name);
        continue;
      }
      const std::string copy = planner_.FreshName(name + "_block");
      if (!planner_.CacheRead(name, copy, sum_, Scope::kBlock)) continue;
      copies.push_back(copy);
      planner_.MarkScheduled(copy);
    }
    return copies;
  }

  bool IsOnlyForSum(const std::string& name) const {
    const StageId producer = FindStage(planner_.kernel(), name);
    if (!producer || planner_.IsScheduled(name)) return false;
    const Stage& stage = planner_.kernel().stages[producer];
    return stage.reduction == Reduction::kNone && !stage.axes.empty() &&
           planner_.kernel().tensors[stage.output].kind == TensorKind::kIntermediate &&
           ReadersOf(planner_.kernel(), stage.output).size() == 1;
  }

  // All threads of the block, along the last two axes.
  void ScheduleCopy(const std::string& copy, const std::string& at) {
    planner_.ComputeAt(copy, sum_, at);
    const Stage stage = planner_.StageNamed(copy);
    std::vector<std::string> order;
    const size_t rank = stage.axes.size();
    if (rank == 0) return;
    const std::string x = stage.axes[rank - 1].name, y = rank > 1 && tile_.y ? stage.axes[rank - 2].name : "";
    for (size_t axis = 0; axis + 1 < rank; ++axis)
      if (stage.axes[axis].name != y) order.push_back(stage.axes[axis].name);
    planner_.Split(copy, x, {tile_.threads_x});
    if (!y.empty()) {
      planner_.Split(copy, y, {tile_.threads_y});
      order.push_back(y + ".0");
    }
    order.push_back(x + ".0");
    if (!y.empty()) order.push_back(y + ".1");
    order.push_back(x + ".1");
    planner_.Reorder(copy, order);
    if (!y.empty()) planner_.Bind(copy, y + ".1", LaunchAxis::kThreadY);
    planner_.Bind(copy, x + ".1", LaunchAxis::kThreadX);
  }

  SchedulePlanner& planner_;
  const std::string sum_, out_;
  const Tile tile_;
};

}  // namespace

bool ScheduleGpuTiles(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  if (IsMatrixTimesFewVectors(planner, stage))
    return planner.Refuse("tiles", name, "it is a matrix times few vectors: its elements are not read again");
  if (ScheduleOnWarps(planner, name)) return true;
  if (stage.axes.empty()) return planner.Refuse("tiles", name, "it is one number");
  const std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  const bool reuses = std::any_of(accesses.begin(), accesses.end(), [&](const AccessPattern& access) {
    for (AxisId axis : stage.spatial_ids())
      if (planner.Extent(stage, axis) > 1 && !access.uses[axis]) return true;
    return false;
  });
  if (!reuses || accesses.size() < 2)
    return planner.Refuse("tiles", name, "no operand is read again for other outputs");
  Tile tile;
  tile.x = stage.last_axis();
  tile.y = RowAxis(stage, accesses, tile.x);
  const int64_t width = planner.Extent(stage, tile.x);
  tile.columns = planner.Choose(name, kColumns, {1, 2, 4}, width >= 32 ? 4 : width >= 8 ? 2 : 1);
  tile.threads_x = planner.Choose(
      name, kThreadsX, {4, 8, 16, 32},
      std::clamp<int64_t>(BitCeil(CeilDiv(width, tile.columns)), 4, std::min<int64_t>(16, Allowed(planner))));
  if (tile.y) {
    const int64_t height = planner.Extent(stage, tile.y);
    tile.rows = planner.Choose(name, kThreadRows, {1, 2, 4, 8}, height >= 32 ? 4 : height >= 8 ? 2 : 1);
    tile.threads_y = planner.Choose(name, kThreadsY, {1, 2, 4, 8, 16},
                                    std::clamp<int64_t>(BitCeil(CeilDiv(height, tile.rows)), 1,
                                                        std::min<int64_t>(8, Allowed(planner, tile.threads_x))));
  }
  const int64_t depth = planner.Extent(stage.reduce_axes[0]);
  tile.steps = planner.Choose(name, kSteps, {1, 2, 4, 8, 16}, std::min<int64_t>(8, BitCeil(depth)));
  tile.shares = planner.ChooseIf(name, kShare, Terms(planner, stage) >= 4);

  std::string sum = name, out = planner.FinishingStage(name);
  if (out.empty()) {
    out = name;
    sum = planner.FreshName(name + "_sum");
    if (!planner.Rewrite({"cache_write", name, {sum}}))
      return planner.Refuse("tiles", name, "its sum cannot be a stage of its own");
  }
  planner.MarkScheduled(sum);
  planner.MarkScheduled(out);
  planner.Took("tiles", name,
               tile.shares ? "a tile of a block, from copies that its threads share, and one of a thread"
                           : "a tile of a thread");
  TiledReduction(planner, sum, out, tile).Emit();
  return true;
}

bool ScheduleGpuRows(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  if (stage.axes.empty() || stage.reduction == Reduction::kNone)
    return planner.Refuse("block_rows", name, "it is one number, or no reduction");
  if (Terms(planner, stage) < kFewTerms || Outputs(planner, stage) >= kManyOutputs)
    return planner.Refuse("block_rows", name, "one thread per output makes enough of them");
  const std::string k = stage.reduce_axes.back().name;
  const int64_t extent = planner.Extent(stage.reduce_axes.back());
  const int64_t lanes =
      planner.Choose(name, kLanes, {8, 16, 32, 64, 128},
                     std::clamp<int64_t>(BitCeil(extent) / 2, 8, std::min<int64_t>(64, Allowed(planner))));
  const std::string parts = planner.FreshName(name + "_parts");
  if (!planner.Rfactor(name, k, lanes, parts))
    return planner.Refuse("block_rows", name, "the reduction cannot be divided");
  planner.MarkScheduled(name);
  planner.MarkScheduled(parts);
  planner.Took("block_rows", name, "a block per output, whose threads reduce a part each");
  const std::string block = Fused(planner, name, NamesOf(planner.StageNamed(name).axes));
  planner.Bind(name, block, LaunchAxis::kBlockX);
  planner.RegisterTile(name, block);
  planner.ComputeAt(parts, name, block);
  planner.Store(parts, Scope::kBlock);
  const Stage inner = planner.StageNamed(parts);
  // The lane is the axis that the output does not have.
  const std::string lane = inner.axes.back().name;
  planner.Bind(parts, lane, LaunchAxis::kThreadX);
  planner.RegisterTile(parts, lane);
  return true;
}

bool ScheduleGpuOutputs(SchedulePlanner& planner, const std::string& name) {
  planner.MarkScheduled(name);
  planner.Took("outputs", name, "a thread per output");
  BindOutputs(planner, name);
  return true;
}

bool ScheduleGpuElementwise(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  planner.MarkScheduled(name);
  if (stage.axes.empty()) return true;
  const std::string x = stage.axes.back().name;
  const int64_t width = planner.Extent(stage.axes.back());
  if (width < 32) {
    planner.Took("elementwise", name, "a thread per element: the last axis is short");
    BindOutputs(planner, name);
    return true;
  }
  planner.Took("elementwise", name, "a thread per vector along the last axis");
  const int64_t columns = planner.Choose(name, kColumns, {1, 2, 4}, width % 4 == 0 ? 4 : 1);
  const int64_t threads = planner.Choose(
      name, kThreads, {32, 64, 128, 256},
      std::clamp<int64_t>(BitCeil(CeilDiv(width, columns)), 32, std::min<int64_t>(128, Allowed(planner))));
  planner.Split(name, x, {threads, columns});
  std::vector<std::string> others = NamesOf(stage.axes);
  others.pop_back();
  if (!others.empty()) planner.Bind(name, Fused(planner, name, others), LaunchAxis::kBlockY);
  planner.Bind(name, x + ".0", LaunchAxis::kBlockX);
  planner.Bind(name, x + ".1", LaunchAxis::kThreadX);
  planner.Vectorize(name, {x + ".2"});
  return true;
}

}  // namespace hone
