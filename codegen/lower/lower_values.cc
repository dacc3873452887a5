// Expressions of a stage as values of the loop program: indices become linear forms, loads find their storage and get a
// guard where nothing proves them in bounds.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "codegen/lower/lower_internal.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"

namespace hone::lowering {
namespace {

void Mix(uint64_t& hash, uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15 + (hash >> 29); }

void Mix(uint64_t& hash, const std::vector<Linear>& forms) {
  for (const Linear& form : forms) {
    Mix(hash, static_cast<uint64_t>(form.constant()));
    for (const Term& term : form.terms()) Mix(hash, static_cast<uint64_t>(term.coef * 4096 + term.var.value));
  }
}

uint64_t HashOf(const ValueNode& node) {
  uint64_t hash =
      static_cast<uint64_t>(node.kind) * 4096 + static_cast<uint64_t>(node.op) * 64 + static_cast<uint64_t>(node.type);
  Mix(hash, static_cast<uint64_t>(node.int_value));
  Mix(hash, std::bit_cast<uint64_t>(node.float_value));
  Mix(hash, static_cast<uint64_t>(node.buffer.value));
  Mix(hash, static_cast<uint64_t>(node.prefetch));
  Mix(hash, static_cast<uint64_t>(node.prefetch_step));
  for (const ValuePtr& arg : node.args) Mix(hash, reinterpret_cast<uintptr_t>(arg.get()));
  Mix(hash, node.index);
  Mix(hash, node.guard);
  return hash;
}

bool Same(const ValueNode& a, const ValueNode& b) {
  return a.kind == b.kind && a.op == b.op && a.type == b.type && a.int_value == b.int_value &&
         std::bit_cast<uint64_t>(a.float_value) == std::bit_cast<uint64_t>(b.float_value) && a.buffer == b.buffer &&
         a.args == b.args && a.index == b.index && a.guard == b.guard && a.prefetch == b.prefetch &&
         a.prefetch_step == b.prefetch_step && a.prefetch_at == b.prefetch_at;
}

// What is known of an index that is no index arithmetic: the range of the type that it was read in.
Interval RangeOfData(const Expr& e) {
  if (e.op() != Op::kCast) return {-kUnbounded, kUnbounded};
  const DTypeTraits& type = TraitsOf(e.arg(0).type());
  if (type.is_float || type.bytes >= ByteSize(DType::kI64)) return {-kUnbounded, kUnbounded};
  return {type.lowest, type.highest};
}

}  // namespace

// Equal values are one node: what uses a value twice does not say it twice.
ValuePtr Lowering::Node(ValueNode node) {
  const uint64_t hash = HashOf(node);
  auto [begin, end] = nodes_.equal_range(hash);
  for (auto known = begin; known != end; ++known)
    if (Same(*known->second, node)) return known->second;
  return nodes_.emplace(hash, std::make_shared<const ValueNode>(std::move(node)))->second;
}

ValuePtr Lowering::Constant(DType type, int64_t int_value, double float_value) {
  return Node(ValueNode::Constant(type, int_value, float_value));
}

Result<Linear> Lowering::IndexForm(StageId stage, const Expr& e, bool loads_data) {
  VarTable& vars = program_.vars;
  auto form = [&](size_t arg) { return IndexForm(stage, e.arg(arg), loads_data); };
  switch (e.op()) {
    case Op::kInt: return Linear(e.int_value());
    case Op::kSize: return ExtentForm(e);
    case Op::kAxis: return Linear::Of(states_[stage].axes[e.axis()].var);
    case Op::kAdd: return HONE_TRY(form(0)) + HONE_TRY(form(1));
    case Op::kSub: return HONE_TRY(form(0)) - HONE_TRY(form(1));
    case Op::kMul: return vars.Product(HONE_TRY(form(0)), HONE_TRY(form(1)));
    case Op::kMin: return vars.Min(HONE_TRY(form(0)), HONE_TRY(form(1)));
    case Op::kMax: return vars.Max(HONE_TRY(form(0)), HONE_TRY(form(1)));
    case Op::kAbs: {
      Linear a = HONE_TRY(form(0));
      return vars.Max(a, a * -1);
    }
    case Op::kFloorDiv:
    case Op::kMod: {
      Linear a = HONE_TRY(form(0)), b = HONE_TRY(form(1));
      if (!b.IsConstant()) return DynamicQuotient(e.op(), a, b, loads_data);
      return e.op() == Op::kMod ? vars.Mod(a, b.constant()) : vars.DivFloor(a, b.constant());
    }
    default: break;
  }
  return OpaqueIndex(loads_data ? HONE_TRY(MakeValue(stage, e)) : nullptr, RangeOfData(e));
}

// What is no index arithmetic (a cast of data, a select): known by its range alone.
Linear Lowering::OpaqueIndex(ValuePtr value, const Interval& range) {
  int payload = -1;
  if (value) {
    program_.opaque.push_back(std::move(value));
    payload = static_cast<int>(program_.opaque.size()) - 1;
  }
  return Linear::Of(program_.vars.Add({VarKind::kOpaque, fmt::format("data{}", payload), range, 0, 0, 1, payload}));
}

ValuePtr Lowering::ValueOfIndex(Linear form) {
  if (form.IsConstant()) return Constant(DType::kI64, form.constant(), 0);
  return Node(ValueNode::Index(std::move(form)));
}

Result<Linear> Lowering::DynamicQuotient(Op op, const Linear& a, const Linear& b, bool loads_data) {
  const Interval of = program_.vars.Range(a), by = program_.vars.Range(b);
  if (by.lo < 1) return Error{ErrorKind::kUnsupported, "an index is divided by what may be below 1", ""};
  Interval range{0, by.hi - 1};
  if (op == Op::kFloorDiv) {
    range = {std::min(FloorDiv(of.lo, by.lo), FloorDiv(of.lo, by.hi)),
             std::max(FloorDiv(of.hi, by.lo), FloorDiv(of.hi, by.hi))};
  } else if (of.lo >= 0) {
    range.hi = std::min(range.hi, of.hi);
  }
  if (!loads_data) return OpaqueIndex(nullptr, range);
  return OpaqueIndex(Node(ValueNode::Operation(op, DType::kI64, {ValueOfIndex(a), ValueOfIndex(b)})), range);
}

ValuePtr Lowering::LoadBuffer(BufferId buffer, DType type, std::vector<Linear> index) {
  return Node(ValueNode::Load(type, buffer, std::move(index)));
}

Result<void> Lowering::GuardInside(std::vector<Linear>& guard, const Linear& index, const Linear& extent) {
  if (!program_.vars.ProvenNonNegative(index)) guard.push_back(index);
  Linear room = extent - Linear(1) - index;
  // Of a dynamic extent the loops know more than the axis' range says.
  const bool is_inside = program_.vars.ProvenNonNegative(room) ||
                         (!extent.IsConstant() && program_.vars.ProvenNonNegative(program_.vars.ExpandAxes(room)));
  if (!is_inside) guard.push_back(room);
  return {};
}

std::vector<Linear> Lowering::StorageIndex(StageId stage, const std::vector<Linear>& coordinates) {
  const StageSchedule& schedule = scheduled_.stages[stage];
  const StageState& state = states_[stage];
  VarTable& vars = program_.vars;
  if (IsInOutput(stage)) return coordinates;
  std::vector<Linear> local;
  for (size_t d = 0; d < coordinates.size(); ++d)
    local.push_back(vars.ExpandAxes(coordinates[d] - state.axes[AxisId(d)].origin));
  std::vector<Linear> index;
  if (schedule.buffers > 1) {
    const StageId outer = schedule.attach_stage;
    const VarId trip = states_[outer].loops[LoopIndex(outer, schedule.attach_loop)].var;
    index.push_back(vars.Mod(Linear::Of(trip), schedule.buffers));
  }
  if (schedule.layout.empty()) {
    index.insert(index.end(), local.begin(), local.end());
    return index;
  }
  for (const LayoutDim& dim : schedule.layout) {
    const size_t d = FindAxis(kernel_.stages[stage], dim.axis).index();
    switch (dim.part) {
      case LayoutDim::Part::kWhole: index.push_back(local[d]); break;
      case LayoutDim::Part::kQuotient: index.push_back(vars.DivFloor(local[d], dim.factor)); break;
      case LayoutDim::Part::kRemainder: index.push_back(vars.Mod(local[d], dim.factor)); break;
    }
  }
  return index;
}

Result<ValuePtr> Lowering::MakeLoad(StageId stage, const Expr& load, const Expr* fill) {
  TensorId tensor_id = load.tensor();
  const Tensor& tensor = kernel_.tensors[tensor_id];
  std::vector<Linear> coordinates;
  for (const Expr& arg : load.args()) coordinates.push_back(HONE_TRY(IndexForm(stage, arg)));

  ValueNode node = ValueNode::Load(tensor.dtype, {}, {});
  const bool in_operand = tensor.kind != TensorKind::kIntermediate;
  const StageId producer = in_operand ? StageId() : FindStage(kernel_, tensor.name);
  if (in_operand || fill || IsInOutput(producer))
    for (size_t d = 0; d < coordinates.size(); ++d)
      HONE_TRY(GuardInside(node.guard, coordinates[d], ExtentForm(tensor.shape[d])));
  if (in_operand) {
    node.buffer = operand_buffers_[tensor_id];
    node.index = std::move(coordinates);
  } else {
    node.buffer = states_[producer].buffer;
    node.index = StorageIndex(producer, coordinates);
  }
  const auto& prefetches = scheduled_.stages[stage].prefetches;
  if (auto ahead = prefetches.find(tensor.name); ahead != prefetches.end()) {
    node.prefetch = ahead->second;
    if (node.prefetch == kNextPanel) PrefetchNextPanel(stage, node);
  }
  if (!node.guard.empty()) node.args.push_back(fill ? HONE_TRY(MakeValue(stage, *fill)) : Constant(tensor.dtype, 0, 0));
  return Node(std::move(node));
}

Result<ValuePtr> Lowering::MakeValue(StageId stage, const Expr& e) {
  switch (e.op()) {
    case Op::kLoad: return MakeLoad(stage, e, nullptr);
    case Op::kPad: return MakeLoad(stage, e.arg(0), &e.arg(1));
    case Op::kInt:
    case Op::kFloat: return Constant(e.type(), e.int_value(), e.float_value());
    default: break;
  }
  if (e.type() == DType::kI64 && e.op() != Op::kCast && e.op() != Op::kSelect) {
    return ValueOfIndex(HONE_TRY(IndexForm(stage, e)));
  }
  ValueNode node = ValueNode::Operation(e.op(), e.type(), {});
  // Conditions on indices that are always or never true choose here.
  if (e.op() == Op::kSelect || ((e.op() == Op::kLt || e.op() == Op::kLe) && e.arg(0).type() == DType::kI64)) {
    if (e.op() != Op::kSelect) {
      Result<Linear> a = IndexForm(stage, e.arg(0)), b = IndexForm(stage, e.arg(1));
      if (a && b) {
        Linear room = *b - *a - Linear(e.op() == Op::kLt ? 1 : 0);
        Interval range = program_.vars.Range(room);
        if (range.lo >= 0) return Constant(DType::kBool, 1, 0);
        if (range.hi < 0) return Constant(DType::kBool, 0, 0);
        return Node(ValueNode::Guard(std::move(room)));
      }
    } else {
      ValuePtr condition = HONE_TRY(MakeValue(stage, e.arg(0)));
      if (condition->IsConstant()) return MakeValue(stage, e.arg(condition->int_value ? 1 : 2));
      node.args = {condition, HONE_TRY(MakeValue(stage, e.arg(1))), HONE_TRY(MakeValue(stage, e.arg(2)))};
      return Node(std::move(node));
    }
  }
  for (const Expr& arg : e.args()) node.args.push_back(HONE_TRY(MakeValue(stage, arg)));
  if (e.op() == Op::kAnd || e.op() == Op::kOr) {
    for (size_t i = 0; i < 2; ++i) {
      if (!node.args[i]->IsConstant()) continue;
      bool decides = (node.args[i]->int_value != 0) == (e.op() == Op::kOr);
      return decides ? node.args[i] : node.args[1 - i];
    }
  }
  return Node(std::move(node));
}

}  // namespace hone::lowering
