// What llvm_math*.cc build their functions from: arithmetic on f32 or f64 lanes, fused where it matters for accuracy,
// and the few AVX-512 instructions that shorten range reduction.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "ir/target.h"
#include "llvm/IR/IRBuilder.h"

namespace hone {

// Emits for one element type and lane count, those of `like`. Fast-math flags of the builder are off while it lives.
class MathOps {
 public:
  MathOps(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* like);
  MathOps(const MathOps&) = delete;
  MathOps& operator=(const MathOps&) = delete;

  llvm::IRBuilderBase& builder() { return builder_; }
  const CpuTarget& target() const { return target_; }
  bool is_f64() const { return is_f64_; }
  bool avx512() const { return target_.isa == Isa::kAvx512; }
  int mantissa_bits() const { return is_f64_ ? 52 : 23; }
  llvm::Type* type() const { return type_; }
  llvm::Type* int_type() const { return int_type_; }

  llvm::Value* Const(double value);      // rounded to the element type
  llvm::Value* IntConst(int64_t value);  // of the element's width
  llvm::Value* BitsOf(double value);     // the representation of Const(value) as an integer

  llvm::Value* Add(llvm::Value* a, llvm::Value* b) { return builder_.CreateFAdd(a, b); }
  llvm::Value* Sub(llvm::Value* a, llvm::Value* b) { return builder_.CreateFSub(a, b); }
  llvm::Value* Mul(llvm::Value* a, llvm::Value* b) { return builder_.CreateFMul(a, b); }
  llvm::Value* Div(llvm::Value* a, llvm::Value* b) { return builder_.CreateFDiv(a, b); }
  llvm::Value* Neg(llvm::Value* a) { return builder_.CreateFNeg(a); }
  llvm::Value* Fma(llvm::Value* a, llvm::Value* b, llvm::Value* c);  // a·b + c, rounded once
  llvm::Value* Abs(llvm::Value* a);
  llvm::Value* Floor(llvm::Value* a);
  llvm::Value* Sqrt(llvm::Value* a);
  llvm::Value* CopySign(llvm::Value* magnitude, llvm::Value* sign);
  llvm::Value* Select(llvm::Value* condition, llvm::Value* a, llvm::Value* b) {
    return builder_.CreateSelect(condition, a, b);
  }

  // The larger (smaller) of x and a bound that is not NaN; NaN if x is. One instruction.
  llvm::Value* AtLeast(llvm::Value* x, double bound);
  llvm::Value* AtMost(llvm::Value* x, double bound);

  llvm::Value* ToBits(llvm::Value* value) { return builder_.CreateBitCast(value, int_type_); }
  llvm::Value* FromBits(llvm::Value* bits) { return builder_.CreateBitCast(bits, type_); }

  // c[0] + c[1] x + c[2] x² + …, each step fused. The table holds f32 values exactly when the type is f32.
  llvm::Value* Horner(llvm::Value* x, std::span<const double> c);

  // x rounded to an integer n, |n| < 2²¹ (f32) or 2⁵⁰ (f64): `value` is n, and the low bits of `bits` are n as well.
  struct Rounded {
    llvm::Value* value;
    llvm::Value* bits;
  };
  Rounded RoundScaled(llvm::Value* x, double factor);  // of factor · x

  // p · 2ⁿ for 1/2 < p < 4, rounded once, overflowing to inf and underflowing gradually. |n| ≤ 2·(largest exponent).
  llvm::Value* Scale(llvm::Value* p, const Rounded& n);
  // 2ⁿ within the normal range.
  llvm::Value* PowerOfTwo(const Rounded& n);

  // x = m · 2^e with 3/4 ≤ m < 3/2, for x > 0, denormals included. Else, on AVX-512: zero gives e = −inf, +inf gives
  // e = inf, m = 1, negative and NaN give m = NaN; elsewhere nothing useful.
  struct Split {
    llvm::Value* mantissa;
    llvm::Value* exponent;  // as a float
  };
  Split SplitExponent(llvm::Value* x);

  // Hardware estimates of 1/x and 1/√x with relative error 2⁻¹⁴. REQUIRES: avx512().
  llvm::Value* Estimate14(llvm::Value* x, bool square_root);

 private:
  // Applies a vector instruction that exists for 128, 256 and 512 bits: cuts (or pads) the lanes accordingly.
  using ChunkEmitter = std::function<llvm::Value*(std::span<llvm::Value* const> args, int bits)>;
  llvm::Value* InChunks(std::span<llvm::Value* const> args, const ChunkEmitter& emit);

  llvm::IRBuilderBase& builder_;
  llvm::IRBuilderBase::FastMathFlagGuard fast_math_guard_;
  const CpuTarget& target_;
  bool is_f64_;
  llvm::Type* type_;
  llvm::Type* int_type_;
};

}  // namespace hone
