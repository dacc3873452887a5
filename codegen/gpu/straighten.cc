// Statements. A loop of threads has fewer trips than the block has threads: those beyond compute what the last trip
// computes, in registers, and store nothing. So there is no condition around anything but stores: all threads come to
// every barrier, and compilers are not led into splitting loops by a thread's number.
#include "codegen/gpu/straighten.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "codegen/gpu/launch_maker.h"
#include "codegen/gpu/merge_loads.h"
#include "codegen/gpu/pack_lanes.h"
#include "codegen/instructions.h"
#include "ir/graph/dtype_traits.h"
#include "ir/steps/step_reader.h"

namespace hone {
namespace straight {
namespace {

constexpr int64_t kMostTileElements = 1024;
// Of NVIDIA's devices: registers of a block's threads, and what a thread takes beside its sums.
constexpr int64_t kRegistersOfBlock = 65536, kOtherRegisters = 32;

// Whether all threads have to come here.
bool NeedsAllThreads(const Stmt& stmt) {
  return stmt.kind == Stmt::Kind::kBarrier || (stmt.kind == Stmt::Kind::kBlock && stmt.all_threads) ||
         (stmt.kind == Stmt::Kind::kStore && stmt.across_lanes > 0) ||
         (stmt.kind == Stmt::Kind::kInstruction && MeaningOf(*stmt.instruction).is_of_warp) ||
         std::any_of(stmt.body.begin(), stmt.body.end(), [](const StmtPtr& child) { return NeedsAllThreads(*child); });
}

bool IsOverSizes(const VarTable& vars, const Linear& form) {
  for (const Term& term : form.terms()) {
    const Var& var = vars[term.var];
    if (var.kind == VarKind::kLoop || var.kind == VarKind::kOpaque) return false;
    if (var.kind != VarKind::kSize && (!IsOverSizes(vars, var.a) || !IsOverSizes(vars, var.b))) return false;
  }
  return true;
}

}  // namespace

ValueId Combine(Builder& builder, Reduction reduction, DType type, ValueId old, ValueId fresh) {
  switch (reduction) {
    case Reduction::kNone: return fresh;
    case Reduction::kSum: return builder.MakeWrapping(type == DType::kBool ? Do::kOr : Do::kAdd, type, {old, fresh});
    case Reduction::kProd: return builder.MakeWrapping(type == DType::kBool ? Do::kAnd : Do::kMul, type, {old, fresh});
    case Reduction::kMax: return builder.Make(Do::kMax, type, {old, fresh});
    case Reduction::kMin: return builder.Make(Do::kMin, type, {old, fresh});
    case Reduction::kMaxOfNumbers: return builder.Make(Do::kLargerNumber, type, {old, fresh});
  }
  return fresh;
}

void LaunchMaker::FindThreads(const Stmt& stmt) {
  if (stmt.kind == Stmt::Kind::kLoop && stmt.loop == LoopKind::kBound && IsThreadAxis(stmt.axis)) {
    int64_t& threads = launch_.block[DimensionOf(stmt.axis)];
    threads = std::max(threads, out_.vars.Range(stmt.extent).hi);
  }
  launch_.block[0] = std::max(launch_.block[0], ThreadsOfRuns(out_.vars, stmt));
  for (const StmtPtr& child : stmt.body) FindThreads(*child);
}

Result<void> LaunchMaker::CheckLimits() const {
  auto refuse = [](std::string message) { return Error{ErrorKind::kLimit, std::move(message), ""}; };
  if (launch_.Threads() > limits_.threads)
    return refuse(fmt::format("{} threads in a block, at most {} are allowed", launch_.Threads(), limits_.threads));
  if (launch_.shared_bytes > limits_.shared_bytes)
    return refuse(
        fmt::format("{} bytes of block storage, at most {} are allowed", launch_.shared_bytes, limits_.shared_bytes));
  if (by_groups_ && launch_.Threads() * (registers_ + kOtherRegisters) > kRegistersOfBlock)
    return refuse(fmt::format("{} threads of {} registers, a block has {}", launch_.Threads(),
                              registers_ + kOtherRegisters, kRegistersOfBlock));
  for (size_t d = 0; d < 3; ++d) {
    const int64_t blocks = out_.vars.Range(launch_.grid[d]).hi;
    if (blocks > limits_.grid[d])
      return refuse(fmt::format("{} blocks along {}, at most {} are allowed", blocks, "xyz"[d], limits_.grid[d]));
  }
  return {};
}

Result<Launch> LaunchMaker::Make(const Stmt& nest, std::string name) {
  launch_.name = std::move(name);
  FindThreads(nest);
  by_groups_ = MultipliesByGroups(nest);
  for (BufferId id : UsedBuffers(program_, nest)) {
    const Buffer& buffer = program_.buffer(id);
    if (buffer.elements > INT32_MAX)
      return Error{ErrorKind::kUnsupported,
                   fmt::format("{} has {} elements: indices on a GPU have 32 bits", buffer.name, buffer.elements), ""};
    if (buffer.scope == Scope::kBlock) {
      launch_.shared.push_back(id);
      launch_.shared_bytes += SharedBytes(buffer);
    } else if (IsInGlobalMemory(buffer)) {
      launch_.params.push_back(id);
    }
  }
  // First those that want the most alignment.
  std::ranges::stable_sort(launch_.shared, std::greater(),
                           [&](BufferId id) { return SharedAlignment(program_.buffer(id)); });
  for (size_t size = 0; size < program_.size_vars.size(); ++size)
    if (program_.size_vars[size]) launch_.sizes.push_back(static_cast<int>(size));
  HONE_TRY(Emit(nest));
  builder_.Finish();
  if (by_groups_) OrderProducts();
  if (limits_.lanes > 1)
    launch_.code = PackLanes(launch_.code, out_, limits_.lanes);
  else
    MergeLoads(launch_.code, out_);
  HONE_TRY(CheckLimits());
  return std::move(launch_);
}

Result<void> LaunchMaker::EmitAll(const std::vector<StmtPtr>& list) {
  for (const StmtPtr& child : list) HONE_TRY(Emit(*child));
  return {};
}

Result<void> LaunchMaker::Emit(const Stmt& stmt) {
  switch (stmt.kind) {
    case Stmt::Kind::kInstruction:
      if (MeaningOf(*stmt.instruction).is_of_warp) return EmitWarp(stmt);
      return EmitAll(stmt.body);  // as what it means
    case Stmt::Kind::kBlock: {
      if (!stmt.all_threads) {
        HONE_TRY(EmitAll(stmt.body));
        if (stmt.ahead > 0) Commit();
        return {};
      }
      if (vector_)
        return Error{ErrorKind::kInvalid, "what a block computes together lies inside a vectorised loop: unroll it",
                     ""};
      const auto has_thread = std::exchange(has_thread_, {});
      const ValueId pending = std::exchange(pending_, ValueId());
      HONE_TRY(EmitAll(stmt.body));
      has_thread_ = has_thread;
      pending_ = pending;
      return {};
    }
    case Stmt::Kind::kRegisters:
      if (program_.buffer(stmt.buffer).scope == Scope::kFragments)
        HONE_TRY(DeclareFragments(stmt));
      else
        HONE_TRY(DeclareTile(stmt.buffer));
      return EmitAll(stmt.body);
    case Stmt::Kind::kBarrier:
      if (by_groups_) builder_.Append({.kind = Node::Kind::kFenceStorage});
      builder_.Barrier();
      for (BufferId id : launch_.shared) builder_.Forget(id);
      return {};
    case Stmt::Kind::kLoop: return EmitLoop(stmt);
    case Stmt::Kind::kStore: return EmitStore(stmt);
  }
  return {};
}

Result<void> LaunchMaker::EmitLoop(const Stmt& stmt) {
  if (stmt.loop == LoopKind::kBound) return EmitBound(stmt);
  if (stmt.RunsOnce() && stmt.ahead == 0) return EmitAll(stmt.body);
  if (stmt.loop == LoopKind::kSerial || stmt.loop == LoopKind::kParallel) return EmitSerial(stmt);
  if (!stmt.extent.IsConstant())
    return Error{ErrorKind::kUnsupported,
                 fmt::format("{} is unrolled or vectorised over a dynamic size", out_.vars[stmt.var].name), ""};
  if (stmt.loop == LoopKind::kVectorized) {
    vector_ = stmt.var;
    lanes_ = stmt.extent.constant();
    HONE_TRY(EmitAll(stmt.body));
    constants_.erase(stmt.var);
    vector_ = {};
    lanes_ = 1;
    return {};
  }
  for (int64_t i = 0; i < stmt.extent.constant(); ++i) {
    constants_[stmt.var] = i;
    HONE_TRY(EmitAll(stmt.body));
  }
  constants_.erase(stmt.var);
  return {};
}

Result<void> LaunchMaker::EmitBound(const Stmt& stmt) {
  if (IsOfSubGroup(stmt.axis)) return EmitOfSubGroup(stmt);
  const size_t d = DimensionOf(stmt.axis);
  const Interval trips = out_.vars.Range(stmt.extent);
  if (!IsThreadAxis(stmt.axis)) {
    const ValueId block = builder_.Given({.what = Do::kBlock, .type = DType::kI32, .number = static_cast<int64_t>(d)});
    known_[stmt.var] = block;
    const Linear extent = out_.vars.ExpandAxes(stmt.extent);
    if (IsOverSizes(out_.vars, extent)) {
      launch_.grid[d] = extent;
      return EmitAll(stmt.body);
    }
    launch_.grid[d] = Linear(trips.hi);
    const ValueId inside = builder_.Make(Do::kLt, DType::kBool, {block, HONE_TRY(IndexValue(stmt.extent))});
    builder_.OpenIf();
    HONE_TRY(EmitAll(stmt.body));
    builder_.CloseIf(inside);
    return {};
  }
  const ValueId thread = builder_.Given(
      {.what = Do::kThread, .type = DType::kI32, .number = static_cast<int64_t>(d), .varies = launch_.block[d] > 1});
  known_[stmt.var] = thread;
  if (d == 0) threads_x_ = stmt.var;
  const ValueId pending = pending_;
  const bool had_thread = std::exchange(has_thread_[d], true);
  if (trips.lo < launch_.block[d]) {
    const ValueId extent = HONE_TRY(IndexValue(stmt.extent));
    pending_ = builder_.And(pending_, builder_.Make(Do::kLt, DType::kBool, {thread, extent}));
    const ValueId last = HONE_TRY(IndexValue(stmt.extent - Linear(1)));
    known_[stmt.var] = builder_.Make(Do::kMin, DType::kI32, {thread, last});
  }
  HONE_TRY(EmitAll(stmt.body));
  pending_ = pending;
  has_thread_[d] = had_thread;
  return {};
}

void LaunchMaker::ForgetStores(const Stmt& stmt) {
  if (stmt.kind == Stmt::Kind::kStore) builder_.Forget(stmt.buffer);
  for (const StmtPtr& child : stmt.body) ForgetStores(*child);
}

Result<void> LaunchMaker::EmitSerial(const Stmt& stmt) {
  const ValueId begin = HONE_TRY(IndexValue(stmt.begin)), end = HONE_TRY(IndexValue(stmt.extent));
  const bool varies = builder_[begin].varies || builder_[end].varies;
  const std::string& name = out_.vars[stmt.var].name;
  if (varies && NeedsAllThreads(stmt))
    return Error{
        ErrorKind::kInvalid,
        fmt::format("threads wait for each other inside {}, of which they make different numbers of trips", name), ""};
  ForgetStores(stmt);
  const ValueId counter = builder_.OpenFor(name, varies);
  known_[stmt.var] = counter;
  if (stmt.ahead > 0) Await(stmt.ahead - 1);
  HONE_TRY(EmitAll(stmt.body));
  if (stmt.ahead > 0 && by_groups_) AwaitProducts(stmt.behind);
  builder_.CloseFor(counter, begin, end);
  if (stmt.behind > 0 && by_groups_) AwaitProducts(0);
  ForgetStores(stmt);
  return {};
}

Result<void> LaunchMaker::DeclareTile(BufferId id) {
  const Buffer& buffer = program_.buffer(id);
  registers_ += buffer.elements * std::max<int64_t>(1, ByteSize(buffer.dtype) / 4);
  if (buffer.elements > kMostTileElements || registers_ > limits_.registers)
    return Error{ErrorKind::kLimit,
                 fmt::format("{} takes {} registers of a thread, with what else is there {}, at most {} are allowed",
                             buffer.name, buffer.elements, registers_, limits_.registers),
                 ""};
  std::vector<ValueId> elements;
  for (int64_t i = 0; i < buffer.elements; ++i) {
    std::string name = buffer.name;
    int64_t rest = i;
    for (size_t d = 0; d < buffer.extents.size(); ++d) {
      if (buffer.extents[d] > 1) name += fmt::format("_{}", rest / buffer.strides[d]);
      rest %= buffer.strides[d];
    }
    elements.push_back(builder_.Declare(
        {.what = Do::kRegister, .type = TypeInCode(buffer.dtype), .number = i, .buffer = id, .name = std::move(name)}));
  }
  tiles_[id] = std::move(elements);
  return {};
}

// Lanes under the same condition are stored together.
Result<void> LaunchMaker::EmitStore(const Stmt& stmt) {
  ValueId alone;  // a condition on threads alone
  if (program_.InRegisters(stmt.buffer)) {
    NoteAgreement(stmt);
  } else {
    alone = pending_;
    // Where no loop says which threads do it, one of them does.
    for (size_t d = 0; d < 3; ++d) {
      if (launch_.block[d] <= 1 || has_thread_[d]) continue;
      const ValueId thread =
          builder_.Given({.what = Do::kThread, .type = DType::kI32, .number = static_cast<int64_t>(d), .varies = true});
      alone = builder_.And(alone, builder_.Make(Do::kEq, DType::kBool, {thread, builder_.Int(0)}));
    }
  }
  std::vector<ValueId> conditions;
  for (int64_t lane = 0; lane < lanes_; ++lane) {
    if (vector_) SetLane(lane);
    ValueId condition = HONE_TRY(AllHold(stmt.guard));
    if (alone) condition = builder_.And(condition, alone);
    conditions.push_back(condition);
  }
  for (int64_t lane = 0; lane < lanes_;) {
    int64_t end = lane + 1;
    const ValueId condition = conditions[static_cast<size_t>(lane)];
    while (end < lanes_ && conditions[static_cast<size_t>(end)] == condition) ++end;
    int64_t holds = 1;
    if (condition && builder_.IsConstant(condition, &holds) && holds == 0) {
      lane = end;
      continue;
    }
    if (condition) builder_.OpenIf();
    HONE_TRY(EmitLanes(stmt, lane, end));
    if (condition) builder_.CloseIf(condition);
    lane = end;
  }
  if (vector_) constants_.erase(vector_);
  return {};
}

Result<void> LaunchMaker::EmitLanes(const Stmt& stmt, int64_t begin, int64_t end) {
  const Buffer& buffer = program_.buffer(stmt.buffer);
  const Linear flat = program_.FlatIndex(stmt.buffer, stmt.index);
  for (int64_t lane = begin; lane < end;) {
    if (vector_) SetLane(lane);
    if (program_.InRegisters(stmt.buffer)) {
      const ValueId element = HONE_TRY(TileElement(stmt.buffer, stmt.index));
      builder_.Assign(element, HONE_TRY(Combined(stmt, {element, 0})));
      ++lane;
      continue;
    }
    if (stmt.ahead > 0 && limits_.has_async_copies) {
      const int64_t copied = HONE_TRY(EmitCopyAhead(stmt, flat, lane, end));
      lane += copied;
      if (copied > 0) continue;
    }
    int64_t first = lane;
    const int width = stmt.combine == Reduction::kNone ? VectorWidth(stmt.buffer, flat, lane, end, &first) : 1;
    const Address at = HONE_TRY(PlaceOfElement(stmt.buffer, flat));
    if (width == 1 || first != lane) {
      builder_.Store(stmt.buffer, at.base, at.offset, ToMemory(HONE_TRY(Combined(stmt, at)), stmt.buffer));
      ++lane;
      continue;
    }
    std::vector<ValueId> elements;
    for (int64_t i = 0; i < width; ++i) {
      SetLane(lane + i);
      elements.push_back(ToMemory(HONE_TRY(ValueOf(*stmt.value)), stmt.buffer));
    }
    builder_.Store(stmt.buffer, at.base, at.offset,
                   builder_.Make(Do::kPack, TypeInMemory(buffer.dtype), std::move(elements)));
    lane += width;
  }
  return {};
}

// What the element is set to. `at`: the register, or the place in memory.
Result<ValueId> LaunchMaker::Combined(const Stmt& stmt, const Address& at) {
  if (stmt.combine == Reduction::kNone) return ValueOf(*stmt.value);
  if (stmt.across_lanes > 0) return AcrossLanes(stmt);
  const DType type = TypeInCode(program_.buffer(stmt.buffer).dtype);
  const DType stored = TypeInMemory(program_.buffer(stmt.buffer).dtype);
  const bool is_register = program_.InRegisters(stmt.buffer) || fragments_.contains(stmt.buffer);
  const ValueId old = is_register ? at.base : FromMemory(builder_.Load(stmt.buffer, stored, 1, at.base, at.offset));
  auto is_product = [&](const ValueNode& value) {
    return stmt.combine == Reduction::kSum && value.Is(Op::kMul) && IsFloat(value.type);
  };
  auto add_product = [&](const ValueNode& value) -> Result<ValueId> {
    const ValueId a = HONE_TRY(ValueOf(*value.args[0])), b = HONE_TRY(ValueOf(*value.args[1]));
    return builder_.Make(Do::kFma, type, {a, b, old});
  };
  const ValueNode& value = *stmt.value;
  if (is_product(value)) return add_product(value);
  // Past the end of a reduction there are no terms.
  if (value.Is(Op::kSelect) && is_product(*value.args[1]) && value.args[2]->IsConstant() &&
      value.args[2]->float_value == 0) {
    const ValueId condition = HONE_TRY(ValueOf(*value.args[0]));
    int64_t holds = 0;
    const bool is_known = builder_.IsConstant(condition, &holds);
    if (is_known && holds == 0) return old;
    const ValueId sum = HONE_TRY(add_product(*value.args[1]));
    return is_known ? sum : builder_.Make(Do::kSelect, type, {condition, sum, old});
  }
  return Combine(builder_, stmt.combine, type, old, HONE_TRY(ValueOf(value)));
}

}  // namespace straight

Result<straight::Program> Straighten(const LoopProgram& program, const straight::DeviceLimits& limits) {
  straight::Program out;
  out.kernel = program.kernel;
  out.vars = program.vars;
  out.size_vars = program.size_vars;
  out.buffers = program.buffers;
  out.workspace_bytes = program.workspace_common;
  for (const auto& [nests, launches] : {std::pair(&program.entry, &out.launches), std::pair(&program.pack, &out.pack)})
    for (const StmtPtr& nest : *nests) {
      // Named by what it writes in the end.
      std::string name = "launch";
      for (const Stmt* at = nest.get();; at = at->body.back().get()) {
        if (at->kind == Stmt::Kind::kStore) name = program.buffer(at->buffer).name;
        if (at->body.empty()) break;
      }
      Result<straight::Launch> launch = straight::LaunchMaker(program, limits, out).Make(*nest, name);
      if (!launch) return std::move(launch).error().Context(name);
      launches->push_back(*std::move(launch));
    }
  return out;
}

}  // namespace hone
