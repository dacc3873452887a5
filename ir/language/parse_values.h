// Typed values while a kernel is read: which operands go together, what literals become, what functions mean. A value
// is weak while only literals and float() have said what it is; it takes the type of what it meets.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/graph/expr.h"
#include "ir/graph/expr_table.h"
#include "ir/language/parse.h"

namespace hone {

struct OpTraits;

struct Value {
  Expr expr;
  bool weak = false;  // i64: whole literals; f32: literals and float(…)

  DType type() const { return expr.type(); }
};

// Makes expressions and gives equal ones one node, so that later passes can remember results by node. Errors carry no
// place: the caller knows it.
class ValueBuilder {
 public:
  explicit ValueBuilder(const ParseLimits& limits) : limits_(limits) {}

  // kLimit for an expression that is too large or too high, whatever names and functions it was written with.
  Result<Value> Make(Expr expr, bool weak = false);
  Value Leaf(Expr expr, bool weak = false);

  // kAdd kSub kMul kDiv kMod. In index arithmetic 7/2 is 3; elsewhere two literals divide to a float.
  Result<Value> Arithmetic(Op op, Value a, Value b, bool index);
  Result<Value> Compare(Op op, Value a, Value b);
  Result<Value> Logic(Op op, Value a, Value b);
  Result<Value> Not(Value a);
  Result<Value> Negate(Value a, bool index);
  // Any function of values by its name; pad and reductions are not. kNotFound if there is no such function.
  Result<Value> Call(std::string_view name, std::vector<Value> args);

  // The value as `type`: a weak one takes it, another must have it.
  Result<Value> Adapt(Value value, DType type);
  // The type that a weak value has when nothing else says: i64 or f32.
  Result<Value> Strong(Value value) { return Adapt(value, value.type()); }
  // i8 becomes i32: arithmetic on i8 is done in i32.
  Result<Value> Widen(Value value);

 private:
  Result<void> Same(Value& a, Value& b);  // adapts the weak one to the other; the error says how to convert
  Result<Value> Cast(DType type, Value value);
  Result<Value> Activation(std::string_view name, Value v);
  Result<Value> Function(const OpTraits& function, std::vector<Value> args);
  Result<Value> Extreme(Op op, const std::vector<Value>& args);
  Result<void> ToFloat(std::string_view function, Value& v);  // of a literal; others must be floats
  Result<Expr> Retype(const Expr& weak, DType type);
  Expr Intern(Expr expr) { return table_.Intern(std::move(expr)); }

  const ParseLimits& limits_;
  ExprTable table_;
};

// All that Call knows, except types.
std::vector<std::string_view> FunctionNames();

bool FitsInto(int64_t value, DType type);

// What is said of an expression that is higher than the limit.
Error TooHigh(const ParseLimits& limits);

}  // namespace hone
