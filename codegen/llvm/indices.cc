// Indices as values: unrolled counters fold, the rest becomes pointers computed in the loop they depend on.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "codegen/llvm/function_emitter.h"

namespace hone {
namespace {

std::vector<std::pair<VarId, int64_t>> KeyOf(const Linear& form) {
  std::vector<std::pair<VarId, int64_t>> key;
  for (const Term& term : form.terms()) key.emplace_back(term.var, term.coef);
  return key;
}

}  // namespace

bool FunctionEmitter::DependsOnLane(VarId id) const {
  if (id == lane_var_) return true;
  const Var& var = vars_[id];
  if (var.kind == VarKind::kOpaque) return static_cast<bool>(lane_var_);
  for (const Linear* part : {&var.a, &var.b})
    for (const Term& term : part->terms())
      if (DependsOnLane(term.var)) return true;
  return false;
}

Linear FunctionEmitter::AtLane(const Linear& e, int lane) {
  return vars_.ExpandAxes(vars_.Substitute(e, [&](VarId var, Linear* value) {
    auto known = unrolled_.find(var);
    if (var != lane_var_ && known == unrolled_.end()) return false;
    *value = Linear(var == lane_var_ ? lane : known->second);
    return true;
  }));
}

FunctionEmitter::Form FunctionEmitter::Resolve(const Linear& e) {
  Linear x = vars_.ExpandAxes(e);
  bool derived = std::any_of(x.terms().begin(), x.terms().end(), [&](const Term& t) {
    VarKind kind = vars_[t.var].kind;
    return kind != VarKind::kLoop && kind != VarKind::kSize;
  });
  Form form;
  if (derived) {
    x = vars_.Substitute(x, [&](VarId var, Linear* value) {
      auto known = unrolled_.find(var);
      if (known == unrolled_.end()) return false;
      *value = Linear(known->second);
      return true;
    });
    x = vars_.ExpandAxes(x);  // what folded may have uncovered axes
  }
  form.runtime = Linear(x.constant());
  for (const Term& term : x.terms()) {
    if (auto known = unrolled_.find(term.var); known != unrolled_.end())
      form.runtime += Linear(known->second * term.coef);
    else if (term.var == lane_var_)
      form.lane += term.coef;
    else {
      form.runtime += Linear::Of(term.var, term.coef);
      form.irregular |= lane_var_ && DependsOnLane(term.var);
    }
  }
  if (!form.irregular || !lane_var_) return form;
  // A derived part depends on the lane. It may still step evenly, or by constants: try lane by lane.
  std::vector<Linear> lanes;
  std::vector<int64_t> places;
  bool is_even = true;
  for (int lane = 0; lane < active_; ++lane) {
    lanes.push_back(AtLane(x, lane));
    const Linear place = lanes.back() - lanes[0];
    if (!place.IsConstant()) return form;
    places.push_back(place.constant());
    is_even &= lane == 0 || places.back() == lane * places[1];
  }
  if (!is_even) {
    const bool is_known = std::none_of(lanes[0].terms().begin(), lanes[0].terms().end(),
                                       [&](const Term& term) { return DependsOnLane(term.var); });
    if (is_known) form.first = lanes[0], form.places = std::move(places);
    return form;
  }
  form.runtime = lanes[0];
  form.lane = lanes.size() > 1 ? (lanes[1] - lanes[0]).constant() : 0;
  form.irregular = std::any_of(form.runtime.terms().begin(), form.runtime.terms().end(),
                               [&](const Term& t) { return DependsOnLane(t.var); });
  return form;
}

// Number of the scope in which a variable's value is known.
size_t FunctionEmitter::DepthOf(VarId id) const {
  const Var& var = vars_[id];
  switch (var.kind) {
    case VarKind::kSize: return 0;
    case VarKind::kOpaque: return scopes_.size();  // data: known only where it is read
    case VarKind::kLoop:
      for (size_t s = scopes_.size(); s-- > 0;)
        if (scopes_[s].var == id) return s;
      HONE_CHECK(!"an open loop");
      return 0;
    default: return std::max(DepthOf(var.a), DepthOf(var.b));
  }
}

size_t FunctionEmitter::DepthOf(const Linear& e) const {
  size_t depth = 0;
  for (const Term& term : e.terms()) depth = std::max(depth, DepthOf(term.var));
  return depth;
}

llvm::Value* FunctionEmitter::AtomValue(VarId id) {
  const Var var = vars_[id];  // a copy: the table may grow below
  if (var.kind == VarKind::kOpaque) {
    Result<llvm::Value*> value = EmitValue(program_.OpaqueValue(var));
    HONE_CHECK(value && !(*value)->getType()->isVectorTy());
    return builder_.CreateSExtOrTrunc(*value, builder_.getInt64Ty());
  }
  size_t depth = DepthOf(id);
  bool here = depth >= scopes_.size();  // depends on data: no hoisting
  if (!here) {
    if (scopes_[depth].var == id) return scopes_[depth].counter;
    if (auto known = scopes_[depth].atoms.find(id); known != scopes_[depth].atoms.end()) return known->second;
  }
  if (var.kind == VarKind::kSize) {
    for (size_t s = 0; s < program_.size_vars.size(); ++s)
      if (program_.size_vars[s] == id) return sizes_[s];
    HONE_CHECK(!"a size");
  }
  llvm::IRBuilderBase::InsertPointGuard restore(builder_);
  if (!here) builder_.SetInsertPoint(scopes_[depth].anchor);
  llvm::Value* a = ScalarIndex(var.a);
  llvm::Value* value = nullptr;
  switch (var.kind) {
    case VarKind::kFloorDiv: {
      llvm::Value* divisor = builder_.getInt64(static_cast<uint64_t>(var.divisor));
      if (vars_.Range(var.a).lo >= 0) {
        value = builder_.CreateUDiv(a, divisor);
      } else {
        llvm::Value* quotient = builder_.CreateSDiv(a, divisor);
        llvm::Value* below = builder_.CreateICmpSLT(a, builder_.CreateMul(quotient, divisor));
        value = builder_.CreateSub(quotient, builder_.CreateZExt(below, builder_.getInt64Ty()));
      }
      break;
    }
    case VarKind::kMin: value = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, ScalarIndex(var.b)); break;
    case VarKind::kMax: value = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, ScalarIndex(var.b)); break;
    case VarKind::kProduct: value = builder_.CreateMul(a, ScalarIndex(var.b)); break;
    default: HONE_CHECK(!"a derived index");
  }
  if (!here) scopes_[depth].atoms[id] = value;
  return value;
}

llvm::Value* FunctionEmitter::EmitIndex(const Linear& over_sizes, llvm::BasicBlock* block) {
  builder_.SetInsertPoint(block);
  OpenScope scope;
  scope.anchor = builder_.CreateUnreachable();  // to insert before
  builder_.SetInsertPoint(scope.anchor);
  scopes_.push_back(scope);
  llvm::Value* value = ScalarIndex(over_sizes);
  scopes_.pop_back();
  scope.anchor->eraseFromParent();
  return value;
}

llvm::Value* FunctionEmitter::ScalarIndex(const Linear& runtime) {
  Linear expanded = vars_.ExpandAxes(runtime);
  llvm::Value* sum = nullptr;
  for (const Term& term : expanded.terms()) {
    llvm::Value* value = AtomValue(term.var);
    if (term.coef != 1) value = builder_.CreateMul(value, builder_.getInt64(static_cast<uint64_t>(term.coef)));
    sum = sum ? builder_.CreateAdd(sum, value) : value;
  }
  llvm::Value* constant = builder_.getInt64(static_cast<uint64_t>(expanded.constant()));
  if (!sum) return constant;
  return expanded.constant() == 0 ? sum : builder_.CreateAdd(sum, constant);
}

Result<llvm::Value*> FunctionEmitter::VectorIndex(const Linear& e) {
  Linear x = vars_.ExpandAxes(e);
  llvm::Value* sum =
      builder_.CreateVectorSplat(static_cast<unsigned>(lanes_), builder_.getInt64(static_cast<uint64_t>(x.constant())));
  for (const Term& term : x.terms()) {
    llvm::Value* value = nullptr;
    const Var var = vars_[term.var];
    if (auto known = unrolled_.find(term.var); known != unrolled_.end()) {
      value = Splat(builder_.getInt64(static_cast<uint64_t>(known->second)));
    } else if (term.var == lane_var_) {
      std::vector<llvm::Constant*> iota;
      for (int lane = 0; lane < lanes_; ++lane)
        iota.push_back(builder_.getInt64(static_cast<uint64_t>(std::min(lane, active_ - 1))));
      value = llvm::ConstantVector::get(iota);
    } else if (var.kind == VarKind::kOpaque) {
      value = HONE_TRY(EmitValue(program_.OpaqueValue(var)));
      value = Widen(value);
      value = builder_.CreateSExtOrTrunc(
          value, llvm::FixedVectorType::get(builder_.getInt64Ty(), static_cast<unsigned>(lanes_)));
    } else if (var.kind == VarKind::kLoop || var.kind == VarKind::kSize) {
      value = Splat(AtomValue(term.var));
    } else {
      llvm::Value* a = HONE_TRY(VectorIndex(var.a));
      switch (var.kind) {
        case VarKind::kFloorDiv: {
          llvm::Value* divisor = Splat(builder_.getInt64(static_cast<uint64_t>(var.divisor)));
          llvm::Value* quotient = builder_.CreateSDiv(a, divisor);
          llvm::Value* below = builder_.CreateICmpSLT(a, builder_.CreateMul(quotient, divisor));
          value = builder_.CreateAdd(quotient, builder_.CreateSExt(below, a->getType()));
          break;
        }
        case VarKind::kMin:
          value = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, HONE_TRY(VectorIndex(var.b)));
          break;
        case VarKind::kMax:
          value = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, HONE_TRY(VectorIndex(var.b)));
          break;
        case VarKind::kProduct: value = builder_.CreateMul(a, HONE_TRY(VectorIndex(var.b))); break;
        default: HONE_CHECK(!"a derived index");
      }
    }
    if (term.coef != 1) value = builder_.CreateMul(value, Splat(builder_.getInt64(static_cast<uint64_t>(term.coef))));
    sum = builder_.CreateAdd(sum, value);
  }
  return sum;
}

// Base pointer plus the terms of `runtime`, outermost loop first, each partial sum computed once where it is known.
llvm::Value* FunctionEmitter::PointerTo(BufferId buffer, const Linear& runtime, bool* uses_current) {
  const Buffer& b = program_.buffer(buffer);
  std::vector<std::pair<size_t, Term>> terms;
  for (const Term& term : runtime.terms()) terms.emplace_back(DepthOf(term.var), term);
  std::sort(terms.begin(), terms.end(), [](const auto& x, const auto& y) {
    return std::pair(x.first, x.second.var) < std::pair(y.first, y.second.var);
  });
  *uses_current = !terms.empty() && terms.back().first + 1 >= scopes_.size();
  llvm::Value* pointer = bases_[buffer];
  HONE_CHECK(pointer != nullptr);
  size_t computed_in = 0;  // the scope of `pointer`
  std::vector<std::pair<VarId, int64_t>> key;
  for (const auto& [depth, term] : terms) {
    key.emplace_back(term.var, term.coef);
    const size_t start_in = std::exchange(computed_in, depth);
    bool here = depth >= scopes_.size();
    if (!here) {
      auto known = scopes_[depth].pointers.find({buffer, key});
      if (known != scopes_[depth].pointers.end()) {
        pointer = known->second;
        continue;
      }
    }
    const int64_t stride = term.coef * ByteSize(b.dtype);
    if (!here && scopes_[depth].var == term.var && start_in < depth) {
      pointer = Walking(scopes_[depth], pointer, stride);
    } else {
      llvm::Value* value = AtomValue(term.var);
      llvm::IRBuilderBase::InsertPointGuard restore(builder_);
      if (!here) builder_.SetInsertPoint(scopes_[depth].anchor);
      value = builder_.CreateMul(value, builder_.getInt64(static_cast<uint64_t>(stride)));
      pointer = builder_.CreateGEP(builder_.getInt8Ty(), pointer, value);
    }
    if (!here) scopes_[depth].pointers[{buffer, key}] = pointer;
  }
  return pointer;
}

llvm::Value* FunctionEmitter::Walking(OpenScope& scope, llvm::Value* start, int64_t stride) {
  llvm::IRBuilderBase::InsertPointGuard restore(builder_);
  auto* counter = llvm::cast<llvm::PHINode>(scope.counter);
  llvm::Value* begin = counter->getIncomingValue(0);
  builder_.SetInsertPoint(scope.preheader);
  if (auto* constant = llvm::dyn_cast<llvm::ConstantInt>(begin); !constant || !constant->isZero())
    start = builder_.CreateGEP(builder_.getInt8Ty(), start,
                               builder_.CreateMul(begin, builder_.getInt64(static_cast<uint64_t>(stride))));
  builder_.SetInsertPoint(counter);
  llvm::PHINode* pointer = builder_.CreatePHI(start->getType(), 2);
  pointer->addIncoming(start, counter->getIncomingBlock(0));
  scope.walking.emplace_back(pointer, stride);
  return pointer;
}

int64_t FunctionEmitter::AlignmentOf(BufferId buffer, const Linear& runtime) const {
  const Buffer& b = program_.buffer(buffer);
  int64_t bytes = ByteSize(b.dtype);
  if (b.scope == Scope::kDefault) return bytes;
  int64_t alignment = std::gcd<int64_t>(64, runtime.constant() * bytes);
  for (const Term& term : runtime.terms()) alignment = std::gcd(alignment, term.coef * bytes);
  return alignment == 0 ? 64 : alignment;
}

FunctionEmitter::Mask FunctionEmitter::ResolveGuard(const std::vector<Linear>& guard) {
  Mask mask;
  for (const Linear& condition : guard) {
    Form form = Resolve(condition);
    if (!form.irregular) {
      Interval range = vars_.Range(form.runtime);
      int64_t span = form.lane * (std::max(active_, 1) - 1);
      if (range.lo + std::min<int64_t>(0, span) >= 0) continue;
      if (range.hi + std::max<int64_t>(0, span) < 0) {
        mask.never = true;
        return mask;
      }
      if (form.lane == 0) {
        llvm::Value* holds = builder_.CreateICmpSGE(ScalarIndex(form.runtime), builder_.getInt64(0));
        mask.scalar = mask.scalar ? builder_.CreateAnd(mask.scalar, holds) : holds;
        continue;
      }
    }
    llvm::Value* lanes = nullptr;
    std::pair key{KeyOf(form.runtime), std::pair(form.runtime.constant(), form.lane * 1024 + lanes_)};
    if (auto known = masks_.find(key); !form.irregular && known != masks_.end()) {
      lanes = known->second;
    } else if (form.irregular) {
      Result<llvm::Value*> index = VectorIndex(condition);
      HONE_CHECK(index.has_value());
      lanes = builder_.CreateICmpSGE(*index, llvm::Constant::getNullValue((*index)->getType()));
    } else {
      // base + lane·i ≥ 0 in 32 bits where the range allows: half the registers.
      Interval range = vars_.Range(form.runtime);
      int64_t span = form.lane * (lanes_ - 1);
      bool narrow =
          range.lo + std::min<int64_t>(0, span) > INT32_MIN && range.hi + std::max<int64_t>(0, span) < INT32_MAX;
      llvm::Type* type = narrow ? builder_.getInt32Ty() : builder_.getInt64Ty();
      std::vector<llvm::Constant*> steps;
      for (int lane = 0; lane < lanes_; ++lane) steps.push_back(llvm::ConstantInt::getSigned(type, form.lane * lane));
      llvm::Value* base = Splat(builder_.CreateTrunc(ScalarIndex(form.runtime), type));
      lanes = builder_.CreateICmpSGE(builder_.CreateAdd(base, llvm::ConstantVector::get(steps)),
                                     llvm::Constant::getNullValue(base->getType()));
      masks_[key] = lanes;
    }
    mask.lanes = mask.lanes ? builder_.CreateAnd(mask.lanes, lanes) : lanes;
  }
  return mask;
}

std::vector<bool> FunctionEmitter::KnownLanes(const Mask& mask) const {
  std::vector<bool> on(static_cast<size_t>(lanes_), false);
  for (int lane = 0; lane < active_; ++lane) {
    if (!mask.lanes) {
      on[static_cast<size_t>(lane)] = true;
      continue;
    }
    auto* known = llvm::dyn_cast<llvm::Constant>(mask.lanes);
    llvm::Constant* bit = known ? known->getAggregateElement(static_cast<unsigned>(lane)) : nullptr;
    if (!bit) return {};
    on[static_cast<size_t>(lane)] = bit->isOneValue();
  }
  if (std::find(on.begin(), on.end(), true) == on.end()) return {};
  return on;
}

llvm::Value* FunctionEmitter::AllLanes(const Mask& mask) {
  llvm::Value* all = mask.lanes;
  if (mask.scalar) {
    llvm::Value* splat = Splat(mask.scalar);
    all = all ? builder_.CreateAnd(all, splat) : splat;
  }
  if (active_ < lanes_) {
    std::vector<llvm::Constant*> on;
    for (int lane = 0; lane < lanes_; ++lane) on.push_back(builder_.getInt1(lane < active_));
    llvm::Value* active = llvm::ConstantVector::get(on);
    all = all ? builder_.CreateAnd(all, active) : active;
  }
  if (!all) all = Splat(builder_.getTrue());
  return all;
}

}  // namespace hone
