// What operations cost: enough to rank programs, measured nowhere exactly.
#pragma once

#include "codegen/program.h"
#include "ir/expr.h"

namespace hone::features {

// Instructions of an elementary function's polynomial, range reduction included (codegen/llvm_math_*.cc); 1 for others.
double LengthOf(Op op);
inline constexpr double kMeanLength = 20;  // of elementary functions, where only their number is known

inline constexpr double kFmaLatency = 4;
inline constexpr double kLaneStepLatency = 6;  // halving a vector: a shuffle and an operation

// From this many copies of a statement on, elementary functions are called (codegen/llvm_values.cc); what a call costs
// beside the function itself, registers saved around it included.
inline constexpr double kCalledCopies = 6;
inline constexpr double kCallInstructions = 24;

// Cycles from operands to the value.
double PathOf(const ValueNode& value);

}  // namespace hone::features
