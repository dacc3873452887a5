// Reductions of `if(condition, term, identity)`: where there is no term, nothing runs. Serial loops are bounded by the
// condition's forms; what unrolled copies alone decide guards the statement (BuildLeaf), and emitters drop
// copies; what else is left chooses between the term and the identity.
#include "codegen/lower/lower_internal.h"
#include "ir/graph/stage_graph.h"

namespace hone::lowering {
namespace {

// Numbers, sizes and axes alone: nothing that is read from a tensor.
bool IsIndexArithmetic(const Expr& e) {
  bool is_index = true;
  Walk(e, [&](const Expr& part) {
    is_index &= part.type() == DType::kI64 && part.op() <= Op::kMax && part.op() != Op::kLoad;
  });
  return is_index;
}

}  // namespace

bool Lowering::Moves(const Linear& form, VarId loop) {
  return !(program_.vars.Substitute(form, [&](VarId var, Linear* value) {
    if (var != loop) return false;
    *value = Linear(0);
    return true;
  }) == form);
}

Result<void> Lowering::FindCondition(StageId stage) {
  const Stage& s = kernel_.stages[stage];
  StageState& state = states_[stage];
  state.has_condition = false;
  state.condition.clear();
  if (s.reduction == Reduction::kNone || s.body.op() != Op::kSelect ||
      !SameExpr(s.body.arg(2), ReductionIdentity(s.reduction, s.body.type())))
    return {};
  std::vector<Linear> forms;
  bool are_bounds = true;
  auto add = [&](auto&& self, const Expr& e) -> Result<void> {
    if (e.op() == Op::kAnd) {
      HONE_TRY(self(self, e.arg(0)));
      return self(self, e.arg(1));
    }
    are_bounds &=
        (e.op() == Op::kLt || e.op() == Op::kLe) && IsIndexArithmetic(e.arg(0)) && IsIndexArithmetic(e.arg(1));
    if (!are_bounds) return {};
    const Linear room =
        HONE_TRY(IndexForm(stage, e.arg(1))) - HONE_TRY(IndexForm(stage, e.arg(0))) - Linear(e.op() == Op::kLt ? 1 : 0);
    if (!program_.vars.ProvenNonNegative(room)) forms.push_back(room);
    return {};
  };
  HONE_TRY(add(add, s.body.arg(0)));
  if (!are_bounds) return {};
  state.has_condition = true;
  state.held.assign(forms.size(), false);
  state.condition = std::move(forms);
  return {};
}

void Lowering::BoundLoop(StageId stage, size_t index, Stmt& stmt) {
  StageState& state = states_[stage];
  VarTable& vars = program_.vars;
  const VarId var = state.loops[index].var;
  for (size_t i = 0; i < state.condition.size(); ++i) {
    Linear form = vars.ExpandAxes(state.condition[i]);
    const int64_t step = form.CoefOf(var);
    if (step == 0) continue;
    // The most that the loops further in can add: outside of these bounds none of their iterations has a term.
    bool is_exact = true;
    Linear rest = form.Without(var);
    for (size_t inner = index + 1; inner < state.loops.size(); ++inner) {
      const int64_t coef = rest.CoefOf(state.loops[inner].var);
      if (coef == 0) continue;
      is_exact = false;
      rest = rest.Without(state.loops[inner].var);
      if (coef > 0) rest += Linear(coef * (state.loops[inner].extent - 1));
    }
    // Nothing derived may hide one of them.
    bool is_known = true;
    for (size_t other = index; other < state.loops.size(); ++other) is_known &= !Moves(rest, state.loops[other].var);
    if (!is_known) continue;
    if (step > 0)
      stmt.begin = vars.Max(stmt.begin, vars.DivCeil(rest * -1, step));
    else
      stmt.extent = vars.Min(stmt.extent, vars.DivFloor(rest, -step) + Linear(1));
    state.held[i] = is_exact;
  }
}

}  // namespace hone::lowering
