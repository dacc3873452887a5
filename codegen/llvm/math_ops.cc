#include "codegen/llvm/math_ops.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace hone {
namespace {

llvm::Type* IntTypeLike(llvm::Type* type) {
  llvm::Type* element = llvm::Type::getIntNTy(type->getContext(), type->getScalarSizeInBits());
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  return vector == nullptr ? element : llvm::FixedVectorType::get(element, vector->getNumElements());
}

// 1.5 · 2^mantissa bits: adding it rounds to an integer, which ends up in the low bits of the sum.
double RoundingMagic(bool is_f64) { return is_f64 ? 0x1.8p52 : 0x1.8p23; }

using namespace llvm::Intrinsic;  // x86_avx512_…: one intrinsic per element type and register size

// f32 then f64, each for 128, 256 and 512 bits.
struct Family {
  ID ids[2][3];
  bool rounds;  // the 512-bit form takes a rounding mode
};
constexpr Family kScalef = {
    {{x86_avx512_mask_scalef_ps_128, x86_avx512_mask_scalef_ps_256, x86_avx512_mask_scalef_ps_512},
     {x86_avx512_mask_scalef_pd_128, x86_avx512_mask_scalef_pd_256, x86_avx512_mask_scalef_pd_512}},
    true};
constexpr Family kGetExp = {
    {{x86_avx512_mask_getexp_ps_128, x86_avx512_mask_getexp_ps_256, x86_avx512_mask_getexp_ps_512},
     {x86_avx512_mask_getexp_pd_128, x86_avx512_mask_getexp_pd_256, x86_avx512_mask_getexp_pd_512}},
    true};
constexpr Family kGetMant = {
    {{x86_avx512_mask_getmant_ps_128, x86_avx512_mask_getmant_ps_256, x86_avx512_mask_getmant_ps_512},
     {x86_avx512_mask_getmant_pd_128, x86_avx512_mask_getmant_pd_256, x86_avx512_mask_getmant_pd_512}},
    true};
constexpr Family kRcp14 = {{{x86_avx512_rcp14_ps_128, x86_avx512_rcp14_ps_256, x86_avx512_rcp14_ps_512},
                            {x86_avx512_rcp14_pd_128, x86_avx512_rcp14_pd_256, x86_avx512_rcp14_pd_512}},
                           false};
constexpr Family kRsqrt14 = {{{x86_avx512_rsqrt14_ps_128, x86_avx512_rsqrt14_ps_256, x86_avx512_rsqrt14_ps_512},
                              {x86_avx512_rsqrt14_pd_128, x86_avx512_rsqrt14_pd_256, x86_avx512_rsqrt14_pd_512}},
                             false};

// One instruction of the family on whole registers of `bits`. `args` are its operands up to the pass-through.
llvm::Value* EmitUnmasked(llvm::IRBuilderBase& builder, const Family& family, std::span<llvm::Value* const> args,
                          int bits) {
  auto* type = llvm::cast<llvm::FixedVectorType>(args[0]->getType());
  int lanes = static_cast<int>(type->getNumElements());
  llvm::SmallVector<llvm::Value*, 5> operands(args.begin(), args.end());
  operands.push_back(llvm::PoisonValue::get(type));
  operands.push_back(llvm::ConstantInt::getAllOnesValue(builder.getIntNTy(std::max(lanes, 8))));
  if (family.rounds && bits == 512) operands.push_back(builder.getInt32(4));  // _MM_FROUND_CUR_DIRECTION
  return builder.CreateIntrinsic(family.ids[type->getElementType()->isDoubleTy()][bits / 256], {}, operands);
}

}  // namespace

MathOps::MathOps(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* like)
    : builder_(builder), fast_math_guard_(builder), target_(target), type_(like->getType()) {
  HONE_CHECK(type_->getScalarType()->isFloatTy() || type_->getScalarType()->isDoubleTy());
  is_f64_ = type_->getScalarType()->isDoubleTy();
  int_type_ = IntTypeLike(type_);
  builder_.clearFastMathFlags();
}

llvm::Value* MathOps::Const(double value) {
  return llvm::ConstantFP::get(type_, is_f64_ ? value : static_cast<double>(static_cast<float>(value)));
}

llvm::Value* MathOps::IntConst(int64_t value) { return llvm::ConstantInt::getSigned(int_type_, value); }

llvm::Value* MathOps::BitsOf(double value) { return ToBits(Const(value)); }

llvm::Value* MathOps::Fma(llvm::Value* a, llvm::Value* b, llvm::Value* c) {
  return builder_.CreateIntrinsic(llvm::Intrinsic::fma, {type_}, {a, b, c});
}

llvm::Value* MathOps::Abs(llvm::Value* a) { return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a); }
llvm::Value* MathOps::Floor(llvm::Value* a) { return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, a); }
llvm::Value* MathOps::Sqrt(llvm::Value* a) { return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a); }

llvm::Value* MathOps::CopySign(llvm::Value* magnitude, llvm::Value* sign) {
  return builder_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign);
}

llvm::Value* MathOps::AtLeast(llvm::Value* x, double bound) {
  if (target_.isa == Isa::kNeon) return builder_.CreateBinaryIntrinsic(llvm::Intrinsic::maximum, x, Const(bound));
  // x86's maximum gives its second operand when either is NaN, and so does this select.
  return Select(builder_.CreateFCmpOLT(x, Const(bound)), Const(bound), x);
}

llvm::Value* MathOps::AtMost(llvm::Value* x, double bound) {
  if (target_.isa == Isa::kNeon) return builder_.CreateBinaryIntrinsic(llvm::Intrinsic::minimum, x, Const(bound));
  return Select(builder_.CreateFCmpOGT(x, Const(bound)), Const(bound), x);
}

llvm::Value* MathOps::Horner(llvm::Value* x, std::span<const double> c) {
  HONE_CHECK(!c.empty());
  llvm::Value* sum = Const(c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = Fma(sum, x, Const(c[i]));
  return sum;
}

MathOps::Rounded MathOps::RoundScaled(llvm::Value* x, double factor) {
  llvm::Value* magic = Const(RoundingMagic(is_f64_));
  llvm::Value* shifted = Fma(x, Const(factor), magic);
  return {Sub(shifted, magic), ToBits(shifted)};
}

llvm::Value* MathOps::PowerOfTwo(const Rounded& n) {
  // The shift drops everything but n's low bits; the magic constant has none there.
  return FromBits(builder_.CreateAdd(builder_.CreateShl(n.bits, mantissa_bits()), BitsOf(1)));
}

llvm::Value* MathOps::Scale(llvm::Value* p, const Rounded& n) {
  if (avx512()) {
    llvm::Value* args[] = {p, n.value};
    return InChunks(args, [&](std::span<llvm::Value* const> chunk, int bits) {
      return EmitUnmasked(builder_, kScalef, chunk, bits);
    });
  }
  // Two factors near 2^(n/2): the first product is exact, the second rounds. Adding n to p's exponent field instead of
  // multiplying would turn NaN into a number.
  llvm::Value* half = ToBits(Fma(n.value, Const(0.5), Const(RoundingMagic(is_f64_))));
  llvm::Value* rest = builder_.CreateSub(n.bits, half);
  llvm::Value* first = FromBits(builder_.CreateAdd(builder_.CreateShl(half, mantissa_bits()), BitsOf(1)));
  llvm::Value* second = FromBits(builder_.CreateAdd(builder_.CreateShl(rest, mantissa_bits()), BitsOf(1)));
  return Mul(Mul(p, first), second);
}

MathOps::Split MathOps::SplitExponent(llvm::Value* x) {
  if (avx512()) {
    auto getexp = [&](llvm::Value* v) {
      return InChunks({&v, 1}, [&](std::span<llvm::Value* const> chunk, int bits) {
        return EmitUnmasked(builder_, kGetExp, chunk, bits);
      });
    };
    llvm::Value* mantissa = InChunks({&x, 1}, [&](std::span<llvm::Value* const> chunk, int bits) {
      constexpr int kThreeQuartersNanIfNegative = 3 | (2 << 2);  // interval [3/4, 3/2), NaN for negative x
      llvm::Value* args[] = {chunk[0], builder_.getInt32(kThreeQuartersNanIfNegative)};
      return EmitUnmasked(builder_, kGetMant, args, bits);
    });
    return {mantissa, Sub(getexp(x), getexp(mantissa))};
  }
  // Denormals are scaled into the normal range first.
  llvm::Value* tiny = builder_.CreateFCmpOLT(x, Const(is_f64_ ? 0x1p-1022 : 0x1p-126));
  llvm::Value* normal = Select(tiny, Mul(x, Const(is_f64_ ? 0x1p52 : 0x1p23)), x);
  // Subtracting 3/4's bits and adding 1's moves the binade's border to 3/4: what is above the mantissa field is then
  // e + bias, and what is in it is m's distance from 3/4.
  llvm::Value* moved = builder_.CreateAdd(ToBits(normal), builder_.CreateSub(BitsOf(1), BitsOf(0.75)));
  llvm::Value* biased = builder_.CreateLShr(moved, mantissa_bits());
  // An integer below 2^mantissa bits, converted by writing it into the mantissa of that power of two.
  double two_to_mantissa = is_f64_ ? 0x1p52 : 0x1p23;
  double bias = is_f64_ ? 1023 : 127;
  llvm::Value* converted = FromBits(builder_.CreateOr(biased, BitsOf(two_to_mantissa)));
  llvm::Value* offset = Select(tiny, Const(two_to_mantissa + bias + mantissa_bits()), Const(two_to_mantissa + bias));
  llvm::Value* mantissa_field = builder_.CreateAnd(moved, IntConst((int64_t{1} << mantissa_bits()) - 1));
  return {FromBits(builder_.CreateAdd(mantissa_field, BitsOf(0.75))), Sub(converted, offset)};
}

llvm::Value* MathOps::Estimate14(llvm::Value* x, bool square_root) {
  HONE_CHECK(avx512());
  return InChunks({&x, 1}, [&](std::span<llvm::Value* const> chunk, int bits) {
    return EmitUnmasked(builder_, square_root ? kRsqrt14 : kRcp14, chunk, bits);
  });
}

llvm::Value* MathOps::InChunks(std::span<llvm::Value* const> args, const ChunkEmitter& emit) {
  int element_bits = is_f64_ ? 64 : 32;
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type_);
  int lanes = vector == nullptr ? 1 : static_cast<int>(vector->getNumElements());
  if (vector != nullptr &&
      (lanes * element_bits == 128 || lanes * element_bits == 256 || lanes * element_bits == 512)) {
    return emit(args, lanes * element_bits);
  }
  if (vector == nullptr) {
    std::vector<llvm::Value*> widened;
    auto* wide = llvm::FixedVectorType::get(type_, 128 / element_bits);
    for (llvm::Value* arg : args) {
      widened.push_back(builder_.CreateInsertElement(llvm::PoisonValue::get(wide), arg, uint64_t{0}));
    }
    return builder_.CreateExtractElement(emit(widened, 128), uint64_t{0});
  }
  // Chunks of 512 bits while they are full, then the smallest that holds the rest; their results are put side by side.
  llvm::Value* result = nullptr;
  for (int begin = 0; begin < lanes;) {
    int left = (lanes - begin) * element_bits;
    int bits = left >= 512 ? 512 : left > 256 ? 512 : left > 128 ? 256 : 128;
    int width = bits / element_bits, used = std::min(width, lanes - begin);
    std::vector<int> take(width, -1);
    std::iota(take.begin(), take.begin() + used, begin);
    std::vector<llvm::Value*> chunk;
    for (llvm::Value* arg : args) chunk.push_back(builder_.CreateShuffleVector(arg, take));
    llvm::Value* part = emit(chunk, bits);
    std::vector<int> widen(lanes, -1);
    std::iota(widen.begin() + begin, widen.begin() + begin + used, 0);
    llvm::Value* placed = builder_.CreateShuffleVector(part, widen);
    if (result == nullptr) {
      result = placed;
    } else {
      std::vector<int> merge(lanes);
      std::iota(merge.begin(), merge.end(), 0);
      for (int i = begin; i < lanes; ++i) merge[i] = lanes + i;
      result = builder_.CreateShuffleVector(result, placed, merge);
    }
    begin += used;
  }
  return result;
}

}  // namespace hone
