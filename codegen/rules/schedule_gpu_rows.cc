// Reductions along rows, on GPUs: softmax, normalisations, row sums, global pools, a matrix times a vector. A block
// takes a row, or a few, in one launch: its threads read the row side by side, each keeps what it reduces in registers,
// their partial results meet in block storage, and what follows is computed by the same threads. What a row needs in
// between stays in block storage, or is computed again where that is too small.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "base/arithmetic.h"
#include "codegen/rules/gpu_planning.h"
#include "codegen/rules/row_group.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr Decision kRowLanes{"lanes", "threads among which a reduction is divided"};
constexpr Decision kRowsOfBlock{"block_rows", "rows of a block"};
constexpr Decision kStepsAtOnce{
    .name = "unroll", .meaning = "steps of a thread along the row in one piece of code", .grows_code = true};
constexpr Decision kPieces{"pieces", "parts of a row, each for a block of its own, which a second launch adds up"};
constexpr Decision kKeepRow{"keep", "what a row needs in between is kept in block storage"};

constexpr int64_t kThreadsOfAWarp = 32;
constexpr int64_t kFewTermsOfARow = 32;    // a reduction that one thread makes alone
constexpr int64_t kFewPartials = 32;       // that each thread adds up by itself
constexpr int64_t kEnoughThreads = 65536;  // to fill a large device
constexpr int64_t kUsualBlock = 128;       // threads
constexpr int64_t kEnoughBlocks = 512;
constexpr int64_t kMostThreadsOfARow = 256;
constexpr int64_t kStepsOfAThread = 8;  // whose loads are on their way at once
constexpr int64_t kStepsOfAPass =
    2;  // of several passes over a row: more threads, of which some pass while others wait

constexpr int64_t kFewRows = 64;     // fewer than a large device has multiprocessors
constexpr int64_t kLongRow = 65536;  // elements for which more launches are sooner done than one block
constexpr int64_t kShortestPiece = 4096;
constexpr int64_t kStepWidth = 4;  // elements of a vector

int64_t RowThreadsAllowed(const SchedulePlanner& planner) {
  return std::max<int64_t>(1, planner.machine().block_threads);
}

// The reduced axis that is divided: the last one of more than one element.
AxisId DividedAxis(const SchedulePlanner& planner, const Stage& stage) {
  AxisId axis(static_cast<int>(stage.axis_count()) - 1);
  while (axis.index() > stage.axes.size() && planner.Extent(stage, axis) == 1) --axis;
  return axis;
}

// Elements along the axis that one access takes: those of a vector where all operands have them side by side, aligned.
int64_t WidthAlong(const SchedulePlanner& planner, const Stage& stage, AxisId axis) {
  int64_t width = kStepWidth;
  auto fit = [&](int64_t number) {
    while (number % width != 0) width /= 2;
  };
  fit(planner.Extent(stage, axis));
  bool reads = false;
  for (const AccessPattern& access : planner.AccessesOf(stage)) {
    if (!access.affine) return 1;
    if (access.strides[axis] == 0) continue;
    reads = true;
    if (access.strides[axis] != 1) return 1;
    if (ByteSize(planner.kernel().tensors[access.tensor].dtype) == 8) width = std::min<int64_t>(width, 2);
    for (AxisId other : stage.axis_ids())
      if (other != axis && planner.Extent(stage, other) > 1) fit(access.strides[other]);
  }
  return reads ? width : 1;
}

bool IsReduction(const Stage& stage) { return stage.reduction != Reduction::kNone; }

// A reduction to one number a row, which threads side by side may read along the row.
bool ReducesARow(const SchedulePlanner& planner, const Stage& stage, size_t rows) {
  if (stage.axes.size() != rows || ReducesColumns(planner, stage)) return false;
  const AxisId axis = DividedAxis(planner, stage);
  bool is_side_by_side = planner.Extent(stage, axis) == 1;
  for (const AccessPattern& access : planner.AccessesOf(stage)) is_side_by_side |= access.strides[axis] == 1;
  return is_side_by_side;
}

struct RowShape {
  size_t rows = 0;       // leading axes of the output
  int64_t threads = 1;   // of a row
  int64_t together = 1;  // rows of a block
  bool keeps = true;
  // Short leading axes of outputs that a thread computes all of, since they share what is largest.
  std::vector<AxisId> inside = {};

  bool IsInside(size_t axis) const {
    return std::find(inside.begin(), inside.end(), AxisId(static_cast<int>(axis))) != inside.end();
  }
};

class BlockRows {
 public:
  BlockRows(SchedulePlanner& planner, std::string out, std::vector<std::string> group, const RowShape& shape)
      : planner_(planner), out_(std::move(out)), group_(std::move(group)), shape_(shape) {}

  void Emit() {
    // While it still shows that NaN comes through the sum.
    for (const std::string& name : group_)
      if (planner_.StageNamed(name).reduction == Reduction::kMax) planner_.Rewrite({"max_ignore_nan", name});
    ScheduleOut();
    for (auto name = group_.rbegin(); name != group_.rend(); ++name) {
      const Stage stage = planner_.StageNamed(*name);
      if (stage.axes.size() > shape_.rows)
        ScheduleElements(*name);
      else if (IsReduction(stage))
        ScheduleReductionOfRow(*name);
      else
        ScheduleElementwiseNumber(*name);
    }
  }

 private:
  struct Place {
    std::string stage, loop;
    bool operator==(const Place&) const = default;
  };

  std::string RowAxis(const std::string& name) const { return planner_.StageNamed(name).axes[shape_.rows - 1].name; }

  void ScheduleOut() {
    const Stage out = planner_.StageNamed(out_);
    const std::string row = RowAxis(out_);
    planner_.Split(out_, row, {shape_.together});
    std::vector<std::string> blocks = RowLoops(out_);
    blocks.back() = row + ".0";
    if (!shape_.inside.empty()) {
      std::vector<std::string> order = blocks, inside = InsideLoops(out_);
      order.push_back(row + ".1");
      order.insert(order.end(), inside.begin(), inside.end());
      planner_.Reorder(out_, order);
      planner_.Unroll(out_, inside);
    }
    block_ = Fused(planner_, out_, blocks);
    int64_t count = CeilDiv(planner_.Extent(out.axes[shape_.rows - 1]), shape_.together);
    for (size_t axis = 0; axis + 1 < shape_.rows; ++axis)
      if (!shape_.IsInside(axis)) count *= planner_.Extent(out.axes[axis]);
    planner_.MarkScheduled(out_);
    std::vector<std::string> order{block_, row + ".1"};
    if (out.axes.size() == shape_.rows) {
      block_ = BindBlocks(planner_, out_, {{block_, count}});
      planner_.Bind(out_, row + ".1", LaunchAxis::kThreadY);
      places_[out_] = {out_, row + ".1"};
      return;
    }
    const std::string thread = DivideElements(out_, order);
    block_ = BindBlocks(planner_, out_, {{block_, count}});
    planner_.Bind(out_, row + ".1", LaunchAxis::kThreadY);
    places_[out_] = {out_, thread};
  }

  // Loops of a stage along the row: threads side by side, in vectors; `order`: the loops outside of them.
  std::string DivideElements(const std::string& name, std::vector<std::string> order) {
    const Stage stage = planner_.StageNamed(name);
    const std::string along = stage.axes.back().name;
    const int64_t extent = planner_.Extent(stage.axes.back());
    const int64_t width = WidthAlong(planner_, stage, stage.last_axis());
    const int64_t at_once = StepsAtOnce(name, CeilDiv(extent, shape_.threads * width));
    planner_.Split(name, along, {at_once, shape_.threads, width});
    order.push_back(along + ".2");
    for (size_t i = shape_.rows; i + 1 < stage.axes.size(); ++i) order.push_back(stage.axes[i].name);
    order.insert(order.end(), {along + ".0", along + ".1", along + ".3"});
    planner_.Reorder(name, order);
    planner_.Bind(name, along + ".2", LaunchAxis::kThreadX);
    planner_.Unroll(name, {along + ".1"});
    planner_.Vectorize(name, {along + ".3"});
    return along + ".2";
  }

  // Of so many steps those whose loads are issued together.
  int64_t StepsAtOnce(const std::string& name, int64_t steps, int64_t most = kStepsOfAThread) {
    int64_t usual = std::min(steps, most);
    while (steps % usual != 0) --usual;
    if (usual < std::min<int64_t>(steps, 3)) usual = std::min({steps, int64_t{4}, most});
    std::vector<int64_t> options;
    for (int64_t count : {1, 2, 4, 8})
      if (count <= steps) options.push_back(count);
    return planner_.Choose(name, kStepsAtOnce, std::move(options), usual);
  }

  // What all threads of the block compute once for its rows.
  void ComputeInBlock(const std::string& name) {
    planner_.ComputeAt(name, out_, block_);
    planner_.Store(name, Scope::kBlock);
    planner_.MarkScheduled(name);
  }

  std::vector<std::string> RowLoops(const std::string& name) const {
    std::vector<std::string> loops;
    const Stage stage = planner_.StageNamed(name);
    for (size_t i = 0; i < shape_.rows; ++i)
      if (!shape_.IsInside(i)) loops.push_back(stage.axes[i].name);
    return loops;
  }
  std::vector<std::string> InsideLoops(const std::string& name) const {
    std::vector<std::string> loops;
    for (AxisId axis : shape_.inside) loops.push_back(planner_.StageNamed(name).axis(axis).name);
    return loops;
  }

  void ScheduleElements(const std::string& name) {
    ComputeInBlock(name);
    const std::string row = RowAxis(name);
    const std::string thread = DivideElements(name, RowLoops(name));
    planner_.Bind(name, row, LaunchAxis::kThreadY);
    places_[name] = {name, thread};
  }

  void ScheduleReductionOfRow(const std::string& name) {
    const Stage stage = planner_.StageNamed(name);
    const AxisId axis = DividedAxis(planner_, stage);
    const int64_t width = WidthAlong(planner_, stage, axis);
    const std::string parts = planner_.FreshName(name + "_parts");
    if (planner_.Rfactor(name, stage.axis(axis).name, shape_.threads, parts, width)) {
      ScheduleParts(name, parts, stage.axis(axis).name, width);
      if (shape_.threads > kFewPartials) {
        // As many steps for the threads that come between as for each thread after them.
        const int64_t fewer = BitCeil(shape_.threads) >= 256 ? 16 : 8;
        const std::string between = planner_.FreshName(name + "_fewer");
        if (planner_.Rfactor(name, planner_.StageNamed(name).reduce_axes.back().name, fewer, between))
          ScheduleParts(name, between, "", 1);
      }
    }
    ScheduleNumber(name);
    AddUp(name);
  }

  // A thread for each partial result of each row, which is in a register until it is whole.
  void ScheduleParts(const std::string& name, const std::string& parts, const std::string& along, int64_t width) {
    ComputeInBlock(parts);
    const Stage stage = planner_.StageNamed(parts);
    std::vector<std::string> order = RowLoops(parts);
    const std::string row = order.back(), lane = stage.axes.back().name;
    order.push_back(lane);
    const size_t reduced = stage.reduce_axes.size() - (width > 1 ? 1 : 0);
    std::vector<std::string> unrolled = InsideLoops(parts);
    const int64_t most = unrolled.empty() ? kStepsOfAThread : 2;
    // Of blocks that are one step each, several at once.
    const bool is_one_step = !along.empty() && planner_.Extent(stage, FindAxis(stage, along)) == 1;
    for (size_t i = 0; i < reduced; ++i) {
      const std::string& name_of_axis = stage.reduce_axes[i].name;
      if (name_of_axis == along) continue;
      order.push_back(name_of_axis);
      if (!is_one_step || i + 2 != reduced) continue;
      planner_.Split(parts, name_of_axis, {StepsAtOnce(parts, planner_.Extent(stage.reduce_axes[i]), most)});
      order.back() += ".0";
      order.push_back(name_of_axis + ".1");
      unrolled.push_back(order.back());
    }
    if (!along.empty()) {
      const AxisId axis = FindAxis(stage, along);
      const int64_t at_once = StepsAtOnce(name, planner_.Extent(stage, axis), most);
      planner_.Split(parts, along, {at_once});
      order.insert(order.end(), {along + ".0", along + ".1"});
    }
    const std::vector<std::string> inside = InsideLoops(parts);
    order.insert(order.end(), inside.begin(), inside.end());
    if (width > 1) order.push_back(stage.reduce_axes.back().name);
    planner_.Reorder(parts, order);
    planner_.Bind(parts, row, LaunchAxis::kThreadY);
    planner_.Bind(parts, lane, LaunchAxis::kThreadX);
    planner_.RegisterTile(parts, lane);
    unrolled.push_back(along.empty() ? stage.reduce_axes.back().name : along + ".1");
    planner_.Unroll(parts, unrolled);
    if (width > 1) planner_.Vectorize(parts, {stage.reduce_axes.back().name});
    places_[parts] = {parts, lane};
  }

  // The loop over partial results, which each thread that wants the sum makes.
  void AddUp(const std::string& name) {
    const Stage stage = planner_.StageNamed(name);
    const std::string lane = stage.reduce_axes.back().name;
    const int64_t count = planner_.Extent(stage.reduce_axes.back());
    const int64_t width = count % kStepWidth == 0 && count <= kFewPartials ? kStepWidth : 1;
    planner_.Split(name, lane, {width});
    std::vector<std::string> order = RowLoops(name), unrolled = InsideLoops(name);
    order.push_back(lane + ".0");
    order.insert(order.end(), unrolled.begin(), unrolled.end());
    order.push_back(lane + ".1");
    planner_.Reorder(name, order);
    if (width > 1) unrolled.push_back(lane + ".0");
    planner_.Unroll(name, unrolled);
    planner_.Vectorize(name, {lane + ".1"});
  }

  // A number for each row: in a register of each thread where one stage reads it, else in block storage.
  void ScheduleNumber(const std::string& name) {
    std::optional<Place> place;
    bool is_one = true;
    for (StageId reader : ReadersOf(planner_.kernel(), FindTensor(planner_.kernel(), name))) {
      const Place here = places_.at(planner_.NameOf(planner_.kernel().stages[reader]));
      is_one &= !place || *place == here;
      place = here;
    }
    if (is_one) {
      planner_.ComputeAt(name, place->stage, place->loop);
      planner_.Store(name, Scope::kRegisters);
      planner_.MarkScheduled(name);
      places_[name] = *place;
      return;
    }
    ComputeInBlock(name);
    const std::string row = RowAxis(name);
    planner_.Bind(name, row, LaunchAxis::kThreadY);
    if (IsReduction(planner_.StageNamed(name))) planner_.RegisterTile(name, row);
    places_[name] = {name, row};
  }

  void ScheduleElementwiseNumber(const std::string& name) {
    ScheduleNumber(name);
    planner_.Unroll(name, InsideLoops(name));
  }

  SchedulePlanner& planner_;
  const std::string out_;
  const std::vector<std::string> group_;
  const RowShape shape_;
  std::string block_;                    // the output's loop over blocks
  std::map<std::string, Place> places_;  // where a thread has what it needs for its part of a stage
};

// Bytes of block storage that a row needs in between.
int64_t KeptBytes(const SchedulePlanner& planner, const std::vector<std::string>& group, size_t rows) {
  int64_t bytes = 0;
  for (const std::string& name : group) {
    const Stage& stage = planner.StageNamed(name);
    if (stage.axes.size() == rows) continue;
    int64_t elements = ByteSize(planner.kernel().tensors[stage.output].dtype);
    for (size_t i = rows; i < stage.axes.size(); ++i) elements *= planner.Extent(stage.axes[i]);
    bytes += elements;
  }
  return bytes;
}

// The group's stages along the row are computed where they are read: all of them, or those that one stage alone reads.
bool ComputeWhereRead(SchedulePlanner& planner, const std::vector<std::string>& group, size_t rows, bool all) {
  for (const std::string& name : group) {
    const Stage& stage = planner.StageNamed(name);
    if (stage.axes.size() == rows) continue;
    if (!all && ReadersOf(planner.kernel(), stage.output).size() > 1) continue;
    if (!planner.Inline(name) && all) return false;
  }
  return true;
}

int64_t LongestRow(const SchedulePlanner& planner, const std::vector<std::string>& group) {
  int64_t longest = 1;
  for (const std::string& name : group) {
    const Stage& stage = planner.StageNamed(name);
    if (IsReduction(stage)) longest = std::max(longest, TermsOf(planner, stage));
  }
  return longest;
}

// Of a reduction to few numbers of many terms each, the stage that reduces pieces of rows; "": it is not divided.
std::string TakePieces(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  const AxisId axis = DividedAxis(planner, stage);
  const int64_t extent = planner.Extent(stage, axis), rows = RowsOf(planner, stage, stage.axes.size());
  std::vector<int64_t> options;
  for (int64_t count = 1; count <= 256 && count * kShortestPiece <= extent; count *= 4) options.push_back(count);
  int64_t usual = 1;
  while (rows * usual < 2 * kFewRows && 2 * usual * kShortestPiece <= extent) usual *= 2;
  if (options.size() < 2) return "";
  const int64_t pieces = planner.Choose(name, kPieces, std::move(options), rows < kFewRows ? usual : 1);
  const std::string parts = planner.FreshName(name + "_pieces");
  if (pieces == 1 ||
      !planner.Rfactor(name, stage.axis(axis).name, pieces, parts, RoundUp(CeilDiv(extent, pieces), kStepWidth)))
    return "";
  return parts;
}

// Of a matrix times few vectors: the axes along which these lie. For nothing else.
std::vector<AxisId> AxesInside(const SchedulePlanner& planner, const std::vector<std::string>& group, size_t rows) {
  if (group.size() != 1) return {};
  const Stage& stage = planner.StageNamed(group[0]);
  const std::optional<AccessPattern> matrix = LargestOperand(planner, stage);
  if (stage.axes.size() != rows || !IsReduction(stage) || !matrix) return {};
  std::vector<AxisId> inside;
  int64_t count = 1;
  for (AxisId axis : stage.spatial_ids()) {
    if (matrix->uses[axis] || axis == stage.last_axis() || planner.Extent(stage, axis) == 1) continue;
    count *= planner.Extent(stage, axis);
    inside.push_back(axis);
  }
  return count <= kReusedTooLittle ? inside : std::vector<AxisId>{};
}

// The row's loops: `group` is what the rows of `name` need.
bool TakeRows(SchedulePlanner& planner, const std::string& name, std::vector<std::string> group, size_t rows) {
  RowShape shape;
  shape.rows = rows;
  ComputeWhereRead(planner, group, rows, false);
  for (const std::string& g : group)
    if (FindStage(planner.kernel(), g) && IsReduction(planner.StageNamed(g))) InlineFeeders(planner, g);
  std::erase_if(group, [&](const std::string& g) { return !FindStage(planner.kernel(), g); });
  int64_t vectors = 1;
  for (const std::string& g : group) {
    const Stage& part = planner.StageNamed(g);
    if (!IsReduction(part)) continue;
    const AxisId axis = DividedAxis(planner, part);
    vectors = std::max(vectors, CeilDiv(planner.Extent(part, axis), WidthAlong(planner, part, axis)));
  }
  const Stage out = planner.StageNamed(name);
  const int64_t row_count = RowsOf(planner, out, shape.rows);
  const int64_t last_rows = planner.Extent(out.axes[shape.rows - 1]);
  const int64_t most = std::min(kMostThreadsOfARow, RowThreadsAllowed(planner));
  const int64_t steps = out.axes.size() > shape.rows ? kStepsOfAPass : kStepsOfAThread;
  int64_t threads = std::clamp(BitCeil(CeilDiv(vectors, steps)), std::min(kThreadsOfAWarp, BitCeil(vectors)), most);
  while (row_count * threads < kEnoughThreads && threads < vectors / 2 && threads < most) threads *= 2;
  std::vector<int64_t> options;
  for (int64_t count = 4; count <= most; count *= 2)
    if (count <= BitCeil(vectors)) options.push_back(count);
  shape.threads = planner.Choose(name, kRowLanes, std::move(options), threads);

  const int64_t partials = 2 * shape.threads * 8 * static_cast<int64_t>(group.size());
  const int64_t kept = KeptBytes(planner, group, shape.rows);
  const int64_t room = planner.machine().block_bytes - partials;
  int64_t together = 1;
  auto fits = [&](int64_t count) {
    return shape.threads * count <= RowThreadsAllowed(planner) && count * kept <= room && count <= last_rows;
  };
  while (shape.threads * together < kUsualBlock && fits(2 * together) && last_rows % (2 * together) == 0 &&
         row_count / (2 * together) >= kEnoughBlocks)
    together *= 2;
  options.clear();
  for (int64_t count : {1, 2, 4, 8})
    if (fits(count)) options.push_back(count);
  shape.together = planner.Choose(name, kRowsOfBlock, std::move(options), together);
  if (kept > 0) shape.keeps = planner.ChooseIf(name, kKeepRow, shape.together * kept <= room) && kept <= room;
  if (!shape.keeps) {
    if (!ComputeWhereRead(planner, group, shape.rows, true))
      return planner.Refuse("rows", name,
                            "a row is too long for block storage, and what it needs in between too much code");
    std::erase_if(group, [&](const std::string& g) { return !FindStage(planner.kernel(), g); });
  }
  shape.inside = AxesInside(planner, group, rows);
  planner.Took("rows", name,
               shape.keeps ? "a row by threads of a block in one launch; what it needs in between is in block storage"
                           : "a row by threads of a block in one launch, which compute anew what does not fit there");
  BlockRows(planner, name, group, shape).Emit();
  return true;
}

// A reduction, with what it alone reads.
bool TakeReduction(SchedulePlanner& planner, const std::string& name) {
  const size_t rows = planner.StageNamed(name).axes.size();
  if (!planner.Rewrite({"cache_write", name, {planner.FreshName(name + "_sum")}}))
    return planner.Refuse("rows", name, "the reduction cannot be separated from what it is written to");
  return TakeRows(
      planner, name,
      RowGroup(planner, name, rows,
               [&](const Stage& stage) { return !IsReduction(stage) || ReducesARow(planner, stage, rows); }),
      rows);
}

bool ScheduleRowReduction(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  const auto refuse = [&](std::string_view why) { return planner.Refuse("rows", name, why); };
  if (TermsOf(planner, stage) < kFewTermsOfARow) return refuse("a thread reduces so little by itself");
  if (!ReducesARow(planner, stage, stage.axes.size()))
    return refuse("what it reduces does not lie side by side in memory");
  if (LeastReuse(planner, stage) > kReusedTooLittle) return refuse("its operands are read again for many outputs");
  const std::string pieces = TakePieces(planner, name);
  if (pieces.empty()) return TakeReduction(planner, name);
  TakeReduction(planner, pieces);
  if (TermsOf(planner, planner.StageNamed(name)) < kFewTermsOfARow) return refuse("it adds up few pieces");
  return TakeReduction(planner, name);
}

}  // namespace

bool ScheduleGpuRowChains(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  if (stage.axes.empty()) return planner.Refuse("rows", name, "it is one number");
  if (IsReduction(stage)) return ScheduleRowReduction(planner, name);
  // As many leading axes as leave something that is reduced to one number a row.
  for (size_t rows = stage.axes.size(); rows >= 1; --rows) {
    std::vector<std::string> group = RowGroup(planner, name, rows, [&](const Stage& s) {
      return !IsReduction(s) || (ReducesARow(planner, s, rows) && LeastReuse(planner, s) <= kReusedTooLittle);
    });
    if (std::none_of(group.begin(), group.end(),
                     [&](const std::string& g) { return IsReduction(planner.StageNamed(g)); }))
      continue;
    if (RowsOf(planner, stage, rows) < kFewRows && LongestRow(planner, group) >= kLongRow)
      return planner.Refuse("rows", name, "few long rows: a launch for each stage has more blocks work on them");
    return TakeRows(planner, name, std::move(group), rows);
  }
  return planner.Refuse("rows", name, "nothing that feeds it reduces along rows");
}

}  // namespace hone
