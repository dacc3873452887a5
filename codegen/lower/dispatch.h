// Several loop programs in one artifact: which sizes each is for, and the constants that they share. Every distinct
// packed layout of a constant operand is there once, one behind the other in the operand's packed bytes, however many
// programs read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/lower/program.h"
#include "ir/schedule/schedule_cases.h"

namespace hone {

// A program and the sizes it is for.
struct ProgramBody {
  const LoopProgram* program = nullptr;
  std::vector<SizeRange> ranges;        // of Dispatch::size; empty: whatever the size
  IdVector<BufferId, int64_t> offsets;  // bytes from what the caller passes for the operand
};

// One packed form of a constant operand.
struct PackedCopy {
  int operand = -1;
  std::string layout;  // "f32[24,768,32] d0/32 d1 d0%32": equal texts, equal bytes for equal operands
  int64_t offset = 0;  // bytes from the start of the operand's packed bytes, a multiple of 64
  int64_t bytes = 0;
  int64_t element_bytes = 1;
  size_t body = 0;  // whose program packs it …
  int nest = -1;    // … by this nest of LoopProgram::pack; -1: as it is, for a program that reads it in place
};

struct Dispatch {
  int size = -1;  // index into Kernel::sizes; -1: there is one body
  std::vector<ProgramBody> bodies;
  std::vector<PackedCopy> copies;  // those of one operand stand together

  int64_t PackedBytes(int operand) const;       // 0: not packed
  std::string PackedLayout(int operand) const;  // of all copies together
};

// Fills in what follows from the bodies' programs: copies and offsets.
Dispatch PlanDispatch(int size, std::vector<ProgramBody> bodies);
inline Dispatch PlanDispatch(const LoopProgram& program) { return PlanDispatch(-1, {{&program, {}, {}}}); }

}  // namespace hone
