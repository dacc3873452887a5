#include "codegen/llvm/narrow_floats.h"

#include <algorithm>

#include "base/check.h"
#include "ir/graph/dtype_traits.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/IRBuilder.h"

namespace hone {
namespace {

// `scalar`, or as many of it as `value` has.
llvm::Type* Like(llvm::Value* value, llvm::Type* scalar) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector ? llvm::FixedVectorType::get(scalar, vector->getNumElements()) : scalar;
}

llvm::Constant* Whole(llvm::Value* like, uint64_t number) { return llvm::ConstantInt::get(like->getType(), number); }

// An f64 as an f32 that rounds to the same narrow float: towards zero, and odd where anything was cut off ("round to
// odd": Boldo and Melquiond, "When double rounding is odd").
llvm::Value* ToOddF32(llvm::IRBuilderBase& builder, llvm::Value* x) {
  constexpr uint64_t kCut = (uint64_t{1} << 29) - 1;  // of 52 bits of fraction, 23 are left
  llvm::Value* bits = builder.CreateBitCast(x, Like(x, builder.getInt64Ty()));
  llvm::Value* any = builder.CreateICmpNE(builder.CreateAnd(bits, Whole(bits, kCut)), Whole(bits, 0));
  llvm::Value* odd = builder.CreateShl(builder.CreateZExt(any, bits->getType()), 29);
  llvm::Value* kept = builder.CreateOr(builder.CreateAnd(bits, Whole(bits, ~kCut)), odd);
  return builder.CreateFPTrunc(builder.CreateBitCast(kept, x->getType()), Like(x, builder.getFloatTy()));
}

// A function that converts f16 asks for F16C, which every machine with AVX2 has (base/cpu_features: FeaturesOfIsa);
// with AVX-512 and NEON the conversions are part of the base.
void AskForF16C(llvm::IRBuilderBase& builder) {
  constexpr const char* kFeatures = "target-features";
  llvm::Function& function = *builder.GetInsertBlock()->getParent();
  const llvm::StringRef features = function.getFnAttribute(kFeatures).getValueAsString();
  if (!features.contains("+avx2") || features.contains("+avx512f") || features.contains("+f16c")) return;
  function.addFnAttr(kFeatures, features.str() + ",+f16c");
}

}  // namespace

llvm::Value* EmitFromBits(llvm::IRBuilderBase& builder, DType type, llvm::Value* bits) {
  llvm::Type* f32 = Like(bits, builder.getFloatTy());
  if (type == DType::kF16) {
    AskForF16C(builder);
    return builder.CreateFPExt(builder.CreateBitCast(bits, Like(bits, builder.getHalfTy())), f32);
  }
  HONE_CHECK(type == DType::kBF16);
  return builder.CreateBitCast(builder.CreateShl(builder.CreateZExt(bits, Like(bits, builder.getInt32Ty())), 16), f32);
}

llvm::Value* EmitToBits(llvm::IRBuilderBase& builder, DType type, llvm::Value* value) {
  llvm::Type* i16 = Like(value, builder.getInt16Ty());
  if (type == DType::kF16) {
    AskForF16C(builder);
    return builder.CreateBitCast(builder.CreateFPTrunc(value, Like(value, builder.getHalfTy())), i16);
  }
  HONE_CHECK(type == DType::kBF16);
  llvm::Value* bits = builder.CreateBitCast(value, Like(value, builder.getInt32Ty()));
  return builder.CreateTrunc(builder.CreateLShr(bits, 16), i16);
}

llvm::Value* EmitRoundTo(llvm::IRBuilderBase& builder, const CpuTarget& target, DType type, llvm::Value* value) {
  if (value->getType()->getScalarType()->isDoubleTy()) value = ToOddF32(builder, value);
  if (type == DType::kF16) return EmitFromBits(builder, type, EmitToBits(builder, type, value));
  HONE_CHECK(type == DType::kBF16);
  if (std::find(target.features.begin(), target.features.end(), "avx512bf16") != target.features.end()) {
    llvm::Value* rounded = builder.CreateFPTrunc(value, Like(value, builder.getBFloatTy()));
    return EmitFromBits(builder, type, builder.CreateBitCast(rounded, Like(value, builder.getInt16Ty())));
  }
  // Half a unit in the last place is added, less a little where the number is even; what is cut off then is the rest.
  // A carry goes on into the exponent, up to infinity. NaN becomes quiet, lest what is left of its payload be nothing.
  llvm::Value* bits = builder.CreateBitCast(value, Like(value, builder.getInt32Ty()));
  llvm::Value* is_odd = builder.CreateAnd(builder.CreateLShr(bits, 16), Whole(bits, 1));
  llvm::Value* up = builder.CreateAdd(bits, builder.CreateAdd(is_odd, Whole(bits, 0x7fff)));
  llvm::Value* quiet = builder.CreateOr(bits, Whole(bits, 0x400000));
  llvm::Value* rounded = builder.CreateSelect(builder.CreateFCmpUNO(value, value), quiet, up);
  return builder.CreateBitCast(builder.CreateAnd(rounded, Whole(bits, 0xffff0000)), value->getType());
}

}  // namespace hone
