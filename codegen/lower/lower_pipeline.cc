// Pipelines: what a block shares for a trip of a loop is computed while trips before it are. Each stage has a buffer
// for each trip that is on its way; a trip begins with the copy for one further on, and the first ones are filled
// before the loop. Where barriers are needed is found as ever, by place_barriers.
//
// What a group of warps multiplies is read while its threads go on. So the copies come behind the products in a trip,
// and with three buffers or more the products of one trip are on their way when the next one begins: the buffer that is
// filled then is the one of the trip before that.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "codegen/instructions.h"
#include "codegen/lower/lower_internal.h"
#include "ir/schedule/refuse.h"

namespace hone::lowering {
namespace {

// Statements with another form in a variable's place.
class InPlaceOf {
 public:
  InPlaceOf(VarTable& vars, VarId var, Linear form) : vars_(vars), var_(var), form_(std::move(form)) {}

  StmtPtr Stmts(const Stmt& stmt) {
    StmtPtr made = CopyOf(stmt, [&](const Stmt& inner) { return Stmts(inner); });
    for (ValuePtr& operand : made->operands) operand = Value(operand);
    made->begin = Form(made->begin);
    made->extent = Form(made->extent);
    made->index = Forms(made->index);
    made->guard = Forms(made->guard);
    if (made->value) made->value = Value(made->value);
    return made;
  }

 private:
  Linear Form(const Linear& form) {
    return vars_.Substitute(vars_.ExpandAxes(form), [&](VarId var, Linear* value) {
      if (var != var_) return false;
      *value = form_;
      return true;
    });
  }
  std::vector<Linear> Forms(const std::vector<Linear>& forms) {
    std::vector<Linear> made;
    for (const Linear& form : forms) made.push_back(Form(form));
    return made;
  }
  ValuePtr Value(const ValuePtr& value) {
    ValuePtr& made = values_[value.get()];
    if (made) return made;
    ValueNode node = *value;
    node.index = Forms(node.index);
    node.guard = Forms(node.guard);
    for (ValuePtr& arg : node.args) arg = Value(arg);
    return values_[value.get()] = std::make_shared<const ValueNode>(std::move(node));
  }

  VarTable& vars_;
  const VarId var_;
  const Linear form_;
  std::map<const ValueNode*, ValuePtr> values_;
};

void ForEachStore(Stmt& stmt, const std::function<void(Stmt&)>& visit) {
  if (stmt.kind == Stmt::Kind::kStore) visit(stmt);
  for (const StmtPtr& child : stmt.body) ForEachStore(*child, visit);
}

void CollectOwn(const Stmt& stmt, std::set<BufferId>& own) {
  if (stmt.kind == Stmt::Kind::kRegisters) own.insert(stmt.buffer);
  for (const StmtPtr& child : stmt.body) CollectOwn(*child, own);
}

bool HasProductsOfGroups(const Stmt& stmt) {
  return (stmt.kind == Stmt::Kind::kInstruction && MeaningOf(*stmt.instruction).is_of_group) ||
         std::ranges::any_of(stmt.body, [](const StmtPtr& child) { return HasProductsOfGroups(*child); });
}

bool HasOpaque(const VarTable& vars, const Linear& form) {
  return std::ranges::any_of(form.terms(), [&](const Term& term) {
    const Var& var = vars[term.var];
    return var.kind == VarKind::kOpaque || HasOpaque(vars, var.a) || HasOpaque(vars, var.b);
  });
}

}  // namespace

// What is computed ahead reads nothing that its own trip computes, and no index that is an element of a tensor.
Result<void> Lowering::CheckAhead(StageId stage, const Stmt& copy) const {
  const std::string& name = program_.buffer(states_[stage].buffer).name;
  std::set<BufferId> own = {states_[stage].buffer};
  CollectOwn(copy, own);
  for (BufferId read : UsedBuffers(program_, copy)) {
    const Scope scope = program_.buffer(read).scope;
    if (own.contains(read) || (scope != Scope::kBlock && scope != Scope::kRegisters && scope != Scope::kFragments))
      continue;
    return Refuse(
        fmt::format("pipeline {}: it reads {}, which is not there a trip ahead", name, program_.buffer(read).name));
  }
  bool has_opaque = false;
  auto look = [&](const std::vector<Linear>& forms) {
    for (const Linear& form : forms) has_opaque |= HasOpaque(program_.vars, form);
  };
  auto values = [&](auto&& self, const ValueNode& value) -> void {
    look(value.index);
    look(value.guard);
    for (const ValuePtr& arg : value.args) self(self, *arg);
  };
  auto walk = [&](auto&& self, const Stmt& stmt) -> void {
    look(stmt.index);
    look(stmt.guard);
    if (stmt.value) values(values, *stmt.value);
    for (const StmtPtr& child : stmt.body) self(self, *child);
  };
  walk(walk, copy);
  if (has_opaque) return Refuse(fmt::format("pipeline {}: an index of it is an element of a tensor", name));
  return {};
}

Result<void> Lowering::CopyAhead(Stmt& loop, const std::vector<StageId>& stages, std::vector<StmtPtr> copies,
                                 std::vector<StmtPtr>& out) {
  const int64_t buffers = scheduled_.stages[stages[0]].buffers;
  for (size_t i = 0; i < stages.size(); ++i) {
    HONE_TRY(CheckAhead(stages[i], *copies[i]));
    if (scheduled_.stages[stages[i]].buffers != buffers)
      return Refuse(fmt::format("pipeline: {} has {} buffers and {} has {}, in one loop",
                                program_.buffer(states_[stages[0]].buffer).name, buffers,
                                program_.buffer(states_[stages[i]].buffer).name, scheduled_.stages[stages[i]].buffers));
  }
  if (loop.loop != LoopKind::kSerial || !(loop.begin == Linear(0)))
    return Refuse(fmt::format("pipeline {}: {} is no loop that begins with its first trip and stays one",
                              program_.buffer(states_[stages[0]].buffer).name, program_.vars[loop.var].name));
  const bool is_by_groups = HasProductsOfGroups(loop);
  loop.behind = is_by_groups && buffers >= 3 ? 1 : 0;
  const int64_t ahead = buffers - 1 - loop.behind;
  // As if it were that trip, unless there is none.
  auto group_for = [&](const Linear& trip) {
    auto group = std::make_unique<Stmt>();
    group->ahead = ahead;
    InPlaceOf shifted(program_.vars, loop.var, trip);
    for (size_t i = 0; i < copies.size(); ++i) {
      group->body.push_back(shifted.Stmts(*copies[i]));
      ForEachStore(*group->body.back(), [&](Stmt& store) {
        store.guard.push_back(loop.extent - Linear(1) - trip);
        store.ahead = store.buffer == states_[stages[i]].buffer ? ahead : 0;
      });
    }
    return group;
  };
  for (int64_t trip = 0; trip < ahead; ++trip) out.push_back(group_for(Linear(trip)));
  loop.body.insert(is_by_groups ? loop.body.end() : loop.body.begin(), group_for(Linear::Of(loop.var) + Linear(ahead)));
  loop.ahead = ahead;
  return {};
}

}  // namespace hone::lowering
