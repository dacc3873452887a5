// Rules for GPUs, but for tiles (schedule_gpu_tiles.cc, schedule_gpu_warps.cc). Long reductions to few outputs are
// shared among the threads of a block. Everything else is a thread per element, or per vector.
#include <algorithm>
#include <vector>

#include "base/arithmetic.h"
#include "codegen/rules/gpu_planning.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr Decision kThreads{"threads", "threads of a block"};
constexpr Decision kLanes{"lanes", "threads among which a reduction is divided"};

constexpr int64_t kFewTerms = 64;       // a reduction that one thread makes alone
constexpr int64_t kManyOutputs = 8192;  // enough threads without dividing reductions

// A thread per output, blocks of them in a row.
void BindOutputs(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  if (stage.axes.empty()) return;
  const int64_t outputs = Outputs(planner, stage);
  const int64_t threads = planner.Choose(name, kThreads, {32, 64, 128, 256},
                                         std::min({int64_t{128}, BitCeil(outputs), AllowedThreads(planner)}));
  const std::string all = Fused(planner, name, NamesOf(stage.axes));
  planner.Split(name, all, {threads});
  BindBlocks(planner, name, {{all + ".0", CeilDiv(outputs, threads)}});
  planner.Bind(name, all + ".1", LaunchAxis::kThreadX);
  if (stage.reduction != Reduction::kNone) planner.RegisterTile(name, all + ".1");
}

// Rows of a block: several where giving out a block takes as long as computing some hundred elements.
int64_t RowsTogether(SchedulePlanner& planner, const std::string& name, int64_t rows, int64_t width) {
  constexpr int64_t kElementsOfABlock = 2048, kBlocksOfAUnit = 8;
  if (!planner.machine().threads_are_loops) return 1;
  int64_t together = 1;
  while (2 * together * width <= kElementsOfABlock && 2 * together * kBlocksOfAUnit * planner.machine().cores <= rows &&
         2 * together <= AllowedThreads(planner, width))
    together *= 2;
  return planner.Choose(name, {"block_rows", "rows of a block"}, {1, 2, 4, 8, 16, 32, 64}, together);
}

}  // namespace

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
                     std::clamp<int64_t>(BitCeil(extent) / 2, 8, std::min<int64_t>(64, AllowedThreads(planner))));
  const std::string parts = planner.FreshName(name + "_parts");
  if (!planner.Rfactor(name, k, lanes, parts))
    return planner.Refuse("block_rows", name, "the reduction cannot be divided");
  planner.MarkScheduled(name);
  planner.MarkScheduled(parts);
  planner.Took("block_rows", name, "a block per output, whose threads reduce a part each");
  const std::string outputs = Fused(planner, name, NamesOf(planner.StageNamed(name).axes));
  const std::string block = BindBlocks(planner, name, {{outputs, Outputs(planner, stage)}});
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

bool ScheduleGpuPlainly(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  planner.MarkScheduled(name);
  planner.Took("plain", name, "a thread per output, and for others behind it where blocks are too few");
  if (stage.axes.empty()) return true;
  const int64_t outputs = Outputs(planner, stage);
  const int64_t threads = std::min({int64_t{128}, BitCeil(outputs), AllowedThreads(planner)});
  const int64_t blocks = CeilDiv(outputs, threads);
  const int64_t trips = CeilDiv(blocks, std::max<int64_t>(1, planner.machine().grid[0]));
  const std::string all = Fused(planner, name, NamesOf(stage.axes));
  // Whatever is computed beyond the outputs, for readers, makes more trips, not more blocks.
  planner.Split(name, all, {CeilDiv(blocks, trips), threads});
  std::vector<std::string> order = {all + ".1", all + ".2", all + ".0"};
  for (const Axis& axis : stage.reduce_axes) order.push_back(axis.name);
  planner.Reorder(name, order);
  planner.Bind(name, all + ".1", LaunchAxis::kBlockX);
  planner.Bind(name, all + ".2", LaunchAxis::kThreadX);
  if (stage.reduction != Reduction::kNone) planner.RegisterTile(name, all + ".0");
  return true;
}

bool ScheduleGpuElementwise(SchedulePlanner& planner, const std::string& name) {
  const Stage stage = planner.StageNamed(name);
  planner.MarkScheduled(name);
  if (stage.axes.empty()) return true;
  const std::string x = stage.axes.back().name;
  const int64_t width = planner.Extent(stage.axes.back());
  const bool as_loops = planner.machine().threads_are_loops;
  const int64_t fewest = as_loops ? 8 : 32;  // threads side by side
  if (width < fewest) {
    planner.Took("elementwise", name, "a thread per element: the last axis is short");
    BindOutputs(planner, name);
    return true;
  }
  planner.Took("elementwise", name, "a thread per vector along the last axis");
  std::vector<int64_t> options = {1, 2, 4};
  for (int64_t lanes = 8; lanes <= planner.machine().lanes; lanes *= 2) options.push_back(lanes);
  int64_t usual = options.back();
  while (width % usual != 0) usual /= 2;
  const int64_t columns = planner.Choose(name, kColumns, options, usual >= 4 ? usual : 1);
  std::vector<int64_t> some{32, 64, 128, 256};
  if (as_loops) some.insert(some.begin(), {8, 16});
  const int64_t threads = planner.Choose(
      name, kThreads, some,
      std::clamp<int64_t>(BitCeil(CeilDiv(width, columns)), fewest, std::min<int64_t>(128, AllowedThreads(planner))));
  planner.Split(name, x, {threads, columns});
  std::vector<std::string> others = NamesOf(stage.axes);
  others.pop_back();
  std::vector<BlockLoop> blocks;
  if (!others.empty()) {
    std::string row = Fused(planner, name, others);
    const int64_t rows = Outputs(planner, stage) / width,
                  together = RowsTogether(planner, name, rows, threads * columns);
    if (together > 1) {
      planner.Split(name, row, {together});
      planner.Reorder(name, {row + ".0", x + ".0", row + ".1", x + ".1", x + ".2"});
      planner.Bind(name, row + ".1", LaunchAxis::kThreadY);
      row += ".0";
    }
    blocks.push_back({row, CeilDiv(rows, together), LaunchAxis::kBlockY});
  }
  blocks.push_back({x + ".0", CeilDiv(width, threads * columns)});
  BindBlocks(planner, name, blocks);
  planner.Bind(name, x + ".1", LaunchAxis::kThreadX);
  planner.Vectorize(name, {x + ".2"});
  return true;
}

}  // namespace hone
