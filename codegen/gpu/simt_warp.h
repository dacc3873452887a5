// What the threads of a warp or of a group of them do together in the machine model, as the hardware defines it (PTX
// ISA, "Matrix multiply-accumulate operation using mma instruction", "Asynchronous warpgroup level matrix
// instructions"): which thread holds which element is stated here a second time,
// in the manual's words, so that a schedule with other fragments computes something else.
#pragma once

#include <vector>

#include "codegen/gpu/simt_values.h"
#include "codegen/instructions.h"

namespace hone::simt {

constexpr size_t kSums = 4;  // of a thread

bool IsShuffle(const straight::Node& node, const straight::Code& code);
// Whether threads wait for each other at a node, those of a warp or of a group of warps.
bool IsTogether(const straight::Node& node, const straight::Code& code);

// A thread's words of matrices (straight::Do::kMatrices). `rows`: the elements of those that each thread of the warp
// names.
std::vector<std::array<Lane, 4>> WordsOf(const straight::Value& matrices, const std::vector<std::vector<Lane>>& rows,
                                         size_t lane);

// The product of matrices, added to the sums. `of`: of each of 32 threads its sums, its words of the first operand and
// those of the second. Of floats all terms are added at once and the result is cut off, as tensor cores do at worst.
void Multiply(const Instruction& instruction, std::vector<std::vector<Slot>>& of);

// Where element (line, step) of a product's operand lies, from its first element on: lines are rows of the first
// operand and columns of the second.
int64_t OffsetIn(const straight::MatrixLayout& matrix, int64_t element_bytes, int64_t line, int64_t step);
// The row and the column of a thread's sum number i.
struct SumPlace {
  int64_t row, column;
};
SumPlace PlaceInGroup(int64_t thread, int64_t i);
// A sum of floats as tensor cores leave it.
float CutOff(double sum);
// An f32 with as many bits as PTX's tf32 has, 11; of two numbers as near the one of larger magnitude.
double AsTf32(double factor);

}  // namespace hone::simt
