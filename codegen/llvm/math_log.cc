// log(x) = e ln 2 + log(m), x = m · 2^e, 3/4 ≤ m < 3/2: e = 0 on both sides of 1, where the result is small and its
// error must be too. Coefficients: codegen/math_tables.h.
#include "codegen/llvm/math.h"
#include "codegen/llvm/math_ops.h"
#include "codegen/math_tables.h"
#include "llvm/IR/Constants.h"

namespace hone {
namespace {

using namespace math_tables;

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

llvm::Value* EmitLog(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x) {
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
