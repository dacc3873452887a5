#include "ir/language/parse_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/check.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/element.h"
#include "ir/graph/op_traits.h"

namespace hone {
namespace {

constexpr std::string_view kActivations[] = {"relu", "relu6", "gelu", "gelu_tanh", "silu", "sigmoid", "hardswish"};

Error Bad(std::string message) { return Error{ErrorKind::kInvalid, std::move(message), ""}; }

bool IsLiteral(const Value& v) { return v.expr.op() == Op::kInt || v.expr.op() == Op::kFloat; }
double LiteralValue(const Value& v) {
  return v.expr.op() == Op::kInt ? static_cast<double>(v.expr.int_value()) : v.expr.float_value();
}

bool IsZero(const Value& v) { return IsLiteral(v) && LiteralValue(v) == 0; }

bool OverSizesOnly(const Expr& e) { return !e.Has(Op::kAxis) && !e.Has(Op::kLoad); }

// How the language names a type in messages: an index is an i64.
std::string TypeText(const Value& v) {
  if (v.weak) return v.type() == DType::kI64 ? "a whole number" : "a float number";
  if (v.type() == DType::kI64) return "an index";
  return std::string(Name(v.type()));
}

std::string ConversionHint(const Value& a, const Value& b) {
  auto index = [](const Value& v) { return !v.weak && v.type() == DType::kI64; };
  if (index(a) || index(b)) {
    DType other = index(a) ? b.type() : a.type();
    return IsFloat(other) ? "convert the index with float(i)"
                          : fmt::format("convert the index with {}(i)", Name(other));
  }
  if (IsFloat(a.type()) != IsFloat(b.type())) return "convert the integer with float(x)";
  return fmt::format("convert one of them, as in {}(x)", Name(a.type()));
}

// A number of a narrow float is the nearest one that the type has.
Expr Literal(double value, DType type) { return Float(IsNarrowFloat(type) ? RoundedTo(type, value) : value, type); }

Result<void> WantsArguments(const std::vector<Value>& args, size_t count, std::string_view spelling) {
  if (args.size() == count) return {};
  return Bad(fmt::format("saw {} argument{}, wanted {}", args.size(), args.size() == 1 ? "" : "s", spelling));
}

}  // namespace

Error TooHigh(const ParseLimits& limits) {
  return Error{
      ErrorKind::kLimit,
      fmt::format("an expression of more than {} operators in a chain; split it into several statements or use "
                  "a reduction",
                  limits.height),
      ""};
}

bool FitsInto(int64_t value, DType type) {
  const DTypeTraits& traits = TraitsOf(type);
  return traits.is_float || (value >= traits.lowest && value <= traits.highest);
}

Value ValueBuilder::Leaf(Expr expr, bool weak) { return Value{Intern(std::move(expr)), weak}; }

Result<Value> ValueBuilder::Make(Expr expr, bool weak) {
  if (expr.nodes() > static_cast<uint32_t>(limits_.nodes))
    return Error{ErrorKind::kLimit,
                 fmt::format("an expression of more than {} operands and operators; split it into several statements",
                             limits_.nodes),
                 ""};
  if (expr.height() > limits_.height) return TooHigh(limits_);
  return Value{Intern(std::move(expr)), weak};
}

Result<Expr> ValueBuilder::Retype(const Expr& weak, DType type) {
  auto mismatch = [&](std::string_view what) {
    return Bad(fmt::format("saw {}, wanted a value of type {}", what, Name(type)));
  };
  switch (weak.op()) {
    case Op::kInt:
      if (IsFloat(type)) return Intern(Literal(static_cast<double>(weak.int_value()), type));
      if (!FitsInto(weak.int_value(), type) || type == DType::kBool)
        return mismatch(fmt::format("the number {}", weak.int_value()));
      return Intern(Int(weak.int_value(), type));
    case Op::kFloat:
      if (!IsFloat(type)) return mismatch(fmt::format("the number {}", weak.float_value()));
      return Intern(Literal(weak.float_value(), type));
    case Op::kCast:
      if (!IsFloat(type)) return mismatch("a float number");
      return Intern(CastTo(type, weak.arg(0)));
    default: break;
  }
  if (!IsFloat(type) && (type != DType::kI32 && type != DType::kI64) && weak.op() != Op::kSelect)
    return mismatch("arithmetic");
  const bool chooses = weak.op() == Op::kSelect || weak.op() == Op::kMin || weak.op() == Op::kMax;
  if (IsNarrowFloat(type) && !chooses) return Intern(CastTo(type, HONE_TRY(Retype(weak, TraitsOf(type).accumulator))));
  std::vector<Expr> args;
  for (size_t i = 0; i < weak.args().size(); ++i) {
    bool condition = weak.op() == Op::kSelect && i == 0;
    args.push_back(condition ? weak.arg(0) : HONE_TRY(Retype(weak.arg(i), type)));
  }
  return Intern(Expr(weak.op(), type, std::move(args), weak.int_value(), weak.float_value()));
}

Result<Value> ValueBuilder::Adapt(Value value, DType type) {
  if (value.weak) {
    value.expr = HONE_TRY(Retype(value.expr, type));
    value.weak = false;
    return value;
  }
  if (value.type() == type) return value;
  std::string hint = value.type() == DType::kI64 && IsFloat(type) ? "float" : std::string(Name(type));
  return Bad(fmt::format("saw a value of type {}, wanted {}; convert it with {}(…)",
                         value.type() == DType::kI64 ? "index" : Name(value.type()), Name(type), hint));
}

Result<Value> ValueBuilder::Widen(Value value) {
  const DTypeTraits& traits = TraitsOf(value.type());
  if (traits.accumulator == traits.type) return value;
  return Make(CastTo(traits.accumulator, value.expr));
}

// Both with one type, or both weak and of one kind.
Result<void> ValueBuilder::Same(Value& a, Value& b) {
  if (a.weak && b.weak) {
    if (a.type() == b.type()) return {};
    Value& whole = a.type() == DType::kI64 ? a : b;
    whole.expr = HONE_TRY(Retype(whole.expr, DType::kF32));
    return {};
  }
  Value& weak = a.weak ? a : b;
  const Value& other = a.weak ? b : a;
  if (weak.weak) {
    if (weak.type() == DType::kF32 && !IsFloat(other.type()))
      return Bad(fmt::format("saw {} beside {}; {}", TypeText(weak), TypeText(other), ConversionHint(a, b)));
    weak = HONE_TRY(Adapt(weak, other.type()));
    return {};
  }
  if (a.type() != b.type())
    return Bad(fmt::format("saw {} beside {}, wanted operands of one type; {}", TypeText(a), TypeText(b),
                           ConversionHint(a, b)));
  return {};
}

Result<Value> ValueBuilder::Arithmetic(Op op, Value a, Value b, bool index) {
  a = HONE_TRY(Widen(a));
  b = HONE_TRY(Widen(b));
  if (a.type() == DType::kBool || b.type() == DType::kBool)
    return Bad("saw a bool in arithmetic; convert it with i32(b) or float(b), or choose with if(b, x, y)");
  bool divides = op == Op::kDiv || op == Op::kMod;
  if (divides && IsZero(b)) return Bad("division by zero; the divisor must not be 0");
  if (op == Op::kDiv && !index && a.weak && b.weak && a.type() == DType::kI64 && b.type() == DType::kI64)
    a.expr = HONE_TRY(Retype(a.expr, DType::kF32));
  HONE_TRY(Same(a, b));
  bool weak = a.weak && b.weak;
  if (IsFloat(a.type())) {
    if (op == Op::kMod) return Bad("\"%\" works on integers, saw floats; write x - y * floor(x / y)");
    if (weak && IsLiteral(a) && IsLiteral(b)) {
      double folded = ReferenceValue(op, LiteralValue(a), LiteralValue(b));
      if (std::isfinite(folded)) return Leaf(Float(folded), true);
    }
    return Make(Expr(op, a.type(), {a.expr, b.expr}), weak);
  }
  if (divides) {
    if (!OverSizesOnly(b.expr))
      return Bad(
          fmt::format("saw \"{}\" of integers by something that varies, wanted a positive constant or size as the "
                      "divisor; for values convert to float(x) first",
                      op == Op::kDiv ? "/" : "%"));
    if (IsLiteral(b) && b.expr.int_value() < 0)
      return Bad(fmt::format("saw a division by {}, wanted a positive divisor", b.expr.int_value()));
    if (op == Op::kDiv) op = Op::kFloorDiv;
  }
  Expr made = Binary(op, a.expr, b.expr);
  if (weak && made.op() != Op::kInt && IsLiteral(a) && IsLiteral(b)) return Bad("the number does not fit into 63 bits");
  return Make(made, weak);
}

Result<Value> ValueBuilder::Compare(Op op, Value a, Value b) {
  HONE_TRY(Same(a, b));
  if (a.weak) a = HONE_TRY(Strong(a));
  if (b.weak) b = HONE_TRY(Strong(b));
  if (a.type() == DType::kBool && op != Op::kEq && op != Op::kNe)
    return Bad("saw an order between bools, wanted numbers; compare bools with == and !=");
  return Make(Expr(op, DType::kBool, {a.expr, b.expr}));
}

Result<Value> ValueBuilder::Logic(Op op, Value a, Value b) {
  for (const Value& v : {a, b})
    if (v.type() != DType::kBool)
      return Bad(fmt::format("saw {} beside \"{}\", wanted conditions, as in a < b", TypeText(v), OpName(op)));
  return Make(Expr(op, DType::kBool, {a.expr, b.expr}));
}

Result<Value> ValueBuilder::Not(Value a) {
  if (a.type() != DType::kBool) return Bad(fmt::format("saw {} after \"not\", wanted a condition", TypeText(a)));
  return Make(Unary(Op::kNot, a.expr));
}

// -x is -1 * x, which is exact and keeps the sign of a zero.
Result<Value> ValueBuilder::Negate(Value a, bool index) {
  if (a.weak && a.expr.op() == Op::kInt) return Arithmetic(Op::kSub, Leaf(Int(0), true), a, index);
  if (a.weak && a.expr.op() == Op::kFloat) return Leaf(Float(-a.expr.float_value()), true);
  return Arithmetic(Op::kMul, Leaf(Int(-1), true), a, index);
}

Result<Value> ValueBuilder::Cast(DType type, Value value) {
  if (!TraitsOf(type).is_computed)
    return Error{ErrorKind::kUnsupported, fmt::format("{} is not on this target yet; use f32", Name(type)), ""};
  if (type == DType::kBool) {
    if (value.type() == DType::kBool) return value;
    return Compare(Op::kNe, value, Leaf(Int(0), true));
  }
  if (value.weak && value.type() == DType::kF32 && !IsFloat(type)) {
    if (value.expr.op() == Op::kFloat) {
      double whole = std::trunc(value.expr.float_value());
      if (!(std::abs(whole) < 0x1p62) || !FitsInto(static_cast<int64_t>(whole), type))
        return Bad(fmt::format("saw {}, which {} cannot hold", value.expr.float_value(), Name(type)));
      return Leaf(Int(static_cast<int64_t>(whole), type));
    }
    value = HONE_TRY(Strong(value));
  }
  if (value.weak) return Adapt(value, type);
  // A float becomes an index by way of an i32, which saturates.
  if (type == DType::kI64 && IsFloat(value.type())) value = HONE_TRY(Make(CastTo(DType::kI32, value.expr)));
  return Make(CastTo(type, value.expr));
}

Result<Value> ValueBuilder::Activation(std::string_view name, Value v) {
  auto literal = [&](double x) { return Leaf(Float(x), true); };
  auto arithmetic = [&](Op op, Value a, Value b) { return Arithmetic(op, a, b, false); };
  // Integers have a relu too; the other activations are functions of reals.
  if (name == "relu") return Call("max", {v, Leaf(Int(0), true)});
  if (name == "relu6") return Call("min", {HONE_TRY(Call("max", {v, Leaf(Int(0), true)})), Leaf(Int(6), true)});
  if (name == "sigmoid" || name == "silu") {
    Value e = HONE_TRY(Call("exp", {HONE_TRY(Negate(v, false))}));
    Value numerator = name == "silu" ? v : literal(1);
    return arithmetic(Op::kDiv, numerator, HONE_TRY(arithmetic(Op::kAdd, literal(1), e)));
  }
  if (name == "gelu") {  // x/2 · (1 + erf(x/√2))
    Value erf = HONE_TRY(Call("erf", {HONE_TRY(arithmetic(Op::kMul, v, literal(0.70710678118654752)))}));
    Value half = HONE_TRY(arithmetic(Op::kMul, literal(0.5), v));
    return arithmetic(Op::kMul, half, HONE_TRY(arithmetic(Op::kAdd, literal(1), erf)));
  }
  if (name == "gelu_tanh") {  // x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))
    Value square = HONE_TRY(arithmetic(Op::kMul, v, v));
    Value cubic = HONE_TRY(arithmetic(Op::kMul, literal(0.044715), HONE_TRY(arithmetic(Op::kMul, square, v))));
    Value sum = HONE_TRY(arithmetic(Op::kAdd, v, cubic));
    Value tanh = HONE_TRY(Call("tanh", {HONE_TRY(arithmetic(Op::kMul, literal(0.79788456080286536), sum))}));
    Value half = HONE_TRY(arithmetic(Op::kMul, literal(0.5), v));
    return arithmetic(Op::kMul, half, HONE_TRY(arithmetic(Op::kAdd, literal(1), tanh)));
  }
  HONE_CHECK(name == "hardswish");  // x · relu6(x + 3) / 6
  Value clipped = HONE_TRY(Activation("relu6", HONE_TRY(arithmetic(Op::kAdd, v, literal(3)))));
  return arithmetic(Op::kDiv, HONE_TRY(arithmetic(Op::kMul, v, clipped)), literal(6));
}

Result<void> ValueBuilder::ToFloat(std::string_view function, Value& v) {
  if (v.weak && v.type() == DType::kI64) v.expr = HONE_TRY(Retype(v.expr, DType::kF32));
  if (IsFloat(v.type())) return {};
  return Bad(
      fmt::format("saw {} as the argument of {}, wanted a float; convert it with float(…)", TypeText(v), function));
}

Result<Value> ValueBuilder::Function(const OpTraits& function, std::vector<Value> args) {
  HONE_TRY(WantsArguments(args, static_cast<size_t>(function.arity),
                          fmt::format("{}({})", function.name, function.arity == 1 ? "x" : "x, y")));
  for (Value& arg : args) {
    if (function.takes == TypeSet::kFloats) HONE_TRY(ToFloat(function.name, arg));
    arg = HONE_TRY(Widen(arg));
    if (!Contains(function.takes, arg.type()))
      return Bad(fmt::format("saw {} as the argument of {}, wanted {}", TypeText(arg), function.name,
                             function.takes == TypeSet::kIntegers ? "an integer" : "a number"));
  }
  if (args.size() == 2) HONE_TRY(Same(args[0], args[1]));
  std::vector<Expr> operands;
  for (const Value& arg : args) operands.push_back(arg.expr);
  DType type = operands[0].type();
  return Make(Expr(function.op, type, std::move(operands)), args[0].weak);
}

// min and max, of two values or more.
Result<Value> ValueBuilder::Extreme(Op op, const std::vector<Value>& args) {
  std::string_view name = OpName(op);
  if (args.size() < 2)
    return Bad(fmt::format("saw {} argument{}, wanted {}(a, b); a reduction is written {}(k) x[k]", args.size(),
                           args.size() == 1 ? "" : "s", name, name));
  Value result = args[0];
  for (Value next : std::span(args).subspan(1)) {
    HONE_TRY(Same(result, next));
    if (result.type() == DType::kBool) return Bad(fmt::format("saw bools in {}, wanted numbers; use and, or", name));
    bool weak = result.weak && next.weak;
    result = HONE_TRY(Make(Binary(op, result.expr, next.expr), weak));
  }
  return result;
}

Result<Value> ValueBuilder::Call(std::string_view name, std::vector<Value> args) {
  auto wants = [&](size_t count, std::string_view spelling) { return WantsArguments(args, count, spelling); };
  for (std::string_view activation : kActivations) {
    if (name != activation) continue;
    HONE_TRY(wants(1, fmt::format("{}(x)", name)));
    if (!name.starts_with("relu")) HONE_TRY(ToFloat(name, args[0]));
    return Activation(name, args[0]);
  }
  if (name == "clamp") {
    HONE_TRY(wants(3, "clamp(x, lo, hi)"));
    Value upper = HONE_TRY(Call("min", {args[0], args[2]}));
    return Call("max", {upper, args[1]});
  }
  if (name == "float") {
    HONE_TRY(wants(1, "float(i)"));
    if (args[0].weak && args[0].type() == DType::kI64) args[0].expr = HONE_TRY(Retype(args[0].expr, DType::kF32));
    if (IsFloat(args[0].type())) return args[0];
    return Make(CastTo(DType::kF32, args[0].expr), true);
  }
  if (const OpTraits* function = FunctionNamed(name)) {
    if (function->op == Op::kMin || function->op == Op::kMax) return Extreme(function->op, args);
    if (function->op != Op::kSelect) return Function(*function, std::move(args));
    HONE_TRY(wants(3, "if(condition, a, b)"));
    if (args[0].type() != DType::kBool)
      return Bad(
          fmt::format("saw {} as the condition of if, wanted a comparison, as in if(a < b, x, y)", TypeText(args[0])));
    HONE_TRY(Same(args[1], args[2]));
    return Make(SelectOf(args[0].expr, args[1].expr, args[2].expr), args[1].weak && args[2].weak);
  }
  std::string_view type_name = name == "int" ? "i64" : name;
  if (std::optional<DType> type = ParseDType(type_name)) {
    HONE_TRY(wants(1, fmt::format("{}(x)", name)));
    return Cast(*type, args[0]);
  }
  return Error{ErrorKind::kNotFound, fmt::format("unknown function \"{}\"", name), ""};
}

std::vector<std::string_view> FunctionNames() {
  std::vector<std::string_view> names;
  for (const OpTraits& traits : OpTable())
    if (traits.notation == Notation::kFunction) names.push_back(traits.name);
  names.insert(names.end(), {"clamp", "float", "int"});
  names.insert(names.end(), std::begin(kActivations), std::end(kActivations));
  return names;
}

}  // namespace hone
