// Single vectors: horizontal reductions, maxima with the reference's NaN rule, and loads and stores of a vector's first
// lanes.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/arithmetic.h"
#include "base/check.h"
#include "codegen/llvm/lanes.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/Module.h"

namespace hone {
namespace {

int LanesOf(llvm::Type* vector) {
  return static_cast<int>(llvm::cast<llvm::FixedVectorType>(vector)->getNumElements());
}

llvm::Value* Slice(llvm::IRBuilderBase& builder, llvm::Value* vector, int begin, int count) {
  std::vector<int> mask(count);
  std::iota(mask.begin(), mask.end(), begin);
  return builder.CreateShuffleVector(vector, mask);
}

llvm::Value* Combine(llvm::IRBuilderBase& builder, ReduceOp op, llvm::Value* a, llvm::Value* b) {
  bool is_float = a->getType()->isFPOrFPVectorTy();
  switch (op) {
    case ReduceOp::kSum: return is_float ? builder.CreateFAdd(a, b) : builder.CreateAdd(a, b);
    case ReduceOp::kProd: return is_float ? builder.CreateFMul(a, b) : builder.CreateMul(a, b);
    case ReduceOp::kMax: return EmitMax(builder, a, b);
    case ReduceOp::kMin: return EmitMin(builder, a, b);
    case ReduceOp::kMaxOfNumbers: return EmitMaxOfNumbers(builder, a, b);
  }
  HONE_CHECK(false);
}

// A NaN on either side wins; the sign of a zero is free, which saves x86 three instructions.
llvm::Value* EmitExtremum(llvm::IRBuilderBase& builder, bool is_max, llvm::Value* a, llvm::Value* b) {
  if (!a->getType()->isFPOrFPVectorTy()) {
    return builder.CreateBinaryIntrinsic(is_max ? llvm::Intrinsic::smax : llvm::Intrinsic::smin, a, b);
  }
  llvm::IRBuilderBase::FastMathFlagGuard guard(builder);
  llvm::FastMathFlags flags;
  flags.setNoSignedZeros();
  builder.setFastMathFlags(flags);
  return builder.CreateBinaryIntrinsic(is_max ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum, a, b);
}

llvm::Align PartAlign(int64_t alignment, int64_t offset_bytes) {
  return llvm::Align(static_cast<uint64_t>(std::gcd(alignment, offset_bytes == 0 ? alignment : offset_bytes)));
}

// A type of `count` elements: the element itself for one.
llvm::Type* PartType(llvm::Type* element, int count) {
  return count == 1 ? element : llvm::FixedVectorType::get(element, count);
}

// Calls `body(begin, length)` for the powers of two that make up `count`, largest first.
template <typename Body>
void ForEachPart(int count, const Body& body) {
  for (int begin = 0; begin < count;) {
    int length = static_cast<int>(std::bit_floor(static_cast<unsigned>(count - begin)));
    body(begin, length);
    begin += length;
  }
}

llvm::Value* ZeroOf(llvm::Type* type) { return llvm::Constant::getNullValue(type); }

// `vector` with `part` in its lanes from `begin` on.
llvm::Value* WithPart(llvm::IRBuilderBase& builder, llvm::Value* vector, llvm::Value* part, int begin) {
  const int lanes = LanesOf(vector->getType()), length = LanesOf(part->getType());
  std::vector<int> widen(static_cast<size_t>(lanes), -1), merge(static_cast<size_t>(lanes));
  std::iota(widen.begin(), widen.begin() + length, 0);
  std::iota(merge.begin(), merge.end(), 0);
  std::iota(merge.begin() + begin, merge.begin() + begin + length, lanes);
  return builder.CreateShuffleVector(vector, builder.CreateShuffleVector(part, widen), merge);
}

llvm::Value* LoadConstantPrefix(llvm::IRBuilderBase& builder, llvm::Type* type, llvm::Value* ptr, int count,
                                int64_t alignment) {
  llvm::Type* element = type->getScalarType();
  int64_t bytes = element->getScalarSizeInBits() / 8;
  llvm::Value* result = ZeroOf(type);
  ForEachPart(count, [&](int begin, int length) {
    llvm::Value* part =
        builder.CreateAlignedLoad(PartType(element, length), builder.CreateConstInBoundsGEP1_64(element, ptr, begin),
                                  PartAlign(alignment, begin * bytes));
    result = length == 1 ? builder.CreateInsertElement(result, part, static_cast<uint64_t>(begin))
                         : WithPart(builder, result, part, begin);
  });
  return result;
}

void StoreConstantPrefix(llvm::IRBuilderBase& builder, llvm::Value* vector, llvm::Value* ptr, int count,
                         int64_t alignment) {
  llvm::Type* element = vector->getType()->getScalarType();
  int64_t bytes = element->getScalarSizeInBits() / 8;
  ForEachPart(count, [&](int begin, int length) {
    llvm::Value* part = length == 1 ? builder.CreateExtractElement(vector, static_cast<uint64_t>(begin))
                                    : Slice(builder, vector, begin, length);
    builder.CreateAlignedStore(part, builder.CreateConstInBoundsGEP1_64(element, ptr, begin),
                               PartAlign(alignment, begin * bytes));
  });
}

// count limited to 0 … lanes, as i64.
llvm::Value* Limited(llvm::IRBuilderBase& builder, llvm::Value* count, int lanes) {
  llvm::Value* wide = builder.CreateSExtOrTrunc(count, builder.getInt64Ty());
  wide = builder.CreateBinaryIntrinsic(llvm::Intrinsic::smax, wide, builder.getInt64(0));
  return builder.CreateBinaryIntrinsic(llvm::Intrinsic::smin, wide, builder.getInt64(static_cast<uint64_t>(lanes)));
}

llvm::AllocaInst* StackBuffer(llvm::IRBuilderBase& builder, llvm::Type* type) {
  llvm::BasicBlock& entry = builder.GetInsertBlock()->getParent()->getEntryBlock();
  llvm::IRBuilder<> at_entry(&entry, entry.begin());
  llvm::AllocaInst* buffer = at_entry.CreateAlloca(type);
  buffer->setAlignment(llvm::Align(64));
  return buffer;
}

// Copies `count` (0 … lanes, at run time) elements: one copy per set bit of count, each under a branch.
void CopyPrefix(llvm::IRBuilderBase& builder, llvm::Type* element, int lanes, llvm::Value* from, llvm::Value* to,
                llvm::Value* count) {
  llvm::LLVMContext& context = builder.getContext();
  llvm::Function* function = builder.GetInsertBlock()->getParent();
  llvm::Align align(element->getScalarSizeInBits() / 8);
  for (int length = static_cast<int>(std::bit_floor(static_cast<unsigned>(lanes))); length >= 1; length /= 2) {
    auto* copy = llvm::BasicBlock::Create(context, "copy", function);
    auto* next = llvm::BasicBlock::Create(context, "copied", function);
    llvm::Value* bit = builder.CreateAnd(count, builder.getInt64(static_cast<uint64_t>(length)));
    builder.CreateCondBr(builder.CreateICmpNE(bit, builder.getInt64(0)), copy, next);
    builder.SetInsertPoint(copy);
    // The larger bits are copied already.
    llvm::Value* begin = builder.CreateAnd(count, builder.getInt64(~uint64_t{0} * 2 * static_cast<uint64_t>(length)));
    llvm::Type* type = PartType(element, length);
    llvm::Value* part = builder.CreateAlignedLoad(type, builder.CreateInBoundsGEP(element, from, begin), align);
    builder.CreateAlignedStore(part, builder.CreateInBoundsGEP(element, to, begin), align);
    builder.CreateBr(next);
    builder.SetInsertPoint(next);
  }
}

}  // namespace

llvm::Value* EmitMax(llvm::IRBuilderBase& builder, llvm::Value* a, llvm::Value* b) {
  return EmitExtremum(builder, true, a, b);
}

llvm::Value* EmitMin(llvm::IRBuilderBase& builder, llvm::Value* a, llvm::Value* b) {
  return EmitExtremum(builder, false, a, b);
}

llvm::Value* EmitMaxOfNumbers(llvm::IRBuilderBase& builder, llvm::Value* a, llvm::Value* b) {
  return builder.CreateSelect(builder.CreateFCmpOGT(b, a), b, a);
}

namespace {

// Of values that fit.
llvm::Value* EmitNearest(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* x, llvm::Type* type) {
  constexpr int kLanes = 16;
  constexpr uint32_t kNearestEven = 8;  // whatever the caller's rounding mode is
  if (target.isa != Isa::kAvx512 || !x->getType()->getScalarType()->isFloatTy() || LanesOf(x->getType()) != kLanes)
    return builder.CreateFPToSI(builder.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x), type);
  return builder.CreateIntrinsic(
      llvm::Intrinsic::x86_avx512_mask_cvtps2dq_512, {},
      {x, llvm::PoisonValue::get(type), builder.getInt16(0xffff), builder.getInt32(kNearestEven)});
}

}  // namespace

// LLVM's saturating conversion goes lane by lane.
llvm::Value* EmitInteger(llvm::IRBuilderBase& builder, const CpuTarget& target, ToInteger how, llvm::Value* x,
                         int32_t lowest, int32_t highest) {
  llvm::Type* type = x->getType()->getWithNewType(builder.getInt32Ty());
  auto number = [&](double value) { return llvm::ConstantFP::get(x->getType(), value); };
  auto whole = [&](int32_t value) { return llvm::ConstantInt::get(type, static_cast<uint64_t>(int64_t{value}), true); };
  // The last float that is not above `highest`.
  const bool is_double = x->getType()->getScalarType()->isDoubleTy();
  const double end = highest, top = is_double || static_cast<float>(highest) <= end
                                        ? end
                                        : std::nextafterf(static_cast<float>(highest), 0);
  llvm::Value* inside = builder.CreateSelect(builder.CreateFCmpOGT(x, number(lowest)), x, number(lowest));
  inside = builder.CreateSelect(builder.CreateFCmpOLT(inside, number(top)), inside, number(top));
  llvm::Value* result =
      how == ToInteger::kNearest ? EmitNearest(builder, target, inside, type) : builder.CreateFPToSI(inside, type);
  if (top < end) result = builder.CreateSelect(builder.CreateFCmpOGT(x, number(top)), whole(highest), result);
  if (lowest == 0) return result;  // as which NaN was taken
  return builder.CreateSelect(builder.CreateFCmpUNO(x, x), whole(0), result);
}

llvm::Value* EmitReduce(llvm::IRBuilderBase& builder, ReduceOp op, llvm::Value* vector) {
  // Of whole numbers the order is free, and LLVM's own word for it is what its x86 back end takes for sums of bytes'
  // products and differences. The steps below, of ever shorter vectors, it takes for such a sum, too, and then forgets
  // lanes (LLVM 19).
  if (vector->getType()->isIntOrIntVectorTy() && vector->getType()->isVectorTy()) {
    switch (op) {
      case ReduceOp::kSum: return builder.CreateAddReduce(vector);
      case ReduceOp::kProd: return builder.CreateMulReduce(vector);
      case ReduceOp::kMin: return builder.CreateIntMinReduce(vector, true);
      case ReduceOp::kMax:
      case ReduceOp::kMaxOfNumbers: return builder.CreateIntMaxReduce(vector, true);
    }
  }
  int lanes = LanesOf(vector->getType());
  std::vector<llvm::Value*> left_over;  // of odd widths
  while (lanes > 1) {
    if (lanes % 2 != 0) { left_over.push_back(builder.CreateExtractElement(vector, static_cast<uint64_t>(lanes - 1))); }
    int half = lanes / 2;
    llvm::Value* low = Slice(builder, vector, 0, half);
    llvm::Value* high = Slice(builder, vector, half, half);
    vector = Combine(builder, op, low, high);
    lanes = half;
  }
  llvm::Value* result = builder.CreateExtractElement(vector, uint64_t{0});
  while (!left_over.empty()) {
    result = Combine(builder, op, result, left_over.back());
    left_over.pop_back();
  }
  return result;
}

llvm::Value* EmitTailMask(llvm::IRBuilderBase& builder, llvm::Value* count, int lanes, int element_bits) {
  HONE_CHECK(lanes >= 1 && lanes <= 127);
  llvm::SmallVector<llvm::Constant*, 64> constants;
  if (auto* constant = llvm::dyn_cast<llvm::ConstantInt>(count)) {
    for (int i = 0; i < lanes; ++i) constants.push_back(builder.getInt1(i < constant->getSExtValue()));
    return llvm::ConstantVector::get(constants);
  }
  llvm::Type* type = builder.getIntNTy(static_cast<unsigned>(element_bits));
  for (int i = 0; i < lanes; ++i) constants.push_back(llvm::ConstantInt::get(type, static_cast<uint64_t>(i)));
  llvm::Value* limit = builder.CreateTrunc(Limited(builder, count, lanes), type);
  llvm::Value* splat = builder.CreateVectorSplat(static_cast<unsigned>(lanes), limit);
  return builder.CreateICmpSGT(splat, llvm::ConstantVector::get(constants));
}

bool HasMaskedMemory(const CpuTarget& target, llvm::Type* vector_type) {
  unsigned bits = vector_type->getScalarSizeInBits();
  return target.isa == Isa::kAvx512 || (target.isa == Isa::kAvx2 && bits >= 32);
}

llvm::Value* EmitGuardedLoad(llvm::IRBuilderBase& builder, llvm::Type* type, llvm::Value* ptr, llvm::Value* condition,
                             int64_t alignment) {
  llvm::Module* module = builder.GetInsertBlock()->getModule();
  const auto bytes = static_cast<int64_t>(module->getDataLayout().getTypeStoreSize(type).getFixedValue());
  const auto words = static_cast<uint64_t>(CeilDiv(bytes, 8));
  const std::string name = words == 1 ? "hone.zero" : fmt::format("hone.zero{}", words);
  llvm::GlobalVariable* zero = module->getNamedGlobal(name);
  if (!zero) {
    llvm::Type* memory = builder.getInt64Ty();
    if (words > 1) memory = llvm::ArrayType::get(memory, words);
    zero = new llvm::GlobalVariable(*module, memory, true, llvm::GlobalValue::PrivateLinkage,
                                    llvm::Constant::getNullValue(memory), name);
  }
  llvm::Value* safe = builder.CreateSelect(condition, ptr, zero);
  return builder.CreateAlignedLoad(type, safe, llvm::Align(static_cast<uint64_t>(alignment)));
}

llvm::Value* EmitMaskedLoad(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Type* vector_type,
                            llvm::Value* ptr, llvm::Value* mask, int64_t alignment, int active) {
  // Below AVX-512 LLVM 19 loads a register none of whose lanes is ever on as if all were. Smaller ones than this has no
  // masked load.
  constexpr int kSmallestPart = 4;
  const int lanes = LanesOf(vector_type);
  if (target.isa == Isa::kAvx512 || CeilDiv(active, kSmallestPart) * kSmallestPart >= lanes)
    return builder.CreateMaskedLoad(vector_type, ptr, llvm::Align(static_cast<uint64_t>(alignment)), mask,
                                    ZeroOf(vector_type));
  llvm::Type* element = vector_type->getScalarType();
  llvm::Value* result = ZeroOf(vector_type);
  for (int begin = 0; begin < active;) {
    const int length = std::max(kSmallestPart, static_cast<int>(std::bit_floor(static_cast<unsigned>(active - begin))));
    llvm::Type* type = PartType(element, length);
    llvm::Value* part =
        builder.CreateMaskedLoad(type, builder.CreateConstInBoundsGEP1_64(element, ptr, begin),
                                 PartAlign(alignment, begin * static_cast<int64_t>(element->getScalarSizeInBits() / 8)),
                                 Slice(builder, mask, begin, length), ZeroOf(type));
    result = WithPart(builder, result, part, begin);
    begin += length;
  }
  return result;
}

void EmitMaskedStore(llvm::IRBuilderBase& builder, llvm::Value* vector, llvm::Value* ptr, llvm::Value* mask,
                     int64_t alignment) {
  builder.CreateMaskedStore(vector, ptr, llvm::Align(static_cast<uint64_t>(alignment)), mask);
}

llvm::Value* EmitLoadPrefix(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Type* vector_type,
                            llvm::Value* ptr, llvm::Value* count, int64_t alignment) {
  int lanes = LanesOf(vector_type);
  auto* constant = llvm::dyn_cast<llvm::ConstantInt>(count);
  if (constant != nullptr) {
    int64_t n = std::clamp<int64_t>(constant->getSExtValue(), 0, lanes);
    if (n == 0) return ZeroOf(vector_type);
    if (n == lanes || std::has_single_bit(static_cast<uint64_t>(n)) || !HasMaskedMemory(target, vector_type)) {
      return LoadConstantPrefix(builder, vector_type, ptr, static_cast<int>(n), alignment);
    }
  }
  if (HasMaskedMemory(target, vector_type)) {
    llvm::Value* mask = EmitTailMask(builder, count, lanes, static_cast<int>(vector_type->getScalarSizeInBits()));
    return EmitMaskedLoad(builder, target, vector_type, ptr, mask, alignment, lanes);
  }
  llvm::AllocaInst* buffer = StackBuffer(builder, vector_type);
  builder.CreateAlignedStore(ZeroOf(vector_type), buffer, buffer->getAlign());
  CopyPrefix(builder, vector_type->getScalarType(), lanes, ptr, buffer, Limited(builder, count, lanes));
  return builder.CreateAlignedLoad(vector_type, buffer, buffer->getAlign());
}

void EmitStorePrefix(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* vector, llvm::Value* ptr,
                     llvm::Value* count, int64_t alignment) {
  llvm::Type* type = vector->getType();
  int lanes = LanesOf(type);
  auto* constant = llvm::dyn_cast<llvm::ConstantInt>(count);
  if (constant != nullptr) {
    int64_t n = std::clamp<int64_t>(constant->getSExtValue(), 0, lanes);
    // AVX2's masked stores are microcoded on AMD's processors: parts are never worse there.
    if (n == 0 || n == lanes || std::has_single_bit(static_cast<uint64_t>(n)) || target.isa != Isa::kAvx512) {
      return StoreConstantPrefix(builder, vector, ptr, static_cast<int>(n), alignment);
    }
  }
  if (HasMaskedMemory(target, type)) {
    llvm::Value* mask = EmitTailMask(builder, count, lanes, static_cast<int>(type->getScalarSizeInBits()));
    return EmitMaskedStore(builder, vector, ptr, mask, alignment);
  }
  llvm::AllocaInst* buffer = StackBuffer(builder, type);
  builder.CreateAlignedStore(vector, buffer, buffer->getAlign());
  CopyPrefix(builder, type->getScalarType(), lanes, buffer, ptr, Limited(builder, count, lanes));
}

}  // namespace hone
