// What the rules for GPUs share.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/rules/schedule_planner.h"

namespace hone {

inline constexpr Decision kThreadsX{"threads_x", "threads of a block along the last axis"};
inline constexpr Decision kThreadsY{"threads_y", "threads of a block along the axis of rows"};
inline constexpr Decision kColumns{
    .name = "columns", .meaning = "elements of a thread along the last axis", .grows_code = true};
inline constexpr Decision kBuffers{"buffers", "buffers of the operands' copies: all but one are filled ahead"};

inline constexpr int64_t kCopyBytes = 16;  // of a thread's copy, at most: what devices move at once

// Threads of a block that the device allows, `taken` times fewer.
inline int64_t AllowedThreads(const SchedulePlanner& planner, int64_t taken = 1) {
  return std::max<int64_t>(1, planner.machine().block_threads / taken);
}

// Terms of each of a stage's reductions, and how many there are.
inline int64_t Terms(const SchedulePlanner& planner, const Stage& stage) {
  int64_t terms = 1;
  for (const Axis& axis : stage.reduce_axes) terms *= planner.Extent(axis);
  return terms;
}
inline int64_t Outputs(const SchedulePlanner& planner, const Stage& stage) {
  int64_t outputs = 1;
  for (const Axis& axis : stage.axes) outputs *= planner.Extent(axis);
  return outputs;
}

// Fuses the loops, which stand next to each other; the name of what comes of it.
inline std::string Fused(SchedulePlanner& planner, const std::string& stage, const std::vector<std::string>& loops) {
  std::string name = loops[0];
  for (size_t i = 1; i < loops.size(); ++i) name += "+" + loops[i];
  if (loops.size() > 1) planner.Fuse(stage, loops);
  return name;
}

inline std::vector<std::string> NamesOf(const std::vector<Axis>& axes) {
  std::vector<std::string> names;
  for (const Axis& axis : axes) names.push_back(axis.name);
  return names;
}

// Blocks of a launch. gpu_planning.cc.

struct BlockLoop {
  std::string loop;
  int64_t blocks = 1;
  LaunchAxis axis = LaunchAxis::kBlockX;
};

// Where a dimension would have more blocks than the device allows: fuses the loops, a stage's outermost from the first
// to the last, into one row of blocks, which goes on along y, then along z. The innermost loop's name; "" where each
// loop fits its dimension: then nothing is done.
std::string SpreadBlocks(SchedulePlanner& planner, const std::string& stage, const std::vector<BlockLoop>& loops);
// The same, or each loop bound to its dimension; the innermost loop's name.
std::string BindBlocks(SchedulePlanner& planner, const std::string& stage, const std::vector<BlockLoop>& loops);

// A tile of a block and one of each of its threads. gpu_planning.cc.
struct ThreadTile {
  AxisId x;  // axis of columns
  AxisId y;  // axis of rows; none: there is none
  int64_t columns = 1, threads_x = 1;
  int64_t rows = 1, threads_y = 1;  // rows of a thread
  bool goes_down = false;           // blocks one after the other have the same columns, not the same rows

  int64_t width() const { return columns * threads_x; }
  int64_t height() const { return rows * threads_y; }
};
// Divides the outputs of a stage among blocks and threads; the innermost loops of each.
struct LoopsOfTile {
  std::string block, thread;
};
LoopsOfTile BindTile(SchedulePlanner& planner, const std::string& stage, const ThreadTile& tile);

// Operands in block storage. gpu_planning.cc.

// Whether a tensor is an element-wise stage that nobody else reads: blocks compute it where they would copy it.
bool IsMadeForOneReader(const SchedulePlanner& planner, const std::string& tensor);

// The stage that has in block storage what `reader` needs of the tensor, marked as scheduled; nullopt: no copy can be
// made. `layout`: of the stage's axes, by their names.
using LayoutOfCopy = std::function<std::vector<LayoutDim>(const std::vector<std::string>& axes)>;
std::optional<std::string> HoldInBlock(SchedulePlanner& planner, const std::string& tensor, const std::string& reader,
                                       const LayoutOfCopy& layout);

// That stage is computed at `reader`'s loop `at` by all threads of the block, each `lanes` elements side by side along
// `of_axis` ("": the last axis of more than one element); `buffers` > 1: ahead of the trip that reads it. Returns the
// loop over what is left for a thread, "" if there is none.
struct ThreadsOfBlock {
  int64_t x = 1, y = 1, z = 1;
};
std::string CopyByAllThreads(SchedulePlanner& planner, const std::string& copy, const std::string& reader,
                             const std::string& at, int64_t lanes, const ThreadsOfBlock& threads, int64_t buffers,
                             const std::string& of_axis = "");
// The same of single elements: threads side by side take `run` of them along the axis, and then those of the next row.
void CopyInRuns(SchedulePlanner& planner, const std::string& copy, const std::string& reader, const std::string& at,
                const std::string& along, int64_t run, const ThreadsOfBlock& threads, int64_t buffers);

}  // namespace hone
