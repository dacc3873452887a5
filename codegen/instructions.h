// Instructions that do a block of loops at once, such as the dot products of four bytes in each lane. A schedule gives
// a block to one of them by name (`tensorize`); it may where the stage's body over these loops is what the instruction
// means. A new instruction is a row of the table in instructions.cc and a function of codegen/llvm/emit_instruction.cc;
// of a GPU's, a row in codegen/gpu/print_warp.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/graph/kernel.h"
#include "ir/target.h"

namespace hone {

struct Instruction {
  std::string_view name;     // in schedules; stored, so it never changes
  Isa isa;                   // that has it,
  std::string_view feature;  // with this feature beyond its base, as targets spell it; "": the base has it
  // A kernel of two operands over [lanes, steps] and an output over [lanes], summed over the steps. An operand of the
  // instruction is a register: lanes side by side, in each the elements of its steps side by side.
  //
  // Or one on tiles: operands over [rows, groups, steps] and [groups, lanes, steps], an output over [rows, lanes],
  // summed over groups of steps. A register is a tile whose rows, the first of these dimensions, lie any distance apart
  // in memory; what is in a row lies side by side.
  //
  // Or one that the threads of a warp do together: operands over [rows, steps] and [steps, columns], an output over
  // [rows, columns]. Each thread holds a few elements of each, its fragments (codegen/gpu/straighten_warp.cc).
  //
  // Or one that the threads of a group of warps do together: the same, but that both operands are read from block
  // storage while the threads go on (codegen/gpu/straighten_group.cc).
  std::string_view meaning;
  double per_fma = 1;  // how many start in the time of a vector FMA of the ISA's full width; rules take the fastest
  // Operations that each register of an operand takes before, after which it is two registers.
  double conversions = 0;
  int sm = 0;        // of a warp: the least compute capability of NVIDIA's that has it, 80 for 8.0; 0: a processor's
  int threads = 32;  // of a warp's: so many do it. 128, a group of four warps: `sm` alone has it
  // Kernels that ask for more are not computed so: it rounds factors before it multiplies them.
  Accuracy accuracy = Accuracy::kStrict;
};

// What the row's text comes to.
struct InstructionMeaning {
  Kernel kernel;
  int64_t rows = 1;
  int64_t lanes = 1;       // of a warp's: columns
  int64_t groups = 1;      // of steps
  int64_t steps = 1;       // of the sum, in each lane
  int64_t step_bytes = 1;  // of an element of an operand
  DType operands[2] = {};  // in the order of the text
  DType sum = DType::kI32;
  bool is_of_warp = false;  // or of a group of warps
  bool is_of_group = false;
  int64_t threads = 1;  // that do it together
  const Stage& stage() const { return kernel.stages.back(); }
  bool is_on_tiles() const { return rows > 1 && !is_of_warp; }
  static constexpr int64_t kTiles = 8, kMostFragments = 6;  // of those registers; two are of operands
  int64_t depth() const { return groups * steps; }          // of the sum
  // The loops that it does, from outside in.
  struct Loop {
    int64_t trips;
    bool reduces;
    std::string_view over;
  };
  std::vector<Loop> Loops() const {
    if (is_of_warp) return {{steps, true, "steps of the sum"}, {rows, false, "rows"}, {lanes, false, "columns"}};
    std::vector<Loop> loops = {{steps, true, "steps of the sum"}, {lanes, false, "lanes"}};
    if (is_on_tiles()) loops.insert(loops.begin(), {{groups, true, "groups of steps"}, {rows, false, "rows"}});
    return loops;
  }
};

std::span<const Instruction> AllInstructions();
const Instruction* FindInstruction(std::string_view name);  // nullptr: there is none of that name
std::string InstructionNames();                             // for messages
const InstructionMeaning& MeaningOf(const Instruction& instruction);

// Whether the target's processor has it. If not, code does what it means.
bool HasInstruction(const CpuTarget& target, const Instruction& instruction);
bool HasInstruction(const DeviceTarget& target, const Instruction& instruction);
// Of NVIDIA's devices, 80 for 8.0; 0: it is another, or does not say.
int ComputeCapability(const DeviceTarget& target);

// The loads of a stage's body that stand for the instruction's operands, in its order. kInvalid: the body is another
// than the meaning's, with what differs, or the kernel is to be more accurate.
Result<std::vector<Expr>> MatchInstruction(const Kernel& kernel, const Stage& stage, const Instruction& instruction);

}  // namespace hone
