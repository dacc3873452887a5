// Rows of a launch on GPUs, as schedule_gpu_rows.cc shaped them: their stages' loops, blocks, threads and places.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "codegen/rules/schedule_planner.h"

namespace hone {

inline constexpr int64_t kStepWidth = 4;       // elements of a vector
inline constexpr int64_t kStepsOfAThread = 8;  // whose loads are on their way at once

struct RowShape {
  size_t rows = 0;       // leading axes of the output
  int64_t threads = 1;   // of a row
  int64_t together = 1;  // rows of a block
  int64_t lanes = 0;     // side by side in a thread that has the whole row; 0: several threads have it
  bool keeps = true;
  // Threads of a row that lie in one sub-group, whose partial results meet in registers; 0: all meet in block storage.
  int64_t run = 0;
  // Short leading axes of outputs that a thread computes all of, since they share what is largest.
  std::vector<AxisId> inside = {};

  bool IsInside(size_t axis) const {
    return std::find(inside.begin(), inside.end(), AxisId(static_cast<int>(axis))) != inside.end();
  }
};

inline bool IsReduction(const Stage& stage) { return stage.reduction != Reduction::kNone; }

// The reduced axis that is divided: the last one of more than one element.
AxisId DividedAxis(const SchedulePlanner& planner, const Stage& stage);

// Elements along the axis that one access takes: those of a vector where all operands have them side by side, aligned.
int64_t WidthAlong(const SchedulePlanner& planner, const Stage& stage, AxisId axis);

// Schedules the rows of `out`, and the stages of `group`, in the order in which they are computed, that it needs.
void EmitBlockRows(SchedulePlanner& planner, const std::string& out, const std::vector<std::string>& group,
                   const RowShape& shape);

}  // namespace hone
