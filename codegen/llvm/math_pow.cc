// pow(x, y) = 2^(y log2 |x|) with C's special cases. y multiplies the logarithm's error, so the logarithm carries extra
// bits: f32 computes in f64, f64 computes log(|x|) as a sum of two numbers.
//
// Coefficients: scripts/minimax.py prints them under the names used here.
#include <numeric>
#include <vector>

#include "codegen/llvm/math.h"
#include "codegen/llvm/math_ops.h"
#include "codegen/math_tables.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"

namespace hone {
namespace {

using namespace math_tables;

// log2(m) / s, s = (m − 1) / (m + 1), in z = s²
constexpr double kLog2PowF32[] = {0x1.71547652b8308p+1, 0x1.ec709dc38892bp-1, 0x1.2776c533d4eb2p-1,
                                  0x1.a61737b1ac688p-2, 0x1.4856f86d702b2p-2, 0x1.0aec084b25ae2p-2,
                                  0x1.01155fd316c6bp-2};
// 2^r, |r| ≤ 1/2
constexpr double kExp2PowF32[] = {1,
                                  0x1.62e4300b9db03p-1,
                                  0x1.ebfbe045704efp-3,
                                  0x1.c6b0551d4d221p-5,
                                  0x1.3b2a1bf5c50ffp-7,
                                  0x1.5dc0515027e48p-10,
                                  0x1.443f957d127d8p-13,
                                  0x1.c047ed237eaa1p-17};
// What SplitExponent leaves open below AVX-512: e = −∞ for zero, +∞ for infinity; NaN stays.
llvm::Value* WithSpecialExponents(MathOps& m, llvm::Value* magnitude, llvm::Value* exponent) {
  if (m.avx512()) return exponent;
  llvm::IRBuilderBase& builder = m.builder();
  llvm::Value* infinity = llvm::ConstantFP::getInfinity(m.type());
  exponent = m.Select(builder.CreateFCmpULT(magnitude, infinity), exponent, magnitude);  // ∞
  exponent = m.Select(builder.CreateFCmpUNO(magnitude, magnitude), magnitude, exponent);
  return m.Select(builder.CreateFCmpOEQ(magnitude, m.Const(0)), llvm::ConstantFP::getInfinity(m.type(), true),
                  exponent);
}

// |x|^y for f32 through f64; x ≥ 0 here. NaN where 0 · ∞ appears.
llvm::Value* PowF32(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x, llvm::Value* y) {
  llvm::Type* wide = x->getType()->getWithNewType(builder.getDoubleTy());
  llvm::Value* wide_x = builder.CreateFPExt(x, wide);
  llvm::Value* wide_y = builder.CreateFPExt(y, wide);
  MathOps m(builder, target, wide_x);
  MathOps::Split split = m.SplitExponent(wide_x);
  llvm::Value* exponent = WithSpecialExponents(m, wide_x, split.exponent);
  llvm::Value* s = m.Div(m.Sub(split.mantissa, m.Const(1)), m.Add(split.mantissa, m.Const(1)));
  llvm::Value* log2 = m.Fma(m.Horner(m.Mul(s, s), kLog2PowF32), s, exponent);
  // f64 holds every 2^±160, and the conversion to f32 then overflows, underflows and rounds once.
  llvm::Value* t = m.AtMost(m.AtLeast(m.Mul(wide_y, log2), -160), 160);
  MathOps::Rounded n = m.RoundScaled(t, 1);
  llvm::Value* power = m.Mul(m.Horner(m.Sub(t, n.value), kExp2PowF32), m.PowerOfTwo(n));
  return builder.CreateFPTrunc(power, x->getType());
}

// Exact sums and products of two doubles as high + low (Dekker, Knuth).
struct Sum {
  llvm::Value* high;
  llvm::Value* low;
};
Sum FastTwoSum(MathOps& m, llvm::Value* a, llvm::Value* b) {  // |a| ≥ |b| or a = 0
  llvm::Value* high = m.Add(a, b);
  return {high, m.Sub(b, m.Sub(high, a))};
}
Sum TwoProduct(MathOps& m, llvm::Value* a, llvm::Value* b) {
  llvm::Value* high = m.Mul(a, b);
  return {high, m.Fma(a, b, m.Neg(high))};
}

// log(x) to about 2⁻⁶⁴ relative: e ln 2 + 2 s (1 + z/3 + z² P(z)), s = f / (2 + f), everything up to z/3 in two parts.
Sum LogInTwoParts(MathOps& m, llvm::Value* x) {
  MathOps::Split split = m.SplitExponent(x);
  llvm::Value* e = WithSpecialExponents(m, x, split.exponent);
  llvm::Value* one = m.Const(1);
  llvm::Value* f = m.Sub(split.mantissa, one);
  llvm::Value* divisor = m.Add(split.mantissa, one);
  llvm::Value* divisor_low = m.Sub(split.mantissa, m.Sub(divisor, one));
  llvm::Value* s = m.Div(f, divisor);
  llvm::Value* remainder = m.Fma(m.Neg(s), divisor_low, m.Fma(m.Neg(s), divisor, f));
  llvm::Value* s_low = m.Div(remainder, divisor);

  Sum z = TwoProduct(m, s, s);
  z.low = m.Fma(m.Add(s, s), s_low, z.low);
  llvm::Value* third = m.Const(0x1.5555555555555p-2);
  Sum u = TwoProduct(m, z.high, third);
  u.low = m.Fma(z.low, third, m.Fma(z.high, m.Const(0x1.5555555555555p-56), u.low));
  Sum w = FastTwoSum(m, u.high, m.Mul(m.Mul(z.high, z.high), m.Horner(z.high, kLogPowF64)));
  w.low = m.Add(w.low, u.low);

  llvm::Value* twice_s = m.Add(s, s);
  llvm::Value* twice_s_low = m.Add(s_low, s_low);
  Sum t = TwoProduct(m, twice_s, w.high);
  t.low = m.Add(m.Fma(twice_s, w.low, t.low), m.Fma(twice_s_low, w.high, twice_s_low));
  Sum log_m = FastTwoSum(m, twice_s, t.high);
  Sum total = FastTwoSum(m, m.Mul(e, m.Const(0x1.62e42feep-1)), log_m.high);
  llvm::Value* low = m.Add(m.Add(total.low, log_m.low), m.Fma(e, m.Const(0x1.a39ef35793c76p-33), t.low));
  return {total.high, low};
}

llvm::Value* PowF64(MathOps& m, llvm::Value* x, llvm::Value* y) {
  llvm::IRBuilderBase& builder = m.builder();
  Sum log = LogInTwoParts(m, x);
  Sum t = TwoProduct(m, y, log.high);
  t.low = m.Fma(y, log.low, t.low);
  // Beyond this the result is 0 or ∞ whatever the low part, which is NaN when the high one is infinite.
  llvm::Value* in_range = builder.CreateFCmpOLT(m.Abs(t.high), m.Const(800));
  t.low = m.Select(in_range, t.low, m.Const(0));
  llvm::Value* bounded = m.AtMost(m.AtLeast(t.high, -746), 710);
  MathOps::Rounded n = m.RoundScaled(bounded, 0x1.71547652b82fep+0);
  llvm::Value* r = m.Fma(n.value, m.Const(-0x1.62e42feep-1), bounded);
  r = m.Add(m.Fma(n.value, m.Const(-0x1.a39ef35793c76p-33), r), t.low);
  return m.Scale(m.Horner(r, kExpF64), n);
}

}  // namespace

llvm::Value* EmitPow(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x, llvm::Value* y) {
  MathOps m(builder, target, x);
  llvm::Value* magnitude = m.Abs(x);
  llvm::Value* power = m.is_f64() ? PowF64(m, magnitude, y) : PowF32(builder, target, magnitude, y);

  llvm::Value* zero = m.Const(0);
  llvm::Value* one = m.Const(1);
  llvm::Value* infinity = llvm::ConstantFP::getInfinity(m.type());
  llvm::Value* is_integer = builder.CreateFCmpOEQ(m.Floor(y), y);  // ±∞ is one, and even
  llvm::Value* half = m.Mul(y, m.Const(0.5));
  llvm::Value* is_odd = builder.CreateAnd(is_integer, builder.CreateFCmpUNE(m.Floor(half), half));

  // (±1)^±∞ is 1; 0 · ∞ made it NaN.
  llvm::Value* one_forever =
      builder.CreateAnd(builder.CreateFCmpOEQ(magnitude, one), builder.CreateFCmpOEQ(m.Abs(y), infinity));
  power = m.Select(one_forever, one, power);
  // A negative number to a power that is no integer is NaN; −0 and −∞ are not among them.
  llvm::Value* negative = builder.CreateAnd(builder.CreateFCmpOLT(x, zero),
                                            builder.CreateFCmpOGT(x, llvm::ConstantFP::getInfinity(m.type(), true)));
  llvm::Value* undefined = builder.CreateAnd(negative, builder.CreateNot(is_integer));
  power = m.Select(undefined, llvm::ConstantFP::getNaN(m.type()), power);
  power = m.Select(is_odd, m.CopySign(power, x), power);
  // x^0 and 1^y are 1, even for NaN.
  llvm::Value* always_one = builder.CreateOr(builder.CreateFCmpOEQ(y, zero), builder.CreateFCmpOEQ(x, one));
  return m.Select(always_one, one, power);
}

}  // namespace hone
