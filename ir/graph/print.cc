#include "ir/graph/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/check.h"
#include "ir/graph/op_traits.h"

namespace hone {
namespace {

using namespace precedence;

// Of an infix operator's left operand. Left-associative, except comparisons, which do not chain.
int LeftPrecedence(precedence::Level own) { return own == kComparison ? own + 1 : own; }

// Literals take their type from what stands beside them; where nothing does, it is written out.
enum class LiteralType { kImplied, kDefault, kUnknown };

class ExprPrinter {
 public:
  ExprPrinter(const Kernel& kernel, const Stage* stage, std::string* out)
      : kernel_(kernel), stage_(stage), out_(*out) {}

  void Print(const Expr& e, int precedence, LiteralType literals);

 private:
  void Literal(const Expr& e, int precedence, LiteralType literals);
  void Infix(const Expr& e, int precedence, LiteralType literals);
  void Call(std::string_view name, const Expr& e, LiteralType literals);
  void Items(const std::vector<Expr>& items);
  const std::string& AxisName(AxisId axis) const;
  LiteralType ForArgs(const Expr& e, LiteralType outer);
  bool IsLiteralTree(const Expr& e);
  static bool ReadsOtherwise(const Expr& e);

  const Kernel& kernel_;
  const Stage* stage_;
  std::string& out_;
  std::unordered_map<const ExprNode*, bool>
      literal_trees_;  // what IsLiteralTree said; each operator asks of its operands
};

bool ExprPrinter::IsLiteralTree(const Expr& e) {
  if (e.op() == Op::kInt || e.op() == Op::kFloat) return e.type() != DType::kBool;
  if (e.args().empty() || e.op() == Op::kLoad || e.op() == Op::kPad || e.op() == Op::kCast) return false;
  if (auto it = literal_trees_.find(e.id()); it != literal_trees_.end()) return it->second;
  size_t first = e.op() == Op::kSelect ? 1 : 0;
  bool literal = std::all_of(e.args().begin() + static_cast<ptrdiff_t>(first), e.args().end(),
                             [&](const Expr& arg) { return IsLiteralTree(arg); });
  literal_trees_.emplace(e.id(), literal);
  return literal;
}

// Arithmetic on integers of a type, all of them literals: on numbers without a type the parser would do it itself, and
// take a quotient for a fraction.
bool ExprPrinter::ReadsOtherwise(const Expr& e) {
  if (IsFloat(e.type()) || e.type() == DType::kI64 || e.args().size() != 2) return false;
  if (e.op() == Op::kFloorDiv) return true;
  const Expr unknown(Op::kSize, DType::kI64, {});
  auto without_type = [&](const Expr& arg) { return arg.op() == Op::kInt ? Int(arg.int_value()) : unknown; };
  return Binary(e.op(), without_type(e.arg(0)), without_type(e.arg(1))).op() != e.op();
}

LiteralType ExprPrinter::ForArgs(const Expr& e, LiteralType outer) {
  if (e.op() == Op::kCast) return LiteralType::kUnknown;
  size_t first = e.op() == Op::kSelect ? 1 : 0;
  for (size_t i = first; i < e.args().size(); ++i)
    if (!IsLiteralTree(e.arg(i))) return LiteralType::kImplied;
  if (IsComparison(e.op())) return LiteralType::kDefault;
  return ReadsOtherwise(e) ? LiteralType::kUnknown : outer;
}

const std::string& ExprPrinter::AxisName(AxisId axis) const {
  HONE_CHECK(stage_ != nullptr && axis.index() < stage_->axis_count());
  return stage_->axis(axis).name;
}

std::string FloatText(double value) {
  if (std::isnan(value)) return std::signbit(value) ? "-nan" : "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void ExprPrinter::Literal(const Expr& e, int precedence, LiteralType literals) {
  if (e.type() == DType::kBool) {
    out_ += e.int_value() ? "true" : "false";
    return;
  }
  std::string text = e.op() == Op::kInt ? fmt::format("{}", e.int_value()) : FloatText(e.float_value());
  DType default_type = e.op() == Op::kInt ? DType::kI64 : DType::kF32;
  bool named = literals == LiteralType::kUnknown || (literals == LiteralType::kDefault && e.type() != default_type);
  if (named) {
    out_ += fmt::format("{}({})", e.type() == DType::kI64 ? "int" : Name(e.type()), text);
  } else if (text[0] == '-' && precedence > kUnary) {
    out_ += "(" + text + ")";
  } else {
    out_ += text;
  }
}

void ExprPrinter::Infix(const Expr& e, int precedence, LiteralType literals) {
  LiteralType inner = ForArgs(e, literals);
  const OpTraits& traits = TraitsOf(e.op());
  const precedence::Level level = traits.precedence;
  if (level < precedence) out_ += "(";
  Print(e.arg(0), LeftPrecedence(level), inner);
  out_ += fmt::format(" {} ", traits.symbol);
  Print(e.arg(1), level + 1, inner);
  if (level < precedence) out_ += ")";
}

void ExprPrinter::Items(const std::vector<Expr>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) out_ += ", ";
    Print(items[i], kOr, LiteralType::kImplied);
  }
}

void ExprPrinter::Call(std::string_view name, const Expr& e, LiteralType literals) {
  LiteralType inner = ForArgs(e, literals);
  out_ += name;
  out_ += "(";
  for (size_t i = 0; i < e.args().size(); ++i) {
    if (i) out_ += ", ";
    Print(e.arg(i), kOr, inner);
  }
  out_ += ")";
}

void ExprPrinter::Print(const Expr& e, int precedence, LiteralType literals) {
  switch (e.op()) {
    case Op::kInt:
    case Op::kFloat: return Literal(e, precedence, literals);
    case Op::kSize: out_ += kernel_.sizes[static_cast<size_t>(e.int_value())].name; return;
    case Op::kAxis: out_ += AxisName(e.axis()); return;
    case Op::kLoad:
      out_ += kernel_.tensors[e.tensor()].name;
      out_ += "[";
      Items(e.args());
      out_ += "]";
      return;
    case Op::kPad:
      out_ += "pad(";
      Items(e.args());
      out_ += ")";
      return;
    case Op::kCast: return Call(e.type() == DType::kI64 ? "int" : Name(e.type()), e, literals);
    default: break;
  }
  const OpTraits& traits = TraitsOf(e.op());
  if (traits.notation == Notation::kFunction) return Call(traits.name, e, literals);
  if (traits.notation == Notation::kInfix) return Infix(e, precedence, literals);
  if (precedence > traits.precedence) out_ += "(";
  out_ += fmt::format("{} ", traits.symbol);
  Print(e.arg(0), traits.precedence, literals);
  if (precedence > traits.precedence) out_ += ")";
}

// BracketsOf within what is read already.
int InnerBrackets(const Expr& e) {
  if (e.args().empty()) {
    const bool literal = e.op() == Op::kInt || e.op() == Op::kFloat;
    const bool negative = e.op() == Op::kFloat ? std::signbit(e.float_value()) : e.int_value() < 0;
    return !literal ? 0 : negative ? 2 : 1;  // f32(1.0), f32(-1.0), (-1.0)
  }
  const precedence::Level own = TraitsOf(e.op()).precedence;
  int most = 0;
  for (size_t i = 0; i < e.args().size(); ++i) {
    const int needed = i == 0 ? LeftPrecedence(own) : own + 1;
    const bool brackets = own == kPrimary || own == kNot || TraitsOf(e.arg(i).op()).precedence < needed;
    most = std::max(most, InnerBrackets(e.arg(i)) + (brackets ? 1 : 0));
  }
  return most + (own == kNot ? 1 : 0);
}

// A sum takes factors out that do not depend on its variables; parentheses keep them where this stage has them.
bool KeepsFactorsInside(const Stage& stage) {
  if (stage.reduction != Reduction::kSum) return false;
  auto fixed = [&](const Expr& factor) {
    bool uses = false;
    Walk(factor, [&](const Expr& e) { uses |= e.op() == Op::kAxis && stage.Reduces(e.axis()); });
    return !uses;
  };
  const Expr* node = &stage.body;
  bool any = false, split = false;
  for (; node->op() == Op::kMul || node->op() == Op::kDiv; node = &node->arg(0))
    any |= fixed(node->arg(1)), split = true;
  return split && (any || fixed(*node));
}

std::string_view ReductionName(Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone: break;
    case Reduction::kSum: return "sum";
    case Reduction::kMax: return "max";
    case Reduction::kMin: return "min";
    case Reduction::kProd: return "prod";
    case Reduction::kMaxOfNumbers: return "max_of_numbers";
  }
  return "";
}

bool IsIdentifier(std::string_view name) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

void PrintDims(const Kernel& kernel, const std::vector<Expr>& dims, std::string* out) {
  ExprPrinter printer(kernel, nullptr, out);
  *out += "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i) *out += ", ";
    printer.Print(dims[i], kOr, LiteralType::kImplied);
  }
  *out += "]";
}

void PrintTensor(const Kernel& kernel, const Tensor& tensor, std::string* out) {
  if (tensor.is_const) *out += "const ";
  *out += fmt::format("{}: {}", tensor.name, Name(tensor.dtype));
  PrintDims(kernel, tensor.declared.empty() ? tensor.shape : tensor.declared, out);
  if (!tensor.declared.empty()) {
    *out += " as ";
    PrintDims(kernel, tensor.shape, out);
  }
}

void PrintStage(const Kernel& kernel, const Stage& stage, std::string* out) {
  const Tensor& tensor = kernel.tensors[stage.output];
  if (tensor.kind == TensorKind::kIntermediate) {
    *out += "  ";
    PrintTensor(kernel, tensor, out);
    *out += "\n";
  }
  *out += fmt::format("  {}[", tensor.name);
  for (size_t i = 0; i < stage.axes.size(); ++i) *out += (i ? ", " : "") + stage.axes[i].name;
  *out += "] = ";
  ExprPrinter printer(kernel, &stage, out);
  int precedence = kOr;
  if (stage.reduction != Reduction::kNone) {
    *out += ReductionName(stage.reduction);
    *out += "(";
    for (size_t i = 0; i < stage.reduce_axes.size(); ++i) {
      *out += fmt::format("{}{} < ", i ? ", " : "", stage.reduce_axes[i].name);
      printer.Print(stage.reduce_axes[i].extent, kSum, LiteralType::kImplied);
    }
    *out += ") ";
    precedence = KeepsFactorsInside(stage) ? kPrimary : kProduct;
  }
  std::string body;
  ExprPrinter(kernel, &stage, &body).Print(stage.body, precedence, LiteralType::kImplied);
  // max(k) -x[k] would be a difference.
  bool difference = stage.reduction != Reduction::kNone && body[0] == '-';
  *out += difference ? fmt::format("({})\n", body) : body + "\n";
}

}  // namespace

std::string PrintKernel(const Kernel& kernel, SizeValues sizes) {
  std::string out =
      IsIdentifier(kernel.name) ? fmt::format("kernel {}(", kernel.name) : fmt::format("kernel \"{}\"(", kernel.name);
  bool first = true;
  auto operands = [&](TensorKind kind) {
    first = true;
    for (TensorId id : kernel.operands) {
      const Tensor& tensor = kernel.tensors[id];
      if (tensor.kind != kind) continue;
      if (!first) out += ", ";
      first = false;
      PrintTensor(kernel, tensor, &out);
    }
  };
  operands(TensorKind::kInput);
  out += ") -> ";
  operands(TensorKind::kOutput);
  for (size_t i = 0; i < kernel.sizes.size(); ++i) {
    const Size& size = kernel.sizes[i];
    out += (i ? ", " : "\nwhere ") + size.name;
    if (sizes == SizeValues::kHidden)
      out += size.is_constant() ? "" : "=..";
    else if (size.is_constant())
      out += fmt::format("={}", size.lo);
    else
      out += fmt::format("={}..{}", size.lo, size.hi);
  }
  std::string options;
  if (kernel.options.accuracy != Accuracy::kStrict)
    options += fmt::format("accuracy={}", AccuracyName(kernel.options.accuracy));
  if (kernel.options.threads != 0)
    options += fmt::format("{}threads={}", options.empty() ? "" : ", ", kernel.options.threads);
  if (!options.empty()) out += "\nwith " + options;
  out += " {\n";
  for (const Stage& stage : kernel.stages) PrintStage(kernel, stage, &out);
  out += "}\n";
  return out;
}

std::string PrintExpr(const Kernel& kernel, const Stage& stage, const Expr& expr) {
  std::string out;
  ExprPrinter(kernel, &stage, &out).Print(expr, kOr, LiteralType::kImplied);
  return out;
}

std::string PrintExtent(const Kernel& kernel, const Expr& extent) {
  std::string out;
  ExprPrinter(kernel, nullptr, &out).Print(extent, kOr, LiteralType::kImplied);
  return out;
}

std::string Shortened(std::string text) {
  constexpr size_t kShown = 200;
  if (text.size() <= kShown) return text;
  text.resize(kShown);
  return text + "…";
}

int BracketsOf(const Expr& expr) {
  constexpr int kAround = 3;  // the statement, its reduction, and the brackets that keep factors inside
  return InnerBrackets(expr) + kAround;
}

}  // namespace hone
