// sin and cos of any number. |x| = (n + r) π/2, |r| ≤ 1/2: the last bits of n choose between sin and cos of r π/2 and a
// sign. x · 2/π is needed to the precision of its distance from a whole number, which cancels all but some thirty bits
// (f64: sixty) of it, and 2/π as far as its bits move that, 2⁻¹⁸⁴ for the largest f32 (Payne and Hanek's reduction).
// Their table is read by x's exponent. Here all pieces of 2/π are multiplied, each exactly in two parts, and what is a
// multiple of 4 of each part falls away: what remains are a few parts of size 1 and smaller ones. They are summed in
// two words, from which whole numbers are taken as they come up, so that what cancels costs no precision. The same
// operations whatever x is.
#include <tuple>

#include "codegen/llvm/math.h"
#include "codegen/llvm/math_ops.h"
#include "codegen/math_tables.h"
#include "llvm/IR/Intrinsics.h"

namespace hone {
namespace {

using namespace math_tables;

// a + b, and what rounding it took away (Knuth).
std::pair<llvm::Value*, llvm::Value*> TwoSum(MathOps& m, llvm::Value* a, llvm::Value* b) {
  llvm::Value* sum = m.Add(a, b);
  llvm::Value* of_b = m.Sub(sum, a);
  return {sum, m.Add(m.Sub(a, m.Sub(sum, of_b)), m.Sub(b, of_b))};
}

struct Angle {
  llvm::Value* t;         // |x| − n π/2, at most π/4 and a little
  llvm::Value* quadrant;  // bits whose last two are n's
};

Angle Reduce(MathOps& m, llvm::Value* magnitude) {
  auto less_fours = [&](llvm::Value* v) {
    llvm::Value* fours = m.builder().CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, m.Mul(v, m.Const(0.25)));
    return m.Fma(fours, m.Const(-4), v);
  };
  llvm::Value* scaled = m.Mul(magnitude, m.Const(m.is_f64() ? kTwoOverPiScaleF64 : kTwoOverPiScaleF32));
  llvm::Value* sum = m.Const(0);
  llvm::Value* low_sum = m.Const(0);
  llvm::Value* whole = m.Const(0);
  auto add = [&](llvm::Value* part) {
    auto [total, error] = TwoSum(m, sum, part);
    sum = total;
    low_sum = m.Add(low_sum, error);
  };
  for (double piece : m.is_f64() ? std::span<const double>(kTwoOverPiF64) : std::span<const double>(kTwoOverPiF32)) {
    llvm::Value* product = m.Mul(scaled, m.Const(piece));
    llvm::Value* rest = m.Fma(scaled, m.Const(piece), m.Neg(product));
    add(less_fours(product));
    llvm::Value* quarters = m.RoundScaled(sum, 1).value;
    sum = m.Sub(sum, quarters);
    whole = m.Add(whole, quarters);
    add(less_fours(rest));
    std::tie(sum, low_sum) = TwoSum(m, sum, low_sum);
  }
  llvm::Value* quarters = m.RoundScaled(sum, 1).value;
  llvm::Value* n = m.RoundScaled(m.Add(whole, quarters), 1).bits;
  auto [r, r_low] = TwoSum(m, m.Sub(sum, quarters), low_sum);
  auto [high, low] = m.is_f64() ? kHalfPiF64 : kHalfPiF32;
  llvm::Value* t = m.Fma(r, m.Const(high), m.Fma(r, m.Const(low), m.Mul(r_low, m.Const(high))));
  // Small numbers stand for themselves: their products may be too small.
  llvm::Value* is_small = m.builder().CreateFCmpOLT(magnitude, m.Const(0.785));
  return {m.Select(is_small, magnitude, t), m.Select(is_small, m.IntConst(0), n)};
}

// sin((n + r) π/2) for x's n and r, `ahead` quadrants further on; without its sign but for that of the quadrant.
llvm::Value* SinOf(MathOps& m, llvm::Value* magnitude, int ahead) {
  llvm::IRBuilderBase& b = m.builder();
  const Angle angle = Reduce(m, magnitude);
  llvm::Value* square = m.Mul(angle.t, angle.t);
  llvm::Value* sine =
      m.Fma(m.Mul(angle.t, square), m.is_f64() ? m.Horner(square, kSinF64) : m.Horner(square, kSinF32), angle.t);
  llvm::Value* bend = m.is_f64() ? m.Horner(square, kCosF64) : m.Horner(square, kCosF32);
  llvm::Value* cosine = m.Fma(m.Fma(bend, square, m.Const(-0.5)), square, m.Const(1));
  llvm::Value* quadrant = b.CreateAdd(angle.quadrant, m.IntConst(ahead));
  llvm::Value* is_odd = b.CreateICmpNE(b.CreateAnd(quadrant, m.IntConst(1)), m.IntConst(0));
  llvm::Value* sign = b.CreateShl(b.CreateAnd(quadrant, m.IntConst(2)), m.IntConst(m.is_f64() ? 62 : 30));
  return m.FromBits(b.CreateXor(m.ToBits(m.Select(is_odd, cosine, sine)), sign));
}

}  // namespace

llvm::Value* EmitSin(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  llvm::Value* magnitude = m.Abs(x);
  llvm::Value* sign = builder.CreateXor(m.ToBits(x), m.ToBits(magnitude));
  return m.FromBits(builder.CreateXor(m.ToBits(SinOf(m, magnitude, 0)), sign));
}

llvm::Value* EmitCos(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x) {
  MathOps m(builder, target, x);
  return SinOf(m, m.Abs(x), 1);
}

}  // namespace hone
