// The loop program as text.
#include "codegen/program.h"

#include <fmt/format.h>

namespace hone {
namespace {

class Printer {
 public:
  explicit Printer(const LoopProgram& program) : program_(program) {}

  void Print(const Stmt& stmt, int depth) {
    switch (stmt.kind) {
      case Stmt::Kind::kBlock:
        for (const StmtPtr& child : stmt.body) Print(*child, depth);
        return;
      case Stmt::Kind::kLoop: {
        if (stmt.extent == Linear(1)) {
          for (const StmtPtr& child : stmt.body) Print(*child, depth);
          return;
        }
        static constexpr const char* kKinds[] = {"?", "for", "parallel", "vector", "unroll"};
        Line(depth,
             fmt::format(
                 "{} {}{} < {}{}", kKinds[static_cast<int>(stmt.loop)],
                 stmt.begin == Linear(0) ? "" : Form(stmt.begin) + " <= ", program_.vars[stmt.var].name,
                 Form(stmt.extent),
                 stmt.loop == LoopKind::kParallel && stmt.grain > 1 ? fmt::format(" grain {}", stmt.grain) : ""));
        for (const StmtPtr& child : stmt.body) Print(*child, depth + 1);
        return;
      }
      case Stmt::Kind::kRegisters: {
        const Buffer& buffer = program_.buffers[static_cast<size_t>(stmt.buffer)];
        Line(depth, fmt::format("registers {}{}", buffer.name, Extents(buffer)));
        for (const StmtPtr& child : stmt.body) Print(*child, depth);
        return;
      }
      case Stmt::Kind::kStore: {
        static constexpr const char* kCombine[] = {"?", "=", "+=", "max=", "min=", "*=", "max_of_numbers="};
        Line(depth,
             fmt::format("{}{} {} {}{}", program_.buffers[static_cast<size_t>(stmt.buffer)].name, Index(stmt.index),
                         kCombine[stmt.combine == Reduction::kNone ? 1 : static_cast<int>(stmt.combine)],
                         Value(*stmt.value), Guard(stmt.guard)));
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
    if (value.op == Op::kInt) return fmt::format("{}", value.int_value);
    if (value.op == Op::kFloat) return fmt::format("{}", value.float_value);
    if (value.op == Op::kAxis) return "(" + Form(value.index[0]) + ")";
    std::string text;
    if (value.op == Op::kLoad) {
      text = program_.buffers[static_cast<size_t>(value.buffer)].name + Index(value.index);
      if (value.prefetch > 0) text += fmt::format(" ahead {}", value.prefetch);
      return value.guard.empty() ? text
                                 : fmt::format("({}{} else {})", text, Guard(value.guard), Value(*value.args[0]));
    }
    for (const ValuePtr& arg : value.args) text += (text.empty() ? "" : ", ") + Value(*arg);
    return fmt::format("{}({})", OpName(value.op), text);
  }

  const LoopProgram& program_;
  std::string text_;
};

void CollectBuffers(const ValueNode& value, const LoopProgram& program, std::set<int>& used);

void CollectForms(const std::vector<Linear>& forms, const LoopProgram& program, std::set<int>& used) {
  auto visit = [&](auto&& self, VarId id) -> void {
    const Var& var = program.vars[id];
    if (var.kind == VarKind::kOpaque) CollectBuffers(*program.opaque[static_cast<size_t>(var.payload)], program, used);
    for (const Linear* part : {&var.a, &var.b})
      for (const Term& term : part->terms()) self(self, term.var);
  };
  for (const Linear& form : forms)
    for (const Term& term : form.terms()) visit(visit, term.var);
}

void CollectBuffers(const ValueNode& value, const LoopProgram& program, std::set<int>& used) {
  if (value.buffer >= 0) used.insert(value.buffer);
  CollectForms(value.index, program, used);
  CollectForms(value.guard, program, used);
  for (const ValuePtr& arg : value.args) CollectBuffers(*arg, program, used);
}

void CollectBuffers(const Stmt& stmt, const LoopProgram& program, std::set<int>& used) {
  if (stmt.kind == Stmt::Kind::kStore) {
    used.insert(stmt.buffer);
    CollectForms(stmt.index, program, used);
    CollectBuffers(*stmt.value, program, used);
  }
  for (const StmtPtr& child : stmt.body) CollectBuffers(*child, program, used);
}

}  // namespace

std::set<int> UsedBuffers(const LoopProgram& program, const Stmt& nest) {
  std::set<int> used;
  CollectBuffers(nest, program, used);
  return used;
}

std::string PrintProgram(const LoopProgram& program) {
  Printer printer(program);
  for (const Buffer& buffer : program.buffers) {
    static constexpr const char* kScopes[] = {"?", "operand", "shared", "private", "registers", "const"};
    printer.Line(0, fmt::format("{} {}: {}{}", kScopes[static_cast<int>(buffer.scope)], buffer.name, Name(buffer.dtype),
                                Printer::Extents(buffer)));
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
