// sin and cos of any number. |x| = (n + r) π/2, |r| ≤ 1/2: the last bits of n choose between sin and cos of r π/2 and a
// sign. x · 2/π is needed to the precision of its distance from a whole number, which cancels all but some thirty bits
// (f64: sixty) of it, and 2/π as far as its bits move that, 2⁻¹⁸⁴ for the largest f32 (Payne and Hanek's reduction).
// Their table is read by x's exponent. Here all pieces of 2/π are multiplied, each exactly, and what is a multiple of 4
// of each product falls away: what remains are one or two of size 1 and smaller ones, from whose sum a whole number
// goes before what it cancels can be rounded away. The same operations whatever x is. f32 is reduced in f64.
#include <tuple>
#include <vector>

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

llvm::Value* LessFours(MathOps& m, llvm::Value* v) {
  llvm::Value* fours = m.builder().CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, m.Mul(v, m.Const(0.25)));
  return m.Fma(fours, m.Const(-4), v);
}

Angle ReduceF32(MathOps& narrow, llvm::Value* magnitude) {
  llvm::IRBuilderBase& b = narrow.builder();
  llvm::Value* x = b.CreateFPExt(magnitude, narrow.type()->getWithNewType(b.getDoubleTy()));
  MathOps m(b, narrow.target(), x);
  std::vector<llvm::Value*> parts;
  for (double piece : kTwoOverPiWide) parts.push_back(LessFours(m, m.Mul(x, m.Const(piece))));
  llvm::Value* sum = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) sum = m.Add(sum, parts[i]);
  const MathOps::Rounded n = m.RoundScaled(sum, 1);
  llvm::Value* r = m.Neg(n.value);
  for (llvm::Value* part : parts) r = m.Add(r, part);
  return {b.CreateFPTrunc(m.Mul(r, m.Const(kHalfPiF64[0])), narrow.type()), b.CreateTrunc(n.bits, narrow.int_type())};
}

// In two words.
Angle ReduceF64(MathOps& m, llvm::Value* magnitude) {
  llvm::Value* scaled = m.Mul(magnitude, m.Const(kTwoOverPiScaleF64));
  llvm::Value* sum = m.Const(0);
  llvm::Value* low_sum = m.Const(0);
  llvm::Value* whole = m.Const(0);
  auto add = [&](llvm::Value* part) {
    auto [total, error] = TwoSum(m, sum, part);
    sum = total;
    low_sum = m.Add(low_sum, error);
  };
  for (double piece : kTwoOverPiF64) {
    llvm::Value* product = m.Mul(scaled, m.Const(piece));
    llvm::Value* rest = m.Fma(scaled, m.Const(piece), m.Neg(product));
    add(LessFours(m, product));
    llvm::Value* quarters = m.RoundScaled(sum, 1).value;
    sum = m.Sub(sum, quarters);
    whole = m.Add(whole, quarters);
    add(LessFours(m, rest));
    std::tie(sum, low_sum) = TwoSum(m, sum, low_sum);
  }
  llvm::Value* quarters = m.RoundScaled(sum, 1).value;
  llvm::Value* n = m.RoundScaled(m.Add(whole, quarters), 1).bits;
  auto [r, r_low] = TwoSum(m, m.Sub(sum, quarters), low_sum);
  auto [high, low] = kHalfPiF64;
  llvm::Value* t = m.Fma(r, m.Const(high), m.Fma(r, m.Const(low), m.Mul(r_low, m.Const(high))));
  // Small numbers stand for themselves: their products may be too small.
  llvm::Value* is_small = m.builder().CreateFCmpOLT(magnitude, m.Const(0.785));
  return {m.Select(is_small, magnitude, t), m.Select(is_small, m.IntConst(0), n)};
}

// sin((n + r) π/2) for x's n and r, `ahead` quadrants further on; without its sign but for that of the quadrant.
llvm::Value* SinOf(MathOps& m, llvm::Value* magnitude, int ahead) {
  llvm::IRBuilderBase& b = m.builder();
  const Angle angle = m.is_f64() ? ReduceF64(m, magnitude) : ReduceF32(m, magnitude);
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
