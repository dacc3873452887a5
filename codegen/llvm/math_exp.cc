// exp and what is built from it: sigmoid, tanh and erf.
//
// exp(x) = 2ⁿ · exp(r), n = round(x / ln 2), |r| ≤ ln 2 / 2, a minimax polynomial for exp(r). tanh and erf go through
// exp(q) − 1 = 2ⁿ · (exp(r) − 1) + (2ⁿ − 1), whose error is relative to itself, so that they need no second branch near
// zero: tanh(x) = (exp(2x) − 1) / (exp(2x) + 1), and erf(x) = 1 − exp(log(erfc(x))) with a polynomial for log(erfc(x)).
// Both are computed for |x|, and take the sign of x.
//
// Coefficients: codegen/math_tables.h.
#include "codegen/llvm/math.h"
#include "codegen/llvm/math_ops.h"
#include "codegen/math_tables.h"

namespace hone {
namespace {

using namespace math_tables;

constexpr double kLog2E = 0x1.71547652b82fep+0;

struct Reduced {
  MathOps::Rounded n;
  llvm::Value* r;
};

// x = n ln 2 + r. ln 2 in two parts (Cody and Waite): n times the first is exact, with enough zero bits at its end.
Reduced Reduce(MathOps& m, llvm::Value* x) {
  double high = m.is_f64() ? 0x1.62e42feep-1 : 0x1.62e4p-1;
  double low = m.is_f64() ? 0x1.a39ef35793c76p-33 : 0x1.7f7d1cf79abcap-20;
  MathOps::Rounded n = m.RoundScaled(x, kLog2E);
  llvm::Value* r = m.Fma(n.value, m.Const(-high), x);
  return {n, m.Fma(n.value, m.Const(-low), r)};
}

// exp(x) for x within the range where its result is finite and above half the least denormal, or not far outside.
llvm::Value* ExpInRange(MathOps& m, llvm::Value* x) {
  Reduced reduced = Reduce(m, x);
  llvm::Value* p = m.is_f64() ? m.Horner(reduced.r, kExpF64) : m.Horner(reduced.r, kExpF32);
  return m.Scale(p, reduced.n);
}

// exp(x) − 1 for |x| ≤ 40, so that 2ⁿ needs no care.
llvm::Value* Expm1InRange(MathOps& m, llvm::Value* x) {
  Reduced reduced = Reduce(m, x);
  llvm::Value* q = m.is_f64() ? m.Horner(reduced.r, kExpm1F64) : m.Horner(reduced.r, kExpm1F32);
  llvm::Value* p = m.Fma(m.Mul(reduced.r, reduced.r), q, reduced.r);
  llvm::Value* scale = m.PowerOfTwo(reduced.n);
  return m.Fma(scale, p, m.Sub(scale, m.Const(1)));
}

}  // namespace

llvm::Value* EmitExp(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  // Beyond these the result is zero or infinite, which Scale gives for them too.
  llvm::Value* bounded = m.AtMost(m.AtLeast(x, m.is_f64() ? -746 : -104), m.is_f64() ? 710 : 89);
  return ExpInRange(m, bounded);
}

llvm::Value* EmitSigmoid(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  // e = exp(−|x|) ≤ 1: 1/(1+e) for x ≥ 0, e/(1+e) below, where 1/(1+exp(−x)) would overflow.
  llvm::Value* e = ExpInRange(m, m.AtLeast(m.Neg(m.Abs(x)), m.is_f64() ? -746 : -104));
  llvm::Value* numerator = m.Select(builder.CreateFCmpOLT(x, m.Const(0)), e, m.Const(1));
  return m.Div(numerator, m.Add(m.Const(1), e));
}

llvm::Value* EmitTanh(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  llvm::Value* magnitude = m.AtMost(m.Abs(x), m.is_f64() ? 19.5 : 9.25);  // tanh rounds to 1 from there on
  llvm::Value* e = Expm1InRange(m, m.Add(magnitude, magnitude));
  return m.CopySign(m.Div(e, m.Add(e, m.Const(2))), x);
}

llvm::Value* EmitErf(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  llvm::Value* magnitude = m.AtMost(m.Abs(x), m.is_f64() ? 5.95 : 3.93);  // erf rounds to 1 from there on
  llvm::Value* t =
      m.is_f64() ? m.Div(m.Horner(magnitude, kErfPF64), m.Horner(magnitude, kErfQF64)) : m.Horner(magnitude, kErfF32);
  llvm::Value* negative = m.Neg(magnitude);
  llvm::Value* log_erfc = m.Fma(negative, t, negative);
  return m.CopySign(Expm1InRange(m, log_erfc), x);
}

}  // namespace hone
