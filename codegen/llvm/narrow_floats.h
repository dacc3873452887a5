// f16 and bf16 in generated code. Memory holds their 16 bits; a register holds the f32 of the same value, so that
// choosing, comparing and widening are those of f32, and rounding happens in a conversion and nowhere else. Both ways
// are exact by IEEE 754: to nearest, of two to the even one, with subnormal numbers, infinities and NaN, save that
// AVX512-BF16's instruction makes zeros of subnormal numbers.
#pragma once

#include "ir/graph/type.h"
#include "ir/target.h"

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace hone {

// The f32 of 16 bits, an integer or a vector of them. REQUIRES for all: IsNarrowFloat(type).
llvm::Value* EmitFromBits(llvm::IRBuilderBase& builder, DType type, llvm::Value* bits);

// The 16 bits of an f32 that is a number of the type already: what EmitFromBits or EmitRoundTo gave.
llvm::Value* EmitToBits(llvm::IRBuilderBase& builder, DType type, llvm::Value* value);

// The nearest number of the type, as an f32, of an f32 or f64. An f64 is rounded once, unless it is smaller than bf16's
// least normal number.
llvm::Value* EmitRoundTo(llvm::IRBuilderBase& builder, const CpuTarget& target, DType type, llvm::Value* value);

}  // namespace hone
