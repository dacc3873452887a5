// Functions and losses that become several nodes, and those that no kernel computes yet, which run on the host.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "network/graph/line_walk.h"
#include "network/graph/on_elements.h"
#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using Computed = Result<std::vector<Numbers>>;

// ---- Of one element, on the host

struct RealFunction {
  std::string_view name;
  double (*compute)(double x);
  float (*in_floats)(float x);
};

constexpr RealFunction kRealFunctions[] = {
    {"Tan", [](double x) { return std::tan(x); }, [](float x) { return std::tan(x); }},
    {"Asin", [](double x) { return std::asin(x); }, [](float x) { return std::asin(x); }},
    {"Acos", [](double x) { return std::acos(x); }, [](float x) { return std::acos(x); }},
    {"Atan", [](double x) { return std::atan(x); }, [](float x) { return std::atan(x); }},
    {"Sinh", [](double x) { return std::sinh(x); }, [](float x) { return std::sinh(x); }},
    {"Cosh", [](double x) { return std::cosh(x); }, [](float x) { return std::cosh(x); }},
    {"Asinh", [](double x) { return std::asinh(x); }, [](float x) { return std::asinh(x); }},
    {"Acosh", [](double x) { return std::acosh(x); }, [](float x) { return std::acosh(x); }},
    {"Atanh", [](double x) { return std::atanh(x); }, [](float x) { return std::atanh(x); }}};

Result<Outputs> OfReals(OperatorCall& call) {
  const RealFunction* function = std::find_if(std::begin(kRealFunctions), std::end(kRealFunctions),
                                              [&](const RealFunction& f) { return f.name == call.node().op; });
  const DType dtype = call.build.dtype(call.In(0));
  if (!IsFloat(dtype)) return call.build.Invalid("it wants floats");
  const Shape shape = call.shape(0);
  auto compute = [compute = function->compute, dtype, shape](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    std::transform(in[0]->real.begin(), in[0]->real.end(), out.real.begin(), compute);
    return std::vector{std::move(out)};
  };
  HostOperation host{call.node().op, "r", {{dtype, shape}}, compute};
  if (dtype == DType::kF32)
    host.run = [in_floats = function->in_floats, count = CountOf(shape)](std::span<const void* const> in,
                                                                         std::span<void* const> out) -> Result<void> {
      const auto* x = static_cast<const float*>(in[0]);
      std::transform(x, x + count, static_cast<float*>(out[0]), in_floats);
      return {};
    };
  return call.build.Host(std::move(host), {call.In(0)});
}

// The arc tangent of f32: a polynomial of what is not beyond 1, or of the reciprocal, within 2e-7 of the value
// (Abramowitz and Stegun, 4.4.49).
Result<ValueId> ArcTangent(Builder& build, ValueId x) {
  const auto number = [&](double value) { return build.Scalar(value, DType::kF32); };
  const ValueId is_above = HONE_TRY(build.Binary("gt", x, number(1)));
  const ValueId is_below = HONE_TRY(build.Binary("lt", x, number(-1)));
  const ValueId is_beyond = HONE_TRY(build.Binary("or", is_above, is_below));
  const ValueId z = HONE_TRY(build.Select(is_beyond, HONE_TRY(build.Binary("div", number(-1), x)), x));
  const ValueId square = HONE_TRY(build.Binary("mul", z, z));
  ValueId sum = number(0.0028662257);
  for (double factor :
       {-0.0161657367, 0.0429096138, -0.0752896400, 0.1065626393, -0.1420889944, 0.1999355085, -0.3333314528}) {
    sum = HONE_TRY(build.Binary("mul", sum, square));
    sum = HONE_TRY(build.Binary("add", sum, number(factor)));
  }
  sum = HONE_TRY(build.Binary("mul", HONE_TRY(build.Binary("mul", sum, square)), z));
  sum = HONE_TRY(build.Binary("add", sum, z));
  const ValueId below = HONE_TRY(build.Select(is_below, number(-std::numbers::pi / 2), number(0)));
  const ValueId turned = HONE_TRY(build.Select(is_above, number(std::numbers::pi / 2), below));
  return build.Binary("add", sum, turned);
}

// Atan, and by half the angle asin(x) = 2 atan(x / (1 + √((1 − x)(1 + x)))), acos(x) = 2 atan(√((1 − x) / (1 + x))): of
// f32 and less as a kernel.
Result<Outputs> ByArcTangent(OperatorCall& call) {
  Builder& build = call.build;
  const ValueId given = call.In(0);
  if (build.dtype(given) == DType::kF64) return OfReals(call);
  if (!IsFloat(build.dtype(given))) return build.Invalid("it wants floats");
  const ValueId x = HONE_TRY(build.Cast(given, DType::kF32));
  const ValueId one = build.Scalar(1, DType::kF32), two = build.Scalar(2, DType::kF32);
  ValueId angle = x;
  if (call.node().op != "Atan") {
    const ValueId left = HONE_TRY(build.Binary("sub", one, x)), right = HONE_TRY(build.Binary("add", one, x));
    const bool is_sine = call.node().op == "Asin";
    angle = HONE_TRY(build.Unary("sqrt", HONE_TRY(build.Binary(is_sine ? "mul" : "div", left, right))));
    if (is_sine) angle = HONE_TRY(build.Binary("div", x, HONE_TRY(build.Binary("add", one, angle))));
  }
  angle = HONE_TRY(ArcTangent(build, angle));
  if (call.node().op != "Atan") angle = HONE_TRY(build.Binary("mul", angle, two));
  return Outputs{HONE_TRY(build.Cast(angle, build.dtype(given)))};
}

// ---- Several nodes

Result<Outputs> Sign(OperatorCall& call) {
  ValueId x = call.In(0);
  const DType dtype = call.build.dtype(x);
  ValueId zero = call.build.Scalar(0, dtype);
  ValueId negative = HONE_TRY(call.build.Select(HONE_TRY(call.build.Binary("lt", x, zero)),
                                                call.build.Scalar(-1, dtype), IsFloat(dtype) ? x : zero));
  ValueId is_positive = HONE_TRY(call.build.Binary("gt", x, zero));
  return Outputs{HONE_TRY(call.build.Select(is_positive, call.build.Scalar(1, dtype), negative))};
}

Result<Outputs> IsNaN(OperatorCall& call) { return Outputs{HONE_TRY(call.build.Binary("ne", call.In(0), call.In(0)))}; }

Result<Outputs> IsInf(OperatorCall& call) {
  const bool positive = call.Whole("detect_positive", 1) != 0, negative = call.Whole("detect_negative", 1) != 0;
  const DType dtype = call.build.dtype(call.In(0));
  if (!IsFloat(dtype)) return call.build.Invalid("it wants floats");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ValueId x = call.In(0);
  if (positive && negative) x = HONE_TRY(call.build.Unary("abs", x));
  if (!positive && !negative)
    return Outputs{HONE_TRY(call.build.Expand(call.build.Scalar(0, DType::kBool), call.shape(0)))};
  return Outputs{HONE_TRY(call.build.Binary("eq", x, call.build.Scalar(positive ? kInfinity : -kInfinity, dtype)))};
}

// `above` where x is greater than zero, scale·(exp(x / width) − 1) elsewhere.
Result<ValueId> Exponential(OperatorCall& call, ValueId above, double scale, double width) {
  ValueId x = call.In(0);
  const DType dtype = call.build.dtype(x);
  ValueId e = width == 1 ? x : HONE_TRY(call.build.Binary("div", x, call.build.Scalar(width, dtype)));
  e = HONE_TRY(call.build.Unary("exp", e));
  e = HONE_TRY(call.build.Binary("sub", e, call.build.Scalar(1, dtype)));
  e = HONE_TRY(call.build.Binary("mul", e, call.build.Scalar(scale, dtype)));
  return call.build.Select(HONE_TRY(call.build.Binary("gt", x, call.build.Scalar(0, dtype))), above, e);
}

Result<Outputs> Selu(OperatorCall& call) {
  const double alpha = call.Real("alpha", 1.67326319217681884765625),
               gamma = call.Real("gamma", 1.05070102214813232421875);
  ValueId scaled =
      HONE_TRY(call.build.Binary("mul", call.In(0), call.build.Scalar(gamma, call.build.dtype(call.In(0)))));
  return Outputs{HONE_TRY(Exponential(call, scaled, alpha * gamma, 1))};
}

Result<Outputs> Celu(OperatorCall& call) {
  const double alpha = call.Real("alpha", 1);
  if (alpha == 0) return call.build.Invalid("alpha=0");
  return Outputs{HONE_TRY(Exponential(call, call.In(0), alpha, alpha))};
}

Result<Outputs> Softsign(OperatorCall& call) {
  ValueId below = HONE_TRY(call.build.Unary("abs", call.In(0)));
  below = HONE_TRY(call.build.Binary("add", below, call.build.Scalar(1, call.build.dtype(below))));
  return Outputs{HONE_TRY(call.build.Binary("div", call.In(0), below))};
}

Result<Outputs> ThresholdedRelu(OperatorCall& call) {
  const DType dtype = call.build.dtype(call.In(0));
  ValueId is_above = HONE_TRY(call.build.Binary("gt", call.In(0), call.build.Scalar(call.Real("alpha", 1), dtype)));
  return Outputs{HONE_TRY(call.build.Select(is_above, call.In(0), call.build.Scalar(0, dtype)))};
}

Result<Outputs> Shrink(OperatorCall& call) {
  const DType given = call.build.dtype(call.In(0)), dtype = IsFloat(given) ? given : DType::kF64;
  const ValueId x = HONE_TRY(call.build.Cast(call.In(0), dtype));
  const double lambda = call.Real("lambd", 0.5), bias = call.Real("bias", 0);
  ValueId low = HONE_TRY(call.build.Binary("lt", x, call.build.Scalar(-lambda, dtype)));
  ValueId high = HONE_TRY(call.build.Binary("gt", x, call.build.Scalar(lambda, dtype)));
  ValueId raised = HONE_TRY(call.build.Binary("add", x, call.build.Scalar(bias, dtype)));
  ValueId lowered = HONE_TRY(call.build.Binary("sub", x, call.build.Scalar(bias, dtype)));
  ValueId rest = HONE_TRY(call.build.Select(high, lowered, call.build.Scalar(0, dtype)));
  return Outputs{HONE_TRY(call.build.Cast(HONE_TRY(call.build.Select(low, raised, rest)), given))};
}

Result<Outputs> Swish(OperatorCall& call) {
  ValueId x = call.In(0);
  ValueId scaled = HONE_TRY(call.build.Binary("mul", x, call.build.Scalar(call.Real("alpha", 1), call.build.dtype(x))));
  return Outputs{HONE_TRY(call.build.Binary("mul", x, HONE_TRY(call.build.Unary("sigmoid", scaled))))};
}

Result<Outputs> SwiGlu(OperatorCall& call) {
  if (call.shape(0) != call.shape(1))
    return call.build.Invalid(fmt::format("a gate {} for {}", ShapeText(call.shape(0)), ShapeText(call.shape(1))));
  const Outputs gate = HONE_TRY(Swish(call));
  return Outputs{HONE_TRY(call.build.Binary("mul", gate[0], call.In(1)))};
}

// (x − mean) / (deviation + 1e-9)
Result<Outputs> MeanVariance(OperatorCall& call) {
  std::vector<int64_t> axes = call.Wholes("axes", {0, 2, 3});
  const bool is_first = call.opset() < 9;
  if (is_first && call.Whole("across_channels", 0) != 0) axes = {0, 1, 2, 3};
  axes = HONE_TRY(call.Axes(axes, call.rank(0)));
  const DType dtype = call.build.dtype(call.In(0));
  ValueId mean = HONE_TRY(call.build.Reduce("mean", call.In(0), axes));
  ValueId centred = HONE_TRY(call.build.Binary("sub", call.In(0), mean));
  if (is_first && call.Whole("normalize_variance", 1) == 0) return Outputs{centred};
  ValueId variance = HONE_TRY(call.build.Reduce("mean", HONE_TRY(call.build.Binary("mul", centred, centred)), axes));
  ValueId deviation = HONE_TRY(call.build.Unary("sqrt", variance));
  deviation = HONE_TRY(call.build.Binary("add", deviation, call.build.Scalar(1e-9, dtype)));
  return Outputs{HONE_TRY(call.build.Binary("div", centred, deviation))};
}

Result<Outputs> LpNormalization(OperatorCall& call) {
  const int64_t axis = HONE_TRY(call.Axis(call.Whole("axis", -1), call.rank(0)));
  const int64_t power = call.Whole("p", 2);
  if (power != 1 && power != 2) return call.build.Invalid(fmt::format("p={}", power));
  ValueId x = call.In(0);
  ValueId norm = power == 1 ? HONE_TRY(call.build.Unary("abs", x)) : HONE_TRY(call.build.Binary("mul", x, x));
  norm = HONE_TRY(call.build.Reduce("sum", norm, {axis}));
  if (power == 2) norm = HONE_TRY(call.build.Unary("sqrt", norm));
  // Where all is zero it stays zero.
  const DType dtype = call.build.dtype(x);
  ValueId is_zero = HONE_TRY(call.build.Binary("eq", norm, call.build.Scalar(0, dtype)));
  norm = HONE_TRY(call.build.Select(is_zero, call.build.Scalar(1, dtype), norm));
  return Outputs{HONE_TRY(call.build.Binary("div", x, norm))};
}

// ---- Whole numbers, on the host

// Calls visit(function) with what the operator computes of two whole numbers.
template <typename Visit>
void WithBitFunction(const std::string& op, bool shifts_left, const Visit& visit) {
  if (op == "BitwiseAnd") return visit([](uint64_t a, uint64_t b) { return a & b; });
  if (op == "BitwiseOr") return visit([](uint64_t a, uint64_t b) { return a | b; });
  if (op == "BitwiseXor") return visit([](uint64_t a, uint64_t b) { return a ^ b; });
  if (shifts_left) return visit([](uint64_t a, uint64_t b) { return b >= 64 ? 0 : a << b; });
  visit([](uint64_t a, uint64_t b) { return b >= 64 ? 0 : a >> b; });
}

Result<Outputs> OfWholes(OperatorCall& call) {
  const std::string op = call.node().op;
  const bool is_unary = op == "BitwiseNot", shifts_left = call.Text("direction", "LEFT") == "LEFT";
  const DType dtype = call.build.dtype(call.In(0));
  if (IsFloat(dtype)) return call.build.Invalid("it wants whole numbers");
  if (!is_unary && !call.Has(1)) return call.build.Invalid("operand 2 is missing");
  Shape shape = call.shape(0);
  if (!is_unary) {
    const Shape other = call.shape(1);
    shape.assign(std::max(call.shape(0).size(), other.size()), 1);
    for (size_t i = 0; i < shape.size(); ++i) {
      const int64_t a = i < call.shape(0).size() ? call.shape(0)[call.shape(0).size() - 1 - i] : 1;
      const int64_t b = i < other.size() ? other[other.size() - 1 - i] : 1;
      if (a != b && a != 1 && b != 1) return call.build.Invalid("its operands do not go together");
      shape[shape.size() - 1 - i] = a == 1 ? b : a;
    }
  }
  HostOperation host{op, "w=", {{dtype, shape}}};
  const Shape of_a = call.shape(0), of_b = is_unary ? Shape{} : call.shape(1);
  ComputeOnElements(host, dtype, [=]<typename T>(std::type_identity<T>, auto in, auto out) -> Result<void> {
    if constexpr (std::is_integral_v<T>) {
      const auto* a = static_cast<const T*>(in[0]);
      const auto combine = [&](auto function) {
        evaluating::ForPairs<T, T>(of_a, a, of_b, in[1], shape, out[0], function);
      };
      if (is_unary)
        std::transform(a, a + CountOf(shape), static_cast<T*>(out[0]), [](T x) { return static_cast<T>(~x); });
      else
        WithBitFunction(op, shifts_left, combine);
    }
    return {};
  });
  std::vector<ValueId> inputs = {call.In(0)};
  if (!is_unary) inputs.push_back(call.In(1));
  return call.build.Host(std::move(host), inputs);
}

// ---- Losses

// −weight[target] · x[n, target, …], reduced.
Result<Outputs> LogLikelihoodOf(OperatorCall& call, ValueId logs) {
  const Shape x = call.shape(0), target = call.shape(1);
  Shape wanted = x;
  if (x.size() < 2) return call.build.Invalid("it wants classes as the second dimension");
  wanted.erase(wanted.begin() + 1);
  if (target != wanted)
    return call.build.Invalid(fmt::format("targets of {}, wanted {}", ShapeText(target), ShapeText(wanted)));
  if (call.Has(2) && call.shape(2) != Shape{x[1]}) return call.build.Invalid("the weights are not one a class");
  const std::string reduction = call.Text("reduction", "mean");
  const bool ignores = call.Find("ignore_index") != nullptr;
  const int64_t ignored = call.Whole("ignore_index", 0);
  const Shape shape = reduction == "none" ? target : Shape{};
  const DType dtype = call.build.dtype(logs);
  const evaluating::Lines lines(x, 1);
  auto compute = [=](Arguments in) -> Computed {
    Numbers each = MakeNumbers(dtype, target);
    double total = 0, weights = 0;
    for (int64_t i = 0; i < lines.count(); ++i) {
      const int64_t picked = in[1]->whole[static_cast<size_t>(i)];
      if (ignores && picked == ignored) continue;
      if (picked < 0 || picked >= lines.extent)
        return Error{ErrorKind::kInvalid, fmt::format("target {} of {} classes", picked, lines.extent), ""};
      const double weight = in.size() > 2 ? in[2]->real[static_cast<size_t>(picked)] : 1;
      const double loss = -weight * in[0]->real[lines.At(i, picked)];
      each.real[static_cast<size_t>(i)] = loss;
      total += loss;
      weights += weight;
    }
    if (reduction == "none") return std::vector{std::move(each)};
    Numbers one = MakeNumbers(dtype, {});
    one.real[0] = reduction == "sum" ? total : total / weights;
    return std::vector{std::move(one)};
  };
  std::vector<ValueId> inputs = {logs, call.In(1)};
  if (call.Has(2)) inputs.push_back(call.In(2));
  return call.build.Host({call.node().op, "rw=", {{dtype, shape}}, compute}, inputs);
}

Result<Outputs> NegativeLogLikelihood(OperatorCall& call) { return LogLikelihoodOf(call, call.In(0)); }

Result<Outputs> CrossEntropy(OperatorCall& call) {
  ValueId x = call.In(0);
  if (call.rank(0) < 2) return call.build.Invalid("it wants classes as the second dimension");
  ValueId centred = HONE_TRY(call.build.Binary("sub", x, HONE_TRY(call.build.Reduce("max", x, {1}))));
  ValueId total = HONE_TRY(call.build.Reduce("sum", HONE_TRY(call.build.Unary("exp", centred)), {1}));
  ValueId logs = HONE_TRY(call.build.Binary("sub", centred, HONE_TRY(call.build.Unary("log", total))));
  Outputs outputs = HONE_TRY(LogLikelihoodOf(call, logs));
  outputs.push_back(logs);
  return outputs;
}

// ---- Constants

// The same bits as another type.
Result<Outputs> BitCast(OperatorCall& call) {
  const std::optional<DType> dtype = ElementTypeOf(call.Whole("to", 0));
  if (!dtype) return call.build.Unsupported(fmt::format("ONNX's element type {}", call.Whole("to", 0)));
  const DType from = call.build.dtype(call.In(0));
  if (ByteSize(*dtype) != ByteSize(from))
    return call.build.Invalid(fmt::format("{} and {} have other sizes", Name(from), Name(*dtype)));
  auto compute = [from, to = *dtype](Arguments in) -> Computed {
    HostTensor tensor = ToHost(*in[0], from);
    tensor.dtype = to;
    return std::vector{ToNumbers(tensor)};
  };
  return call.build.Host({"BitCast", ".", {{*dtype, call.shape(0)}}, compute}, {call.In(0)});
}

Result<Outputs> EyeLike(OperatorCall& call) {
  const Shape x = call.shape(0);
  if (x.size() != 2) return call.build.Invalid("it wants a matrix");
  if (CountOf(x) > (int64_t{1} << 24)) return call.build.Unsupported("a diagonal of more than 2^24 elements");
  DType dtype = call.build.dtype(call.In(0));
  if (call.Find("dtype") != nullptr) {
    const std::optional<DType> wanted = ElementTypeOf(call.Whole("dtype", 1));
    if (!wanted) return call.build.Unsupported(fmt::format("ONNX's element type {}", call.Whole("dtype", 1)));
    dtype = *wanted;
  }
  const int64_t k = std::clamp<int64_t>(call.Whole("k", 0), -(int64_t{1} << 40), int64_t{1} << 40);
  Numbers numbers = MakeNumbers(dtype, x);
  for (int64_t row = 0; row < x[0]; ++row) {
    const int64_t column = row + k;
    if (column < 0 || column >= x[1]) continue;
    const auto at = static_cast<size_t>(row * x[1] + column);
    if (numbers.is_real()) {
      numbers.real[at] = 1;
    } else {
      numbers.whole[at] = 1;
    }
  }
  return Outputs{call.build.Constant(numbers)};
}

}  // namespace

std::vector<Operator> FunctionOperators() {
  std::vector<Operator> table = {{"Sign", 1, Sign},
                                 {"IsNaN", 1, IsNaN},
                                 {"IsInf", 1, IsInf},
                                 {"Selu", 1, Selu},
                                 {"Celu", 1, Celu},
                                 {"Softsign", 1, Softsign},
                                 {"ThresholdedRelu", 1, ThresholdedRelu},
                                 {"Shrink", 1, Shrink},
                                 {"Swish", 1, Swish},
                                 {"SwiGLU", 2, SwiGlu},
                                 {"MeanVarianceNormalization", 1, MeanVariance},
                                 {"LpNormalization", 1, LpNormalization},
                                 {"BitwiseAnd", 2, OfWholes},
                                 {"BitwiseOr", 2, OfWholes},
                                 {"BitwiseXor", 2, OfWholes},
                                 {"BitwiseNot", 1, OfWholes},
                                 {"BitShift", 2, OfWholes},
                                 {"NegativeLogLikelihoodLoss", 2, NegativeLogLikelihood},
                                 {"SoftmaxCrossEntropyLoss", 2, CrossEntropy},
                                 {"Einsum", 1, Einsum},
                                 {"BitCast", 1, BitCast},
                                 {"EyeLike", 1, EyeLike}};
  for (const RealFunction& function : kRealFunctions) {
    const bool by_tangent = function.name == "Atan" || function.name == "Asin" || function.name == "Acos";
    table.push_back({function.name, 1, by_tangent ? ByArcTangent : OfReals});
  }
  return table;
}

}  // namespace hone
