// x86-64 instructions, as far as the gate for artifacts has to know them: how long each is, where it may lead, and
// whether generated code may have it at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace hone {

struct X86Instruction {
  uint8_t length = 0;            // in bytes; 0: refused
  const char* refused = "";      // why, if it is: "a system call"
  std::optional<int64_t> jumps;  // a direct branch leads so many bytes past the end of the instruction
  std::optional<int64_t> lea;    // the address that it takes lies so many bytes past the end of the instruction
  bool is_indirect = false;      // a call or jump to an address from a register or from memory
  std::optional<int8_t> called;  // an indirect call through a pointer so many bytes past where a register points
};

// Decodes the instruction that `bytes` begin with. An allow list: computation, moves, branches and traps, in the
// legacy, VEX and EVEX encodings, are known; whatever enters the kernel, needs privileges, leaves the code segment,
// changes segments, protection keys or shadow stacks, or is read differently by different makers' processors is
// refused, as is what is not known. Reads nothing outside `bytes`. Thread-safe.
X86Instruction DecodeX86(std::span<const std::byte> bytes);

}  // namespace hone
