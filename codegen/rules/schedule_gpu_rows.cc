// Reductions along rows, on GPUs: softmax, normalisations, row sums, global pools, a matrix times a vector. A block
// takes a row, or a few, in one launch: its threads read the row side by side, each keeps what it reduces in registers,
// their partial results meet in block storage, and what follows is computed by the same threads. What a row needs in
// between stays in block storage, or is computed again where that is too small. Where threads are loops, one has the
// whole row, and the lanes among which it reduces it lie side by side in its registers.
#include <algorithm>
#include <functional>
#include <optional>

#include "base/arithmetic.h"
#include "codegen/rules/block_rows.h"
#include "codegen/rules/gpu_planning.h"
#include "codegen/rules/row_group.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr Decision kRowLanes{"lanes", "threads among which a reduction is divided"};
constexpr Decision kRowsOfBlock{"block_rows", "rows of a block"};
constexpr Decision kPieces{"pieces", "parts of a row, each for a block of its own, which a second launch adds up"};
constexpr Decision kRowOfAThread{"row_of_a_thread", "a thread has a whole row, and reduces it in lanes side by side",
                                 Decision::Kind::kAlternative};
constexpr Decision kVector{
    .name = "vector", .meaning = "elements of a row that a thread takes side by side", .grows_code = true};
constexpr Decision kSubGroups{"sub_groups", "partial results of threads of one sub-group meet in registers"};
constexpr Decision kKeepRow{"keep", "what a row needs in between is kept in block storage"};

constexpr int64_t kThreadsOfAWarp = 32;
constexpr int64_t kFewTermsOfARow = 32;    // a reduction that one thread makes alone
constexpr int64_t kEnoughThreads = 65536;  // to fill a large device
constexpr int64_t kUsualBlock = 128;       // threads
constexpr int64_t kEnoughBlocks = 512;
constexpr int64_t kMostThreadsOfARow = 256;
constexpr int64_t kStepsOfAPass =
    2;  // of several passes over a row: more threads, of which some pass while others wait

constexpr int64_t kFewRows = 64;     // fewer than a large device has multiprocessors
constexpr int64_t kLongRow = 65536;  // elements for which more launches are sooner done than one block
constexpr int64_t kShortestPiece = 4096;
// Of a thread that has a whole row: two vectors, whose sums do not wait for each other.
constexpr int64_t kLanesOfAThread = 16;
constexpr int64_t kTripsOfLanes = 4;        // or more: what lanes come to is added up one after the other
constexpr int64_t kElementsOfABlock = 512;  // of short rows: giving out a block takes as long as some of them

int64_t RowThreadsAllowed(const SchedulePlanner& planner) {
  return std::max<int64_t>(1, planner.machine().block_threads);
}

// A reduction to one number a row, which threads side by side may read along the row.
bool ReducesARow(const SchedulePlanner& planner, const Stage& stage, size_t rows) {
  if (stage.axes.size() != rows || ReducesColumns(planner, stage)) return false;
  const AxisId axis = DividedAxis(planner, stage);
  bool is_side_by_side = planner.Extent(stage, axis) == 1;
  for (const AccessPattern& access : planner.AccessesOf(stage)) is_side_by_side |= access.strides[axis] == 1;
  return is_side_by_side;
}

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
  int64_t vectors = 1, longest = 1;
  for (const std::string& g : group) {
    const Stage& part = planner.StageNamed(g);
    if (!IsReduction(part)) continue;
    const AxisId axis = DividedAxis(planner, part);
    longest = std::max(longest, planner.Extent(part, axis));
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
  if (planner.machine().threads_are_loops && planner.ChooseIf(name, kRowOfAThread, true)) {
    int64_t lanes = kLanesOfAThread;
    while (lanes > kStepWidth && 4 * RoundUp(longest, lanes) > 5 * longest) lanes /= 2;
    while (lanes > kStepWidth && longest < kTripsOfLanes * lanes && longest % kStepWidth == 0) lanes /= 2;
    shape.lanes = planner.Choose(name, kVector, {4, 8, 16, 32}, lanes);
  } else {
    for (int64_t count = 4; count <= most; count *= 2)
      if (count <= BitCeil(vectors)) options.push_back(count);
    shape.threads = planner.Choose(name, kRowLanes, std::move(options), threads);
  }

  const int64_t partials = shape.lanes > 0 ? 0 : 2 * shape.threads * 8 * static_cast<int64_t>(group.size());
  const int64_t kept = KeptBytes(planner, group, shape.rows);
  const int64_t room = planner.machine().block_bytes - partials;
  int64_t together = 1;
  auto fits = [&](int64_t count) {
    return shape.threads * count <= RowThreadsAllowed(planner) && count * kept <= room && count <= last_rows;
  };
  const auto is_whole = [&](int64_t count) { return fits(count) && last_rows % count == 0; };
  if (shape.lanes > 0) {
    while (together < 8 && 2 * together * LongestRow(planner, group) <= kElementsOfABlock && is_whole(2 * together) &&
           row_count / (2 * together) >= 4 * planner.machine().cores)
      together *= 2;
  } else {
    while (shape.threads * together < kUsualBlock && is_whole(2 * together) &&
           row_count / (2 * together) >= kEnoughBlocks)
      together *= 2;
  }
  options.clear();
  for (int64_t count : {1, 2, 4, 8})
    if (fits(count)) options.push_back(count);
  shape.together = planner.Choose(name, kRowsOfBlock, std::move(options), together);
  if (const int64_t run = std::min(shape.threads, planner.machine().sub_group);
      run > 1 && shape.lanes == 0 && shape.threads * shape.together % planner.machine().sub_group == 0 &&
      planner.ChooseIf(name, kSubGroups, true))
    shape.run = run;
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
  EmitBlockRows(planner, name, group, shape);
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
