// Loops and stores of one nest.
#include "codegen/llvm/function_emitter.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <bit>
#include <limits>

#include "base/check.h"
#include "codegen/llvm/lanes.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

void CollectStores(const Stmt& stmt, std::set<BufferId>& stored) {
  if (stmt.kind == Stmt::Kind::kStore) stored.insert(stmt.buffer);
  for (const StmtPtr& child : stmt.body) CollectStores(*child, stored);
}

}  // namespace

FunctionEmitter::FunctionEmitter(const LoopProgram& program, VarTable& vars, const CpuTarget& target,
                                 llvm::Function& function, IdVector<BufferId, llvm::Value*> bases,
                                 std::vector<llvm::Value*> sizes)
    : program_(program),
      vars_(vars),
      target_(target),
      machine_(ModelCpu(target)),
      function_(function),
      builder_(function.getContext()),
      bases_(std::move(bases)),
      sizes_(std::move(sizes)) {}

Result<void> FunctionEmitter::Emit(const Stmt& nest, llvm::Value* begin, llvm::Value* end) {
  llvm::LLVMContext& context = function_.getContext();
  auto* entry = llvm::BasicBlock::Create(context, "entry", &function_);
  auto* body = llvm::BasicBlock::Create(context, "body", &function_);
  builder_.SetInsertPoint(entry);
  OpenScope scope;
  scope.anchor = builder_.CreateBr(body);
  scopes_.push_back(std::move(scope));
  builder_.SetInsertPoint(body);
  const Stmt* outermost = nest.body.size() == 1 ? nest.body[0].get() : nullptr;
  if (begin && outermost && outermost->IsRuntimeLoop())
    HONE_TRY(EmitRuntimeLoop(*outermost, begin, end, false));
  else
    HONE_TRY(EmitStmt(nest));
  if (uses_tiles_) ConfigureTiles();
  builder_.CreateRetVoid();
  return {};
}

void FunctionEmitter::ForgetStraightLine() {
  loads_.clear();
  splats_.clear();
  masks_.clear();
  transposed_.clear();
}

Result<void> FunctionEmitter::EmitStmt(const Stmt& stmt) {
  switch (stmt.kind) {
    case Stmt::Kind::kBlock:
      for (const StmtPtr& child : stmt.body) HONE_TRY(EmitStmt(*child));
      return {};
    case Stmt::Kind::kRegisters:
      tiles_[stmt.buffer] = {};
      for (const StmtPtr& child : stmt.body) HONE_TRY(EmitStmt(*child));
      tiles_.erase(stmt.buffer);
      for (TileUse& tile : tile_registers_)
        if (tile.fragment && tile.buffer == stmt.buffer) tile = {};
      return {};
    case Stmt::Kind::kLoop: return EmitLoop(stmt);
    case Stmt::Kind::kStore: return EmitStore(stmt);
    case Stmt::Kind::kInstruction: return EmitInstruction(stmt);
    case Stmt::Kind::kBarrier: HONE_CHECK(!"a barrier on a processor");
  }
  return {};
}

Result<void> FunctionEmitter::EmitLoop(const Stmt& stmt) {
  const bool once = stmt.RunsOnce();
  if (once || stmt.loop == LoopKind::kUnrolled || stmt.loop == LoopKind::kVectorized) {
    if (!stmt.extent.IsConstant())
      return Refuse(vars_[stmt.var].name + " has no constant extent: it can be neither unrolled nor vectorised");
    int64_t extent = stmt.extent.constant();
    if (!once && stmt.loop == LoopKind::kVectorized) {
      if (lane_var_) return Refuse(vars_[stmt.var].name + " is vectorised inside a vectorised loop");
      if (HasRuntimeLoop(stmt))
        return Refuse(vars_[stmt.var].name + " is vectorised, but a serial loop lies inside it");
      if (extent > 64) return Refuse(vars_[stmt.var].name + " is vectorised over more than 64 lanes");
      lane_var_ = stmt.var;
      active_ = static_cast<int>(extent);
      lanes_ = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(extent)));
      for (const StmtPtr& child : stmt.body) HONE_TRY(EmitStmt(*child));
      lane_var_ = {};
      lanes_ = active_ = 0;
      return {};
    }
    copies_ *= extent;
    const BufferId window = extent > 1 && stmt.loop == LoopKind::kUnrolled ? CrowdingWindow(stmt) : BufferId();
    for (int64_t i = 0; i < extent; ++i) {
      unrolled_[stmt.var] = i;
      if (window) read_again_[window].clear();
      for (const StmtPtr& child : stmt.body) HONE_TRY(EmitStmt(*child));
    }
    if (window) read_again_.erase(window);
    copies_ /= extent;
    unrolled_.erase(stmt.var);
    return {};
  }
  llvm::Value* begin = ScalarIndex(Resolve(stmt.begin).runtime);
  llvm::Value* end = ScalarIndex(Resolve(stmt.extent).runtime);
  return EmitRuntimeLoop(stmt, begin, end, vars_.Range(stmt.extent - stmt.begin).lo >= 1);
}

Result<void> FunctionEmitter::EmitRuntimeLoop(const Stmt& stmt, llvm::Value* begin, llvm::Value* end, bool runs) {
  llvm::LLVMContext& context = function_.getContext();
  auto* entry = llvm::BasicBlock::Create(context, vars_[stmt.var].name, &function_);
  auto* body = llvm::BasicBlock::Create(context, "", &function_);
  auto* exit = llvm::BasicBlock::Create(context, "", &function_);
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  OpenScope scope;
  scope.var = stmt.var;
  scope.preheader =
      runs ? builder_.CreateBr(entry) : builder_.CreateCondBr(builder_.CreateICmpSLT(begin, end), entry, exit);
  scope.may_be_empty = vars_.Range(stmt.extent - stmt.begin).lo < 1;
  scope.innermost = !HasRuntimeLoop(stmt);
  CollectStores(stmt, scope.stored);

  builder_.SetInsertPoint(entry);
  llvm::PHINode* counter = builder_.CreatePHI(builder_.getInt64Ty(), 2);
  counter->addIncoming(begin, before);
  scope.counter = counter;
  // Register tiles that the loop writes are carried around it.
  struct Carried {
    BufferId buffer;
    int64_t offset;
    llvm::Value* start;
    llvm::PHINode* phi;
  };
  std::vector<Carried> carried;
  for (BufferId buffer : scope.stored) {
    auto tile = tiles_.find(buffer);
    if (tile == tiles_.end()) continue;
    for (auto& [offset, slot] : tile->second.slots) {
      llvm::PHINode* phi = builder_.CreatePHI(slot.value->getType(), 2);
      phi->addIncoming(slot.value, before);
      carried.push_back({buffer, offset, slot.value, phi});
      slot.value = phi;
    }
  }
  scope.anchor = builder_.CreateBr(body);
  scopes_.push_back(std::move(scope));
  ForgetStraightLine();
  builder_.SetInsertPoint(body);
  for (const StmtPtr& child : stmt.body) HONE_TRY(EmitStmt(*child));

  llvm::BasicBlock* latch = builder_.GetInsertBlock();
  llvm::Value* next = builder_.CreateAdd(counter, builder_.getInt64(1), "", true, true);
  builder_.CreateCondBr(builder_.CreateICmpSLT(next, end), entry, exit);
  counter->addIncoming(next, latch);
  // Advanced at the end of the body, where the branch to the next trip is.
  builder_.SetInsertPoint(latch->getTerminator());
  for (const auto& [pointer, stride] : scopes_.back().walking)
    pointer->addIncoming(
        builder_.CreateGEP(builder_.getInt8Ty(), pointer, builder_.getInt64(static_cast<uint64_t>(stride))), latch);
  scopes_.pop_back();
  ForgetStraightLine();
  builder_.SetInsertPoint(exit);
  for (const Carried& c : carried) {
    Slot& slot = tiles_[c.buffer].slots.at(c.offset);
    c.phi->addIncoming(slot.value, latch);
    if (runs) continue;
    llvm::PHINode* merged = builder_.CreatePHI(slot.value->getType(), 2);
    merged->addIncoming(c.start, before);
    merged->addIncoming(slot.value, latch);
    slot.value = merged;
  }
  return {};
}

llvm::Instruction* FunctionEmitter::InFrontOfTrips(OpenScope& scope) {
  if (!scope.may_be_empty) return scope.preheader;
  if (scope.first_trip) return scope.first_trip;
  // A block of its own on the way into the loop.
  auto* branch = llvm::cast<llvm::BranchInst>(scope.preheader);
  llvm::BasicBlock* entry = branch->getSuccessor(0);
  auto* guarded = llvm::BasicBlock::Create(function_.getContext(), "", &function_, entry);
  branch->setSuccessor(0, guarded);
  entry->replacePhiUsesWith(branch->getParent(), guarded);
  return scope.first_trip = llvm::BranchInst::Create(entry, guarded);
}

llvm::Value* FunctionEmitter::Identity(Reduction reduction, llvm::Type* type) {
  llvm::Type* scalar = type->getScalarType();
  llvm::Constant* identity = nullptr;
  if (scalar->isFloatingPointTy()) {
    double inf = std::numeric_limits<double>::infinity();
    identity = llvm::ConstantFP::get(scalar, reduction == Reduction::kSum    ? 0
                                             : reduction == Reduction::kProd ? 1
                                             : reduction == Reduction::kMin  ? inf
                                                                             : -inf);
  } else {
    unsigned bits = scalar->getIntegerBitWidth();
    llvm::APInt value(bits, reduction == Reduction::kProd ? 1 : 0);
    if (reduction == Reduction::kMax) value = bits == 1 ? llvm::APInt(1, 0) : llvm::APInt::getSignedMinValue(bits);
    if (reduction == Reduction::kMin) value = bits == 1 ? llvm::APInt(1, 1) : llvm::APInt::getSignedMaxValue(bits);
    identity = llvm::ConstantInt::get(scalar, value);
  }
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type))
    return llvm::ConstantVector::getSplat(vector->getElementCount(), identity);
  return identity;
}

llvm::Value* FunctionEmitter::Combine(Reduction reduction, llvm::Value* old, llvm::Value* value) {
  bool is_float = value->getType()->isFPOrFPVectorTy();
  bool is_bool = value->getType()->isIntOrIntVectorTy(1);
  switch (reduction) {
    case Reduction::kNone: return value;
    case Reduction::kSum:
      return is_float  ? builder_.CreateFAdd(old, value)
             : is_bool ? builder_.CreateOr(old, value)
                       : builder_.CreateAdd(old, value);
    case Reduction::kProd:
      return is_float  ? builder_.CreateFMul(old, value)
             : is_bool ? builder_.CreateAnd(old, value)
                       : builder_.CreateMul(old, value);
    case Reduction::kMax: return is_bool ? builder_.CreateOr(old, value) : EmitMax(builder_, old, value);
    case Reduction::kMin: return is_bool ? builder_.CreateAnd(old, value) : EmitMin(builder_, old, value);
    case Reduction::kMaxOfNumbers: return EmitMaxOfNumbers(builder_, old, value);
  }
  return value;
}

Result<llvm::Value*> FunctionEmitter::Accumulate(const Stmt& stmt, llvm::Value* old) {
  const ValueNode& value = *stmt.value;
  if (stmt.combine == Reduction::kSum && value.Is(Op::kMul) && IsFloat(value.type)) {
    llvm::Value* a = HONE_TRY(EmitValue(*value.args[0]));
    llvm::Value* b = HONE_TRY(EmitValue(*value.args[1]));
    if (old->getType()->isVectorTy() || a->getType()->isVectorTy() || b->getType()->isVectorTy())
      a = Widen(a), b = Widen(b), old = Widen(old);
    return builder_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, old});
  }
  llvm::Value* fresh = HONE_TRY(EmitValue(value));
  if (stmt.combine == Reduction::kNone) return fresh;
  if (old->getType()->isVectorTy()) fresh = Widen(fresh);
  return Combine(stmt.combine, old, fresh);
}

// A reduction over the vectorised loop: lanes are combined among themselves, then with what was there.
Result<llvm::Value*> FunctionEmitter::AccumulateLanes(const Stmt& stmt, llvm::Value* old) {
  llvm::Value* value = Widen(HONE_TRY(EmitValue(*stmt.value)));
  if (active_ < lanes_) {
    std::vector<int> lanes;
    for (int lane = 0; lane < active_; ++lane) lanes.push_back(lane);
    value = builder_.CreateShuffleVector(value, lanes);
  }
  llvm::Value* total = nullptr;
  if (value->getType()->isIntOrIntVectorTy(1)) {
    bool any = stmt.combine == Reduction::kMax || stmt.combine == Reduction::kSum;
    total = any ? builder_.CreateOrReduce(value) : builder_.CreateAndReduce(value);
  } else {
    ReduceOp op = stmt.combine == Reduction::kSum    ? ReduceOp::kSum
                  : stmt.combine == Reduction::kProd ? ReduceOp::kProd
                  : stmt.combine == Reduction::kMin  ? ReduceOp::kMin
                  : stmt.combine == Reduction::kMax  ? ReduceOp::kMax
                                                     : ReduceOp::kMaxOfNumbers;
    total = EmitReduce(builder_, op, value);
  }
  return Combine(stmt.combine, old, total);
}

Result<void> FunctionEmitter::EmitStore(const Stmt& stmt) {
  Mask mask = ResolveGuard(stmt.guard);
  if (mask.never) return {};
  values_.clear();
  if (program_.InRegisters(stmt.buffer)) return WriteTile(stmt, mask);
  return StoreToMemory(stmt, mask);
}

Result<void> FunctionEmitter::StoreToMemory(const Stmt& stmt, const Mask& mask) {
  const Buffer& buffer = program_.buffer(stmt.buffer);
  llvm::Type* element = MemoryType(function_.getContext(), buffer.dtype);
  const int64_t bytes = ByteSize(buffer.dtype);
  Linear offset = program_.FlatIndex(stmt.buffer, stmt.index);
  Form form = Resolve(offset);
  const bool scatter = lanes_ > 0 && (form.irregular || (form.lane != 0 && form.lane != 1));
  const bool vector = lanes_ > 0 && (form.lane == 1 || scatter);
  if (lanes_ > 0 && !vector && stmt.combine == Reduction::kNone)
    return Refuse(buffer.name + " would be written by every lane at once");
  if (lanes_ > 0 && !vector && mask.lanes)
    return Refuse(buffer.name + ": a reduction over lanes of which some are off");

  bool uses_current = false;
  int64_t constant = form.runtime.constant();
  llvm::Value* address = nullptr;
  if (!scatter) {
    address = PointerTo(stmt.buffer, form.runtime - Linear(constant), &uses_current);
    if (constant != 0)
      address =
          builder_.CreateGEP(builder_.getInt8Ty(), address, builder_.getInt64(static_cast<uint64_t>(constant * bytes)));
  }
  llvm::Align alignment(static_cast<uint64_t>(scatter ? bytes : AlignmentOf(stmt.buffer, form.runtime)));
  llvm::Type* type =
      vector ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes_))) : element;

  // Values are computed before any branch: what they load is guarded by itself.
  llvm::Value* pointers = nullptr;
  if (scatter) pointers = builder_.CreateGEP(element, bases_[stmt.buffer], HONE_TRY(VectorIndex(offset)));
  llvm::Value* value = nullptr;
  bool guarded_read = stmt.combine != Reduction::kNone && !mask.always();
  if (stmt.combine == Reduction::kNone || !guarded_read) {
    llvm::Value* old = nullptr;
    if (stmt.combine != Reduction::kNone) {
      if (scatter)
        old =
            builder_.CreateMaskedGather(type, pointers, alignment, AllLanes(mask), llvm::Constant::getNullValue(type));
      else if (vector && active_ < lanes_)
        old = EmitLoadPrefix(builder_, target_, type, address, builder_.getInt64(static_cast<uint64_t>(active_)),
                             static_cast<int64_t>(alignment.value()));
      else
        old = builder_.CreateAlignedLoad(type, address, alignment);
      old = FromMemory(buffer.dtype, old);
    }
    value = lanes_ > 0 && !vector ? HONE_TRY(AccumulateLanes(stmt, old)) : HONE_TRY(Accumulate(stmt, old));
  }
  llvm::BasicBlock* after = nullptr;
  if (mask.scalar && !(vector && guarded_read)) {
    auto* then = llvm::BasicBlock::Create(function_.getContext(), "", &function_);
    after = llvm::BasicBlock::Create(function_.getContext(), "", &function_);
    builder_.CreateCondBr(mask.scalar, then, after);
    builder_.SetInsertPoint(then);
  }
  if (guarded_read) {
    if (vector) {
      llvm::Value* on = AllLanes(mask);
      llvm::Value* old =
          scatter
              ? builder_.CreateMaskedGather(type, pointers, alignment, on, llvm::Constant::getNullValue(type))
              : EmitMaskedLoad(builder_, target_, type, address, on, static_cast<int64_t>(alignment.value()), active_);
      value = HONE_TRY(Accumulate(stmt, FromMemory(buffer.dtype, old)));
    } else {
      llvm::Value* old = FromMemory(buffer.dtype, builder_.CreateAlignedLoad(type, address, alignment));
      value = lanes_ > 0 ? HONE_TRY(AccumulateLanes(stmt, old)) : HONE_TRY(Accumulate(stmt, old));
    }
  }
  value = ToMemory(buffer.dtype, vector ? Widen(value) : value);
  if (scatter) {
    builder_.CreateMaskedScatter(value, pointers, alignment, AllLanes(mask));
  } else if (vector && (mask.lanes || (mask.scalar && !after))) {
    EmitMaskedStore(builder_, value, address, AllLanes(mask), static_cast<int64_t>(alignment.value()));
  } else if (vector && active_ < lanes_) {
    EmitStorePrefix(builder_, target_, value, address, builder_.getInt64(static_cast<uint64_t>(active_)),
                    static_cast<int64_t>(alignment.value()));
  } else {
    builder_.CreateAlignedStore(value, address, alignment);
  }
  if (after) {
    builder_.CreateBr(after);
    builder_.SetInsertPoint(after);
    if (guarded_read) ForgetStraightLine();  // what was computed inside the branch is not known after it
  }
  loads_.erase(stmt.buffer);
  return {};
}

}  // namespace hone
