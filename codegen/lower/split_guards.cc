#include "codegen/lower/split_guards.h"

#include <algorithm>
#include <map>

namespace hone {
namespace {

// Statements of a body, unrolled copies counted: a loop is only divided while its code stays small.
constexpr int64_t kMostCopies = 64;
// Loops of fewer trips are unrolled whole, and masks are constants then.
constexpr int64_t kFewestFree = 3;

class GuardSplitter {
 public:
  explicit GuardSplitter(const LoopProgram& program) : program_(program) {}

  StmtPtr Visit(const Stmt& stmt) {
    StmtPtr whole = CopyOf(stmt, [&](const Stmt& inner) { return Visit(inner); });
    if (stmt.kind != Stmt::Kind::kLoop || stmt.loop != LoopKind::kSerial || stmt.RunsOnce() ||
        !stmt.begin.IsConstant() || !stmt.extent.IsConstant())
      return whole;
    for (const StmtPtr& inner : stmt.body)
      if (HasRuntimeLoop(*inner) || Copies(*inner) > kMostCopies) return whole;
    const int64_t begin = stmt.begin.constant(), end = stmt.extent.constant();
    // Guards hold in trips before `free`: the least of those that fail at all.
    var_ = stmt.var;
    end_ = free_ = end;
    for (const StmtPtr& inner : stmt.body) Look(*inner);
    if (free_ - begin < kFewestFree || free_ >= end) return whole;
    auto both = std::make_unique<Stmt>();
    both->kind = Stmt::Kind::kBlock;
    known_.clear();
    StmtPtr first = CopyOf(stmt, [&](const Stmt& inner) { return WithoutGuards(inner); });
    first->extent = Linear(free_);
    whole->begin = Linear(free_);
    both->body.push_back(std::move(first));
    both->body.push_back(std::move(whole));
    return both;
  }

 private:
  static int64_t Copies(const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::kStore) return 1;
    int64_t count = 0;
    for (const StmtPtr& inner : stmt.body) count += Copies(*inner);
    const bool repeats = stmt.kind == Stmt::Kind::kLoop && stmt.loop == LoopKind::kUnrolled && stmt.extent.IsConstant();
    return repeats ? count * std::max<int64_t>(stmt.extent.constant() - stmt.begin.constant(), 1) : count;
  }

  // The first trip in which a form may be below zero; the end if that is not told by a falling form.
  int64_t HoldsBefore(const Linear& form) const {
    const Linear loops = program_.vars.ExpandAxes(form);
    const int64_t falls = -loops.CoefOf(var_);
    if (falls <= 0) return end_;
    const int64_t least = program_.vars.Range(loops.Without(var_)).lo;
    return least < 0 ? 0 : std::min(end_, least / falls + 1);
  }
  // Guards that hold in no trip to speak of stay in both parts.
  void Note(const Linear& form) {
    if (const int64_t before = HoldsBefore(form); before > 0) free_ = std::min(free_, before);
  }
  bool Holds(const Linear& form) const {
    const Linear loops = program_.vars.ExpandAxes(form);
    return loops.CoefOf(var_) < 0 && HoldsBefore(form) >= free_;
  }

  void Look(const ValueNode& value) {
    if (value.kind == ValueNode::Kind::kGuard) Note(value.index[0]);
    for (const Linear& form : value.guard) Note(form);
    for (const ValuePtr& arg : value.args) Look(*arg);
  }
  void Look(const Stmt& stmt) {
    for (const Linear& form : stmt.guard) Note(form);
    if (stmt.value) Look(*stmt.value);
    for (const ValuePtr& operand : stmt.operands) Look(*operand);
    for (const StmtPtr& inner : stmt.body) Look(*inner);
  }

  StmtPtr WithoutGuards(const Stmt& stmt) {
    StmtPtr copy = CopyOf(stmt, [&](const Stmt& inner) { return WithoutGuards(inner); });
    std::erase_if(copy->guard, [&](const Linear& form) { return Holds(form); });
    if (copy->value) copy->value = WithoutGuards(copy->value);
    for (ValuePtr& operand : copy->operands) operand = WithoutGuards(operand);
    return copy;
  }
  ValuePtr WithoutGuards(const ValuePtr& value) {
    if (const auto found = known_.find(value.get()); found != known_.end()) return found->second;
    ValueNode node = *value;
    if (node.kind == ValueNode::Kind::kGuard && Holds(node.index[0])) {
      node = ValueNode::Constant(DType::kBool, 1, 0);
    } else {
      for (ValuePtr& arg : node.args) arg = WithoutGuards(arg);
      const bool had_guard = !node.guard.empty();
      std::erase_if(node.guard, [&](const Linear& form) { return Holds(form); });
      if (had_guard && node.guard.empty()) node.args.clear();
      // A choice that is made.
      if (node.Is(Op::kSelect) && node.args[0]->IsConstant())
        return known_[value.get()] = node.args[0]->int_value != 0 ? node.args[1] : node.args[2];
    }
    return known_[value.get()] = std::make_shared<const ValueNode>(std::move(node));
  }

  const LoopProgram& program_;
  VarId var_;
  int64_t end_ = 0, free_ = 0;
  std::map<const ValueNode*, ValuePtr> known_;
};

}  // namespace

StmtPtr SplitGuardedLoops(const LoopProgram& program, const Stmt& nest) { return GuardSplitter(program).Visit(nest); }

}  // namespace hone
