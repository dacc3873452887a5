// Tiles on GPUs: of reductions that read an operand again for many outputs. One is a block's, whose operands its
// threads copy into block storage together, ahead of the trip that needs them where the device can; and one is each
// thread's, in registers. Operands that are read in windows are copied as columns (implicit GEMM), which makes matrix
// products of convolutions.
#include <algorithm>
#include <set>
#include <span>

#include "base/arithmetic.h"
#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/gpu_loops.h"
#include "codegen/rules/gpu_planning.h"
#include "codegen/rules/row_group.h"
#include "codegen/rules/schedule_rules.h"
#include "codegen/rules/tile_copies.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr Decision kThreadRows{.name = "rows", .meaning = "rows of a thread's tile", .grows_code = true};
constexpr Decision kSteps{.name = "steps",
                          .meaning = "steps of the reduction whose operands are in block storage at once",
                          .grows_code = true};
constexpr Decision kShare{"share", "operands are copied into block storage", Decision::Kind::kAlternative};
constexpr Decision kAsColumns{"columns_of_windows", "operands that are read in windows are copied as columns (im2col)",
                              Decision::Kind::kAlternative};
constexpr Decision kGoesDown{"goes_down", "blocks one after the other have the same columns, not the same rows",
                             Decision::Kind::kAlternative};
constexpr Decision kPanels{"panels", "what columns are read from is copied in panels as wide as a tile",
                           Decision::Kind::kAlternative};

constexpr Decision kRoom{"room", "room in copies, so that threads side by side read other banks of block storage"};
constexpr Decision kTurned{"turned",
                           "copies of operands that lie along the reduction are turned round, element by element",
                           Decision::Kind::kAlternative};
constexpr Decision kParts{"parts", "threads of a block that share each sum, as a part of its terms"};

constexpr int64_t kMostCode = 1024;  // products of a thread in one piece of code
constexpr int64_t kStepsOfPart = 8;  // terms side by side that one thread sums

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
  // `sum`: the stage that reads the operands; `whole`: which adds its parts, where there are several, else the same.
  TiledReduction(SchedulePlanner& planner, std::string sum, std::string whole, std::string out,
                 const ReductionTile& tile)
      : planner_(planner), sum_(std::move(sum)), whole_(std::move(whole)), out_(std::move(out)), tile_(tile) {}

  void Emit() {
    const auto [of_block, of_thread] = BindTile(planner_, out_, tile_);
    // Copies are stages of their own, which change what the sum reads: before its loops.
    if (tile_.shares) MakeCopies();
    planner_.ComputeAt(whole_, out_, of_thread);
    planner_.Store(whole_, Scope::kRegisters);
    if (tile_.parts > 1) {
      AddParts();
      planner_.ComputeAt(sum_, out_, of_block);
    }
    const std::string at = tile_.parts > 1 ? ScheduleParts() : ScheduleSum();
    const ThreadsOfBlock threads{tile_.threads_x, tile_.threads_y, tile_.parts};
    for (const Copy& copy : copies_) {
      if (copy.turned_along.empty())
        CopyByAllThreads(planner_, copy.stage, sum_, at, copy.lanes, threads, tile_.buffers);
      else
        CopyInRuns(planner_, copy.stage, sum_, at, copy.turned_along, RunOfTurned(tile_), threads, tile_.buffers);
    }
  }

 private:
  struct Copy {
    std::string stage;
    int64_t lanes = 1;              // that a thread copies at once
    std::string turned_along = "";  // the axis that rows are of, which lies side by side where they come from
  };

  bool IsTiled(AxisId axis) const { return axis == tile_.x || axis == tile_.y; }

  // A thread's tile, of the parts that threads along z have.
  void AddParts() {
    const Stage whole = planner_.StageNamed(whole_);
    std::vector<std::string> order, unrolled = NamesOf(whole.reduce_axes);
    for (AxisId axis : whole.spatial_ids())
      if (!IsTiled(axis)) order.push_back(whole.axis(axis).name);
    if (tile_.y) unrolled.push_back(whole.axis(tile_.y).name);
    order.insert(order.end(), unrolled.begin(), unrolled.end());
    order.push_back(whole.axis(tile_.x).name);
    planner_.Reorder(whole_, order);
    planner_.Unroll(whole_, unrolled);
    planner_.Vectorize(whole_, {order.back()});
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

  // The same, of parts: the block's tile as often as there are parts, each by threads of its own along z.
  std::string ScheduleParts() {
    const Stage sum = planner_.StageNamed(sum_);
    const std::string trips = sum.reduce_axes[0].name, steps = sum.reduce_axes[1].name;
    const std::string part = sum.axes.back().name, x = sum.axis(tile_.x).name;
    const std::string y = tile_.y ? sum.axis(tile_.y).name : "";
    std::vector<LayoutDim> layout{Whole(part)};
    for (const Axis& axis : sum.axes)
      if (axis.name != part) layout.push_back(Whole(axis.name));
    planner_.Store(sum_, Scope::kBlock, layout);
    planner_.Split(sum_, x, {tile_.columns});
    if (!y.empty()) planner_.Split(sum_, y, {tile_.rows});
    std::vector<std::string> order, unrolled{steps};
    for (AxisId axis : sum.spatial_ids())
      if (!IsTiled(axis) && sum.axis(axis).name != part) order.push_back(sum.axis(axis).name);
    order.push_back(part);
    if (!y.empty()) order.push_back(y + ".0");
    order.insert(order.end(), {x + ".0", trips});
    for (size_t axis = 2; axis < sum.reduce_axes.size(); ++axis) order.push_back(sum.reduce_axes[axis].name);
    order.push_back(steps);
    if (!y.empty()) {
      order.push_back(y + ".1");
      unrolled.push_back(y + ".1");
    }
    order.push_back(x + ".1");
    planner_.Reorder(sum_, order);
    planner_.Bind(sum_, part, LaunchAxis::kThreadZ);
    if (!y.empty()) planner_.Bind(sum_, y + ".0", LaunchAxis::kThreadY);
    planner_.Bind(sum_, x + ".0", LaunchAxis::kThreadX);
    planner_.RegisterTile(sum_, x + ".0");
    planner_.Unroll(sum_, unrolled);
    planner_.Vectorize(sum_, {x + ".1"});
    return trips;
  }

  // What the sum reads, as stages that blocks compute: an element-wise stage that nobody else reads, or a copy.
  void MakeCopies() {
    const Stage sum = planner_.StageNamed(sum_);
    const AxisId steps(sum.axes.size() + (tile_.parts > 1 ? 1 : 0));
    std::set<TensorId> copied;
    const std::vector<AccessPattern> accesses = planner_.AccessesOf(sum);
    for (const AccessPattern& access : accesses) {
      if (!access.affine || !copied.insert(access.tensor).second) continue;
      const TileOperand operand{access, steps};
      const std::string name = planner_.kernel().tensors[access.tensor].name;
      Copy made;
      made.lanes = CopiedAtOnce(planner_, sum, operand, tile_);
      const std::optional<std::string> copy =
          HoldInBlock(planner_, name, sum_, [&](const std::vector<std::string>& axes) {
            made.turned_along = TurnedAlong(planner_, operand, tile_, axes);
            return CopyLayout(planner_, operand, tile_, axes);
          });
      if (!copy) continue;
      made.stage = *copy;
      copies_.push_back(made);
    }
  }

  SchedulePlanner& planner_;
  const std::string sum_, whole_, out_;
  const ReductionTile tile_;
  std::vector<Copy> copies_;
};

// What another stage over the same axes calls the axis of that name.
std::string NameOfSame(const Stage& stage, const Stage& other, const std::string& name) {
  for (size_t i = 0; i < stage.axes.size(); ++i)
    if (stage.axes[i].name == name) return other.axes[i].name;
  return name;
}

// A convolution as a matrix product: what is read in windows through columns, whose rows and columns are one axis each.
// They exist where a block copies them alone, and so does the padding around what they are read from; else a launch of
// their own makes them. The stage that does; "": there is none.
std::string TakeColumns(SchedulePlanner& planner, const std::string& name) {
  const std::optional<Contraction> c = AnalyzeContraction(planner, name);
  const bool as_loops = planner.machine().threads_are_loops;
  if (!c || (c->reduce.size() < 2 && !as_loops)) return "";
  for (int v : {0, 1}) {
    if (c->only[v].empty() || (c->operands[v].IsPlain() && (!as_loops || c->only[v].size() < 2))) continue;
    const bool is_preferred = as_loops ? PaysAsOneAxis(planner, planner.StageNamed(name), c->operands[v])
                                       : planner.machine().has_async_copies;
    if (!planner.ChooseIf(name, kAsColumns, is_preferred)) return "";
    if (c->operands[v].IsPlain()) {  // a matrix but for its axes
      std::vector<std::string> own;
      const std::string out = planner.FinishingStage(name);
      const Stage stage = planner.StageNamed(name);
      for (AxisId axis : c->only[v])
        own.push_back(out.empty() ? stage.axis(axis).name
                                  : NameOfSame(stage, planner.StageNamed(out), stage.axis(axis).name));
      planner.Rewrite({"fuse_axes", out.empty() ? name : out, own});
      return "";
    }
    const Tensor read = planner.kernel().tensors[c->operands[v].tensor];
    const std::optional<Columns> columns = MakeColumns(planner, *c, v);
    if (!columns) return "";
    const StageId padding = FindStage(planner.kernel(), read.name);
    if (padding && planner.kernel().stages[padding].reduction == Reduction::kNone &&
        ReadersOf(planner.kernel(), planner.kernel().stages[padding].output).size() == 1)
      planner.Inline(read.name);
    if (columns->reduced.size() > 1) planner.Rewrite({"flatten_axes", name, columns->reduced});
    if (columns->own.size() < 2) return columns->name;
    // From the last stage that has these axes on.
    const std::string out = planner.FinishingStage(name);
    std::vector<std::string> own;
    for (const std::string& axis : columns->own)
      own.push_back(out.empty() ? axis : NameOfSame(planner.StageNamed(name), planner.StageNamed(out), axis));
    planner.Rewrite({"flatten_axes", out.empty() ? name : out, own});
    return columns->name;
  }
  return "";
}

// A launch makes the columns: where threads are loops one has a whole row, whose loop knows where the row lies.
void ScheduleColumns(SchedulePlanner& planner, const std::string& columns) {
  const Stage stage = planner.StageNamed(columns);
  if (!planner.machine().threads_are_loops || stage.axes.size() < 2) {
    ScheduleGpuElementwise(planner, columns);
    return;
  }
  planner.MarkScheduled(columns);
  std::vector<std::string> rows = NamesOf(stage.axes);
  rows.pop_back();
  BindBlocks(planner, columns,
             {{Fused(planner, columns, rows), Outputs(planner, stage) / planner.Extent(stage.axes.back())}});
}

// Tiles from the largest to the smallest, each for as many blocks as there are units, or a share of that. Measured on
// an H200 with f32: docs/lab/gpus.md.
struct Shape {
  int64_t columns, threads_x, rows, threads_y;
  double blocks_per_unit = 0;
};
constexpr Shape kShapesAhead[] = {
    {8, 16, 8, 8, 2}, {4, 16, 8, 8, 0.7}, {4, 8, 4, 8, 0.7}, {4, 8, 2, 8, 0.7}, {2, 8, 2, 8}};
constexpr Shape kShapesElse[] = {{4, 16, 4, 8}};  // threads wait for their copies: more of them, with smaller tiles
constexpr int64_t kStepsOfLoops = 2;

Shape PreferredShape(const SchedulePlanner& planner, const Stage& stage, const ReductionTile& tile) {
  const int64_t width = planner.Extent(stage, tile.x), height = tile.y ? planner.Extent(stage, tile.y) : 1;
  const int64_t others = Outputs(planner, stage) / width / height;
  const std::span<const Shape> shapes =
      planner.machine().has_async_copies ? std::span<const Shape>(kShapesAhead) : std::span<const Shape>(kShapesElse);
  Shape preferred{};
  for (const Shape& shape : shapes) {
    preferred.columns = width >= 32 ? shape.columns : width >= 8 ? 2 : 1;
    preferred.threads_x = std::clamp<int64_t>(BitCeil(CeilDiv(width, preferred.columns)), 4,
                                              std::min<int64_t>(shape.threads_x, AllowedThreads(planner)));
    preferred.rows = height >= 32 ? shape.rows : std::min<int64_t>(shape.rows, height >= 8 ? 2 : 1);
    preferred.threads_y =
        std::clamp<int64_t>(BitCeil(CeilDiv(height, preferred.rows)), 1,
                            std::min<int64_t>(shape.threads_y, AllowedThreads(planner, preferred.threads_x)));
    const int64_t blocks = others * CeilDiv(width, preferred.columns * preferred.threads_x) *
                           CeilDiv(height, preferred.rows * preferred.threads_y);
    if (static_cast<double>(blocks) >= shape.blocks_per_unit * planner.machine().cores) break;
  }
  return preferred;
}

// Buffers of the copies, where there are trips enough and the block has room.
int64_t ChooseBuffers(SchedulePlanner& planner, const std::string& name, const Stage& stage,
                      const ReductionTile& tile) {
  const int64_t trips = CeilDiv(planner.Extent(stage.reduce_axes[0]), tile.length());
  if (trips < 2) return 1;
  const int64_t sums = tile.parts > 1 ? tile.parts * tile.width() * tile.height() *
                                            ByteSize(planner.kernel().tensors[stage.output].dtype)
                                      : 0;
  const int64_t fitting = (planner.machine().block_bytes - sums) / BytesOfCopies(planner, stage, tile);
  const int64_t wanted = std::min<int64_t>({3, fitting, trips});
  return planner.Choose(name, kBuffers, {1, 2, 3, 4},
                        planner.machine().has_async_copies && trips >= 4 && wanted >= 2 ? wanted : 1);
}

// Where blocks are too few to keep the device busy, their threads divide the sums.
int64_t ChooseParts(SchedulePlanner& planner, const std::string& name, const Stage& stage, const ReductionTile& tile) {
  constexpr int64_t kEnoughThreads = 180;  // of a unit, to hide what they wait for
  const int64_t depth = planner.Extent(stage.reduce_axes[0]);
  if (Terms(planner, stage) != depth) return 1;
  const auto divides = [&](int64_t parts) { return depth % (kStepsOfPart * parts) == 0; };
  std::vector<int64_t> options{1};
  for (int64_t parts : {2, 4, 8})
    if (divides(parts) && AllowedThreads(planner, tile.threads_x * tile.threads_y) >= parts) options.push_back(parts);
  if (options.size() < 2) return 1;
  int64_t preferred = 1;
  const int64_t blocks = Outputs(planner, stage) / planner.Extent(stage, tile.x) /
                         (tile.y ? planner.Extent(stage, tile.y) : 1) *
                         CeilDiv(planner.Extent(stage, tile.x), tile.width()) *
                         (tile.y ? CeilDiv(planner.Extent(stage, tile.y), tile.height()) : 1);
  for (int64_t parts : options) {
    if (!planner.machine().has_async_copies || depth / (kStepsOfPart * parts) < 4) break;
    preferred = parts;
    if (blocks * tile.threads_x * tile.threads_y * parts >= kEnoughThreads * planner.machine().cores) break;
  }
  return planner.Choose(name, kParts, options, preferred);
}

}  // namespace

bool ScheduleGpuTiles(SchedulePlanner& planner, const std::string& name) {
  if (IsMatrixTimesFewVectors(planner, planner.StageNamed(name)))
    return planner.Refuse("tiles", name, "it is a matrix times few vectors: its elements are not read again");
  if (ScheduleOnGroups(planner, name) || ScheduleOnWarps(planner, name)) return true;
  if (planner.StageNamed(name).axes.empty()) return planner.Refuse("tiles", name, "it is one number");
  const std::string made = TakeColumns(planner, name);
  const Stage stage = planner.StageNamed(name);
  const std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  const bool reuses = std::any_of(accesses.begin(), accesses.end(), [&](const AccessPattern& access) {
    for (AxisId axis : stage.spatial_ids())
      if (planner.Extent(stage, axis) > 1 && !access.uses[axis]) return true;
    return false;
  });
  if (!reuses || accesses.size() < 2)
    return planner.Refuse("tiles", name, "no operand is read again for other outputs");
  ReductionTile tile;
  tile.x = stage.last_axis();
  tile.y = RowAxis(stage, accesses, tile.x);
  const bool as_loops = planner.machine().threads_are_loops;
  Panels panels;
  Shape shape;
  if (as_loops) {
    panels = PanelsFor(planner, stage, tile.x);
    if (!panels.tensor.empty() && !planner.ChooseIf(name, kPanels, panels.is_preferred)) panels.tensor.clear();
    const ThreadTile preferred = TileOfLoops(planner, stage, tile.x, tile.y, !panels.tensor.empty());
    shape = {preferred.columns, 1, preferred.rows, 1};
  } else {
    shape = PreferredShape(planner, stage, tile);
  }
  std::vector<int64_t> columns{1, 2, 4, 8}, threads_x{4, 8, 16, 32};
  if (as_loops) {
    columns.insert(columns.end(), {16, 32});
    threads_x.insert(threads_x.begin(), {1, 2});
  }
  tile.columns = planner.Choose(name, kColumns, columns, shape.columns);
  tile.threads_x = planner.Choose(name, kThreadsX, threads_x, shape.threads_x);
  if (tile.y) {
    tile.rows = planner.Choose(name, kThreadRows, {1, 2, 4, 8, 16}, shape.rows);
    tile.threads_y = planner.Choose(name, kThreadsY, {1, 2, 4, 8, 16},
                                    std::min(shape.threads_y, AllowedThreads(planner, tile.threads_x)));
    if (as_loops) tile.goes_down = planner.ChooseIf(name, kGoesDown, true);
  }
  const int64_t depth = planner.Extent(stage.reduce_axes[0]);
  const int64_t inner = Terms(planner, stage) / depth;
  int64_t steps = as_loops ? kStepsOfLoops : 8;
  if (planner.machine().has_async_copies && inner == 1)
    steps = std::clamp<int64_t>(kMostCode / (tile.columns * tile.rows), 8, 32);
  tile.steps = planner.Choose(name, kSteps, {1, 2, 4, 8, 16, 32}, std::min<int64_t>(steps, BitCeil(depth)));
  tile.shares = planner.ChooseIf(name, kShare, Terms(planner, stage) >= 4 && !planner.machine().is_processor);
  if (tile.shares) {
    const AxisId steps = *stage.reduce_ids().begin();
    const bool is_crosswise = std::ranges::any_of(
        accesses, [&](const AccessPattern& access) { return LiesCrosswise(planner, {access, steps}, tile.x); });
    if (is_crosswise) tile.is_turned = planner.ChooseIf(name, kTurned, !planner.machine().is_processor);
    tile.has_room = planner.Choose(name, kRoom, {0, 1}, planner.machine().is_processor ? 0 : 1) != 0;
    tile.parts = ChooseParts(planner, name, stage, tile);
  }
  if (tile.parts > 1) tile.steps = kStepsOfPart;
  if (tile.shares) tile.buffers = ChooseBuffers(planner, name, stage, tile);

  std::string sum = name, out = planner.FinishingStage(name);
  if (out.empty()) {
    out = name;
    sum = planner.FreshName(name + "_sum");
    if (!planner.Rewrite({"cache_write", name, {sum}}))
      return planner.Refuse("tiles", name, "its sum cannot be a stage of its own");
  }
  const std::string whole = sum;
  if (tile.parts > 1) {
    const std::string k = planner.StageNamed(sum).reduce_axes[0].name;
    sum = planner.FreshName(whole + "_parts");
    if (!planner.Rewrite({"split_reduction", whole, {k}, {tile.steps}}) || !planner.Rfactor(whole, k, tile.parts, sum))
      return planner.Refuse("tiles", name, "its sum cannot be divided");
    planner.MarkScheduled(whole);
  }
  planner.MarkScheduled(sum);
  planner.MarkScheduled(out);
  planner.Took("tiles", name,
               tile.shares ? "a tile of a block, from copies that its threads share, and one of a thread"
                           : "a tile of a thread");
  if (!panels.tensor.empty() && !tile.shares) CopyPanels(planner, panels, sum, tile.x, tile.width());
  TiledReduction(planner, sum, whole, out, tile).Emit();
  if (!made.empty() && !tile.shares && made != panels.tensor) ScheduleColumns(planner, made);
  return true;
}

}  // namespace hone
