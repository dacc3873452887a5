// Chooses the register tile of a contraction: which operand is read in vectors along which axis, how many vectors, how
// many rows of the other operand's axes. An estimate of cycles from the ports of current cores, enough to rank tiles.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/rules/schedule_planner.h"

namespace hone {

// A row axis along which windows of a tensor padded with zeros are read, the reduction axis that moves within the
// window, and the share of their pairs that meet padding.
struct PaddedWindow {
  AxisId row, reduce;
  double share = 0;
};

// How an instruction that sums several products in a lane does a contraction.
struct InstructionUse {
  const Instruction* instruction = nullptr;  // codegen/instructions.h
  int packed = 0;                            // the constant operand: hone_pack brings its groups together
  AxisId grouped;                            // the reduction axis whose steps are taken in groups
};

// acc[batch…, a-axes…, b-axes…] = Σ a·b: spatial axes by the operands that depend on them.
struct Contraction {
  std::string stage;
  AccessPattern operands[2];
  std::vector<AxisId> batch;    // both
  std::vector<AxisId> only[2];  // one of them
  std::vector<AxisId> reduce;
  IdVector<AxisId, int64_t> extents;
  AxisId contiguous;      // in the output: the innermost axis of more than one element, or the first
  int64_t reduction = 1;  // product of the reduction extents
  int lanes = 16;
  int64_t element_bytes = 4;
  int padded = -1;  // the operand that is padded, where the other one is a constant: terms of padding can be left out
  std::vector<PaddedWindow> windows;
  int widened = -1;    // the operand whose elements are computed of narrower ones, for this sum alone
  InstructionUse use;  // with an instruction, a group of steps stands for a step, in the extents as well
  int64_t group = 1;   // steps in a group
  std::string wide_rows, wide_vectors;  // stages of f32 that operands of 16-bit floats are read through; "": none
  std::string correction;               // the stage that holds what a change of sign is to be corrected by; "": none
  int64_t most_in_copies = 0;  // accumulators and vectors of a tile that the registers hold in unrolled code, too
};

// The stage's roles; nullopt: not a sum over the product of two tensors (or more is read, or not plainly).
std::optional<Contraction> AnalyzeContraction(const SchedulePlanner& planner, const std::string& stage);

struct RegisterTile {
  int vector_operand = 0;  // 0 or 1
  AxisId vector_axis;
  int64_t vectors = 1;
  AxisId row_axis[2];  // outer and inner; none: there is none
  int64_t rows[2] = {1, 1};
  bool direct = false;      // the vector operand is read where it lies, not from a packed panel
  bool transposed = false;  // the output's contiguous axis is a row axis
  double cycles = 0;
};

// How the terms of padding along a window are left out: a loop over the window begins later or ends earlier while there
// is one row at a time, or copies of its body are dropped where the rows are all in one tile.
enum class TrimWay : uint8_t { kNot, kByLoop, kByCopies };
TrimWay TrimWayOf(const Contraction& contraction, const PaddedWindow& window, const RegisterTile& tile);
// Share of the work that is saved so, less what the edges cost instead. `most`: kByLoop does without copies.
double TrimGain(const Contraction& contraction, const RegisterTile& tile, TrimWay most);

// Do rows with this stride in bytes evict each other? They do where they fall into the same few sets of the first
// level.
bool RowsCollide(const MachineModel& machine, int64_t rows, int64_t stride_bytes);

// Every tile that fits the registers, with its cost.
std::vector<RegisterTile> RegisterTiles(const SchedulePlanner& planner, const Contraction& contraction);

// A tile: the cheapest unless choices say otherwise; nullopt: no axis to vectorise along.
std::optional<RegisterTile> ChooseTile(SchedulePlanner& planner, const Contraction& contraction);

}  // namespace hone
