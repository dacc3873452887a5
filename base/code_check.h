// Machine code in an artifact's executable segments: is it nothing but instructions that generated code is made of?
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace hone {

// An executable segment: where it will be mapped, relative to the others, and its bytes.
struct CodeSegment {
  uint64_t address = 0;
  std::span<const std::byte> bytes;
};

// Walks every byte of the segments as instructions, also where no branch leads: a system call in a branch that is never
// taken is refused like any other. Direct branches, and `entries` (what symbols and relocations point to) as far as
// they lie in a segment, have to meet instructions that the walk saw, so that no other reading of the same bytes runs.
// The one indirect branch is a call of hone_env's parallel_for; jump tables are not emitted. Returns are not followed:
// what code would do that forges the addresses it returns to is left to the seccomp filter that candidates run under.
// kCorrupt with the first offence and its address. `machine`: EM_X86_64 or EM_AARCH64. REQUIRES: segments are ascending
// and apart. Thread-safe.
Result<void> CheckCode(uint16_t machine, std::span<const CodeSegment> segments, std::span<const uint64_t> entries);

}  // namespace hone
