// Contractions: matrix products of any kind and convolutions, as register tiles over packed panels with the epilogue
// fused. Loops as in BLIS (Van Zee, van de Geijn 2015): a block of rows that stays in the second-level cache, panels of
// the vector operand over it, register tiles over both.
#include <algorithm>

#include "base/arithmetic.h"
#include "codegen/instructions.h"
#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

// How windows are read. Stored in schedules' choices.
enum WindowForm : int64_t { kInPlace = 0, kColumns = 1, kImplicit = 2 };

constexpr int64_t kShortRow = 64;       // vectors
constexpr double kMuchPadding = 1.25;   // times the steps that there are
constexpr double kEvenEnough = 0.9;     // work per worker, least over most
constexpr int64_t kShortestBlock = 32;  // steps of a reduction that is cut

constexpr Decision kPeel{"peel", "rows left over by the tiles have a smaller tile of their own"};
constexpr Decision kOuterPeel{"outer_peel", "the same as peel along the second axis"};
constexpr Decision kBlock{"block", "tiles of rows that a task passes its panels over"};

// im2col: where an operand is read in windows, its columns as a matrix, in memory or only where a panel of it is packed
// (implicit GEMM): then it returns their name. Off unless chosen, as reading windows in place moves less, or unless
// groups of an instruction would pad few channels by much, where columns have hardly a rest: of floats, as bytes take
// less time to multiply than columns to write.
std::string ExpandWindows(SchedulePlanner& planner, const std::string& name) {
  const std::optional<Contraction> c = AnalyzeContraction(planner, name);
  if (!c || c->reduce.size() < 2) return "";
  for (int v = 0; v < 2; ++v) {
    const AccessPattern& access = c->operands[v];
    const Tensor tensor = planner.kernel().tensors[access.tensor];
    if (access.IsPlain() || tensor.is_const || c->only[v].empty()) continue;
    const bool pads_much = IsFloat(tensor.dtype) && GroupPadding(planner, *c) >= kMuchPadding;
    const int64_t form = planner.Choose(
        name,
        {"im2col", "how windows are read: 0 in place, 1 from columns in memory, 2 from columns in the panel",
         Decision::Kind::kAlternative},
        {kInPlace, kColumns, kImplicit}, pads_much ? kColumns : kInPlace);
    if (form == kInPlace) return "";
    const std::optional<Columns> columns = MakeColumns(planner, *c, v);
    if (!columns) return "";
    if (form == kImplicit) return columns->name;
    if (columns->reduced.size() > 1) planner.Rewrite({"fuse_axes", name, columns->reduced});
    if (columns->own.size() > 1) planner.Rewrite({"fuse_axes", name, columns->own});
    return "";
  }
  return "";
}

}  // namespace

std::optional<Columns> MakeColumns(SchedulePlanner& planner, const Contraction& c, int operand) {
  const AccessPattern& access = c.operands[operand];
  const Stage stage = planner.StageNamed(c.stage);
  const std::string tensor = planner.kernel().tensors[access.tensor].name;
  Columns columns;
  columns.name = planner.FreshName(tensor + "_columns");
  std::vector<std::string> names = {tensor, columns.name};
  auto add = [&](const std::vector<AxisId>& from, std::vector<std::string>* group) {
    for (AxisId axis : from) {
      if (!access.uses[axis]) continue;
      names.push_back(stage.axis(axis).name);
      if (group) group->push_back(names.back());
    }
  };
  add(c.batch, nullptr);
  add(c.reduce, &columns.reduced);
  add(c.only[operand], &columns.own);
  if (!planner.Rewrite({"im2col", c.stage, std::move(names)})) return std::nullopt;
  return columns;
}

std::optional<ContractionPair> FindPair(SchedulePlanner& planner, const std::string& name) {
  if (std::string out = planner.FinishingStage(name); !out.empty()) return ContractionPair{name, out};
  std::string sum = planner.FreshName("tile");
  if (!planner.Rewrite({"cache_write", name, {sum}})) return std::nullopt;
  return ContractionPair{sum, name};
}

void ContractionRule::Emit() {
  lanes_ = std::min<int64_t>(c_.lanes, BitCeil(c_.extents[tile_.vector_axis]));
  width_ = lanes_ * tile_.vectors;
  if (const AccessPattern& access = c_.operands[tile_.vector_operand];
      access.strides[tile_.vector_axis] == 1 && access.dimension[tile_.vector_axis] && c_.group == 1)
    tile_.direct =
        planner_.ChooseIf(pair_.sum, {"direct", "the vector operand is read where it lies, not packed"}, tile_.direct);
  TrimPadding();
  ChooseReductionBlock();
  if (c_.group > 1)
    PackGroups(), CopyGroups();
  else
    PackVectorOperand();
  PackRowOperand();
  ChooseBlock();
  ScheduleOut();
  if (reduction_block_ > 0)
    ScheduleBlockedSum();
  else
    ScheduleSum();
  if (!whole_.empty()) ScheduleEdges();
  PrefetchOperand();
  if (!panel_.empty()) SchedulePanel();
  ScheduleWideOperands();
}

// A long panel is cut along the reduction so that a piece stays in the first-level cache under all row tiles of a
// block; partial sums wait in a private block. Worth it once the whole panel would crowd the second-level cache.
void ContractionRule::ChooseReductionBlock() {
  const MachineModel& machine = planner_.machine();
  int64_t step_bytes = width_ * c_.element_bytes;
  double row_tiles = 1;
  for (AxisId axis : c_.only[1 - tile_.vector_operand]) {
    int64_t rows = axis == tile_.row_axis[0] ? tile_.rows[0] : axis == tile_.row_axis[1] ? tile_.rows[1] : 1;
    row_tiles *= static_cast<double>(CeilDiv(c_.extents[axis], rows));
  }
  if (tile_.direct || row_tiles < 4) return;
  int64_t outer = c_.extents[c_.reduce[0]], inner = c_.reduction / outer;
  int64_t steps = std::max<int64_t>(64, machine.l1_bytes / 2 / step_bytes);
  int64_t block = std::max<int64_t>(1, steps / inner);
  int64_t blocks = CeilDiv(outer, block);
  bool pays = c_.reduction * step_bytes > machine.l2_bytes / 2 && blocks >= 2;
  std::vector<int64_t> options{0};
  for (int64_t count : {2, 3, 4, 6, 8, 16})
    if (outer / count * inner >= kShortestBlock) options.push_back(CeilDiv(outer, count));
  reduction_block_ = planner_.Choose(pair_.sum, {"reduction_block", "steps of the reduction done at once; 0: all"},
                                     std::move(options), pays ? CeilDiv(outer, blocks) : 0);
}

// Numbers of tiles in a block: few, then as many as divide the tiles into few blocks.
std::vector<int64_t> ContractionRule::BlockOptions(int64_t tiles) const {
  std::vector<int64_t> options;
  for (int64_t count : {1, 2, 3, 4, 6, 8, 12, 16, 32, 64}) {
    if (count <= tiles) options.push_back(count);
    if (count <= tiles) options.push_back(CeilDiv(tiles, count));
  }
  return options;
}

// A padded copy that all workers write and then all read travels between their caches, which costs more than the copy
// does. Where the blocks of rows are enough for the workers, each task pads its own rows and passes all panels over
// them.
bool ContractionRule::GivesEachTaskItsRows(int64_t tiles, int64_t blocks) {
  const Tensor& rows = planner_.kernel().tensors[c_.operands[1 - tile_.vector_operand].tensor];
  const Stage* pad = ProducerOf(planner_.kernel(), c_.operands[1 - tile_.vector_operand].tensor);
  if (reduction_block_ > 0 || !panel_.empty() || !pad || planner_.IsScheduled(rows.name) ||
      pad->reduction != Reduction::kNone || ReadersOf(planner_.kernel(), pad->output).size() != 1)
    return false;
  if (rows.name == c_.wide_rows && !pad->body.Has(Op::kPad)) return false;  // no rows to walk whole
  const int64_t cores = planner_.machine().cores;
  blocks = RoundUp(blocks, cores);
  int64_t tiles_each = CeilDiv(tiles, blocks);
  bool even = static_cast<double>(tiles) >= kEvenEnough * static_cast<double>(tiles_each * blocks);
  bool pays = planner_.kernel().options.threads != 1 && blocks <= tiles && even;
  if (!planner_.ChooseIf(pair_.sum, {"own_rows", "each task pads its own rows"}, pays)) return false;
  block_tiles_ = planner_.Choose(pair_.sum, kBlock, BlockOptions(tiles), std::min(tiles_each, tiles));
  own_rows_ = rows.name;
  return true;
}

// How much of the row operand stays in the second-level cache while the panels pass over it.
void ContractionRule::ChooseBlock() {
  const AccessPattern& rows = c_.operands[1 - tile_.vector_operand];
  int64_t bytes = planner_.Bytes(rows.tensor);
  for (AxisId axis : c_.batch) bytes /= std::max<int64_t>(1, c_.extents[axis]);
  // The outermost of the tiled row axes is the one to block.
  int which = tile_.row_axis[0] ? 0 : 1;
  block_axis_ = tile_.row_axis[which];
  if (!block_axis_) return;
  int64_t tiles = CeilDiv(c_.extents[block_axis_], tile_.rows[which]);
  int64_t budget = planner_.machine().l2_bytes / 2;
  int64_t blocks = std::max<int64_t>(1, CeilDiv(bytes, budget));
  if (GivesEachTaskItsRows(tiles, blocks)) return;
  // Enough tasks for the workers, without cutting blocks thinner than their panels are worth.
  int64_t vector_tiles = CeilDiv(c_.extents[tile_.vector_axis], width_);
  for (AxisId axis : c_.batch) vector_tiles *= c_.extents[axis];
  int64_t wanted = 4 * planner_.machine().cores;
  if (planner_.kernel().options.threads != 1 && vector_tiles * blocks < wanted)
    blocks = std::max(blocks, CeilDiv(wanted, vector_tiles));
  blocks = std::min(blocks, tiles);
  block_tiles_ = planner_.Choose(pair_.sum, kBlock, BlockOptions(tiles), CeilDiv(tiles, blocks));
}

void ContractionRule::ScheduleOut() {
  const std::string& out = pair_.out;
  std::vector<std::string> task, tiles, inside;  // loops from outside in
  int64_t tasks = 1;
  auto outer = [&](AxisId axis) {
    task.push_back(OutName(axis));
    tasks *= c_.extents[axis];
  };
  for (AxisId axis : c_.batch) outer(axis);
  for (AxisId axis : c_.only[1 - tile_.vector_operand])
    if (axis != tile_.row_axis[0] && axis != tile_.row_axis[1]) outer(axis);
  for (AxisId axis : c_.only[tile_.vector_operand])
    if (axis != tile_.vector_axis) outer(axis);

  std::string vector = OutName(tile_.vector_axis);
  std::vector<std::string> vector_inside;
  if (tile_.transposed) {
    planner_.Split(out, vector, {width_});
    vector_inside = {vector + ".1"};
  } else {
    planner_.Split(out, vector, {tile_.vectors, lanes_});
    vector_inside = {vector + ".1", vector + ".2"};
  }
  std::vector<std::string> row_inside;
  for (int i = 0; i < 2; ++i) {
    const AxisId axis = tile_.row_axis[i];
    if (!axis) continue;
    std::string row = OutName(axis);
    if (axis == block_axis_) {
      planner_.Split(out, row, {block_tiles_, tile_.rows[i]});
      task.push_back(row + ".0");
      tiles.push_back(row + ".1");
      row_inside.push_back(row + ".2");
      tasks *= CeilDiv(c_.extents[axis], block_tiles_ * tile_.rows[i]);
    } else {
      planner_.Split(out, row, {tile_.rows[i]});
      tiles.push_back(row + ".0");
      row_inside.push_back(row + ".1");
    }
    const Expr& extent = planner_.StageNamed(out).axis(axis).extent;
    const bool is_fixed = LowerExtent(planner_.kernel(), extent) == UpperExtent(planner_.kernel(), extent);
    if (c_.extents[axis] < tile_.rows[i] || (is_fixed && c_.extents[axis] % tile_.rows[i] == 0)) continue;
    if (is_fixed && planner_.ChooseIf(pair_.sum, i == 0 ? kOuterPeel : kPeel, false))
      planner_.SetTail(out, row, Tail::kPeel);
    else if (!row_is_packed_const_ && !row_is_total_)
      planner_.SetTail(out, row, Tail::kShift);
  }
  if (own_rows_.empty()) {
    bool panels_outside =
        task.size() > 0 &&
        planner_.ChooseIf(pair_.sum, {"panels_outside", "panels in the outermost loop, rows inside"}, false);
    task.insert(panels_outside ? task.begin() : task.end(), vector + ".0");
    tasks *= CeilDiv(c_.extents[tile_.vector_axis], width_);
  } else {
    tiles.insert(tiles.begin(), vector + ".0");
  }
  if (tile_.direct && c_.extents[tile_.vector_axis] >= width_ && c_.extents[tile_.vector_axis] % width_ != 0)
    planner_.SetTail(out, vector, Tail::kShift);

  std::vector<std::string> order = task;
  order.insert(order.end(), tiles.begin(), tiles.end());
  std::vector<std::string> unrolled;
  std::string vectorised;
  if (tile_.transposed) {
    // Vectors along the last row axis: the register tile is transposed on its way out.
    unrolled = vector_inside;
    for (size_t i = 0; i + 1 < row_inside.size(); ++i) unrolled.push_back(row_inside[i]);
    vectorised = row_inside.back();
  } else {
    unrolled = row_inside;
    unrolled.push_back(vector_inside[0]);
    vectorised = vector_inside[1];
  }
  order.insert(order.end(), unrolled.begin(), unrolled.end());
  order.push_back(vectorised);
  planner_.Reorder(out, order);
  out_task_ = planner_.Parallelize(out, task, tasks, tile_.cycles);
  out_tile_ = tiles.empty() ? out_task_ : tiles.back();
  planner_.Unroll(out, unrolled);
  planner_.Vectorize(out, {vectorised});
  planner_.MarkScheduled(out);
  if (own_rows_.empty()) return;
  planner_.ComputeAt(own_rows_, out, out_task_);
  ScheduleInPlace(planner_, own_rows_);
}

// Steps of the reduction in one piece of code: the innermost axes whole, or a part of the innermost.
void ContractionRule::UnrollReduction(std::vector<std::string>& order, std::vector<std::string>& unrolled) {
  int64_t steps = planner_.Choose(pair_.sum, kUnroll, {1, 2, 3, 4, 8, 9}, 1);
  for (size_t i = c_.reduce.size(); i-- > 0;) {
    int64_t extent = c_.extents[c_.reduce[i]];
    const bool in_copies = IsTrimmed(c_.reduce[i], TrimWay::kByCopies);
    if (in_copies || (extent <= steps && steps > 1)) {
      unrolled.push_back(order[i]);
      steps = std::max<int64_t>(1, steps / extent);
      continue;
    }
    if (IsTrimmed(c_.reduce[i], TrimWay::kByLoop)) steps = 1;  // it stays one loop
    if (steps > 1 && extent % steps == 0) {
      std::string axis = order[i];
      planner_.Split(pair_.sum, axis, {steps});
      order[i] = axis + ".0";
      order.insert(order.begin() + static_cast<int64_t>(i) + 1, axis + ".1");
      unrolled.push_back(axis + ".1");
    }
    steps = 1;
  }
}

void ContractionRule::ScheduleSum() {
  const std::string& sum = pair_.sum;
  planner_.ComputeAt(sum, pair_.out, out_tile_);
  planner_.Store(sum, Scope::kRegisters);
  std::string vector = Name(tile_.vector_axis);
  planner_.Split(sum, vector, {lanes_});
  std::vector<std::string> order, unrolled;
  // Windows stay loops: unrolled, their broadcasts would be kept in registers from one step to the next.
  for (AxisId axis : c_.reduce) {
    order.push_back(Name(axis));
    if (axis != c_.use.grouped) continue;
    planner_.Split(sum, order.back(), {c_.group});
    order.back() += ".0";
  }
  UnrollReduction(order, unrolled);
  for (const std::vector<AxisId>* group :
       {&c_.batch, &c_.only[1 - tile_.vector_operand], &c_.only[tile_.vector_operand]})
    for (AxisId axis : *group) {
      if (axis == tile_.vector_axis) continue;
      order.push_back(Name(axis));
      unrolled.push_back(Name(axis));
    }
  order.push_back(vector + ".0");
  unrolled.push_back(vector + ".0");
  FinishSum(order, unrolled, c_.group > 1 ? Name(c_.use.grouped) + ".1" : "", vector + ".1", "");
}

// The sum's loops in their order, and inside them the lanes, or what an instruction does at once. `tile_loop`: inside
// it a register tile of the sum; "": all of it is in registers.
void ContractionRule::FinishSum(std::vector<std::string> order, const std::vector<std::string>& unrolled,
                                const std::string& group, const std::string& lanes, const std::string& tile_loop) {
  const std::string& sum = pair_.sum;
  if (!group.empty()) order.push_back(group);
  order.push_back(lanes);
  planner_.Reorder(sum, order);
  if (!tile_loop.empty()) planner_.RegisterTile(sum, tile_loop);
  planner_.Unroll(sum, unrolled);
  if (group.empty())
    planner_.Vectorize(sum, {lanes});
  else
    planner_.Tensorize(std::string(c_.use.instruction->name), sum, {group, lanes});
  planner_.MarkScheduled(sum);
}

// A stage over axes of the sum, in the sum's vectors, for one register tile of what finishes it.
void ContractionRule::ScheduleInRegisters(const std::string& stage) {
  planner_.ComputeAt(stage, pair_.out, out_tile_);
  planner_.Store(stage, Scope::kRegisters);
  const std::string vector = Name(tile_.vector_axis);
  planner_.Split(stage, vector, {lanes_});
  const Stage copy = planner_.StageNamed(stage);
  std::vector<std::string> order, unrolled;
  for (const Axis& axis : copy.reduce_axes) order.push_back(axis.name);
  for (const Axis& axis : copy.axes)
    if (axis.name != vector) unrolled.push_back(axis.name);
  unrolled.push_back(vector + ".0");
  order.insert(order.end(), unrolled.begin(), unrolled.end());
  order.push_back(vector + ".1");
  planner_.Reorder(stage, order);
  planner_.Unroll(stage, unrolled);
  planner_.Vectorize(stage, {vector + ".1"});
  planner_.MarkScheduled(stage);
}

// The sum over a block of rows and one panel, a piece of the reduction at a time: each register tile is loaded, added
// to and put back. The finishing stage then passes over the block.
void ContractionRule::ScheduleBlockedSum() {
  const std::string& sum = pair_.sum;
  const Stage stage = planner_.StageNamed(sum);
  std::string vector = Name(tile_.vector_axis), first = Name(c_.reduce[0]);
  if (tile_.transposed && whole_.empty()) {
    // Back through registers, where the tile turns.
    std::string block = planner_.FreshName(sum + "_tile");
    if (planner_.CacheRead(sum, block, pair_.out, Scope::kRegisters)) ScheduleInRegisters(block);
  }
  planner_.ComputeAt(sum, pair_.out, out_task_);
  std::vector<LayoutDim> layout;
  for (const Axis& axis : stage.axes)
    if (axis.name != vector) layout.push_back(Whole(axis.name));
  layout.push_back(Whole(vector));
  planner_.Store(sum, Scope::kPerWorker, layout);

  planner_.Split(sum, vector, {lanes_});
  std::string steps;
  if (c_.use.grouped == c_.reduce[0]) {
    planner_.Split(sum, first, {reduction_block_, c_.group});
    steps = first + ".2";
  } else {
    planner_.Split(sum, first, {reduction_block_});
  }
  std::vector<std::string> order{first + ".0"}, inside, unrolled;
  for (const std::vector<AxisId>* group :
       {&c_.batch, &c_.only[1 - tile_.vector_operand], &c_.only[tile_.vector_operand]})
    for (AxisId axis : *group) {
      if (axis == tile_.vector_axis) continue;
      int which = axis == tile_.row_axis[0] ? 0 : axis == tile_.row_axis[1] ? 1 : -1;
      if (which < 0) {
        order.push_back(Name(axis));  // one element in a task
        continue;
      }
      planner_.Split(sum, Name(axis), {tile_.rows[which]});
      order.push_back(Name(axis) + ".0");
      inside.push_back(Name(axis) + ".1");
    }
  std::string tile_loop = order.back();
  order.push_back(first + ".1");
  for (size_t i = 1; i < c_.reduce.size(); ++i) {
    order.push_back(Name(c_.reduce[i]));
    if (IsTrimmed(c_.reduce[i], TrimWay::kByCopies)) unrolled.push_back(order.back());
    if (c_.use.grouped != c_.reduce[i]) continue;
    planner_.Split(sum, order.back(), {c_.group});
    steps = order.back() + ".1";
    order.back() += ".0";
  }
  unrolled.insert(unrolled.end(), inside.begin(), inside.end());
  order.insert(order.end(), inside.begin(), inside.end());
  order.push_back(vector + ".0");
  unrolled.push_back(vector + ".0");
  FinishSum(std::move(order), unrolled, steps, vector + ".1", tile_loop);
}

bool ScheduleContraction(SchedulePlanner& planner, const std::string& name) {
  const std::string columns = ExpandWindows(planner, name);
  std::optional<Contraction> contraction = AnalyzeContraction(planner, name);
  if (!contraction || contraction->reduce.empty())
    return planner.Refuse("contraction", name, "not a sum over the product of two tensors that are read plainly");
  auto total = [&](const std::vector<AxisId>& axes) {
    int64_t product = 1;
    for (AxisId axis : axes) product *= contraction->extents[axis];
    return product;
  };
  // A matrix times a vector, or less: rows against the vector, unless the matrix is a constant with short rows (packed
  // by columns it needs no sums across lanes, and what follows runs in whole vectors), or lies in memory by columns.
  bool has_rows = total(contraction->only[0]) > 1, has_columns = total(contraction->only[1]) > 1;
  if (!has_rows && !has_columns) return planner.Refuse("contraction", name, "a single sum: nothing is used twice");
  if (contraction->widened >= 0) {
    // Whole numbers become floats while rows are multiplied. With scales and zero points among them the panel costs
    // about as much as to widen what two rows multiply.
    constexpr int64_t kFewRows = 2;
    const TensorId tensor = contraction->operands[contraction->widened].tensor;
    const std::string wide = planner.kernel().tensors[tensor].name;
    int loads = 0;
    Walk(ProducerOf(planner.kernel(), tensor)->body, [&](const Expr& e) { loads += e.op() == Op::kLoad ? 1 : 0; });
    const bool is_conversion = loads == 1;
    const bool is_read_little = total(contraction->only[1 - contraction->widened]) <= kFewRows;
    if (planner.ChooseIf(name, {"widen_in_place", "narrow elements are widened where they are multiplied"},
                         is_conversion || is_read_little) &&
        planner.Inline(wide)) {
      contraction = AnalyzeContraction(planner, name);
      if (!contraction)
        return planner.Refuse("contraction", name, "narrow elements with their scales are widened for each row");
      has_rows = total(contraction->only[0]) > 1, has_columns = total(contraction->only[1]) > 1;
    }
  }
  if (columns.empty() && contraction->widened < 0) {
    contraction = NarrowFactors(planner, *std::move(contraction));
    if (ScheduleOnTiles(planner, *contraction)) return true;
    contraction = AnalyzeContraction(planner, name);  // what was tried may have left another kernel
    if (!contraction) return planner.Refuse("contraction", name, "its columns are read in another way");
    contraction = UseInstruction(planner, *std::move(contraction));
  }
  const std::string sum = contraction->stage;
  if (contraction->group == 1 && (!has_rows || !has_columns)) {
    const AccessPattern& access = contraction->operands[has_rows ? 0 : 1];
    const Tensor& matrix = planner.kernel().tensors[access.tensor];
    const bool has_short_rows = matrix.is_const && matrix.kind == TensorKind::kInput &&
                                contraction->reduction <= kShortRow * contraction->lanes;
    const bool lies_by_columns =
        access.IsPlain() && std::none_of(contraction->reduce.begin(), contraction->reduce.end(),
                                         [&](AxisId axis) { return access.strides[axis] == 1; });
    if (!has_short_rows && !lies_by_columns)
      return planner.Refuse("contraction", name,
                            "a matrix times a vector uses nothing twice; packing pays for constants with short rows");
  }
  std::optional<RegisterTile> tile = ChooseTile(planner, *contraction);
  if (!tile) return planner.Refuse("contraction", name, "no axis that vectors could run along");
  std::optional<ContractionPair> pair = FindPair(planner, sum);
  if (!pair) return planner.Refuse("contraction", name, "the sum cannot be separated from what it is written to");
  contraction->stage = pair->sum;
  contraction = WidenOperands(planner, *tile, *std::move(contraction));
  ContractionRule(planner, *pair, *std::move(contraction), *tile, columns).Emit();
  planner.Took("contraction", name,
               tile->transposed ? "a register tile over two operands that are used again, transposed on its way out"
                                : "a register tile over two operands that are used again");
  return true;
}

}  // namespace hone
