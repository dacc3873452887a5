// Operators that compute element by element.
#include <fmt/format.h>

#include <limits>

#include "ir/graph/dtype_traits.h"
#include "network/onnx/small_types.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

template <typename Make>
Result<Outputs> One(Make&& make) {
  return Outputs{HONE_TRY(make())};
}

constexpr double kLargest = std::numeric_limits<float>::max();

std::string_view UnaryFunction(std::string_view op) {
  struct Pair {
    std::string_view op, function;
  };
  constexpr Pair kPairs[] = {{"Relu", "relu"},   {"Sigmoid", "sigmoid"}, {"Tanh", "tanh"},  {"Exp", "exp"},
                             {"Log", "log"},     {"Sqrt", "sqrt"},       {"Erf", "erf"},    {"Abs", "abs"},
                             {"Floor", "floor"}, {"Neg", "neg"},         {"Not", "not"},    {"HardSwish", "hardswish"},
                             {"Sin", "sin"},     {"Cos", "cos"},         {"Round", "round"}};
  for (const Pair& pair : kPairs) {
    if (pair.op == op) return pair.function;
  }
  return "";
}

std::string_view BinaryFunction(std::string_view op) {
  struct Pair {
    std::string_view op, function;
  };
  constexpr Pair kPairs[] = {{"Add", "add"}, {"Sub", "sub"},        {"Mul", "mul"},    {"Div", "div"},
                             {"And", "and"}, {"Or", "or"},          {"Equal", "eq"},   {"Less", "lt"},
                             {"Xor", "ne"},  {"LessOrEqual", "le"}, {"Greater", "gt"}, {"GreaterOrEqual", "ge"},
                             {"Max", "max"}, {"Min", "min"},        {"Sum", "add"},    {"Mean", "add"}};
  for (const Pair& pair : kPairs) {
    if (pair.op == op) return pair.function;
  }
  return "";
}

bool IsWithoutSign(DType dtype) { return !IsFloat(dtype) && TraitsOf(dtype).lowest == 0; }

Result<Outputs> Unary(OperatorCall& call) {
  if (call.node().op == "Abs" && IsWithoutSign(call.build.dtype(call.In(0)))) return Outputs{call.In(0)};
  return Outputs{HONE_TRY(call.build.Unary(UnaryFunction(call.node().op), call.In(0)))};
}

Result<Outputs> Binary(OperatorCall& call) {
  return Outputs{HONE_TRY(call.build.Binary(BinaryFunction(call.node().op), call.In(0), call.In(1)))};
}

// Any number of operands.
Result<Outputs> Variadic(OperatorCall& call) {
  ValueId result = call.In(0);
  for (size_t i = 1; i < call.input_count(); ++i) {
    if (!call.Has(i)) continue;
    result = HONE_TRY(call.build.Binary(BinaryFunction(call.node().op), result, call.In(i)));
  }
  if (call.node().op == "Mean" && call.input_count() > 1) {
    ValueId count = call.build.Scalar(static_cast<double>(call.input_count()), call.build.dtype(result));
    result = HONE_TRY(call.build.Binary("div", result, count));
  }
  return Outputs{result};
}

// The exponent may be of another type.
// The power is of the base's type, but a whole number to the power of a real one is computed as a real one.
Result<Outputs> Pow(OperatorCall& call) {
  const DType dtype = call.build.dtype(call.In(0));
  if (!IsFloat(dtype) && IsFloat(call.build.dtype(call.In(1)))) {
    const ValueId base = HONE_TRY(call.build.Cast(call.In(0), DType::kF64));
    const ValueId exponent = HONE_TRY(call.build.Cast(call.In(1), DType::kF64));
    return Outputs{HONE_TRY(call.build.Cast(HONE_TRY(call.build.Binary("pow", base, exponent)), dtype))};
  }
  ValueId exponent = HONE_TRY(call.build.Cast(call.In(1), dtype));
  std::optional<double> power = call.build.graph().ScalarOf(exponent);
  if (power == 2.0) return Outputs{HONE_TRY(call.build.Binary("mul", call.In(0), call.In(0)))};
  if (power == 1.0 && CountOf(call.shape(1)) == 1 && call.rank(1) <= call.rank(0)) return Outputs{call.In(0)};
  if (power == 0.5) return Outputs{HONE_TRY(call.build.Unary("sqrt", call.In(0)))};
  return Outputs{HONE_TRY(call.build.Binary("pow", call.In(0), exponent))};
}

Result<Outputs> Mod(OperatorCall& call) {
  const bool has_dividends_sign = call.Whole("fmod", 0) != 0;
  return Outputs{HONE_TRY(call.build.Binary(has_dividends_sign ? "fmod" : "mod", call.In(0), call.In(1)))};
}

Result<Outputs> Gelu(OperatorCall& call) {
  bool is_tanh = call.Text("approximate", "none") == "tanh";
  return Outputs{HONE_TRY(call.build.Unary(is_tanh ? "gelu_tanh" : "gelu", call.In(0)))};
}

// onnxruntime's: with a bias that is added before.
Result<Outputs> BiasGelu(OperatorCall& call) {
  ValueId x = call.In(0);
  if (call.Has(1)) x = HONE_TRY(call.build.Binary("add", x, call.In(1)));
  return Outputs{HONE_TRY(call.build.Unary(call.node().op == "FastGelu" ? "gelu_tanh" : "gelu", x))};
}

// x · sigmoid(alpha · x)
Result<Outputs> QuickGelu(OperatorCall& call) {
  ValueId x = call.In(0);
  ValueId scaled =
      HONE_TRY(call.build.Binary("mul", x, call.build.Scalar(call.Real("alpha", 1.702), call.build.dtype(x))));
  return Outputs{HONE_TRY(call.build.Binary("mul", x, HONE_TRY(call.build.Unary("sigmoid", scaled))))};
}

Result<Outputs> Identity(OperatorCall& call) { return Outputs{call.In(0)}; }

// A tensor is there, and nothing is not. Optional values that are computed are none of the graph's.
Result<Outputs> OptionalHasElement(OperatorCall& call) {
  return Outputs{call.build.Scalar(call.Has(0) ? 1 : 0, DType::kBool)};
}

// At inference it changes nothing, as in training where it drops nothing; its mask is all true.
Result<Outputs> Dropout(OperatorCall& call) {
  const bool drops = !call.Has(1) || call.build.graph().ScalarOf(call.In(1)).value_or(1) != 0;
  if (drops && call.Has(2) && call.build.graph().ScalarOf(call.In(2)).value_or(1) != 0)
    return call.build.Unsupported("training_mode: it drops at random");
  Outputs outputs{call.In(0)};
  if (call.node().outputs.size() > 1) {
    ValueId truth = call.build.Scalar(1, DType::kBool);
    outputs.push_back(HONE_TRY(call.build.Expand(truth, call.shape(0))));
  }
  return outputs;
}

// Bounds: attributes before opset 11, inputs since; missing ones bound nothing.
Result<Outputs> Clip(OperatorCall& call) {
  ValueId x = call.In(0);
  for (bool is_upper : {false, true}) {
    size_t i = is_upper ? 2 : 1;
    if (const OnnxAttribute* bound = call.Find(is_upper ? "max" : "min"); bound != nullptr && call.opset() < 11) {
      if (bound->real == (is_upper ? kLargest : -kLargest)) continue;
      ValueId limit = call.build.Scalar(bound->real, call.build.dtype(x));
      x = HONE_TRY(call.build.Binary(is_upper ? "min" : "max", x, limit));
      continue;
    }
    if (!call.Has(i)) continue;
    if (CountOf(call.shape(i)) != 1) return call.build.Invalid("its bounds are no scalars");
    if (call.build.dtype(call.In(i)) == DType::kF32 &&
        call.build.graph().ScalarOf(call.In(i)) == (is_upper ? kLargest : -kLargest)) {
      continue;
    }
    ValueId bound = HONE_TRY(call.build.Reshape(call.In(i), {}));
    x = HONE_TRY(call.build.Binary(is_upper ? "min" : "max", x, bound));
  }
  return Outputs{x};
}

Result<Outputs> Reciprocal(OperatorCall& call) {
  ValueId one = call.build.Scalar(1, call.build.dtype(call.In(0)));
  return Outputs{HONE_TRY(call.build.Binary("div", one, call.In(0)))};
}

Result<Outputs> Ceil(OperatorCall& call) {
  ValueId negative = HONE_TRY(call.build.Unary("neg", call.In(0)));
  return Outputs{HONE_TRY(call.build.Unary("neg", HONE_TRY(call.build.Unary("floor", negative))))};
}

// x where it is positive, what `other` makes of it elsewhere.
template <typename Other>
Result<Outputs> WherePositive(OperatorCall& call, const Other& other) {
  ValueId x = call.In(0), zero = call.build.Scalar(0, call.build.dtype(x));
  ValueId is_positive = HONE_TRY(call.build.Binary("gt", x, zero));
  return Outputs{HONE_TRY(call.build.Select(is_positive, x, HONE_TRY(other(x))))};
}

Result<Outputs> LeakyRelu(OperatorCall& call) {
  return WherePositive(call, [&](ValueId x) {
    return call.build.Binary("mul", x, call.build.Scalar(call.Real("alpha", 0.01), call.build.dtype(x)));
  });
}

Result<Outputs> PRelu(OperatorCall& call) {
  return WherePositive(call, [&](ValueId x) { return call.build.Binary("mul", x, call.In(1)); });
}

Result<Outputs> Elu(OperatorCall& call) {
  return WherePositive(call, [&](ValueId x) -> Result<ValueId> {
    DType dtype = call.build.dtype(x);
    ValueId e = HONE_TRY(call.build.Unary("exp", x));
    e = HONE_TRY(call.build.Binary("sub", e, call.build.Scalar(1, dtype)));
    return call.build.Binary("mul", e, call.build.Scalar(call.Real("alpha", 1), dtype));
  });
}

// max(0, min(1, alpha·x + beta))
Result<Outputs> HardSigmoid(OperatorCall& call) {
  DType dtype = call.build.dtype(call.In(0));
  ValueId x = HONE_TRY(call.build.Binary("mul", call.In(0), call.build.Scalar(call.Real("alpha", 0.2), dtype)));
  x = HONE_TRY(call.build.Binary("add", x, call.build.Scalar(call.Real("beta", 0.5), dtype)));
  x = HONE_TRY(call.build.Binary("min", x, call.build.Scalar(1, dtype)));
  return Outputs{HONE_TRY(call.build.Binary("max", x, call.build.Scalar(0, dtype)))};
}

// log(1 + exp(x)) without overflow: max(x, 0) + log(1 + exp(-|x|))
Result<ValueId> SoftplusOf(OperatorCall& call, ValueId x) {
  DType dtype = call.build.dtype(x);
  ValueId small = HONE_TRY(call.build.Unary("neg", HONE_TRY(call.build.Unary("abs", x))));
  small = HONE_TRY(call.build.Unary("exp", small));
  small = HONE_TRY(call.build.Binary("add", small, call.build.Scalar(1, dtype)));
  small = HONE_TRY(call.build.Unary("log", small));
  return call.build.Binary("add", HONE_TRY(call.build.Unary("relu", x)), small);
}

Result<Outputs> Softplus(OperatorCall& call) { return Outputs{HONE_TRY(SoftplusOf(call, call.In(0)))}; }

Result<Outputs> Mish(OperatorCall& call) {
  ValueId t = HONE_TRY(call.build.Unary("tanh", HONE_TRY(SoftplusOf(call, call.In(0)))));
  return Outputs{HONE_TRY(call.build.Binary("mul", call.In(0), t))};
}

Result<Outputs> Where(OperatorCall& call) {
  return Outputs{HONE_TRY(call.build.Select(call.In(0), call.In(1), call.In(2)))};
}

Result<Outputs> CastToSmall(OperatorCall& call, const SmallType& type) {
  SmallRounding rounding{call.Whole("saturate", 1) != 0, SmallRounding::Mode::kNearest};
  const std::string mode = call.Text("round_mode", "up");
  if (mode != "up" && mode != "down" && mode != "nearest") return call.build.Invalid("round_mode=" + mode);
  if (mode != "nearest") rounding.mode = mode == "up" ? SmallRounding::Mode::kUp : SmallRounding::Mode::kDown;
  return Outputs{HONE_TRY(CastTo(call.build, type, call.In(0), rounding))};
}

Result<Outputs> Cast(OperatorCall& call) {
  const int64_t to = call.Whole("to", 0);
  if (const SmallType* small = SmallTypeOf(to); small != nullptr) return CastToSmall(call, *small);
  const std::optional<DType> dtype = ElementTypeOf(to);
  if (!dtype) return call.build.Unsupported(fmt::format("it casts to ONNX's element type {}", to));
  return Outputs{HONE_TRY(call.build.Cast(call.In(0), *dtype))};
}

Result<Outputs> CastLike(OperatorCall& call) {
  if (const SmallType* small = SmallTypeOf(call.Whole("hone_to", 0)); small != nullptr)
    return CastToSmall(call, *small);
  return Outputs{HONE_TRY(call.build.Cast(call.In(0), call.build.dtype(call.In(1))))};
}

}  // namespace

std::vector<Operator> ElementwiseOperators() {
  std::vector<Operator> table = {
      {"Gelu", 1, Gelu},
      {"com.microsoft.Gelu", 1, BiasGelu},
      {"com.microsoft.BiasGelu", 2, BiasGelu},
      {"com.microsoft.FastGelu", 1, BiasGelu},
      {"com.microsoft.QuickGelu", 1, QuickGelu},
      {"Identity", 1, Identity},
      {"OptionalGetElement", 1, Identity},
      {"OptionalHasElement", 0, OptionalHasElement},
      {"Dropout", 1, Dropout},
      {"Clip", 1, Clip},
      {"Reciprocal", 1, Reciprocal},
      {"Ceil", 1, Ceil},
      {"LeakyRelu", 1, LeakyRelu},
      {"PRelu", 2, PRelu},
      {"Elu", 1, Elu},
      {"HardSigmoid", 1, HardSigmoid},
      {"Softplus", 1, Softplus},
      {"Mish", 1, Mish},
      {"Where", 3, Where},
      {"Cast", 1, Cast},
      {"CastLike", 2, CastLike},
      {"Pow", 2, Pow},
      {"Mod", 2, Mod},
      {"Max", 1, Variadic},
      {"Min", 1, Variadic},
      {"Sum", 1, Variadic},
      {"Mean", 1, Variadic},
  };
  for (std::string_view op : {"Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Erf", "Abs", "Floor", "Neg", "Not",
                              "HardSwish", "Sin", "Cos", "Round"}) {
    table.push_back({op, 1, Unary});
  }
  for (std::string_view op :
       {"Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}) {
    table.push_back({op, 2, Binary});
  }
  return table;
}

}  // namespace hone
