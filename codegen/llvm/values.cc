// Values of the loop program as LLVM values: vectors where they depend on the vectorised loop, scalars where not.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "base/arithmetic.h"
#include "base/check.h"
#include "codegen/llvm/function_emitter.h"
#include "codegen/llvm/lanes.h"
#include "codegen/llvm/math.h"
#include "codegen/llvm/narrow_floats.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/element.h"
#include "ir/graph/op_traits.h"

namespace hone {
namespace {

bool IsConstant(const ValueNode& value, double number) {
  return value.IsConstant() && IsFloat(value.type) && value.float_value == number;
}

// `scalar`, or as many of it as `value` has.
llvm::Type* LikeValue(llvm::Value* value, llvm::Type* scalar) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector ? llvm::FixedVectorType::get(scalar, vector->getNumElements()) : scalar;
}

// The exponent where a value, or each lane of it, is a power of two that is known.
std::optional<unsigned> PowerOfTwo(llvm::Value* value) {
  const auto* constant = llvm::dyn_cast<llvm::Constant>(value);
  if (constant != nullptr && value->getType()->isVectorTy()) constant = constant->getSplatValue();
  const auto* number = llvm::dyn_cast_or_null<llvm::ConstantInt>(constant);
  if (number == nullptr || number->getSExtValue() < 1 || !number->getValue().isPowerOf2()) return std::nullopt;
  return number->getValue().logBase2();
}

// x where the divisor of the division is 1 + exp(−x), f32; nullptr elsewhere.
const ValueNode* SigmoidArgument(const ValueNode& division) {
  const ValueNode& sum = *division.args[1];
  if (division.type != DType::kF32 || !sum.Is(Op::kAdd)) return nullptr;
  for (size_t one : {size_t{0}, size_t{1}}) {
    const ValueNode& exp = *sum.args[1 - one];
    if (!IsConstant(*sum.args[one], 1) || !exp.Is(Op::kExp)) continue;
    const ValueNode& negated = *exp.args[0];
    if (negated.Is(Op::kSub) && IsConstant(*negated.args[0], 0)) return negated.args[1].get();
    if (!negated.Is(Op::kMul)) continue;
    for (size_t i : {size_t{0}, size_t{1}})
      if (IsConstant(*negated.args[i], -1)) return negated.args[1 - i].get();
  }
  return nullptr;
}

}  // namespace

llvm::Type* FunctionEmitter::MemoryType(llvm::LLVMContext& context, DType type) {
  if (type == DType::kF32) return llvm::Type::getFloatTy(context);
  if (type == DType::kF64) return llvm::Type::getDoubleTy(context);
  return llvm::Type::getIntNTy(context, static_cast<unsigned>(8 * ByteSize(type)));
}

llvm::Type* FunctionEmitter::ValueType(DType type) const {
  llvm::LLVMContext& context = function_.getContext();
  if (IsNarrowFloat(type)) return llvm::Type::getFloatTy(context);
  if (type == DType::kU8) return llvm::Type::getInt32Ty(context);  // so that its order is that of signed integers
  return type == DType::kBool ? llvm::Type::getInt1Ty(context) : MemoryType(context, type);
}

llvm::Value* FunctionEmitter::FromMemory(DType type, llvm::Value* loaded) {
  if (IsNarrowFloat(type)) return EmitFromBits(builder_, type, loaded);
  if (type == DType::kU8) return builder_.CreateZExt(loaded, LikeValue(loaded, builder_.getInt32Ty()));
  return type == DType::kBool ? builder_.CreateICmpNE(loaded, llvm::Constant::getNullValue(loaded->getType())) : loaded;
}

llvm::Value* FunctionEmitter::ToMemory(DType type, llvm::Value* value) {
  if (IsNarrowFloat(type)) return EmitToBits(builder_, type, value);
  if (type == DType::kU8) return builder_.CreateTrunc(value, LikeValue(value, builder_.getInt8Ty()));
  if (type != DType::kBool) return value;
  return builder_.CreateZExt(value, LikeValue(value, builder_.getInt8Ty()));
}

llvm::Value* FunctionEmitter::Splat(llvm::Value* scalar) {
  if (llvm::isa<llvm::Constant>(scalar)) return builder_.CreateVectorSplat(static_cast<unsigned>(lanes_), scalar);
  auto [known, inserted] = splats_.try_emplace({scalar, lanes_});
  if (inserted) known->second = builder_.CreateVectorSplat(static_cast<unsigned>(lanes_), scalar);
  return known->second;
}

Result<llvm::Value*> FunctionEmitter::EmitValue(const ValueNode& value) {
  switch (value.kind) {
    case ValueNode::Kind::kConstant:
      if (IsFloat(value.type)) {
        const double number = IsNarrowFloat(value.type) ? RoundedTo(value.type, value.float_value) : value.float_value;
        return llvm::ConstantFP::get(ValueType(value.type), number);
      }
      return llvm::ConstantInt::getSigned(ValueType(value.type), value.int_value);
    case ValueNode::Kind::kIndex: {
      Form form = Resolve(value.index[0]);
      if (lanes_ > 0 && (form.irregular || form.lane != 0)) return VectorIndex(value.index[0]);
      return ScalarIndex(form.runtime);
    }
    case ValueNode::Kind::kGuard: {
      Mask mask = ResolveGuard(value.index);
      if (mask.never) return builder_.getFalse();
      if (mask.always()) return builder_.getTrue();
      if (!mask.lanes) return mask.scalar;
      return mask.scalar ? builder_.CreateAnd(mask.lanes, Splat(mask.scalar)) : mask.lanes;
    }
    case ValueNode::Kind::kLoad: return EmitLoad(value);
    case ValueNode::Kind::kOperation: break;
  }
  switch (value.op) {
    case Op::kCast: return EmitCast(value);
    case Op::kDiv:
      // a / (1 + exp(−x)) is a · sigmoid(x): one exponential, no division.
      if (const ValueNode* x = SigmoidArgument(value)) {
        llvm::Value* sigmoid = EmitLongMath(Op::kExp, true, {HONE_TRY(EmitValue(*x))});
        if (IsConstant(*value.args[0], 1)) return sigmoid;
        llvm::Value* a = HONE_TRY(EmitValue(*value.args[0]));
        if (a->getType()->isVectorTy() || sigmoid->getType()->isVectorTy()) a = Widen(a), sigmoid = Widen(sigmoid);
        return builder_.CreateFMul(a, sigmoid);
      }
      break;
    case Op::kSelect: {
      llvm::Value* condition = HONE_TRY(EmitValue(*value.args[0]));
      if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition))
        return EmitValue(*value.args[known->isZero() ? 2 : 1]);
      llvm::Value* a = HONE_TRY(EmitValue(*value.args[1]));
      llvm::Value* b = HONE_TRY(EmitValue(*value.args[2]));
      if (a->getType()->isVectorTy() || b->getType()->isVectorTy() || condition->getType()->isVectorTy())
        a = Widen(a), b = Widen(b);
      return builder_.CreateSelect(condition, a, b);
    }
    default: break;
  }
  // A value that several others use is there once in a statement's code.
  const std::pair key(&value, builder_.GetInsertBlock());
  if (auto known = values_.find(key); known != values_.end()) return known->second;
  std::vector<llvm::Value*> args;
  bool vector = false;
  for (const ValuePtr& arg : value.args) {
    args.push_back(HONE_TRY(EmitValue(*arg)));
    vector |= args.back()->getType()->isVectorTy();
  }
  if (vector)
    for (llvm::Value*& arg : args) arg = Widen(arg);
  return values_[key] = HONE_TRY(EmitOperation(value, std::move(args)));
}

llvm::Value* FunctionEmitter::EmitLongMath(Op op, bool is_sigmoid, std::vector<llvm::Value*> args) {
  auto emit = [&](llvm::IRBuilderBase& builder, llvm::ArrayRef<llvm::Value*> values) {
    return is_sigmoid ? EmitSigmoid(builder, target_, values[0]) : EmitMath(builder, target_, op, values);
  };
  if (copies_ < machine_.called_copies) return emit(builder_, args);
  llvm::Type* type = args[0]->getType();
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  std::string name = "hone." + std::string(is_sigmoid ? "sigmoid" : OpName(op)) +
                     (type->getScalarType()->isDoubleTy() ? ".f64x" : ".f32x") +
                     std::to_string(vector ? vector->getNumElements() : 1);
  llvm::Module* module = function_.getParent();
  llvm::Function* function = module->getFunction(name);
  if (!function) {
    std::vector<llvm::Type*> params(args.size(), type);
    function = llvm::Function::Create(llvm::FunctionType::get(type, params, false), llvm::GlobalValue::InternalLinkage,
                                      name, *module);
    function->setAttributes(
        llvm::AttributeList::get(function_.getContext(), function_.getAttributes().getFnAttrs(), {}, {}));
    llvm::IRBuilder<> builder(llvm::BasicBlock::Create(function_.getContext(), "entry", function));
    std::vector<llvm::Value*> values;
    for (llvm::Argument& arg : function->args()) values.push_back(&arg);
    builder.CreateRet(emit(builder, values));
  }
  return builder_.CreateCall(function, args);
}

Result<llvm::Value*> FunctionEmitter::EmitOperation(const ValueNode& value, std::vector<llvm::Value*> args) {
  const bool is_float = IsFloat(value.args[0]->type);
  llvm::Value* a = args[0];
  llvm::Value* b = args.size() > 1 ? args[1] : nullptr;
  switch (value.op) {
    case Op::kAdd: return is_float ? builder_.CreateFAdd(a, b) : builder_.CreateAdd(a, b);
    case Op::kSub: return is_float ? builder_.CreateFSub(a, b) : builder_.CreateSub(a, b);
    case Op::kMul: return is_float ? builder_.CreateFMul(a, b) : builder_.CreateMul(a, b);
    case Op::kDiv:
      if (is_float) return builder_.CreateFDiv(a, b);
      [[fallthrough]];
    case Op::kFloorDiv:
    case Op::kMod: {
      if (is_float) return EmitFloor(builder_, target_, builder_.CreateFDiv(a, b));
      if (const std::optional<unsigned> bits = PowerOfTwo(b)) {  // both round down
        llvm::Type* type = a->getType();
        return value.op == Op::kMod ? builder_.CreateAnd(a, llvm::ConstantInt::get(type, (uint64_t{1} << *bits) - 1))
                                    : builder_.CreateAShr(a, llvm::ConstantInt::get(type, *bits));
      }
      llvm::Value* quotient = builder_.CreateSDiv(a, b);
      llvm::Value* below = builder_.CreateICmpSLT(a, builder_.CreateMul(quotient, b));
      quotient = builder_.CreateAdd(quotient, builder_.CreateSExt(below, a->getType()));
      return value.op == Op::kMod ? builder_.CreateSub(a, builder_.CreateMul(quotient, b)) : quotient;
    }
    case Op::kMin:
    case Op::kMax: {
      bool is_max = value.op == Op::kMax;
      if (value.type == DType::kBool) return is_max ? builder_.CreateOr(a, b) : builder_.CreateAnd(a, b);
      return is_max ? EmitMax(builder_, a, b) : EmitMin(builder_, a, b);
    }
    case Op::kEq: return is_float ? builder_.CreateFCmpOEQ(a, b) : builder_.CreateICmpEQ(a, b);
    case Op::kNe: return is_float ? builder_.CreateFCmpUNE(a, b) : builder_.CreateICmpNE(a, b);
    case Op::kLt: return is_float ? builder_.CreateFCmpOLT(a, b) : builder_.CreateICmpSLT(a, b);
    case Op::kLe: return is_float ? builder_.CreateFCmpOLE(a, b) : builder_.CreateICmpSLE(a, b);
    case Op::kAnd: return builder_.CreateAnd(a, b);
    case Op::kOr: return builder_.CreateOr(a, b);
    case Op::kNot: return builder_.CreateNot(a);
    case Op::kAbs:
      return is_float ? builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a)
                      : builder_.CreateIntrinsic(llvm::Intrinsic::abs, {a->getType()}, {a, builder_.getFalse()});
    default: break;
  }
  if (IsElementary(value.op)) return EmitLongMath(value.op, false, std::move(args));
  if (llvm::Value* math = EmitMath(builder_, target_, value.op, args)) return math;
  return Error{ErrorKind::kUnsupported, std::string(OpName(value.op)) + " in generated code", ""};
}

Result<llvm::Value*> FunctionEmitter::EmitCast(const ValueNode& value) {
  const ValueNode& source = *value.args[0];
  DType from = source.type, to = value.type;
  llvm::Value* x = nullptr;
  bool narrow = false;
  if (source.kind == ValueNode::Kind::kIndex) {
    // An index in 32 bits where its range allows: vectors of 64-bit integers convert slowly.
    Interval range = vars_.Range(source.index[0]);
    narrow = range.lo > INT32_MIN && range.hi < INT32_MAX;
  }
  // What is rounded first is converted to the nearest at once.
  const bool is_rounded =
      source.kind == ValueNode::Kind::kOperation && source.op == Op::kRound && !IsFloat(to) && to != DType::kBool;
  const ToInteger how = is_rounded ? ToInteger::kNearest : ToInteger::kTruncate;
  x = HONE_TRY(EmitValue(is_rounded ? *source.args[0] : source));
  if (narrow) x = builder_.CreateTrunc(x, LikeValue(x, builder_.getInt32Ty()));
  llvm::Type* type = LikeValue(x, ValueType(to));
  if (to == DType::kBool)
    return IsFloat(from) ? builder_.CreateFCmpUNE(x, llvm::Constant::getNullValue(x->getType()))
                         : builder_.CreateICmpNE(x, llvm::Constant::getNullValue(x->getType()));
  if (from == DType::kBool) return IsFloat(to) ? builder_.CreateUIToFP(x, type) : builder_.CreateZExt(x, type);
  if (IsFloat(to)) {
    if (!IsFloat(from))
      x = builder_.CreateSIToFP(x, type);
    else if (!IsNarrowFloat(to))
      x = builder_.CreateFPCast(x, type);
    return IsNarrowFloat(to) ? EmitRoundTo(builder_, target_, to, x) : x;
  }
  if (IsFloat(from)) {
    const DTypeTraits& traits = TraitsOf(to);
    HONE_CHECK(ByteSize(to) <= 4);
    x = EmitInteger(builder_, target_, how, x, static_cast<int32_t>(traits.lowest),
                    static_cast<int32_t>(traits.highest));
    return builder_.CreateTrunc(x, type);
  }
  x = builder_.CreateSExtOrTrunc(x, type);
  return to == DType::kU8 ? builder_.CreateAnd(x, llvm::ConstantInt::get(type, 255)) : x;
}

Result<llvm::Value*> FunctionEmitter::EmitLoad(const ValueNode& load) {
  if (!program_.InRegisters(load.buffer)) return EmitMemoryLoad(load);
  Mask mask = ResolveGuard(load.guard);
  if (mask.never) return EmitValue(*load.args[0]);
  llvm::Value* value = HONE_TRY(ReadTile(load.buffer, load.index));
  if (mask.always()) return value;
  llvm::Value* fill = HONE_TRY(EmitValue(*load.args[0]));
  llvm::Value* condition = mask.lanes ? AllLanes(mask) : mask.scalar;
  if (mask.lanes || value->getType()->isVectorTy() || fill->getType()->isVectorTy())
    value = Widen(value), fill = Widen(fill);
  return builder_.CreateSelect(condition, value, fill);
}

// A hint: what lies there comes into the caches, wherever it is, and nothing happens where nothing is.
void FunctionEmitter::EmitPrefetch(llvm::Value* address, int64_t bytes_ahead) {
  constexpr uint32_t kRead = 0, kIntoAllLevels = 3, kData = 1;
  llvm::Value* there =
      builder_.CreateGEP(builder_.getInt8Ty(), address, builder_.getInt64(static_cast<uint64_t>(bytes_ahead)));
  builder_.CreateIntrinsic(
      llvm::Intrinsic::prefetch, {there->getType()},
      {there, builder_.getInt32(kRead), builder_.getInt32(kIntoAllLevels), builder_.getInt32(kData)});
}

// What the load asks for besides. Its copies in unrolled code that lie further on than a trip takes ask for nothing:
// the next trip does.
void FunctionEmitter::EmitPrefetchOf(const ValueNode& load, llvm::Value* address) {
  constexpr int64_t kLine = 64;
  if (load.prefetch_step == 0) return EmitPrefetch(address, load.prefetch);
  const int64_t bytes = ByteSize(program_.buffer(load.buffer).dtype);
  const Linear at = Resolve(load.prefetch_at).runtime;
  const int64_t copy = (at.constant() - load.prefetch_at.constant()) * bytes;
  if (copy >= RoundUp(load.prefetch_step * bytes, kLine)) return;
  bool uses_current = false;
  llvm::Value* base = PointerTo(load.buffer, at - Linear(at.constant()), &uses_current);
  EmitPrefetch(base, at.constant() * bytes);
}

llvm::Value* FunctionEmitter::EmitPickedLoad(BufferId id, const Form& form) {
  const auto [least, most] = std::minmax_element(form.places.begin(), form.places.end());
  const auto span = static_cast<uint64_t>(*most - *least + 1);
  if (span > static_cast<uint64_t>(lanes_) || !std::has_single_bit(span)) return nullptr;
  const Buffer& buffer = program_.buffer(id);
  llvm::Type* element = MemoryType(function_.getContext(), buffer.dtype);
  const int64_t bytes = ByteSize(buffer.dtype), constant = form.first.constant();
  bool uses_current = false;
  llvm::Value* base = PointerTo(id, form.first - Linear(constant), &uses_current);
  llvm::Value* address = builder_.CreateGEP(builder_.getInt8Ty(), base,
                                            builder_.getInt64(static_cast<uint64_t>((constant + *least) * bytes)));
  llvm::Value* loaded = builder_.CreateAlignedLoad(llvm::FixedVectorType::get(element, static_cast<unsigned>(span)),
                                                   address, llvm::Align(static_cast<uint64_t>(bytes)));
  std::vector<int> picked(static_cast<size_t>(lanes_), -1);
  for (size_t lane = 0; lane < form.places.size(); ++lane) picked[lane] = static_cast<int>(form.places[lane] - *least);
  return FromMemory(buffer.dtype, builder_.CreateShuffleVector(loaded, picked));
}

Result<llvm::Value*> FunctionEmitter::EmitMemoryLoad(const ValueNode& load) {
  const Buffer& buffer = program_.buffer(load.buffer);
  llvm::Type* element = MemoryType(function_.getContext(), buffer.dtype);
  const int64_t bytes = ByteSize(buffer.dtype);
  Mask mask = ResolveGuard(load.guard);
  auto fill = [&]() -> Result<llvm::Value*> { return EmitValue(*load.args[0]); };
  if (mask.never) return fill();

  Linear offset = program_.FlatIndex(load.buffer, load.index);
  Form form = Resolve(offset);
  const bool vector = lanes_ > 0 && (form.lane != 0 || form.irregular || mask.lanes);
  llvm::Type* loaded_type = vector ? llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes_)) : element;

  // Under a mask that is known now: a masked load of what lies between the first lane that is on and the last, then a
  // shuffle. Side by side only where that is a narrower load, or on AVX2: there LLVM 19 reads a lane that is off, in a
  // register of which nothing else is used, without asking its mask.
  std::vector<bool> apart;
  if (vector && !form.irregular && form.lane >= 1 && form.lane <= machine_.widest_lane_stride && !mask.always())
    apart = KnownLanes(mask);
  if (form.lane == 1 && !apart.empty()) {
    const auto first = std::find(apart.begin(), apart.end(), true);
    const auto last = std::find(apart.rbegin(), apart.rend(), true);
    const auto span = static_cast<int>(last.base() - first);
    const bool narrower = static_cast<int>(std::bit_ceil(static_cast<unsigned>(span))) < lanes_;
    if (!narrower && (target_.isa != Isa::kAvx2 || span == lanes_)) apart.clear();
  }
  if (vector && (form.irregular || form.lane <= 0 || (form.lane > 1 && !mask.always() && apart.empty()))) {
    if (mask.always() && !form.places.empty())
      if (llvm::Value* picked = EmitPickedLoad(load.buffer, form)) return picked;
    // Any addresses: a gather of the lanes that are on.
    llvm::Value* index = HONE_TRY(VectorIndex(offset));
    llvm::Value* pointers = builder_.CreateGEP(element, bases_[load.buffer], index);
    llvm::Value* on = AllLanes(mask);
    llvm::Value* other = llvm::Constant::getNullValue(loaded_type);
    if (!mask.always()) other = ToMemory(buffer.dtype, Widen(HONE_TRY(fill())));
    return FromMemory(buffer.dtype, builder_.CreateMaskedGather(loaded_type, pointers,
                                                                llvm::Align(static_cast<uint64_t>(bytes)), on, other));
  }

  bool uses_current = false;
  int64_t constant = form.runtime.constant();
  Linear moving = form.runtime - Linear(constant);
  llvm::Value* base = PointerTo(load.buffer, moving, &uses_current);
  if (auto again = read_again_.find(load.buffer); again != read_again_.end() && !vector && uses_current) {
    llvm::Value*& own = again->second[base];
    if (!own) own = Unknown(base);
    base = own;
  }
  int64_t alignment = AlignmentOf(load.buffer, form.runtime);
  auto address = [&] {
    return constant == 0 ? base
                         : builder_.CreateGEP(builder_.getInt8Ty(), base,
                                              builder_.getInt64(static_cast<uint64_t>(constant * bytes)));
  };

  auto emit = [&]() -> llvm::Value* {
    if (!vector) {
      if (mask.always())
        return builder_.CreateAlignedLoad(element, address(), llvm::Align(static_cast<uint64_t>(alignment)));
      return EmitGuardedLoad(builder_, element, address(), mask.scalar, bytes);
    }
    // One guard for all lanes, where LLVM would ask it for each.
    if (mask.scalar && !mask.lanes && form.lane == 1 && active_ == lanes_ && !HasMaskedMemory(target_, loaded_type))
      return EmitGuardedLoad(builder_, loaded_type, address(), mask.scalar, bytes);
    if (!apart.empty())
      return EmitMaskedDeinterleavedLoad(builder_, element, address(), static_cast<int>(form.lane), apart, mask.scalar,
                                         bytes);
    if (form.lane > 1)
      return EmitDeinterleavedLoad(builder_, element, address(), static_cast<int>(form.lane), active_, bytes);
    if (!mask.always())
      return EmitMaskedLoad(builder_, target_, loaded_type, address(), AllLanes(mask), alignment, active_);
    if (active_ < lanes_)
      return EmitLoadPrefix(builder_, target_, loaded_type, address(),
                            builder_.getInt64(static_cast<uint64_t>(active_)), alignment);
    if (load.prefetch > 0) EmitPrefetchOf(load, address());
    return builder_.CreateAlignedLoad(loaded_type, address(), llvm::Align(static_cast<uint64_t>(alignment)));
  };
  auto widen_lanes = [&](llvm::Value* value) -> llvm::Value* {
    auto* type = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
    if (!type || static_cast<int>(type->getNumElements()) == lanes_) return value;
    std::vector<int> lanes(static_cast<size_t>(lanes_), -1);
    for (int lane = 0; lane < active_; ++lane) lanes[static_cast<size_t>(lane)] = lane;
    return builder_.CreateShuffleVector(value, lanes);
  };

  int64_t shape = form.lane * 1024 + (vector ? lanes_ : 0);
  OpenScope& scope = scopes_.back();
  bool splats = lanes_ > 0 && !vector;
  const int64_t hoisted_shape = splats ? -lanes_ : shape;  // a splat is as wide as the vectors that use it
  if (mask.always() && scope.innermost && scope.preheader && !uses_current && DepthOf(moving) + 1 < scopes_.size() &&
      !scope.stored.contains(load.buffer)) {
    auto known = scope.hoisted.find({base, constant, hoisted_shape});
    if (known != scope.hoisted.end()) return known->second;
    if (static_cast<int>(scope.hoisted.size()) < machine_.HoistedLoads()) {
      llvm::IRBuilderBase::InsertPointGuard restore(builder_);
      builder_.SetInsertPoint(InFrontOfTrips(scope));
      llvm::Value* value = FromMemory(buffer.dtype, widen_lanes(emit()));
      if (splats) value = builder_.CreateVectorSplat(static_cast<unsigned>(lanes_), value);
      scope.hoisted[{base, constant, hoisted_shape}] = value;
      return value;
    }
  }
  llvm::Value* mask_key = mask.always() ? nullptr : vector ? (mask.lanes ? mask.lanes : mask.scalar) : mask.scalar;
  bool can_remember = !(vector && mask.lanes && mask.scalar);
  llvm::Value* value = nullptr;  // as read: the fill is each load's own
  if (can_remember) value = loads_[load.buffer][{base, constant, shape, mask_key}];
  if (!value) value = FromMemory(buffer.dtype, widen_lanes(emit()));
  if (can_remember) loads_[load.buffer][{base, constant, shape, mask_key}] = value;
  if (mask.always()) return value;
  llvm::Value* other = HONE_TRY(fill());
  auto* constant_fill = llvm::dyn_cast<llvm::Constant>(other);
  // Masked lanes and the zero read in their place are zero already.
  if (constant_fill && constant_fill->isNullValue()) return value;
  return builder_.CreateSelect(vector ? AllLanes(mask) : mask.scalar, value, vector ? Widen(other) : other);
}

}  // namespace hone
