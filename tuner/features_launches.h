// What blocks and threads make of a loop program on a device: how many there are, how often they wait for each other,
// and what memory does for 32 threads side by side, by the strides of the loops that are bound to threads. Nothing is
// run; simt_run counts the same of one block.
#pragma once

#include "codegen/lower/program.h"
#include "codegen/machine_model.h"
#include "tuner/features_analysis.h"

namespace hone::features {

// All 0: the program is not for a device.
struct Launches {
  double launches = 0;
  double all_cycles = 0;
  // Of the launch that takes most of them.
  double cycles = 0;
  double blocks = 0;
  double threads = 0;  // of a block
  double threads_x = 0;
  double thread_cycles = 0;  // of the busiest thread
  double barriers = 0;       // that it comes to
  double block_bytes = 0;    // of block storage
  double trips_ahead = 0;    // of the deepest pipeline
  // Of all launches.
  double global_accesses = 0;  // of a warp at one instruction
  double global_sectors = 0;   // of 32 bytes that those touch
  double shared_accesses = 0;  // to block storage
  double shared_passes = 0;    // over its banks
  double least_passes = 0;     // if no two threads met in one
};

// REQUIRES: AnalyzeLoops.
Launches AnalyzeLaunches(const LoopProgram& program, const MachineModel& machine, const Analysis& analysis);

}  // namespace hone::features
