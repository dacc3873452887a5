// Contractions by instructions that the threads of a warp do together (codegen/instructions.h). A block computes a tile
// of rows and columns, whose operands its threads copy into block storage; each of its warps a part of it, in tiles of
// the instruction that stay in registers while the reduction passes by. What finishes the sum is computed by the
// threads that hold its elements.
#include <algorithm>
#include <array>

#include "base/arithmetic.h"
#include "codegen/instructions.h"
#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/gpu_planning.h"
#include "codegen/rules/schedule_rules.h"
#include "codegen/rules/warp_rule.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr Decision kOnWarps{"on_warps", "an instruction multiplies matrices, by the threads of a warp",
                            Decision::Kind::kAlternative};
constexpr Decision kRowTiles{.name = "row_tiles", .meaning = "tiles of rows that a warp keeps", .grows_code = true};
constexpr Decision kColumnTiles{
    .name = "column_tiles", .meaning = "tiles of columns that a warp keeps", .grows_code = true};
constexpr Decision kRowWarps{"row_warps", "warps of a block along the axis of rows"};
constexpr Decision kColumnWarps{"column_warps", "warps of a block along the axis of columns"};
constexpr Decision kTileSteps{.name = "tile_steps",
                              .meaning = "steps of the instruction whose operands are in block storage at once",
                              .grows_code = true};

constexpr int64_t kThreadsOfWarp = 32;
constexpr double kShareWorthIt = 0.25;  // of what tiles compute that is not padding
// Sums of floats are cut off, not rounded: of one sign K terms drift by K/8 · 2⁻²⁵ of the sum, and by more than the
// kernel's accuracy allows (10⁻⁴ at relaxed, 10⁻² at fast, 2⁻¹⁰ of which are factors of tf32) beyond so many
// (docs/schedules.md).
int64_t MostTerms(Accuracy accuracy) {
  switch (accuracy) {
    case Accuracy::kStrict: return 512;
    case Accuracy::kRelaxed: return int64_t{1} << 14;
    case Accuracy::kFast: return int64_t{1} << 20;
  }
  return 0;
}
constexpr int64_t kRoomBytes = 16;  // between rows in block storage, so that those of a fragment lie in other banks
constexpr int64_t kMostLanes = 4;   // of an access

AxisId LongestOf(const Contraction& c, const std::vector<AxisId>& axes) {
  AxisId longest;
  for (AxisId axis : axes)
    if (!longest || c.extents[axis] >= c.extents[longest]) longest = axis;
  return longest;
}

// Bytes of the copies of both operands for so many rows, columns and steps: of windows all places are copied at once.
int64_t BytesOfCopies(const Contraction& c, const WarpRoles& roles, const InstructionMeaning& meaning, int64_t rows,
                      int64_t columns, int64_t steps) {
  int64_t bytes = 0;
  for (int v : {0, 1}) {
    const AccessPattern& access = c.operands[v];
    const AxisId lines = v == roles.column_operand ? roles.columns : roles.rows;
    const int64_t apart = access.dimension[lines] ? 1 : std::max<int64_t>(1, access.strides[lines]);
    int64_t places = (v == roles.column_operand ? columns : rows) * apart, times = 1;
    for (AxisId axis : c.reduce) {
      if (axis == roles.grouped || !access.uses[axis]) continue;
      const bool is_along = !access.dimension[lines] && access.strides[axis] < apart * c.extents[lines];
      if (is_along)
        places += (c.extents[axis] - 1) * access.strides[axis];
      else
        times *= c.extents[axis];
    }
    bytes += places * times * (steps * meaning.step_bytes + kRoomBytes);
  }
  return bytes;
}

class WarpRule {
 public:
  WarpRule(SchedulePlanner& planner, const Instruction& instruction, ContractionPair pair, Contraction contraction,
           const WarpRoles& roles)
      : planner_(planner),
        instruction_(instruction),
        meaning_(MeaningOf(instruction)),
        pair_(std::move(pair)),
        c_(std::move(contraction)),
        roles_(roles) {}

  void Emit() {
    ChooseTile();
    ScheduleOut();
    // Copies are stages of their own, which change what the sum reads: before its loops.
    const std::vector<Copy> copies = MakeCopies();
    planner_.ComputeAt(pair_.sum, pair_.out, warp_loop_);
    planner_.Store(pair_.sum, Scope::kRegisters);
    const std::string at = ScheduleSum();
    ChooseBuffers();
    for (const Copy& copy : copies) ScheduleCopy(copy, at);
    planner_.MarkScheduled(pair_.sum);
    planner_.MarkScheduled(pair_.out);
  }

 private:
  std::string Name(AxisId axis) const { return planner_.StageNamed(pair_.sum).axis(axis).name; }
  std::string OutName(AxisId axis) const { return planner_.StageNamed(pair_.out).axis(axis).name; }

  // As large as there are enough blocks of for all units.
  void ChooseTile() {
    const int64_t rows = c_.extents[roles_.rows], columns = c_.extents[roles_.columns];
    const int64_t most_warps = std::max<int64_t>(1, planner_.machine().block_threads / kThreadsOfWarp);
    int64_t row_tiles = rows >= 128 ? 4 : rows >= 32 ? 2 : 1, column_tiles = columns >= 64 ? 4 : columns >= 16 ? 2 : 1;
    auto warps = [](int64_t extent, int64_t tile, int64_t most) {
      return std::min(most, BitCeil(CeilDiv(extent, tile)));
    };
    int64_t row_warps = 1, column_warps = 1;
    for (;;) {
      row_warps = warps(rows, row_tiles * meaning_.rows, std::min<int64_t>(2, most_warps));
      column_warps = warps(columns, column_tiles * meaning_.lanes, std::min<int64_t>(4, most_warps / row_warps));
      int64_t blocks = CeilDiv(rows, row_tiles * row_warps * meaning_.rows) *
                       CeilDiv(columns, column_tiles * column_warps * meaning_.lanes);
      for (const std::vector<AxisId>* axes : {&c_.batch, &c_.only[0], &c_.only[1]})
        for (AxisId axis : *axes)
          if (axis != roles_.rows && axis != roles_.columns) blocks *= c_.extents[axis];
      if (blocks >= planner_.machine().cores || row_tiles * column_tiles <= 4) break;
      (row_tiles > 1 && row_tiles * 2 >= column_tiles ? row_tiles : column_tiles) /= 2;
    }
    const int64_t steps = c_.extents[roles_.grouped] / meaning_.steps;
    int64_t tile_steps = steps % 2 == 0 ? 2 : 1;
    for (int64_t* part : {&tile_steps, &row_tiles, &row_warps, &column_tiles, &column_warps})
      while (*part > 1 && BytesOfCopies(c_, roles_, meaning_, row_tiles * row_warps * meaning_.rows,
                                        column_tiles * column_warps * meaning_.lanes,
                                        tile_steps * meaning_.steps) > planner_.machine().block_bytes)
        *part /= 2;
    row_tiles_ = planner_.Choose(pair_.sum, kRowTiles, {1, 2, 4}, row_tiles);
    column_tiles_ = planner_.Choose(pair_.sum, kColumnTiles, {1, 2, 4, 8}, column_tiles);
    row_warps_ = planner_.Choose(pair_.sum, kRowWarps, {1, 2, 4}, row_warps);
    column_warps_ = planner_.Choose(pair_.sum, kColumnWarps, {1, 2, 4}, column_warps);
    std::vector<int64_t> options;
    for (int64_t option : {1, 2, 4})
      if (steps % option == 0) options.push_back(option);
    tile_steps_ = planner_.Choose(pair_.sum, kTileSteps, options, tile_steps);
  }

  // Two, where copies of both operands are made past the registers, there are trips enough and the block has room.
  void ChooseBuffers() {
    const int64_t depth = tile_steps_ * meaning_.steps, trips = c_.extents[roles_.grouped] / depth;
    if (trips < 2) return;
    const int64_t room = kRoomBytes / meaning_.step_bytes;
    const int64_t rows = row_warps_ * row_tiles_ * meaning_.rows,
                  columns = column_warps_ * column_tiles_ * meaning_.lanes;
    const int64_t elements = std::max(rows * (depth + room), depth * (rows + room)) +
                             std::max(columns * (depth + room), depth * (columns + room));
    const bool fits = 2 * elements * meaning_.step_bytes <= planner_.machine().block_bytes;
    const bool is_plain = c_.operands[0].IsPlain() && c_.operands[1].IsPlain() && copies_operands_;
    buffers_ = planner_.Choose(pair_.sum, kBuffers, {1, 2, 3, 4},
                               planner_.machine().has_async_copies && fits && is_plain && trips >= 4 ? 2 : 1);
  }

  void ScheduleOut() {
    const std::string &out = pair_.out, x = OutName(roles_.columns), y = OutName(roles_.rows);
    // As the instruction's fragments lie: rows t / 4 and eight further down, two columns from 2 · (t mod 4) on.
    planner_.Split(out, y, {row_warps_, row_tiles_ * 2, meaning_.rows / 2});
    planner_.Split(out, x, {column_warps_, column_tiles_, meaning_.lanes / 2, 2});
    std::vector<std::string> others;
    const Stage stage = planner_.StageNamed(out);
    for (AxisId axis : stage.spatial_ids())
      if (axis != roles_.rows && axis != roles_.columns) others.push_back(stage.axis(axis).name);
    std::vector<std::string> order = others;
    order.insert(order.end(),
                 {y + ".0", x + ".0", y + ".1", x + ".1", y + ".3", x + ".3", y + ".2", x + ".2", x + ".4"});
    planner_.Reorder(out, order);
    const int64_t rows = planner_.Extent(stage, roles_.rows), columns = planner_.Extent(stage, roles_.columns);
    std::vector<BlockLoop> blocks;
    if (!others.empty())
      blocks.push_back({Fused(planner_, out, others), Outputs(planner_, stage) / rows / columns, LaunchAxis::kBlockZ});
    blocks.push_back({y + ".0", CeilDiv(rows, row_tiles_ * row_warps_ * meaning_.rows), LaunchAxis::kBlockY});
    blocks.push_back({x + ".0", CeilDiv(columns, column_tiles_ * column_warps_ * meaning_.lanes)});
    BindBlocks(planner_, out, blocks);
    planner_.Fuse(out, {y + ".1", x + ".1"});
    planner_.Fuse(out, {y + ".3", x + ".3"});
    warp_loop_ = y + ".1+" + x + ".1";
    planner_.Bind(out, warp_loop_, LaunchAxis::kThreadY);
    planner_.Bind(out, y + ".3+" + x + ".3", LaunchAxis::kThreadX);
    planner_.Unroll(out, {y + ".2", x + ".2"});
    planner_.Vectorize(out, {x + ".4"});
  }

  // The loop at which copies are made.
  std::string ScheduleSum() {
    const std::string& sum = pair_.sum;
    const std::string x = Name(roles_.columns), y = Name(roles_.rows), k = Name(roles_.grouped);
    planner_.Split(sum, k, {tile_steps_, meaning_.steps});
    planner_.Split(sum, y, {meaning_.rows});
    planner_.Split(sum, x, {meaning_.lanes});
    std::vector<std::string> order;
    const Stage stage = planner_.StageNamed(sum);
    for (AxisId axis : stage.spatial_ids())
      if (axis != roles_.rows && axis != roles_.columns) order.push_back(stage.axis(axis).name);
    order.push_back(k + ".0");
    for (AxisId axis : c_.reduce)
      if (axis != roles_.grouped) order.push_back(Name(axis));
    const std::vector<std::string> unrolled = {k + ".1", y + ".0", x + ".0"};
    const std::vector<std::string> at_once = {k + ".2", y + ".1", x + ".1"};
    order.insert(order.end(), unrolled.begin(), unrolled.end());
    order.insert(order.end(), at_once.begin(), at_once.end());
    planner_.Reorder(sum, order);
    planner_.Unroll(sum, unrolled);
    planner_.Tensorize(std::string(instruction_.name), sum, at_once);
    return k + ".0";
  }

  // A row's end in block storage is followed by room. Steps lie side by side where the last dimension is neither theirs
  // nor that of the rows or columns, such as a window's, and steps of bytes always: four of them are a word. `along`:
  // the axis of steps, if it was not the last before. Its elements are copied several at once.
  std::vector<LayoutDim> RoomyLayout(std::vector<std::string> names, int v, DType type, std::string& along) const {
    const AccessPattern& access = c_.operands[v];
    const std::optional<size_t> steps = access.dimension[roles_.grouped],
                                lines = access.dimension[v == roles_.column_operand ? roles_.columns : roles_.rows];
    const bool are_apart = steps && *steps + 1 < names.size();
    const bool moves = are_apart && (ByteSize(type) == 1 || !lines || *lines + 1 != names.size());
    if (moves) {
      const auto at = names.begin() + static_cast<std::ptrdiff_t>(*steps);
      along = *at;
      std::rotate(at, at + 1, names.end());
    }
    std::vector<LayoutDim> layout;
    for (const std::string& name : names) layout.push_back(Whole(name));
    // Words of four steps apart, of eight rows or columns side by side, take twice the banks of words of one step.
    const bool is_wide = ByteSize(type) == 4 && are_apart && !moves;
    if (layout.size() > 1) layout.back().extra = kRoomBytes / ByteSize(type) * (is_wide ? 2 : 1);
    return layout;
  }

  struct Copy {
    std::string name, along;  // the axis of which a thread copies several elements; "": the last
  };
  std::vector<Copy> MakeCopies() {
    std::vector<Copy> copies;
    for (int v : {0, 1}) {
      const Tensor tensor = planner_.kernel().tensors[c_.operands[v].tensor];
      copies_operands_ &= !IsMadeForOneReader(planner_, tensor.name);
      std::string along;
      const std::optional<std::string> copy =
          HoldInBlock(planner_, tensor.name, pair_.sum,
                      [&](const std::vector<std::string>& axes) { return RoomyLayout(axes, v, tensor.dtype, along); });
      HONE_CHECK(copy.has_value());
      copies.push_back({*copy, along});
    }
    return copies;
  }

  // All threads of the block, each a few elements side by side in block storage.
  void ScheduleCopy(const Copy& copy, const std::string& at) {
    const bool is_ahead = buffers_ > 1 && planner_.machine().has_async_copies && copy.along.empty();
    CopyByAllThreads(planner_, copy.name, pair_.sum, at, is_ahead ? kCopyBytes / meaning_.step_bytes : kMostLanes,
                     {kThreadsOfWarp, row_warps_ * column_warps_}, buffers_, copy.along);
  }

  SchedulePlanner& planner_;
  const Instruction& instruction_;
  const InstructionMeaning& meaning_;
  const ContractionPair pair_;
  const Contraction c_;
  const WarpRoles roles_;
  int64_t row_tiles_ = 1, column_tiles_ = 1, row_warps_ = 1, column_warps_ = 1, tile_steps_ = 1, buffers_ = 1;
  bool copies_operands_ = true;  // as they are; nothing is computed on the way
  std::string warp_loop_;
};

// Of two tensors, narrow ones widened.
bool MultipliesElements(const Stage& stage) {
  return stage.body.op() == Op::kMul && std::ranges::all_of(stage.body.args(), [](const Expr& factor) {
           return (factor.op() == Op::kCast ? factor.arg(0) : factor).op() == Op::kLoad;
         });
}

// Whether all rows are of one axis, and all columns.
bool IsOfMatrices(const Contraction& c) {
  return std::ranges::all_of(c.only, [&](const std::vector<AxisId>& axes) {
    return std::ranges::count_if(axes, [&](AxisId axis) { return c.extents[axis] > 1; }) <= 1;
  });
}

// Whether that many sums, as threads hold them (WarpRule::ScheduleOut), are of one tile of the instruction at least: a
// thread has two of its rows, half a tile apart, and two columns side by side.
bool FillATile(int64_t rows, int64_t columns, const InstructionMeaning& meaning) {
  return rows > meaning.rows / 2 && columns > meaning.lanes - 2;
}

}  // namespace

std::optional<WarpRoles> WarpRolesFor(const SchedulePlanner& planner, const Contraction& c,
                                      const InstructionMeaning& meaning) {
  const Kernel& kernel = planner.kernel();
  WarpRoles roles;
  roles.columns = c.contiguous;
  const auto is_of = [&](int v) { return std::ranges::find(c.only[v], roles.columns) != c.only[v].end(); };
  if (!roles.columns || (!is_of(0) && !is_of(1))) return std::nullopt;
  roles.column_operand = is_of(0) ? 0 : 1;
  roles.rows = LongestOf(c, c.only[1 - roles.column_operand]);
  roles.grouped = GroupedAxis(planner, c, meaning.steps);
  if (!roles.rows || !roles.grouped) return std::nullopt;
  for (int v : {0, 1})
    if (kernel.tensors[c.operands[v].tensor].dtype != meaning.operands[v == roles.column_operand ? 1 : 0])
      return std::nullopt;
  const Stage& stage = planner.StageNamed(c.stage);
  for (AxisId axis : stage.axis_ids())
    if (LowerExtent(kernel, stage.axis(axis).extent) != UpperExtent(kernel, stage.axis(axis).extent))
      return std::nullopt;
  return roles;
}

double ShareUsed(int64_t extent, int64_t tile) {
  return static_cast<double>(extent) / static_cast<double>(RoundUp(extent, tile));
}

bool IsExactEnough(const SchedulePlanner& planner, const Contraction& c, const InstructionMeaning& meaning) {
  return !IsFloat(meaning.sum) || c.reduction <= MostTerms(planner.kernel().options.accuracy);
}

bool ScheduleOnWarps(SchedulePlanner& planner, const std::string& name) {
  const std::optional<Contraction> contraction = AnalyzeContraction(planner, name);
  if (!contraction || !MultipliesElements(planner.StageNamed(name))) return false;
  for (const Instruction* instruction : planner.machine().instructions) {
    const InstructionMeaning& meaning = MeaningOf(*instruction);
    if (meaning.is_of_group) continue;
    if (planner.kernel().tensors[planner.StageNamed(name).output].dtype != meaning.sum) continue;
    if (planner.kernel().options.accuracy < instruction->accuracy) continue;
    std::optional<WarpRoles> roles = WarpRolesFor(planner, *contraction, meaning);
    if (!roles) continue;
    if (!IsExactEnough(planner, *contraction, meaning))
      return planner.Refuse("tiles", name, "by a warp's instruction so long a sum would be less exact than it may be");
    if (meaning.operands[0] == DType::kF32 && !IsOfMatrices(*contraction))
      return planner.Refuse("tiles", name, "a warp's columns would be pixels of one row of an image alone");
    if (BytesOfCopies(*contraction, *roles, meaning, meaning.rows, meaning.lanes, meaning.steps) >
        planner.machine().block_bytes)
      return planner.Refuse("tiles", name, "windows of one tile of a warp's instruction are more than a block stores");
    const double used = ShareUsed(contraction->extents[roles->rows], meaning.rows) *
                        ShareUsed(contraction->extents[roles->columns], meaning.lanes) *
                        ShareUsed(contraction->extents[roles->grouped], meaning.steps);
    if (!FillATile(contraction->extents[roles->rows], contraction->extents[roles->columns], meaning))
      return planner.Refuse("tiles", name, "its sums do not fill a tile of a warp's instruction");
    if (!planner.ChooseIf(name, kOnWarps, used >= kShareWorthIt)) return false;
    if (contraction->extents[roles->grouped] % meaning.steps != 0) {
      const std::array<std::string, 2> factors = {planner.kernel().tensors[contraction->operands[0].tensor].name,
                                                  planner.kernel().tensors[contraction->operands[1].tensor].name};
      std::vector<std::string> names = {planner.StageNamed(name).axis(roles->grouped).name,
                                        planner.FreshName(factors[0] + "_groups"),
                                        planner.FreshName(factors[1] + "_groups")};
      if (!planner.Rewrite({"pad_reduction", name, std::move(names), {meaning.steps}})) return false;
      for (const std::string& factor : factors) {
        const StageId producer = FindStage(planner.kernel(), factor);
        if (!producer || planner.IsScheduled(factor)) continue;
        const Stage& stage = planner.kernel().stages[producer];
        if (stage.reduction == Reduction::kNone && ReadersOf(planner.kernel(), stage.output).size() == 1)
          planner.Inline(factor);
      }
    }
    const std::optional<ContractionPair> pair = FindPair(planner, name);
    if (!pair) return false;
    WarpRule(planner, *instruction, *pair, *AnalyzeContraction(planner, pair->sum), *roles).Emit();
    planner.Took("tiles", name, instruction->name);
    return true;
  }
  return false;
}

}  // namespace hone
