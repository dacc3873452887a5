// How much code operations become.
#pragma once

#include "ir/expr.h"

namespace hone {

// Instructions of an elementary function's polynomial, range reduction included (codegen/llvm_math_*.cc); 1 for others.
double LengthOf(Op op);
inline constexpr double kMeanLength = 20;  // of elementary functions, where only their number is known

}  // namespace hone
