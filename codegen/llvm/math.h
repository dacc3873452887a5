// Elementary functions as LLVM IR: polynomials and bit arithmetic on vectors, no calls, no tables, no gathers.
//
// Every function takes f32 or f64, scalar or fixed vector of any length, and returns the same type. Numbers: round to
// nearest assumed, NaN gives NaN, infinities, zeros with sign and denormals (in and out) as in C99 Annex F; no
// fast-math flags are used or needed. The code is straight-line (selects, no branches) and depends on the target only
// for a few instructions that AVX-512 adds, so results may differ by an ulp between targets, never between lanes or
// vector lengths of one target.
//
// Largest errors, found on all 2^32 floats and on 2^24 doubles (tests/codegen/llvm/math_test.cc with
// HONE_EXHAUSTIVE=1): in units in the last place, and relative in units of 2^-24 (f64: 2^-53), of which
// ir/reference/accuracy.h allows 4.
//
//            f32 ulp  relative   f64 ulp        f32 ulp  relative   f64 ulp
//   exp         0.89      1.3      0.89   rsqrt      1.5       1.5       1.5   (AVX-512: 1.04, 1.2)
//   log         0.96      1.7      0.95   sigmoid    2.4       3.0       2.4
//   tanh        2.42      3.0      2.6    pow        0.51      1.0       2.3
//   erf         1.70      2.2      1.7    sqrt       0.5, floor exact   (f64 relative: at most 3.2, tanh)
//   sin, cos    1.52      2.0      1.39
#pragma once

#include <span>

#include "ir/graph/expr.h"
#include "ir/target.h"

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace hone {

llvm::Value* EmitExp(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x);
llvm::Value* EmitLog(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x);
llvm::Value* EmitTanh(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x);
llvm::Value* EmitSin(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x);  // any x, radians
llvm::Value* EmitCos(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x);
llvm::Value* EmitErf(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x);
llvm::Value* EmitSqrt(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x);  // correctly rounded
llvm::Value* EmitRsqrt(llvm::IRBuilderBase& builder, const CpuTarget& target,
                       llvm::Value* x);  // 1/sqrt(x); rsqrt(±0) = ±inf
llvm::Value* EmitFloor(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x);  // exact
llvm::Value* EmitRound(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x);  // exact; ties to even
llvm::Value* EmitPow(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x, llvm::Value* y);

// 1/(1+exp(-x)) over the whole domain in one exponential; silu(x) is x times it.
llvm::Value* EmitSigmoid(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x);

// 1/x in the fast form: a hardware estimate and Newton steps in place of a division.
// REQUIRES: 2⁻¹²⁶ ≤ |x| ≤ 2¹²⁵ (f32), 2⁻¹⁰²² ≤ |x| ≤ 2¹⁰²¹ (f64), as sums of exponentials are; NaN gives NaN.
llvm::Value* EmitReciprocal(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x);

// Op::kExp … kRound, kSin and kCos (one argument) and kPow (two) through the functions above. nullptr: not one of
// these.
llvm::Value* EmitMath(llvm::IRBuilderBase& builder, const CpuTarget& target, Op op, std::span<llvm::Value* const> args);

}  // namespace hone
