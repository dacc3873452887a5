// Copies in block storage of what a tile's block reads, for tiles on GPUs: which way they lie there, so that threads
// side by side read and write other banks, and how much of them one thread copies at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/rules/gpu_planning.h"

namespace hone {

// A block's tile of a reduction. `parts`: in which its threads divide the terms.
struct ReductionTile : ThreadTile {
  int64_t steps = 1;  // of a part, whose operands are in block storage at once
  int64_t parts = 1;
  int64_t buffers = 1;
  bool shares = true;      // operands are copied into block storage
  bool has_room = false;   // copies have room where threads would meet in a bank
  bool is_turned = false;  // copies of what lies crosswise are turned round

  int64_t length() const { return steps * parts; }
};

// What a sum reads, and its axis along which one thread takes steps.
struct TileOperand {
  const AccessPattern& access;
  AxisId steps;
};

// Whether columns are read from it and its elements, of 4 bytes, lie side by side along the reduction: if they lay so
// in block storage, too, threads side by side would read one bank.
bool LiesCrosswise(const SchedulePlanner& planner, const TileOperand& operand, AxisId x);

// A copy's layout, of its axes by their names, as the tensor's dimensions are; empty: as the tensor lies.
std::vector<LayoutDim> CopyLayout(const SchedulePlanner& planner, const TileOperand& operand, const ReductionTile& tile,
                                  const std::vector<std::string>& axes);
// Of a copy that is turned round, the axis that lies side by side where it comes from; "": it is not.
std::string TurnedAlong(const SchedulePlanner& planner, const TileOperand& operand, const ReductionTile& tile,
                        const std::vector<std::string>& axes);
// Elements along that axis that threads side by side copy, before they go on to the next row.
int64_t RunOfTurned(const ReductionTile& tile);

// Elements that a thread copies at once: as many as are moved at once, where rows of the tensor and of the tile begin
// at multiples of them.
int64_t CopiedAtOnce(const SchedulePlanner& planner, const Stage& sum, const TileOperand& operand,
                     const ReductionTile& tile);

// Bytes of a trip's copies, or more: windows overlap, and not all that may have room has it. At least 1.
int64_t BytesOfCopies(const SchedulePlanner& planner, const Stage& sum, const ReductionTile& tile);

}  // namespace hone
