// Builds the loop nests of a scheduled kernel. See lower.h for what lowering does as a whole.
#include "codegen/lower/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <unordered_set>

#include "base/check.h"
#include "codegen/instructions.h"
#include "codegen/lower/lower_internal.h"
#include "codegen/lower/place_barriers.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/op_traits.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace lowering {
namespace {

StmtPtr MakeStore(BufferId buffer, std::vector<Linear> index, ValuePtr value) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = Stmt::Kind::kStore;
  stmt->buffer = buffer;
  stmt->index = std::move(index);
  stmt->value = std::move(value);
  return stmt;
}

ValuePtr FromExpr(const Expr& constant) {
  return std::make_shared<const ValueNode>(
      ValueNode::Constant(constant.type(), constant.int_value(), constant.float_value()));
}

ValuePtr NonNegative(const Linear& form) { return std::make_shared<const ValueNode>(ValueNode::Guard(form)); }

ValuePtr Select(ValuePtr condition, ValuePtr a, ValuePtr b) {
  DType type = a->type;
  return std::make_shared<const ValueNode>(
      ValueNode::Operation(Op::kSelect, type, {std::move(condition), std::move(a), std::move(b)}));
}

// Loops around a statement that are none in the code.
struct Copies {
  std::vector<VarId> unrolled;  // numbers in each copy of the code
  VarId lane;                   // of vectors, of so many lanes
  int64_t lanes = 1;
};

// Instructions that read or write one element of the buffer in each lane. Lanes that lie side by side are one access,
// those a few elements apart (machine_model.h) as many as there are elements between them, others one each. A device's
// compiler has its own way with them.
int64_t CountAccess(const LoopProgram& program, BufferId buffer, const std::vector<Linear>& index,
                    const Copies& copies) {
  constexpr int64_t kWidestStride = 4;
  if (!copies.lane || program.for_gpu || program.InRegisters(buffer)) return 1;
  const int64_t stride = std::abs(program.vars.ExpandAxes(program.FlatIndex(buffer, index)).CoefOf(copies.lane));
  return std::max<int64_t>(1, stride <= kWidestStride ? stride : copies.lanes);
}

// Operations of one statement, each counted once. What is chosen between by unrolled variables is not there twice.
class ValueCounter {
 public:
  ValueCounter(const LoopProgram& program, const Copies& copies) : program_(program), copies_(copies) {}

  int64_t Count(const ValuePtr& value) {
    if (!seen_.insert(value.get()).second) return 0;
    if (value->Is(Op::kSelect) && value->args[0]->Is(Op::kEq) && IsKnown(*value->args[0]))
      return std::max(Count(value->args[1]), Count(value->args[2]));
    if (value->kind == ValueNode::Kind::kGuard) return 2;  // an index and its comparison
    const bool is_long = value->kind == ValueNode::Kind::kOperation && IsElementary(value->op);
    int64_t count = is_long ? static_cast<int64_t>(kMeanInstructions) : 1;
    if (value->kind == ValueNode::Kind::kLoad) count = CountAccess(program_, value->buffer, value->index, copies_);
    for (const ValuePtr& arg : value->args) count += Count(arg);
    return count;
  }

 private:
  bool IsKnown(const ValueNode& comparison) const {
    for (const ValuePtr& side : comparison.args) {
      if (side->IsConstant()) continue;
      if (side->kind != ValueNode::Kind::kIndex) return false;
      const Linear form = program_.vars.ExpandAxes(side->index[0]);
      for (const Term& term : form.terms())
        if (std::find(copies_.unrolled.begin(), copies_.unrolled.end(), term.var) == copies_.unrolled.end())
          return false;
    }
    return true;
  }

  const LoopProgram& program_;
  const Copies& copies_;
  std::unordered_set<const ValueNode*> seen_;
};

int64_t CountStatement(const LoopProgram& program, const Stmt& stmt, Copies& around) {
  if (stmt.kind == Stmt::Kind::kStore)
    return CountAccess(program, stmt.buffer, stmt.index, around) + ValueCounter(program, around).Count(stmt.value);
  // A warp's instruction: itself, and words of its operands. A group's: its operands' descriptors.
  if (stmt.kind == Stmt::Kind::kInstruction && MeaningOf(*stmt.instruction).is_of_warp) {
    const InstructionMeaning& meaning = MeaningOf(*stmt.instruction);
    return stmt.operands.empty() ? meaning.rows * meaning.lanes / meaning.threads : meaning.is_of_group ? 3 : 7;
  }
  const int64_t trips = stmt.kind == Stmt::Kind::kLoop ? std::max<int64_t>(1, program.vars.Range(stmt.extent).hi) : 1;
  const bool is_unrolled = stmt.kind == Stmt::Kind::kLoop && stmt.loop == LoopKind::kUnrolled;
  const bool is_vector = stmt.kind == Stmt::Kind::kLoop && stmt.loop == LoopKind::kVectorized;
  if (is_unrolled) around.unrolled.push_back(stmt.var);
  if (is_vector) around.lane = stmt.var, around.lanes = trips;
  int64_t inside = 0;
  for (const StmtPtr& child : stmt.body) inside += CountStatement(program, *child, around);
  if (is_unrolled) around.unrolled.pop_back();
  if (is_vector) around.lane = {}, around.lanes = 1;
  return is_unrolled ? inside * trips : inside;
}

}  // namespace

int64_t CountInstructions(const LoopProgram& program, const Stmt& stmt) {
  Copies around;
  return CountStatement(program, stmt, around);
}

std::vector<Linear> Lowering::OwnCoordinates(StageId stage) const {
  std::vector<Linear> coordinates;
  for (AxisId axis : kernel_.stages[stage].spatial_ids())
    coordinates.push_back(Linear::Of(states_[stage].axes[axis].var));
  return coordinates;
}

// Storage of the stage's own element; for an operand also the guard that keeps it inside.
Result<std::vector<Linear>> Lowering::OwnIndex(StageId stage, const std::vector<Linear>& coordinates,
                                               std::vector<Linear>* guard) {
  const Stage& s = kernel_.stages[stage];
  if (kernel_.tensors[s.output].kind != TensorKind::kOutput && !IsInOutput(stage))
    return StorageIndex(stage, coordinates);
  for (size_t d = 0; d < coordinates.size(); ++d)
    HONE_TRY(GuardInside(*guard, coordinates[d], ExtentForm(s.axes[d].extent)));
  return coordinates;
}

StmtPtr Lowering::MakeLoop(StageId stage, size_t index, VarId var) {
  const LoopDim& dim = scheduled_.stages[stage].loops[index];
  const StageState& state = states_[stage];
  const LoopState& loop = state.loops[index];
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = Stmt::Kind::kLoop;
  stmt->var = var;
  stmt->loop = dim.kind;
  stmt->grain = dim.grain;
  stmt->axis = dim.axis;
  stmt->extent = Linear(loop.extent);
  const bool serial = StopsAtTheEnd(dim);
  if (!loop.axis) {
    stmt->extent = loop.exact;
  } else if (serial && state.axes[loop.axis].clamps) {
    // What is left of the axis after the loops already open, in steps of this loop. Tiles that shift are whole.
    const AxisState& axis = state.axes[loop.axis];
    Linear left = axis.extent;
    for (const Term& term : axis.unshifted.terms())
      if (KnownBefore(stage, term.var, index) && !(axis.shifts && std::abs(term.coef) < axis.granule))
        left -= Linear::Of(term.var, term.coef);
    stmt->extent = program_.vars.Min(Linear(loop.extent), program_.vars.DivCeil(left, loop.coef));
  } else if (serial && !loop.exact.IsConstant()) {
    stmt->extent = loop.exact;  // fused with a loop over a dynamic axis
  }
  // Around the loop at which the stage has a register tile, the first trip is told by its number, and always made.
  const bool is_outside = state.tile && index <= LoopIndex(stage, scheduled_.stages[stage].promote_loop);
  if (dim.kind == LoopKind::kSerial && loop.reduces && loop.extent > 1 && !is_outside && !KeepsFrom(stage, index))
    BoundLoop(stage, index, *stmt);
  return stmt;
}

Result<StmtPtr> Lowering::BuildLeaf(StageId stage) {
  const Stage& s = kernel_.stages[stage];
  StageState& state = states_[stage];
  const size_t rank = s.axes.size();
  std::vector<Linear> coordinates = OwnCoordinates(stage), guard;
  ValuePtr value = HONE_TRY(MakeValue(stage, state.has_condition ? s.body.arg(1) : s.body));
  // What unrolled copies decide is whether there is a term at all; the rest chooses among values.
  for (size_t i = 0; i < state.condition.size(); ++i) {
    if (state.held[i]) continue;
    Linear rest = program_.vars.ExpandAxes(state.condition[i]);
    for (size_t l = 0; l < state.loops.size(); ++l)
      if (scheduled_.stages[stage].loops[l].kind == LoopKind::kUnrolled)
        rest = program_.vars.Substitute(rest, [&](VarId var, Linear* at) {
          if (var != state.loops[l].var) return false;
          *at = Linear(0);
          return true;
        });
    if (rest.IsConstant())
      guard.push_back(state.condition[i]);
    else
      value = Select(NonNegative(state.condition[i]), value, FromExpr(s.body.arg(2)));
  }
  for (AxisId a : state.axes.ids()) {
    const AxisState& axis = state.axes[a];
    if (axis.padded <= program_.vars.Range(axis.extent).lo) continue;
    Linear room = axis.min + axis.extent - Linear(1) - Linear::Of(axis.var);
    if (s.Reduces(a)) {
      value = Select(NonNegative(room), value, FromExpr(ReductionIdentity(s.reduction, value->type)));
    } else if (auto tail = scheduled_.stages[stage].tails.find(s.axis(a).name);
               IsInOutput(stage) || (tail != scheduled_.stages[stage].tails.end() && tail->second == Tail::kGuard)) {
      guard.push_back(room);
    }
  }
  StmtPtr store;
  if (state.tile) {
    std::vector<Linear> index;
    for (size_t d = 0; d < rank; ++d) index.push_back(program_.vars.ExpandAxes(coordinates[d]) - state.tile_min[d]);
    store = MakeStore(state.tile, std::move(index), std::move(value));
  } else {
    std::vector<Linear> index = HONE_TRY(OwnIndex(stage, coordinates, &guard));
    store = MakeStore(state.buffer, std::move(index), std::move(value));
  }
  store->guard = std::move(guard);
  store->combine = s.reduction;
  return store;
}

Result<void> Lowering::BuildSpatialCopy(StageId stage, size_t depth, std::vector<StmtPtr>& out,
                                        const std::function<Result<StmtPtr>(const std::vector<Linear>&)>& leaf) {
  const StageState& state = states_[stage];
  std::map<VarId, VarId> copies;
  std::vector<StmtPtr> loops;
  size_t outside = 0;  // of what an instruction on tiles does at once
  auto copied = [&](const Linear& form) {
    return program_.vars.Substitute(program_.vars.ExpandAxes(form), [&](VarId var, Linear* value) {
      auto copy = copies.find(var);
      if (copy == copies.end()) return false;
      *value = Linear::Of(copy->second);
      return true;
    });
  };
  for (size_t l = depth; l < state.loops.size(); ++l) {
    const LoopState& loop = state.loops[l];
    if (loop.reduces || loop.extent <= 1) continue;
    VarId var = program_.vars.AddLoop(program_.vars[loop.var].name + "'", loop.extent);
    StmtPtr stmt = MakeLoop(stage, l, var);
    stmt->extent = copied(stmt->extent);
    copies[loop.var] = var;
    loops.push_back(std::move(stmt));
    if (l < InstructionDepth(stage)) outside = loops.size();
  }
  std::vector<Linear> coordinates;
  for (const Linear& coordinate : OwnCoordinates(stage)) coordinates.push_back(copied(coordinate));
  StmtPtr inner = HONE_TRY(leaf(coordinates));
  while (!loops.empty()) {
    StmtPtr stmt = std::move(loops.back());
    loops.pop_back();
    stmt->body.push_back(std::move(inner));
    inner = std::move(stmt);
    const Instruction* instruction = OnTiles(stage);
    if (instruction == nullptr) instruction = OfWarp(stage);
    if (instruction != nullptr && loops.size() == outside) inner = HONE_TRY(WrapTile(*instruction, std::move(inner)));
  }
  out.push_back(std::move(inner));
  return {};
}

// Where a reduction starts: its identity, or, with a tile inside outer reduction loops, what those left behind.
Result<void> Lowering::BuildInit(StageId stage, size_t depth, std::vector<StmtPtr>& out, bool into_tile) {
  const Stage& s = kernel_.stages[stage];
  const StageState& state = states_[stage];
  DType type = kernel_.tensors[s.output].dtype;
  return BuildSpatialCopy(stage, depth, out, [&](const std::vector<Linear>& coordinates) -> Result<StmtPtr> {
    ValuePtr start = FromExpr(ReductionIdentity(s.reduction, type));
    std::vector<Linear> guard;
    std::vector<Linear> index = HONE_TRY(OwnIndex(stage, coordinates, &guard));
    if (!into_tile) {
      StmtPtr store = MakeStore(state.buffer, std::move(index), start);
      store->guard = std::move(guard);
      return store;
    }
    Linear outer(0);  // sum of the enclosing reduction loops' counters: zero on the first trip only
    for (size_t l = 0; l < depth; ++l)
      if (state.loops[l].reduces && state.loops[l].extent > 1) outer += Linear::Of(state.loops[l].var);
    if (!outer.IsConstant()) {
      ValueNode load = ValueNode::Load(type, state.buffer, std::move(index));
      load.guard = std::move(guard);
      if (!load.guard.empty()) load.args.push_back(start);
      start = Select(NonNegative(outer - Linear(1)), std::make_shared<const ValueNode>(std::move(load)), start);
    }
    std::vector<Linear> at;
    for (size_t d = 0; d < coordinates.size(); ++d) at.push_back(coordinates[d] - state.tile_min[d]);
    return MakeStore(state.tile, std::move(at), start);
  });
}

// What the lanes of a run reduced, each some terms, becomes all of it in every one of them.
Result<void> Lowering::BuildAcrossLanes(StageId stage, size_t depth, std::vector<StmtPtr>& out) {
  const Stage& s = kernel_.stages[stage];
  const StageState& state = states_[stage];
  const auto& loops = scheduled_.stages[stage].loops;
  const auto lanes = std::ranges::find_if(
      loops, [](const LoopDim& loop) { return loop.kind == LoopKind::kBound && loop.axis == LaunchAxis::kLaneX; });
  if (lanes == loops.end()) return {};
  const int64_t count = state.loops[static_cast<size_t>(lanes - loops.begin())].extent;
  return BuildSpatialCopy(stage, depth, out, [&](const std::vector<Linear>& coordinates) -> Result<StmtPtr> {
    std::vector<Linear> at, guard;
    if (state.tile)
      for (size_t d = 0; d < coordinates.size(); ++d) at.push_back(coordinates[d] - state.tile_min[d]);
    else
      at = HONE_TRY(OwnIndex(stage, coordinates, &guard));
    const BufferId buffer = state.tile ? state.tile : state.buffer;
    const DType type = kernel_.tensors[s.output].dtype;
    StmtPtr store = MakeStore(buffer, at, LoadBuffer(buffer, type, at));
    store->combine = s.reduction;
    store->across_lanes = count;
    return store;
  });
}

Result<void> Lowering::BuildWriteBack(StageId stage, size_t depth, std::vector<StmtPtr>& out) {
  const Stage& s = kernel_.stages[stage];
  const StageState& state = states_[stage];
  DType type = kernel_.tensors[s.output].dtype;
  return BuildSpatialCopy(stage, depth, out, [&](const std::vector<Linear>& coordinates) -> Result<StmtPtr> {
    std::vector<Linear> at, guard;
    for (size_t d = 0; d < coordinates.size(); ++d) at.push_back(coordinates[d] - state.tile_min[d]);
    std::vector<Linear> index = HONE_TRY(OwnIndex(stage, coordinates, &guard));
    StmtPtr store = MakeStore(state.buffer, std::move(index), LoadBuffer(state.tile, type, std::move(at)));
    store->guard = std::move(guard);
    return store;
  });
}

// Loop number `depth` and what is inside; where it pays, once for each piece of an axis.
Result<void> Lowering::BuildLevel(StageId stage, size_t depth, bool initialised, std::vector<StmtPtr>& out) {
  if (std::optional<Pieces> pieces = PiecesInside(stage, depth)) {
    return BuildPieces(stage, depth, pieces->axis, pieces->borders, out);
  }
  return BuildLoops(stage, depth, initialised, out);
}

Result<void> Lowering::BuildLoops(StageId stage, size_t depth, bool initialised, std::vector<StmtPtr>& out) {
  const Stage& s = kernel_.stages[stage];
  const StageState& state = states_[stage];
  const bool starts = s.reduction != Reduction::kNone && !initialised && !state.tile &&
                      (depth == state.loops.size() || state.loops[depth].reduces);
  if (starts) {
    HONE_TRY(BuildInit(stage, depth, out, false));
    initialised = true;
  }
  if (depth == state.loops.size()) {
    out.push_back(HONE_TRY(BuildLeaf(stage)));
    return {};
  }
  std::vector<StageId> ahead;
  std::vector<StmtPtr> copies;
  // What is attached inside this loop comes first in its body.
  StmtPtr loop = MakeLoop(stage, depth, state.loops[depth].var);
  std::vector<StmtPtr>* body = &loop->body;
  auto enter_registers = [&](BufferId buffer) {
    auto scope = std::make_unique<Stmt>();
    scope->kind = Stmt::Kind::kRegisters;
    scope->buffer = buffer;
    body->push_back(std::move(scope));
    body = &body->back()->body;
  };
  for (StageId p : kernel_.stages.ids()) {
    const StageSchedule& producer = scheduled_.stages[p];
    if (producer.attach_stage != stage || producer.attach_loop != scheduled_.stages[stage].loops[depth].path) continue;
    if (producer.buffers > 1) {
      ahead.push_back(p);
      copies.push_back(HONE_TRY(BuildNest(p)));
      continue;
    }
    if (program_.InRegisters(states_[p].buffer) || OfWarp(p)) enter_registers(states_[p].buffer);
    body->push_back(HONE_TRY(BuildNest(p)));
  }
  bool promotes = state.tile && scheduled_.stages[stage].promote_loop == scheduled_.stages[stage].loops[depth].path;
  if (promotes) {
    enter_registers(state.tile);
    HONE_TRY(BuildInit(stage, depth + 1, *body, true));
  }
  HONE_TRY(BuildLevel(stage, depth + 1, initialised || promotes, *body));
  if (promotes) HONE_TRY(BuildAcrossLanes(stage, depth + 1, *body));
  if (promotes) HONE_TRY(BuildWriteBack(stage, depth + 1, *body));
  if (!ahead.empty()) HONE_TRY(CopyAhead(*loop, ahead, std::move(copies), out));
  if (depth == InstructionDepth(stage)) loop = HONE_TRY(WrapInstruction(stage, std::move(loop)));
  out.push_back(std::move(loop));
  return starts ? BuildAcrossLanes(stage, depth, out) : Result<void>();
}

Result<StmtPtr> Lowering::BuildNest(StageId stage) {
  auto block = std::make_unique<Stmt>();
  block->all_threads = EffectiveScope(scheduled_, stage) == Scope::kBlock;
  auto build = [&]() -> Result<void> {
    const std::vector<Part> parts = PartsOf(stage);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts.size() > 1) HONE_TRY(PlacePart(stage, parts[i], i > 0));
      HONE_TRY(FindCondition(stage));
      HONE_TRY(BuildLevel(stage, 0, false, block->body));
    }
    return {};
  };
  if (Result<void> built = build(); !built)
    return std::move(built).error().Context(kernel_.tensors[kernel_.stages[stage].output].name);
  return block;
}

Result<void> Lowering::CheckInstructionCount() const {
  int64_t count = 0;
  for (const auto* nests : {&program_.entry, &program_.pack})
    for (const StmtPtr& nest : *nests) count += CountInstructions(program_, *nest);
  if (count > limits_.instructions)
    return Error{ErrorKind::kLimit,
                 fmt::format("the schedule unrolls to about {} instructions, at most {} are allowed: unroll less",
                             count, limits_.instructions),
                 ""};
  return {};
}

Result<LoopProgram> Lowering::Run() {
  program_.kernel = kernel_;
  program_.for_gpu = IsForGpu(scheduled_);
  for (const Tensor& tensor : kernel_.tensors)
    if (!TraitsOf(tensor.dtype).is_computed)
      return Error{ErrorKind::kUnsupported,
                   fmt::format("{} is {}: not on this target yet; use f32, f64, i32, i8 or bool", tensor.name,
                               Name(tensor.dtype)),
                   ""};
  for (const Size& size : kernel_.sizes)
    program_.size_vars.push_back(
        size.is_constant() ? VarId() : program_.vars.Add({VarKind::kSize, size.name, {size.lo, size.hi}, 0, 0, 1, -1}));

  operand_buffers_ = IdVector<TensorId, BufferId>(kernel_.tensors.size());
  for (size_t i = 0; i < kernel_.operands.size(); ++i) {
    const Tensor& tensor = kernel_.tensors[kernel_.operands[i]];
    Buffer buffer;
    buffer.name = tensor.name;
    buffer.dtype = tensor.dtype;
    buffer.scope = Scope::kDefault;
    buffer.operand = static_cast<int>(i);
    buffer.elements = 1;
    buffer.strides.resize(tensor.shape.size());
    for (size_t d = tensor.shape.size(); d-- > 0;) {
      buffer.strides[d] = buffer.elements;
      buffer.elements *= UpperExtent(kernel_, tensor.shape[d]);
      if (d > 0 && LowerExtent(kernel_, tensor.shape[d]) != UpperExtent(kernel_, tensor.shape[d]))
        return Error{ErrorKind::kUnsupported,
                     fmt::format("dimension {} of {} is dynamic: only the first one may be", d, tensor.name), ""};
    }
    for (const Expr& extent : tensor.shape) buffer.extents.push_back(UpperExtent(kernel_, extent));
    operand_buffers_[kernel_.operands[i]] = program_.buffers.Add(std::move(buffer));
  }

  states_ = IdVector<StageId, StageState>(kernel_.stages.size());
  for (StageId stage = kernel_.stages.last(); stage; --stage)
    if (Result<void> placed = PlaceStage(stage); !placed)
      return std::move(placed).error().Context(kernel_.tensors[kernel_.stages[stage].output].name);
  for (StageId stage : kernel_.stages.ids()) {
    if (scheduled_.stages[stage].attach_stage) continue;
    bool packs = scheduled_.stages[stage].scope == Scope::kConst;
    (packs ? program_.pack : program_.entry).push_back(HONE_TRY(BuildNest(stage)));
  }
  HONE_TRY(CheckInstructionCount());
  HONE_TRY(PlanWorkspace());
  if (program_.for_gpu)
    for (StmtPtr& nest : program_.entry) PlaceBarriers(program_, *nest);
  return std::move(program_);
}

}  // namespace lowering

Result<LoopProgram> Lower(const ScheduledKernel& scheduled, const LowerLimits& limits) {
  return lowering::Lowering(scheduled, limits).Run();
}

}  // namespace hone
