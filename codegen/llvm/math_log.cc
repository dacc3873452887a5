// log(x) = e ln 2 + log(m), x = m · 2^e, 3/4 ≤ m < 3/2: e = 0 on both sides of 1, where the result is small and its
// error must be too. Coefficients: scripts/minimax.py prints them under the names used here.
#include "codegen/llvm/math.h"
#include "codegen/llvm/math_ops.h"
#include "llvm/IR/Constants.h"

namespace hone {
namespace {

// (log(1 + f) − f) / f²
constexpr double kLogF32[] = {-0x1p-1,       0x1.5555acp-2,  -0x1.000082p-2, 0x1.996718p-3, -0x1.54d6bap-3,
                              0x1.2876aap-3, -0x1.0e9296p-3, 0x1.b201fcp-4,  -0x1.796866p-5};
// (2 atanh(s) − 2 s) / s³ in z = s²; the constant term first
constexpr double kLogF64[] = {0x1.555555555554fp-1, 0x1.999999999c175p-2, 0x1.24924921e4c28p-2, 0x1.c71c748f330a3p-3,
                              0x1.745c4b02eed4bp-3, 0x1.3b35bb29fd92fp-3, 0x1.0dcbfc48935f1p-3, 0x1.1b7eb3c4f0b8ep-3};

// log(m) = f + tail, f = m − 1 exact. Returns the tail.
llvm::Value* LogTail(MathOps& m, llvm::Value* f) {
  if (!m.is_f64()) return m.Mul(m.Mul(f, f), m.Horner(f, kLogF32));
  // s = f / (2 + f), log(1 + f) = 2 atanh(s); 2 s = f − s f, and with h = f²/2: f s = h − s h (as in FreeBSD's log).
  llvm::Value* s = m.Div(f, m.Add(f, m.Const(2)));
  llvm::Value* z = m.Mul(s, s);
  llvm::Value* r = m.Mul(z, m.Horner(z, kLogF64));
  llvm::Value* h = m.Mul(m.Mul(f, m.Const(0.5)), f);
  return m.Sub(m.Mul(s, m.Add(h, r)), h);
}

}  // namespace

llvm::Value* EmitLog(llvm::IRBuilderBase& builder, const Target& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  MathOps::Split split = m.SplitExponent(x);
  llvm::Value* f = m.Sub(split.mantissa, m.Const(1));
  llvm::Value* e = split.exponent;
  double high = m.is_f64() ? 0x1.62e42feep-1 : 0x1.62e4p-1;
  double low = m.is_f64() ? 0x1.a39ef35793c76p-33 : 0x1.7f7d1cf79abcap-20;
  llvm::Value* small = m.Add(f, m.Fma(e, m.Const(low), LogTail(m, f)));
  llvm::Value* result = m.Fma(e, m.Const(high), small);
  if (m.avx512()) return result;  // the split gave what zero, infinity, NaN and negative numbers need
  llvm::Value* infinity = llvm::ConstantFP::getInfinity(m.type());
  llvm::Value* zero = m.Const(0);
  result = m.Select(builder.CreateFCmpOLT(x, infinity), result, x);  // infinity and NaN give themselves
  llvm::Value* special = m.Select(builder.CreateFCmpOEQ(x, zero), llvm::ConstantFP::getInfinity(m.type(), true),
                                  llvm::ConstantFP::getNaN(m.type()));
  return m.Select(builder.CreateFCmpOLE(x, zero), special, result);
}

}  // namespace hone
