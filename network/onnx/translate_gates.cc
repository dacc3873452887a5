// onnxruntime's short chains of element-wise work around linear attention and experts (com.microsoft), taken apart:
// this graph's own rules fuse.
#include <fmt/format.h>

#include "network/onnx/translate.h"

namespace hone {
namespace {

Result<ValueId> SwishOf(Builder& build, ValueId x) {
  return build.Binary("mul", x, HONE_TRY(build.Unary("sigmoid", x)));
}

// x in rows of the scale's length, normalised; times the scale; times the gate's activation.
Result<Outputs> GatedRmsNorm(OperatorCall& call) {
  Builder& build = call.build;
  const Shape x = call.shape(0);
  const int64_t row = CountOf(call.shape(1));
  const std::string function = call.Text("activation", "silu");
  if (x.empty() || call.rank(1) != 1 || row < 1 || x.back() % row != 0 || call.shape(2) != x)
    return build.Invalid(
        fmt::format("{}, a scale {} and a gate {}", ShapeText(x), ShapeText(call.shape(1)), ShapeText(call.shape(2))));
  if (function != "silu" && function != "swish" && function != "sigmoid")
    return build.Invalid("activation=" + function);
  const DType dtype = build.dtype(call.In(0));
  ValueId y = HONE_TRY(build.Reshape(HONE_TRY(build.Cast(call.In(0), DType::kF32)), {CountOf(x) / row, row}));
  y = HONE_TRY(OverRootMeanSquare(build, y, {1}, call.Real("epsilon", 1e-5)));
  y = HONE_TRY(build.Binary("mul", y, HONE_TRY(build.Cast(call.In(1), DType::kF32))));
  y = HONE_TRY(build.Reshape(y, x));
  const ValueId gate = HONE_TRY(build.Cast(call.In(2), DType::kF32));
  y = HONE_TRY(build.Binary(
      "mul", y, function == "sigmoid" ? HONE_TRY(build.Unary("sigmoid", gate)) : HONE_TRY(SwishOf(build, gate))));
  return Outputs{HONE_TRY(build.Cast(y, dtype))};
}

// x [..., branches, width], or with both in one dimension; each branch is normalised, and may have a scale.
Result<Outputs> BranchwiseRmsNorm(OperatorCall& call) {
  Builder& build = call.build;
  const Shape x = call.shape(0);
  const int64_t branches = call.Whole("num_branches", 0);
  Shape apart = x;
  if (branches > 0 && !x.empty() && x.back() % branches == 0) {
    apart.back() = branches;
    apart.push_back(x.back() / branches);
  }
  if (apart.size() < 2 || (branches > 0 && apart == x))
    return build.Invalid(fmt::format("{} branches in {}", branches, ShapeText(x)));
  const DType dtype = build.dtype(call.In(0));
  ValueId y = HONE_TRY(build.Reshape(HONE_TRY(build.Cast(call.In(0), DType::kF32)), apart));
  y = HONE_TRY(OverRootMeanSquare(build, y, {static_cast<int64_t>(apart.size()) - 1}, call.Real("epsilon", 1e-5)));
  if (call.Has(1)) {
    const Shape each = {apart[apart.size() - 2], apart.back()};
    const int64_t count = CountOf(call.shape(1));
    if (count != each[1] && count != each[0] * each[1])
      return build.Invalid(fmt::format("a scale {} of {}", ShapeText(call.shape(1)), ShapeText(apart)));
    ValueId scale = HONE_TRY(build.Cast(call.In(1), DType::kF32));
    scale = HONE_TRY(build.Reshape(scale, count == each[1] ? Shape{each[1]} : each));
    y = HONE_TRY(build.Binary("mul", y, scale));
  }
  return Outputs{HONE_TRY(build.Cast(HONE_TRY(build.Reshape(y, x)), dtype))};
}

// Logarithms of factors: scale · log(1 + exp(a + bias)); and shares: sigmoid(b).
Result<Outputs> LinearAttentionGate(OperatorCall& call) {
  Builder& build = call.build;
  const DType dtype = build.dtype(call.In(0));
  ValueId decay = HONE_TRY(build.Cast(call.In(0), DType::kF32));
  decay = HONE_TRY(build.Binary("add", decay, call.In(1)));
  decay = HONE_TRY(Apply(call, "Softplus", {decay}));
  decay = HONE_TRY(build.Binary("mul", decay, call.In(2)));
  Outputs outputs{HONE_TRY(build.Cast(decay, dtype))};
  if (call.Has(3)) outputs.push_back(HONE_TRY(build.Unary("sigmoid", call.In(3))));
  return outputs;
}

// z · sigmoid(z) of z = scale · x.
Result<Outputs> ScaledSilu(OperatorCall& call) {
  Builder& build = call.build;
  const DType dtype = build.dtype(call.In(0));
  ValueId scale = build.Scalar(call.Real("alpha", 1), dtype);
  if (call.Has(1)) {
    if (CountOf(call.shape(1)) != 1) return build.Invalid("its scale is no scalar");
    scale = HONE_TRY(build.Cast(HONE_TRY(build.Reshape(call.In(1), {})), dtype));
  }
  return Outputs{HONE_TRY(SwishOf(build, HONE_TRY(build.Binary("mul", call.In(0), scale))))};
}

// x + y · gate, which is one a row.
Result<Outputs> GatedAdd(OperatorCall& call) {
  if (call.Has(3)) return call.build.Unsupported("a gate that is a product");
  Shape one = call.shape(0);
  if (!one.empty()) one.back() = 1;
  if (call.shape(1) != call.shape(0) || call.shape(2) != one)
    return call.build.Invalid(fmt::format("a gate {} for {} and {}", ShapeText(call.shape(2)), ShapeText(call.shape(0)),
                                          ShapeText(call.shape(1))));
  const ValueId y = HONE_TRY(call.build.Binary("mul", call.In(1), call.In(2)));
  return Outputs{HONE_TRY(call.build.Binary("add", call.In(0), y))};
}

}  // namespace

std::vector<Operator> GateOperators() {
  return {{"com.microsoft.GatedRMSNorm", 3, GatedRmsNorm},
          {"com.microsoft.BranchwiseRMSNorm", 1, BranchwiseRmsNorm},
          {"com.microsoft.LinearAttentionGate", 3, LinearAttentionGate},
          {"com.microsoft.ScaledSiLU", 1, ScaledSilu},
          {"com.microsoft.GatedAdd", 3, GatedAdd}};
}

}  // namespace hone
