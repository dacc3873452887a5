// What the threads of a warp do together in the machine model, as the hardware defines it (PTX ISA, "Matrix
// multiply-accumulate operation using mma instruction"): which thread holds which element is stated here a second time,
// in the manual's words, so that a schedule with other fragments computes something else.
#pragma once

#include <vector>

#include "codegen/gpu/simt_values.h"
#include "codegen/instructions.h"

namespace hone::simt {

constexpr size_t kSums = 4;  // of a thread

// Whether threads wait for each other at a node, those of a warp.
bool IsTogether(const IdVector<straight::ValueId, straight::Value>& values, const straight::Node& node);

// The product of matrices, added to the sums. `of`: of each of 32 threads its sums, its words of the first operand and
// those of the second. Of floats all terms are added at once and the result is cut off, as tensor cores do at worst.
void Multiply(const Instruction& instruction, std::vector<std::vector<Slot>>& of);

}  // namespace hone::simt
