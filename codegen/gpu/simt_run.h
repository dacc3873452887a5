// A machine model in software: executes straight code on the host as a GPU would, blocks one after the other, the
// threads of a block from barrier to barrier. It reports what a device may do without telling, and counts what a
// device's time depends on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "codegen/gpu/straight.h"

namespace hone {

struct SimtOptions {
  size_t findings = 8;  // it stops after so many
  bool count = false;   // transactions and conflicts, of the first block of each launch
};

struct SimtReport {
  // What is wrong, one line each: races (two threads, one element, no barrier between, one of them writes), accesses
  // outside a buffer, reads of what nobody wrote, barriers that some threads do not come to.
  std::vector<std::string> findings;
  int64_t blocks = 0;
  int64_t most_threads = 0;  // of a block
  int64_t barriers = 0;      // as all threads of a block come to it
  // Of 32 threads that access memory with one instruction:
  int64_t global_accesses = 0;
  int64_t global_sectors = 0;  // of 32 bytes that they touch
  int64_t shared_accesses = 0;
  int64_t shared_passes = 0;  // over 32 banks of 4 bytes
  int64_t least_passes = 0;   // if no accesses conflicted: more than one where a warp reads more than 128 bytes
};

// Runs `pack`, then the launches. `operands`: in the kernel's order, each as large as its tensor at `sizes` (the values
// of dynamic sizes, by index into Kernel::sizes; empty if there are none). kInvalid: not that many operands.
Result<SimtReport> SimtRun(const straight::Program& program, std::span<void* const> operands,
                           std::span<const int64_t> sizes = {}, const SimtOptions& options = {});

}  // namespace hone
