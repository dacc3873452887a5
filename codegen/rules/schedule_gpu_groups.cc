// Contractions by instructions that groups of four warps do together (codegen/instructions.h). They read both operands
// from block storage, so copies lie there as their descriptors want it: in rows of 128 bytes that are swizzled, so that
// copies write whole rows and no two of what is read at once lie in one bank. Or in blocks of eight by eight elements,
// 128 bytes each, with room for 16 bytes after each, so that what neighbouring threads copy of a row falls into other
// banks.
#include <algorithm>
#include <array>

#include "base/arithmetic.h"
#include "codegen/rules/gpu_planning.h"
#include "codegen/rules/schedule_rules.h"
#include "codegen/rules/warp_rule.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"
#include "ir/steps/layouts.h"

namespace hone {
namespace {

constexpr Decision kOnGroups{"on_groups", "an instruction multiplies matrices, by the threads of four warps",
                             Decision::Kind::kAlternative};
constexpr Decision kGroupColumns{.name = "group_columns", .meaning = "columns of the instruction", .grows_code = true};
constexpr Decision kGroupTiles{
    .name = "group_tiles", .meaning = "tiles of 64 rows that a group of warps keeps", .grows_code = true};
constexpr Decision kRowGroups{"row_groups", "groups of warps of a block along the axis of rows"};
constexpr Decision kColumnGroups{"column_groups", "groups of warps of a block along the axis of columns"};
constexpr Decision kGroupSteps{.name = "tile_steps",
                               .meaning = "steps of the instruction whose operands are in block storage at once",
                               .grows_code = true};
constexpr Decision kGroupBuffers{"buffers", "buffers of the operands' copies: all but two are filled ahead"};
constexpr Decision kSwizzle{
    "swizzled", "copies in rows of 128 bytes whose parts of 16 change places, not in blocks of eight by eight"};
constexpr Decision kRoom{"room", "16 bytes of room after each block of eight by eight elements of a copy"};

constexpr double kGroupShareWorthIt = 0.5;  // of what tiles compute that is not padding
constexpr int64_t kChunkBytes = 16, kBlockLines = 8;
constexpr int64_t kMostCopies = 16;  // of a thread for a trip, in unrolled code
constexpr int64_t kMostBuffers = 4;

// Tiles of a block, and the share of its peak that a device reaches with them: larger ones read less storage for a
// product. Estimates, to be measured.
struct GroupTile {
  int64_t row_groups, columns;
  double share;
};
constexpr GroupTile kGroupTilesOfBlocks[] = {{2, 256, 1}, {2, 128, 0.8}, {1, 256, 0.75}, {1, 128, 0.6}, {1, 64, 0.4}};

class GroupRule {
 public:
  GroupRule(SchedulePlanner& planner, std::vector<const Instruction*> instructions, ContractionPair pair,
            Contraction contraction, const WarpRoles& roles)
      : planner_(planner),
        instructions_(std::move(instructions)),
        pair_(std::move(pair)),
        c_(std::move(contraction)),
        roles_(roles) {}

  const Instruction& Emit() {
    ChooseTile();
    ScheduleOut();
    // Copies are stages of their own, which change what the sum reads: before its loops.
    const std::vector<std::string> copies = MakeCopies();
    planner_.ComputeAt(pair_.sum, pair_.out, group_loop_);
    planner_.Store(pair_.sum, Scope::kRegisters);
    const std::string at = ScheduleSum();
    ChooseBuffers();
    for (const std::string& copy : copies) ScheduleCopy(copy, at);
    planner_.MarkScheduled(pair_.sum);
    planner_.MarkScheduled(pair_.out);
    return *instruction_;
  }

 private:
  const InstructionMeaning& meaning() const { return MeaningOf(*instruction_); }
  std::string Name(AxisId axis) const { return planner_.StageNamed(pair_.sum).axis(axis).name; }
  std::string OutName(AxisId axis) const { return planner_.StageNamed(pair_.out).axis(axis).name; }
  int64_t Rows() const { return row_groups_ * row_tiles_ * meaning().rows; }  // of a block
  int64_t Columns() const { return column_groups_ * meaning().lanes; }        // of a block
  int64_t Threads() const { return row_groups_ * column_groups_ * meaning().threads; }
  int64_t Chunk() const { return kChunkBytes / meaning().step_bytes; }  // elements

  // What takes the least time: blocks go in waves, one on each unit.
  void ChooseTile() {
    instruction_ = instructions_.front();
    const int64_t rows = c_.extents[roles_.rows], columns = c_.extents[roles_.columns];
    int64_t others = 1;
    for (const std::vector<AxisId>* axes : {&c_.batch, &c_.only[0], &c_.only[1]})
      for (AxisId axis : *axes)
        if (axis != roles_.rows && axis != roles_.columns) others *= c_.extents[axis];
    const GroupTile* best = nullptr;
    double least = 0;
    for (const GroupTile& tile : kGroupTilesOfBlocks) {
      const int64_t of_rows = tile.row_groups * meaning().rows;
      if (tile.row_groups * meaning().threads > planner_.machine().block_threads || tile.columns > columns) continue;
      const int64_t blocks = others * CeilDiv(rows, of_rows) * CeilDiv(columns, tile.columns);
      const double waves = static_cast<double>(CeilDiv(blocks, int64_t{planner_.machine().cores}));
      const double time = waves * static_cast<double>(of_rows * tile.columns) / tile.share;
      if (best == nullptr || time < least) least = time, best = &tile;
    }
    if (best == nullptr) best = &kGroupTilesOfBlocks[std::size(kGroupTilesOfBlocks) - 1];
    std::vector<int64_t> widths;
    for (const Instruction* instruction : instructions_)
      if (MeaningOf(*instruction).lanes <= columns) widths.push_back(MeaningOf(*instruction).lanes);
    const int64_t width = planner_.Choose(pair_.sum, kGroupColumns, widths, best->columns);
    for (const Instruction* instruction : instructions_)
      if (MeaningOf(*instruction).lanes == width) instruction_ = instruction;
    row_tiles_ = planner_.Choose(pair_.sum, kGroupTiles, {1, 2}, 1);
    row_groups_ = planner_.Choose(pair_.sum, kRowGroups, {1, 2, 3, 4}, best->row_groups);
    column_groups_ = planner_.Choose(pair_.sum, kColumnGroups, {1, 2}, 1);
    const int64_t steps = c_.extents[roles_.grouped] / meaning().steps;
    std::vector<int64_t> options;
    int64_t preferred = 1;
    for (int64_t option : {1, 2, 4, 8}) {
      if (steps % option != 0) continue;
      options.push_back(option);
      if (option <= 4) preferred = option;
    }
    tile_steps_ = planner_.Choose(pair_.sum, kGroupSteps, options, preferred);
    is_swizzled_ = planner_.Choose(pair_.sum, kSwizzle, {0, 1}, 1) != 0;
    if (!IsSwizzledOperand(0) || !IsSwizzledOperand(1)) has_room_ = planner_.Choose(pair_.sum, kRoom, {0, 1}, 1) != 0;
  }

  // As many as the block has room for, where copies of both operands are made past the registers.
  void ChooseBuffers() {
    const int64_t depth = tile_steps_ * meaning().steps, trips = c_.extents[roles_.grouped] / depth;
    if (trips < 2) return;
    int64_t bytes = 0;
    for (int v : {0, 1}) {
      const int64_t of_eight = has_room_ && !IsSwizzledOperand(v) ? kBlockLines + 1 : kBlockLines;
      bytes += LinesOf(v) * depth * meaning().step_bytes * of_eight / kBlockLines;
    }
    const int64_t most = std::min({kMostBuffers, trips, planner_.machine().block_bytes / bytes});
    const bool copies = planner_.machine().has_async_copies && copies_operands_;
    buffers_ = planner_.Choose(pair_.sum, kGroupBuffers, {1, 2, 3, 4, 5, 6}, copies ? std::max<int64_t>(1, most) : 1);
  }

  void ScheduleOut() {
    const std::string &out = pair_.out, x = OutName(roles_.columns), y = OutName(roles_.rows);
    // As the instruction's sums lie: of 64 rows each warp has 16, of these thread t has t / 4 and eight further down,
    // and of every eight columns two from 2 · (t mod 4) on.
    planner_.Split(out, y, {row_groups_, row_tiles_, 4, 2, 8});
    planner_.Split(out, x, {column_groups_, meaning().lanes / 8, 4, 2});
    std::vector<std::string> others;
    const Stage stage = planner_.StageNamed(out);
    for (AxisId axis : stage.spatial_ids())
      if (axis != roles_.rows && axis != roles_.columns) others.push_back(stage.axis(axis).name);
    std::vector<std::string> order = others;
    order.insert(order.end(), {y + ".0", x + ".0", y + ".1", x + ".1", y + ".3", y + ".5", x + ".3", y + ".2", y + ".4",
                               x + ".2", x + ".4"});
    planner_.Reorder(out, order);
    const int64_t rows = planner_.Extent(stage, roles_.rows), columns = planner_.Extent(stage, roles_.columns);
    std::vector<BlockLoop> blocks;
    if (!others.empty())
      blocks.push_back({Fused(planner_, out, others), Outputs(planner_, stage) / rows / columns, LaunchAxis::kBlockZ});
    blocks.push_back({y + ".0", CeilDiv(rows, Rows()), LaunchAxis::kBlockY});
    blocks.push_back({x + ".0", CeilDiv(columns, Columns())});
    BindBlocks(planner_, out, blocks);
    planner_.Fuse(out, {y + ".1", x + ".1"});
    planner_.Fuse(out, {y + ".3", y + ".5", x + ".3"});
    group_loop_ = y + ".1+" + x + ".1";
    planner_.Bind(out, group_loop_, LaunchAxis::kThreadY);
    planner_.Bind(out, y + ".3+" + y + ".5+" + x + ".3", LaunchAxis::kThreadX);
    planner_.Unroll(out, {y + ".2", y + ".4", x + ".2"});
    planner_.Vectorize(out, {x + ".4"});
  }

  // The loop at which copies are made.
  std::string ScheduleSum() {
    const std::string& sum = pair_.sum;
    const std::string x = Name(roles_.columns), y = Name(roles_.rows), k = Name(roles_.grouped);
    planner_.Split(sum, k, {tile_steps_, meaning().steps});
    planner_.Split(sum, y, {meaning().rows});
    planner_.Split(sum, x, {meaning().lanes});
    std::vector<std::string> order;
    const Stage stage = planner_.StageNamed(sum);
    for (AxisId axis : stage.spatial_ids())
      if (axis != roles_.rows && axis != roles_.columns) order.push_back(stage.axis(axis).name);
    const std::vector<std::string> unrolled = {k + ".1", y + ".0", x + ".0"};
    const std::vector<std::string> at_once = {k + ".2", y + ".1", x + ".1"};
    order.push_back(k + ".0");
    order.insert(order.end(), unrolled.begin(), unrolled.end());
    order.insert(order.end(), at_once.begin(), at_once.end());
    planner_.Reorder(sum, order);
    planner_.Unroll(sum, unrolled);
    planner_.Tensorize(std::string(instruction_->name), sum, at_once);
    return k + ".0";
  }

  int64_t LinesOf(int operand) const { return operand == roles_.column_operand ? Columns() : Rows(); }
  int64_t SwizzledRow() const { return kSwizzledRowBytes / meaning().step_bytes; }  // elements

  // Rows of 128 bytes: of lines, of which a tile has as many, or of steps, where those of a trip are whole rows.
  bool IsSwizzledOperand(int operand) const {
    const AccessPattern& access = c_.operands[operand];
    const AxisId lines = operand == roles_.column_operand ? roles_.columns : roles_.rows;
    const bool is_along_steps = *access.dimension[roles_.grouped] > *access.dimension[lines];
    return is_swizzled_ && (!is_along_steps || tile_steps_ * meaning().steps % SwizzledRow() == 0);
  }

  // Rows of 64 elements of the last dimension, those of the other one below each other. Or blocks of eight by eight:
  // elements of the last dimension side by side, eight of the other below each other.
  std::vector<LayoutDim> BlockedLayout(int operand, const std::vector<std::string>& names) const {
    const AccessPattern& access = c_.operands[operand];
    const AxisId lines = operand == roles_.column_operand ? roles_.columns : roles_.rows;
    const size_t of_lines = *access.dimension[lines], of_steps = *access.dimension[roles_.grouped];
    const auto& [outer, inner] = std::minmax(of_lines, of_steps);
    std::vector<LayoutDim> layout;
    for (size_t d = 0; d < names.size(); ++d)
      if (d != outer && d != inner) layout.push_back(Whole(names[d]));
    if (IsSwizzledOperand(operand)) {
      layout.push_back(Quotient(names[inner], SwizzledRow()));
      layout.push_back(Whole(names[outer]));
      layout.push_back(Remainder(names[inner], SwizzledRow()));
      layout.back().is_swizzled = true;
      return layout;
    }
    layout.push_back(Quotient(names[outer], kBlockLines));
    layout.push_back(Quotient(names[inner], Chunk()));
    layout.push_back(Remainder(names[outer], kBlockLines));
    layout.back().extra = has_room_ ? 1 : 0;
    layout.push_back(Remainder(names[inner], Chunk()));
    return layout;
  }

  std::vector<std::string> MakeCopies() {
    std::vector<std::string> copies;
    for (int v : {0, 1}) {
      const std::string tensor = planner_.kernel().tensors[c_.operands[v].tensor].name;
      copies_operands_ &= !IsMadeForOneReader(planner_, tensor);
      const std::optional<std::string> copy = HoldInBlock(
          planner_, tensor, pair_.sum, [&](const std::vector<std::string>& axes) { return BlockedLayout(v, axes); });
      HONE_CHECK(copy.has_value());
      copies.push_back(*copy);
      copied_.push_back(LinesOf(v) * tile_steps_ * meaning().steps);
    }
    return copies;
  }

  // All threads of the block, each 16 bytes at a time.
  void ScheduleCopy(const std::string& copy, const std::string& at) {
    const std::string left = CopyByAllThreads(planner_, copy, pair_.sum, at, Chunk(),
                                              {meaning().threads, row_groups_ * column_groups_}, buffers_);
    if (CeilDiv(copied_.front() / Chunk(), Threads()) <= kMostCopies) planner_.Unroll(copy, {left});
    copied_.erase(copied_.begin());
  }

  SchedulePlanner& planner_;
  const std::vector<const Instruction*> instructions_;  // that differ in their columns
  const Instruction* instruction_ = nullptr;
  const ContractionPair pair_;
  const Contraction c_;
  const WarpRoles roles_;
  int64_t row_tiles_ = 1, row_groups_ = 1, column_groups_ = 1, tile_steps_ = 1, buffers_ = 1;
  bool is_swizzled_ = true, has_room_ = true;
  bool copies_operands_ = true;  // as they are; nothing is computed on the way
  std::vector<int64_t> copied_;  // elements of each copy for a trip
  std::string group_loop_;
};

// Whether a tile of the operand is a matrix in memory, whose last dimension is one of the two.
bool IsMatrix(const SchedulePlanner& planner, const Contraction& c, const WarpRoles& roles, int operand) {
  const AccessPattern& access = c.operands[operand];
  const AxisId lines = operand == roles.column_operand ? roles.columns : roles.rows;
  if (!access.IsPlain() || !access.dimension[lines] || !access.dimension[roles.grouped]) return false;
  const size_t last = planner.kernel().tensors[access.tensor].shape.size() - 1;
  return *access.dimension[lines] == last || *access.dimension[roles.grouped] == last;
}

}  // namespace

bool ScheduleOnGroups(SchedulePlanner& planner, const std::string& name) {
  const std::optional<Contraction> contraction = AnalyzeContraction(planner, name);
  if (!contraction || !IsProductOfElements(planner.StageNamed(name))) return false;
  const Contraction& c = *contraction;
  std::vector<const Instruction*> instructions;
  std::optional<WarpRoles> roles;
  for (const Instruction* instruction : planner.machine().instructions) {
    const InstructionMeaning& meaning = MeaningOf(*instruction);
    if (!meaning.is_of_group || planner.kernel().tensors[planner.StageNamed(name).output].dtype != meaning.sum)
      continue;
    const std::optional<WarpRoles> found = WarpRolesFor(planner, c, meaning);
    // A sum is kept as whole tiles of the instruction: of one tile at least.
    if (!found || c.extents[found->rows] < meaning.rows || c.extents[found->columns] < meaning.lanes) continue;
    roles = found;
    instructions.push_back(instruction);
  }
  if (!roles) return false;
  const InstructionMeaning& meaning = MeaningOf(*instructions.front());
  if (!IsExactEnough(planner, c, meaning)) return false;  // as by a warp's, where that is said
  if (c.reduce.size() != 1 || c.extents[roles->grouped] % meaning.steps != 0)
    return planner.Refuse("tiles", name, "a group of warps takes whole steps of one axis");
  if (!IsMatrix(planner, c, *roles, 0) || !IsMatrix(planner, c, *roles, 1))
    return planner.Refuse("tiles", name, "a group of warps takes operands that are matrices in memory");
  const double used =
      ShareUsed(c.extents[roles->rows], meaning.rows) * ShareUsed(c.extents[roles->columns], meaning.lanes);
  if (!planner.ChooseIf(name, kOnGroups, used >= kGroupShareWorthIt)) return false;
  const std::optional<ContractionPair> pair = FindPair(planner, name);
  if (!pair) return false;
  const Instruction& instruction =
      GroupRule(planner, std::move(instructions), *pair, *AnalyzeContraction(planner, pair->sum), *roles).Emit();
  planner.Took("tiles", name, instruction.name);
  return true;
}

}  // namespace hone
