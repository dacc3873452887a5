// exp and what is built from it: sigmoid, tanh and erf.
//
// exp(x) = 2ⁿ · exp(r), n = round(x / ln 2), |r| ≤ ln 2 / 2, a minimax polynomial for exp(r). tanh and erf go through
// exp(q) − 1 = 2ⁿ · (exp(r) − 1) + (2ⁿ − 1), whose error is relative to itself, so that they need no second branch near
// zero: tanh(x) = (exp(2x) − 1) / (exp(2x) + 1), and erf(x) = 1 − exp(log(erfc(x))) with a polynomial for log(erfc(x)).
// Both are computed for |x|, and take the sign of x.
//
// Coefficients: scripts/minimax.py prints them under the names used here.
#include "codegen/llvm/math.h"
#include "codegen/llvm/math_ops.h"

namespace hone {
namespace {

constexpr double kExpF32[] = {1, 1, 0x1.fffffcp-2, 0x1.55548cp-3, 0x1.555858p-5, 0x1.123dep-7, 0x1.6ac74cp-10};
constexpr double kExpF64[] = {1,
                              1,
                              0x1p-1,
                              0x1.555555555555dp-3,
                              0x1.555555555556cp-5,
                              0x1.111111110e54ap-7,
                              0x1.6c16c16c0a3fep-10,
                              0x1.a01a01b5f427cp-13,
                              0x1.a01a01e8bb1a1p-16,
                              0x1.71ddeaae6e018p-19,
                              0x1.27e44a45fc0e9p-22,
                              0x1.af7443b3b9ff3p-26,
                              0x1.2051035fc6724p-29};

// (exp(r) − 1 − r) / r²
constexpr double kExpm1F32[] = {0x1p-1, 0x1.55552cp-3, 0x1.555502p-5, 0x1.1155a8p-7, 0x1.6d2e4ap-10, 0x1.3b8acap-13};
constexpr double kExpm1F64[] = {0x1p-1,
                                0x1.5555555555556p-3,
                                0x1.5555555555557p-5,
                                0x1.1111111110d4ap-7,
                                0x1.6c16c16c1553fp-10,
                                0x1.a01a01a1d101dp-13,
                                0x1.a01a01ac93334p-16,
                                0x1.71de3509d489cp-19,
                                0x1.27e4cc6551056p-22,
                                0x1.ae72a0d2db011p-26,
                                0x1.1f8db921cd8ccp-29,
                                0x1.53d1a416a61b7p-33};

// −log(erfc(x)) / x − 1, a polynomial (f32), a quotient P / Q (f64). The 1 apart: it keeps the leading coefficient 2/√π
// from losing half a bit to rounding.
constexpr double kErfF32[] = {0x1.06eba8p-3,  0x1.45f3p-1,     0x1.a4f8c4p-4,  -0x1.39b7ccp-6, -0x1.6374bep-13,
                              0x1.b74396p-10, -0x1.4e2796p-11, 0x1.f2849cp-14, -0x1.3afb48p-17};
constexpr double kErfPF64[] = {0x1.06eba8214db69p-3,  0x1.b9e2f4df6e893p-1, 0x1.6c9bf07fe92fp+0,  0x1.41070d0838e83p+0,
                               0x1.6369775a81054p-1,  0x1.057877888531cp-2, 0x1.fe534948c84b5p-5, 0x1.38d69123ddb4p-7,
                               0x1.9eab6113f9085p-11, 0x1.767959c166f79p-16};
constexpr double kErfQF64[] = {1,
                               0x1.c38ace3cb4beap+0,
                               0x1.8c0100ec0c026p+0,
                               0x1.ab1573b71333fp-1,
                               0x1.2fe5819c09516p-2,
                               0x1.1d6539aef5f8bp-4,
                               0x1.4fd1fc88cc99dp-7,
                               0x1.aa3160ce68a35p-11,
                               0x1.768288e620decp-16};

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

llvm::Value* EmitExp(llvm::IRBuilderBase& builder, const Target& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  // Beyond these the result is zero or infinite, which Scale gives for them too.
  llvm::Value* bounded = m.AtMost(m.AtLeast(x, m.is_f64() ? -746 : -104), m.is_f64() ? 710 : 89);
  return ExpInRange(m, bounded);
}

llvm::Value* EmitSigmoid(llvm::IRBuilderBase& builder, const Target& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  // e = exp(−|x|) ≤ 1: 1/(1+e) for x ≥ 0, e/(1+e) below, where 1/(1+exp(−x)) would overflow.
  llvm::Value* e = ExpInRange(m, m.AtLeast(m.Neg(m.Abs(x)), m.is_f64() ? -746 : -104));
  llvm::Value* numerator = m.Select(builder.CreateFCmpOLT(x, m.Const(0)), e, m.Const(1));
  return m.Div(numerator, m.Add(m.Const(1), e));
}

llvm::Value* EmitTanh(llvm::IRBuilderBase& builder, const Target& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  llvm::Value* magnitude = m.AtMost(m.Abs(x), m.is_f64() ? 19.5 : 9.25);  // tanh rounds to 1 from there on
  llvm::Value* e = Expm1InRange(m, m.Add(magnitude, magnitude));
  return m.CopySign(m.Div(e, m.Add(e, m.Const(2))), x);
}

llvm::Value* EmitErf(llvm::IRBuilderBase& builder, const Target& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  llvm::Value* magnitude = m.AtMost(m.Abs(x), m.is_f64() ? 5.95 : 3.93);  // erf rounds to 1 from there on
  llvm::Value* t =
      m.is_f64() ? m.Div(m.Horner(magnitude, kErfPF64), m.Horner(magnitude, kErfQF64)) : m.Horner(magnitude, kErfF32);
  llvm::Value* negative = m.Neg(magnitude);
  llvm::Value* log_erfc = m.Fma(negative, t, negative);
  return m.CopySign(Expm1InRange(m, log_erfc), x);
}

}  // namespace hone
