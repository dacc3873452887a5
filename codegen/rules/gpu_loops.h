// Tiles of reductions where the threads of a device are loops of a processor (OpenCL there): a block is one thread,
// which computes with vectors along the columns of its tile.
#pragma once

#include <cstdint>
#include <string>

#include "codegen/rules/gpu_planning.h"

namespace hone {

// The tensor that columns are read from, if it is a matrix, or several, that can be copied or made in panels: side by
// side as a tile's vectors read it, whichever way it lies, with room for columns beyond the last one.
struct Panels {
  std::string tensor;  // "": there is none
  bool is_const = false;
  bool is_made_here = false;  // for this reduction alone: it is computed in panels, not copied
  bool is_preferred = false;  // copied once, or read often enough to pay for it
};
Panels PanelsFor(const SchedulePlanner& planner, const Stage& stage, AxisId x);

// Whether the outputs that depend on that operand alone are better one axis, of its columns (im2col), than as they are:
// rows of an image may be too short for vectors.
bool PaysAsOneAxis(const SchedulePlanner& planner, const Stage& stage, const AccessPattern& operand);

// Columns and rows of a tile with one thread: as many columns as take the fewest vectors, two at most, and as many rows
// as half of the registers hold.
ThreadTile TileOfLoops(const SchedulePlanner& planner, const Stage& stage, AxisId x, AxisId y, bool has_panels);

// The copy, of panels as wide as the tile; constants are copied when they are bound. Nothing where it cannot be made.
void CopyPanels(SchedulePlanner& planner, const Panels& panels, const std::string& reader, AxisId x, int64_t columns);

}  // namespace hone
