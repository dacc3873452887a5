// Stages whose body chooses by an index: `if(c < 64, x[c], if(c < 96, y[c - 64], …))`, as where tensors are joined
// along an axis. Under a condition that the vector's lanes share, both sides would be computed and one be kept, for
// each vector and each part. Instead the loops inside the one that settles the index are built once for each piece of
// the axis in which all conditions are what they are: inside, values are without choice, loads without guards. Around
// each piece stands a loop that is passed through once if the index lies in the piece, and never if not.
#include <algorithm>
#include <map>
#include <set>

#include "codegen/lower/lower_internal.h"
#include "ir/graph/affine.h"

namespace hone::lowering {
namespace {

// More pieces, or more copies of a statement in all, are not worth their code.
constexpr size_t kMostPieces = 128;
constexpr int64_t kMostCopies = 1024;

// Where, between 0 and extent, conditions on the axis alone change: `coef · axis + constant ≥ 0`.
void AddBorder(const Linear& room, AxisId axis, int64_t extent, std::set<int64_t>& borders) {
  if (room.terms().size() != 1 || AxisOf(room.terms()[0].var) != axis) return;
  const int64_t coef = room.terms()[0].coef, constant = room.constant();
  const int64_t border = coef > 0 ? -FloorDiv(constant, coef) : FloorDiv(constant, -coef) + 1;
  if (border > 0 && border < extent) borders.insert(border);
}

}  // namespace

std::vector<int64_t> Lowering::BordersAlong(StageId stage, AxisId axis) const {
  std::set<int64_t> borders;
  const int64_t extent = states_[stage].axes[axis].extent_max;
  auto conditions = [&](auto&& self, const Expr& e) -> void {
    if (e.op() == Op::kAnd || e.op() == Op::kOr || e.op() == Op::kNot)
      for (const Expr& arg : e.args()) self(self, arg);
    if (e.op() != Op::kLt && e.op() != Op::kLe) return;
    std::optional<Linear> a = AffineIndex(kernel_, e.arg(0)), b = AffineIndex(kernel_, e.arg(1));
    if (a && b) AddBorder(*b - *a - Linear(e.op() == Op::kLt ? 1 : 0), axis, extent, borders);
  };
  Walk(kernel_.stages[stage].body, [&](const Expr& e) {
    if (e.op() == Op::kSelect && (e.arg(1).Has(Op::kLoad) || e.arg(2).Has(Op::kLoad))) conditions(conditions, e.arg(0));
  });
  return {borders.begin(), borders.end()};
}

std::optional<Lowering::Pieces> Lowering::PiecesInside(StageId stage, size_t depth) {
  const StageState& state = states_[stage];
  const StageSchedule& schedule = scheduled_.stages[stage];
  if (depth == 0 || depth >= state.loops.size() || program_.for_gpu ||
      kernel_.stages[stage].reduction != Reduction::kNone || state.tile)
    return std::nullopt;
  const LoopKind kind = schedule.loops[depth - 1].kind;
  if (kind != LoopKind::kSerial && kind != LoopKind::kParallel) return std::nullopt;
  // What is computed inside would have to be placed anew in each piece.
  for (const StageSchedule& producer : scheduled_.stages) {
    if (producer.attach_stage != stage) continue;
    if (LoopIndex(stage, producer.attach_loop) >= depth) return std::nullopt;
  }
  int64_t copies = 1;
  for (size_t l = depth; l < state.loops.size(); ++l)
    if (schedule.loops[l].kind == LoopKind::kUnrolled) copies *= state.loops[l].extent;
  for (AxisId a : state.axes.ids()) {
    // Settled by this loop, and by none further in.
    const AxisState& axis = state.axes[a];
    if (!axis.extent.IsConstant() || !axis.min.IsConstant() || !Moves(axis.local, state.loops[depth - 1].var)) continue;
    bool is_settled = axis.padded <= axis.extent.constant();
    for (size_t l = depth; l < state.loops.size(); ++l) is_settled &= !Moves(axis.local, state.loops[l].var);
    if (!is_settled) continue;
    std::vector<int64_t> borders = BordersAlong(stage, a);
    if (borders.empty() || borders.size() >= kMostPieces) continue;
    if (copies * (static_cast<int64_t>(borders.size()) + 1) > kMostCopies) continue;
    return Pieces{a, std::move(borders)};
  }
  return std::nullopt;
}

// Loops of their own for those from `depth` on, and the axes over these.
void Lowering::RenewLoops(StageId stage, size_t depth) {
  StageState& state = states_[stage];
  VarTable& vars = program_.vars;
  std::map<VarId, VarId> renewed;
  for (size_t l = depth; l < state.loops.size(); ++l) {
    const VarId old = state.loops[l].var;
    const VarId now = vars.AddLoop(vars[old].name, std::max<int64_t>(1, state.loops[l].extent));
    loop_kinds_[now] = loop_kinds_[old];
    renewed[old] = state.loops[l].var = now;
  }
  auto renew = [&](const Linear& form) {
    return vars.Substitute(form, [&](VarId var, Linear* value) {
      auto now = renewed.find(var);
      if (now == renewed.end()) return false;
      *value = Linear::Of(now->second);
      return true;
    });
  };
  for (AxisState& axis : state.axes) {
    axis.local = renew(axis.local);
    axis.unshifted = renew(axis.unshifted);
    const Var old = vars[axis.var];
    if (Linear value = renew(vars.ExpandAxes(old.a)); !(value == vars.ExpandAxes(old.a)))
      axis.var = vars.AddAxis(old.name, std::move(value), old.range);
  }
}

// In halves, each with a loop of its own around it: a piece is found in as many steps as the number of pieces has bits.
Result<void> Lowering::BuildPieces(StageId stage, size_t depth, AxisId axis, std::span<const int64_t> borders,
                                   std::vector<StmtPtr>& out) {
  const StageState whole = states_[stage];
  if (borders.empty()) {
    RenewLoops(stage, depth);
    HONE_TRY(BuildLoops(stage, depth, false, out));
    states_[stage] = whole;
    return {};
  }
  VarTable& vars = program_.vars;
  const VarId index = whole.axes[axis].var;
  const Var all = vars[index];
  const size_t middle = borders.size() / 2;
  const int64_t border = borders[middle];
  for (bool is_upper : {false, true}) {
    auto half = std::make_unique<Stmt>();
    half->kind = Stmt::Kind::kLoop;
    half->var = vars.AddLoop(all.name + "?", 1);
    const Linear beyond = Linear::Of(index) - Linear(border);
    half->begin = is_upper ? vars.Max(Linear(0), beyond * -1) : Linear(0);
    half->extent = is_upper ? Linear(1) : vars.Min(Linear(1), beyond * -1);
    const Interval range = is_upper ? Interval{border, all.range.hi} : Interval{all.range.lo, border - 1};
    states_[stage].axes[axis].var = vars.AddAxis(all.name, Linear::Of(index), range);
    const auto inside = is_upper ? borders.subspan(middle + 1) : borders.first(middle);
    HONE_TRY(BuildPieces(stage, depth, axis, inside, half->body));
    out.push_back(std::move(half));
    states_[stage] = whole;
  }
  return {};
}

}  // namespace hone::lowering
