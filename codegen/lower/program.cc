// Loop programs: their nodes, what a nest uses, and the program as text.
#include "codegen/lower/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/instructions.h"
#include "ir/steps/step_reader.h"

namespace hone {
namespace {

ValueNode NodeOf(ValueNode::Kind kind, DType type) {
  ValueNode node;
  node.kind = kind;
  node.type = type;
  return node;
}

}  // namespace

ValueNode ValueNode::Constant(DType type, int64_t int_value, double float_value) {
  ValueNode node = NodeOf(Kind::kConstant, type);
  node.int_value = int_value;
  node.float_value = float_value;
  return node;
}

ValueNode ValueNode::Index(Linear form) {
  ValueNode node = NodeOf(Kind::kIndex, DType::kI64);
  node.index.push_back(std::move(form));
  return node;
}

ValueNode ValueNode::Guard(Linear form) {
  ValueNode node = NodeOf(Kind::kGuard, DType::kBool);
  node.index.push_back(std::move(form));
  return node;
}

ValueNode ValueNode::Load(DType type, BufferId buffer, std::vector<Linear> index) {
  ValueNode node = NodeOf(Kind::kLoad, type);
  node.buffer = buffer;
  node.index = std::move(index);
  return node;
}

ValueNode ValueNode::Operation(Op op, DType type, std::vector<ValuePtr> args) {
  ValueNode node = NodeOf(Kind::kOperation, type);
  node.op = op;
  node.args = std::move(args);
  return node;
}

bool HasRuntimeLoop(const Stmt& stmt) {
  for (const StmtPtr& child : stmt.body)
    if (child->IsRuntimeLoop() || HasRuntimeLoop(*child)) return true;
  return false;
}

int64_t LanesIn(const Stmt& stmt) {
  if (stmt.kind == Stmt::Kind::kLoop && stmt.loop == LoopKind::kBound && stmt.axis == LaunchAxis::kLaneX)
    return stmt.extent.IsConstant() ? stmt.extent.constant() : 0;
  int64_t lanes = 0;
  for (const StmtPtr& child : stmt.body) lanes = std::max(lanes, LanesIn(*child));
  return lanes;
}

int64_t ThreadsOfRuns(const VarTable& vars, const Stmt& stmt) {
  if (stmt.kind != Stmt::Kind::kLoop || stmt.loop != LoopKind::kBound || !IsOfSubGroup(stmt.axis)) return 0;
  return (stmt.axis == LaunchAxis::kSubGroupX ? vars.Range(stmt.extent).hi : 1) * LanesIn(stmt);
}

Linear LoopProgram::FlatIndex(BufferId id, const std::vector<Linear>& index) const {
  Linear offset;
  for (size_t d = 0; d < index.size(); ++d) offset.AddScaled(index[d], buffers[id].strides[d]);
  return offset;
}

namespace {

class Printer {
 public:
  explicit Printer(const LoopProgram& program) : program_(program) {}

  void Print(const Stmt& stmt, int depth) {
    switch (stmt.kind) {
      case Stmt::Kind::kBlock:
        if (stmt.all_threads) Line(depth, "all threads");
        if (stmt.ahead > 0) Line(depth, "ahead");
        for (const StmtPtr& child : stmt.body) Print(*child, depth + (stmt.all_threads || stmt.ahead > 0 ? 1 : 0));
        return;
      case Stmt::Kind::kLoop: {
        if (stmt.RunsOnce() && stmt.loop != LoopKind::kBound) {
          for (const StmtPtr& child : stmt.body) Print(*child, depth);
          return;
        }
        static constexpr const char* kKinds[] = {"?", "for", "parallel", "vector", "unroll", "bind"};
        Line(depth,
             fmt::format("{} {}{} < {}{}", kKinds[static_cast<int>(stmt.loop)],
                         stmt.begin == Linear(0) ? "" : Form(stmt.begin) + " <= ", program_.vars[stmt.var].name,
                         Form(stmt.extent),
                         stmt.loop == LoopKind::kParallel && stmt.grain > 1 ? fmt::format(" grain {}", stmt.grain)
                         : stmt.loop == LoopKind::kBound ? fmt::format(" to {}", LaunchAxisName(stmt.axis))
                         : stmt.behind > 0               ? fmt::format(" ahead {} behind {}", stmt.ahead, stmt.behind)
                         : stmt.ahead > 0                ? fmt::format(" ahead {}", stmt.ahead)
                                                         : ""));
        for (const StmtPtr& child : stmt.body) Print(*child, depth + 1);
        return;
      }
      case Stmt::Kind::kRegisters: {
        const Buffer& buffer = program_.buffer(stmt.buffer);
        Line(depth, fmt::format("registers {}{}", buffer.name, Extents(buffer)));
        for (const StmtPtr& child : stmt.body) Print(*child, depth);
        return;
      }
      case Stmt::Kind::kBarrier: Line(depth, "barrier"); return;
      case Stmt::Kind::kInstruction:
        Line(depth, std::string(stmt.instruction->name) + (stmt.operands.empty() ? " tile" : ""));
        for (const StmtPtr& child : stmt.body) Print(*child, depth + 1);
        return;
      case Stmt::Kind::kStore: {
        static constexpr const char* kCombine[] = {"?", "=", "+=", "max=", "min=", "*=", "max_of_numbers="};
        Line(depth, fmt::format("{}{} {} {}{}", program_.buffer(stmt.buffer).name, Index(stmt.index),
                                kCombine[stmt.combine == Reduction::kNone ? 1 : static_cast<int>(stmt.combine)],
                                Value(*stmt.value), Guard(stmt.guard)) +
                        (stmt.across_lanes > 0 ? fmt::format(" across {} lanes", stmt.across_lanes) : ""));
        return;
      }
    }
  }
  void Line(int depth, const std::string& text) {
    text_ += std::string(static_cast<size_t>(depth) * 2, ' ') + text + "\n";
  }
  static std::string Extents(const Buffer& buffer) {
    std::string text;
    for (int64_t extent : buffer.extents) text += fmt::format("{}{}", text.empty() ? "[" : ", ", extent);
    return text + (text.empty() ? "[]" : "]");
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string Form(const Linear& form) const { return program_.vars.Text(program_.vars.ExpandAxes(form)); }
  std::string Index(const std::vector<Linear>& index) const {
    std::string text = "[";
    for (const Linear& form : index) text += (text.size() > 1 ? ", " : "") + Form(form);
    return text + "]";
  }
  std::string Guard(const std::vector<Linear>& guard) const {
    std::string text;
    for (const Linear& form : guard) text += fmt::format("{}{} >= 0", text.empty() ? " if " : " and ", Form(form));
    return text;
  }
  std::string Value(const ValueNode& value) const {
    std::string text;
    switch (value.kind) {
      case ValueNode::Kind::kConstant:
        return IsFloat(value.type) ? fmt::format("{}", value.float_value) : fmt::format("{}", value.int_value);
      case ValueNode::Kind::kIndex: return "(" + Form(value.index[0]) + ")";
      case ValueNode::Kind::kGuard: return "le(0, (" + Form(value.index[0]) + "))";
      case ValueNode::Kind::kLoad:
        text = program_.buffer(value.buffer).name + Index(value.index);
        if (value.prefetch_step > 0)
          text += fmt::format(" asks for {} from {}", value.prefetch_step, Form(value.prefetch_at));
        else if (value.prefetch > 0)
          text += fmt::format(" ahead {}", value.prefetch);
        return value.guard.empty() ? text
                                   : fmt::format("({}{} else {})", text, Guard(value.guard), Value(*value.args[0]));
      case ValueNode::Kind::kOperation: break;
    }
    for (const ValuePtr& arg : value.args) text += (text.empty() ? "" : ", ") + Value(*arg);
    return fmt::format("{}({})", OpName(value.op), text);
  }

  const LoopProgram& program_;
  std::string text_;
};

void CollectBuffers(const ValueNode& value, const LoopProgram& program, std::set<BufferId>& used);

void CollectForms(const std::vector<Linear>& forms, const LoopProgram& program, std::set<BufferId>& used) {
  auto visit = [&](auto&& self, VarId id) -> void {
    const Var& var = program.vars[id];
    if (var.kind == VarKind::kOpaque) CollectBuffers(program.OpaqueValue(var), program, used);
    for (const Linear* part : {&var.a, &var.b})
      for (const Term& term : part->terms()) self(self, term.var);
  };
  for (const Linear& form : forms)
    for (const Term& term : form.terms()) visit(visit, term.var);
}

void CollectBuffers(const ValueNode& value, const LoopProgram& program, std::set<BufferId>& used) {
  if (value.buffer) used.insert(value.buffer);
  CollectForms(value.index, program, used);
  CollectForms(value.guard, program, used);
  for (const ValuePtr& arg : value.args) CollectBuffers(*arg, program, used);
}

void CollectBuffers(const Stmt& stmt, const LoopProgram& program, std::set<BufferId>& used) {
  if (stmt.kind == Stmt::Kind::kStore) {
    used.insert(stmt.buffer);
    CollectForms(stmt.index, program, used);
    CollectBuffers(*stmt.value, program, used);
  }
  for (const StmtPtr& child : stmt.body) CollectBuffers(*child, program, used);
}

}  // namespace

std::set<BufferId> UsedBuffers(const LoopProgram& program, const Stmt& nest) {
  std::set<BufferId> used;
  CollectBuffers(nest, program, used);
  return used;
}

std::string PrintProgram(const LoopProgram& program, ProgramText form) {
  Printer printer(program);
  for (const Buffer& buffer : program.buffers) {
    static constexpr const char* kShown[] = {"?",         "operand", "workspace", "per_worker",
                                             "registers", "const",   "block",     "fragments"};
    static constexpr const char* kHashed[] = {"?",         "operand", "shared", "private",
                                              "registers", "const",   "block",  "fragments"};
    const char* scope = (form == ProgramText::kShown ? kShown : kHashed)[static_cast<int>(buffer.scope)];
    printer.Line(0, fmt::format("{} {}: {}{}", scope, buffer.name, Name(buffer.dtype), Printer::Extents(buffer)));
  }
  for (const auto& [title, nests] : {std::pair("pack", &program.pack), std::pair("entry", &program.entry)}) {
    for (const StmtPtr& nest : *nests) {
      printer.Line(0, title);
      printer.Print(*nest, 1);
    }
  }
  return printer.Take();
}

}  // namespace hone
