#include "codegen/llvm/math.h"

#include "base/check.h"
#include "codegen/llvm/math_ops.h"
#include "llvm/IR/Intrinsics.h"

namespace hone {

llvm::Value* EmitSqrt(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x) {
  return MathOps(builder, target, x).Sqrt(x);
}

llvm::Value* EmitFloor(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x) {
  return MathOps(builder, target, x).Floor(x);
}

llvm::Value* EmitRound(llvm::IRBuilderBase& builder, const CpuTarget&, llvm::Value* x) {
  return builder.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x);
}

llvm::Value* EmitRsqrt(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  if (!m.avx512()) return m.Div(m.Const(1), m.Sqrt(x));  // the estimates of AVX2 and NEON are too coarse to pay
  // Newton on the 14-bit estimate, error 2⁻¹⁴ -> 1.5 · 2⁻²⁸ -> below 2⁻⁵⁴. x·y first: it is near √x, so that neither a
  // denormal nor a huge x leaves the range.
  llvm::Value* estimate = m.Estimate14(x, /*square_root=*/true);
  llvm::Value* y = estimate;
  llvm::Value* residual = nullptr;
  for (int step = 0; step < (m.is_f64() ? 2 : 1); ++step) {
    residual = m.Fma(m.Neg(m.Mul(x, y)), y, m.Const(1));
    y = m.Fma(m.Mul(y, m.Const(0.5)), residual, y);
  }
  // Zeros, infinity and NaN: the estimate is exact there, and the residual is NaN (0 · ∞).
  return m.Select(builder.CreateFCmpUNO(residual, residual), estimate, y);
}

llvm::Value* EmitReciprocal(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  if (!m.avx512()) return m.Div(m.Const(1), x);
  llvm::Value* y = m.Estimate14(x, /*square_root=*/false);
  for (int step = 0; step < (m.is_f64() ? 2 : 1); ++step) {
    llvm::Value* residual = m.Fma(m.Neg(x), y, m.Const(1));
    y = m.Fma(y, residual, y);
  }
  return y;
}

llvm::Value* EmitMath(llvm::IRBuilderBase& builder, const CpuTarget& target, Op op,
                      std::span<llvm::Value* const> args) {
  if (op == Op::kPow) {
    HONE_CHECK(args.size() == 2);
    return EmitPow(builder, target, args[0], args[1]);
  }
  using Unary = llvm::Value* (*)(llvm::IRBuilderBase&, const CpuTarget&, llvm::Value*);
  Unary emit = nullptr;
  switch (op) {
    case Op::kExp: emit = EmitExp; break;
    case Op::kLog: emit = EmitLog; break;
    case Op::kSqrt: emit = EmitSqrt; break;
    case Op::kRsqrt: emit = EmitRsqrt; break;
    case Op::kTanh: emit = EmitTanh; break;
    case Op::kErf: emit = EmitErf; break;
    case Op::kSin: emit = EmitSin; break;
    case Op::kCos: emit = EmitCos; break;
    case Op::kFloor: emit = EmitFloor; break;
    case Op::kRound: emit = EmitRound; break;
    default: return nullptr;
  }
  HONE_CHECK(args.size() == 1);
  return emit(builder, target, args[0]);
}

}  // namespace hone
