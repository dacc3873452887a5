// What onnxruntime's optimiser makes of several nodes (com.microsoft), taken apart again: this graph's own rules fuse.
#include <fmt/format.h>

#include <cmath>

#include "network/onnx/translate.h"

namespace hone {
namespace {

// ---- Sums that are normalised

Result<ValueId> Normalised(Builder& build, ValueId x, ValueId gamma, ValueId beta, double epsilon) {
  if (build.shape(x).empty()) return build.Invalid("it normalises a scalar");
  const Shape row = {build.shape(x).back()};
  if (build.shape(gamma) != row || (beta && build.shape(beta) != row))
    return build.Invalid(fmt::format("its scale and bias are not one for each of {}", row[0]));
  Node node;
  node.kind = NodeKind::kLayerNorm;
  node.axis = static_cast<int64_t>(build.shape(x).size()) - 1;
  node.epsilon = epsilon;
  node.inputs = {x, gamma, beta ? beta : build.Constant(MakeNumbers(build.dtype(x), row))};
  return build.Add(std::move(node));
}

// x and skip, gamma[, beta][, bias]: the normalised sum, its mean and spread (not made), the sum.
Result<Outputs> SkipLayerNorm(OperatorCall& call) {
  Builder& build = call.build;
  const bool is_simple = call.node().op == "SkipSimplifiedLayerNormalization";
  const size_t at_bias = is_simple ? 3 : 4;
  for (size_t i : {1, 2})
    if (i < call.node().outputs.size() && !call.node().outputs[i].empty())
      return build.Unsupported("its mean and spread");
  ValueId sum = HONE_TRY(build.Binary("add", call.In(0), call.In(1)));
  if (call.Has(at_bias)) sum = HONE_TRY(build.Binary("add", sum, call.In(at_bias)));
  if (build.shape(sum) != call.shape(0)) return build.Invalid("what is added is larger than the input");
  const double epsilon = call.Real("epsilon", 1e-12);
  ValueId y;
  if (is_simple) {
    y = HONE_TRY(OverRootMeanSquare(build, sum, {call.rank(0) - 1}, epsilon));
    y = HONE_TRY(build.Binary("mul", y, call.In(2)));
  } else {
    y = HONE_TRY(Normalised(build, sum, call.In(2), call.Has(3) ? call.In(3) : ValueId(), epsilon));
  }
  return Outputs{y, y, y, sum};
}

// Words, kinds of segments; tables of words, positions, segments; gamma, beta; which words count; positions.
Result<Outputs> EmbedLayerNorm(OperatorCall& call) {
  Builder& build = call.build;
  for (size_t i : {2, 3, 5, 6})
    if (!call.Has(i)) return build.Invalid(fmt::format("operand {} is missing", i));
  if (call.rank(0) != 2) return build.Invalid("it wants rows of words");
  const int64_t batch = call.shape(0)[0], length = call.shape(0)[1];
  ValueId sum = HONE_TRY(build.Gather(call.In(2), call.In(0), 0));
  ValueId positions;
  if (call.Has(8)) {
    positions = HONE_TRY(build.Gather(call.In(3), call.In(8), 0));
  } else {
    if (call.rank(3) != 2 || call.shape(3)[0] < length)
      return build.Invalid(fmt::format("a table of {} for {} positions", ShapeText(call.shape(3)), length));
    positions = HONE_TRY(build.Slice(call.In(3), 0, 0, length));
  }
  sum = HONE_TRY(build.Binary("add", sum, positions));
  if (call.Has(1) && call.Has(4))
    sum = HONE_TRY(build.Binary("add", sum, HONE_TRY(build.Gather(call.In(4), call.In(1), 0))));
  Outputs outputs{HONE_TRY(Normalised(build, sum, call.In(5), call.In(6), call.Real("epsilon", 1e-12)))};
  // How many words of each row count.
  ValueId count = build.Constant(MakeNumbers(DType::kI32, {batch}));
  if (call.Has(7)) {
    ValueId is_one = HONE_TRY(build.Binary("eq", call.In(7), build.Scalar(1, build.dtype(call.In(7)))));
    count = HONE_TRY(build.Reduce("sum", HONE_TRY(build.Cast(is_one, DType::kI32)), {1}));
    count = HONE_TRY(build.Reshape(count, {batch}));
  }
  outputs.push_back(count);
  outputs.push_back(sum);
  return outputs;
}

// The same with tables, gamma and beta of bytes, whose scales and zero points follow.
Result<Outputs> QuantizedEmbedLayerNorm(OperatorCall& call) {
  constexpr size_t kFirst = 2, kTables = 5, kMask = 7, kScales = 8, kZeros = 13;
  std::vector<ValueId> inputs = {call.In(0), call.Has(1) ? call.In(1) : ValueId()};
  for (size_t i = 0; i < kTables; ++i) {
    if (!call.Has(kFirst + i) || !call.Has(kScales + i) || !call.Has(kZeros + i)) {
      inputs.emplace_back();
      continue;
    }
    inputs.push_back(
        HONE_TRY(Apply(call, "DequantizeLinear", {call.In(kFirst + i), call.In(kScales + i), call.In(kZeros + i)})));
  }
  inputs.push_back(call.Has(kMask) ? call.In(kMask) : ValueId());
  OperatorCall plain(call.build.graph(), call.node(), std::move(inputs), call.opset());
  return EmbedLayerNorm(plain);
}

// ---- Products with what surrounds them

// alpha · a · b, either transposed in its last two dimensions, or with the first of them behind the others.
Result<Outputs> FusedMatMul(OperatorCall& call) {
  Builder& build = call.build;
  ValueId parts[2];
  for (size_t i : {0, 1}) {
    parts[i] = call.In(i);
    const auto rank = static_cast<size_t>(call.rank(i));
    std::vector<int64_t> order(rank);
    for (size_t d = 0; d < rank; ++d) order[d] = static_cast<int64_t>(d);
    if (call.Whole(i == 0 ? "transBatchA" : "transBatchB", 0) != 0 && rank > 2) {
      order.erase(order.begin());
      order.insert(order.end() - 1, 0);
    }
    if (call.Whole(i == 0 ? "transA" : "transB", 0) != 0 && rank > 1) std::swap(order[rank - 1], order[rank - 2]);
    parts[i] = HONE_TRY(build.Transpose(parts[i], order));
  }
  ValueId y = HONE_TRY(Apply(call, "MatMul", {parts[0], parts[1]}));
  const double alpha = call.Real("alpha", 1);
  if (alpha != 1) y = HONE_TRY(build.Binary("mul", y, build.Scalar(alpha, build.dtype(y))));
  return Outputs{y};
}

// A standard function with the parameters that another node's attributes hold, in this order.
Result<ValueId> Activated(OperatorCall& call, const std::string& function, const std::vector<double>& parameters,
                          ValueId x) {
  static const std::map<std::string, std::vector<std::string>> names = {{"", {}},
                                                                        {"Relu", {}},
                                                                        {"Tanh", {}},
                                                                        {"Sigmoid", {}},
                                                                        {"HardSwish", {}},
                                                                        {"LeakyRelu", {"alpha"}},
                                                                        {"HardSigmoid", {"alpha", "beta"}},
                                                                        {"Elu", {"alpha"}},
                                                                        {"Softplus", {}},
                                                                        {"Softsign", {}},
                                                                        {"Clip", {"min", "max"}},
                                                                        {"Selu", {"alpha", "gamma"}},
                                                                        {"ThresholdedRelu", {"alpha"}},
                                                                        {"Swish", {"alpha"}},
                                                                        {"Gelu", {}}};
  const auto found = names.find(function);
  if (found == names.end()) return call.build.Unsupported(fmt::format("activation {}", function));
  if (function.empty()) return x;
  if (function == "Clip") {  // its bounds are inputs today
    const DType dtype = call.build.dtype(x);
    if (!parameters.empty()) x = HONE_TRY(call.build.Binary("max", x, call.build.Scalar(parameters[0], dtype)));
    if (parameters.size() > 1) x = HONE_TRY(call.build.Binary("min", x, call.build.Scalar(parameters[1], dtype)));
    return x;
  }
  OnnxNode node = call.node();
  node.op = function;
  node.domain.clear();
  node.outputs.resize(1);
  node.attributes.clear();
  for (size_t i = 0; i < std::min(parameters.size(), found->second.size()); ++i) {
    OnnxAttribute attribute;
    attribute.name = found->second[i];
    attribute.kind = OnnxAttribute::Kind::kFloat;
    attribute.real = parameters[i];
    node.attributes.push_back(std::move(attribute));
  }
  const Operator* known = FindOperator(function);
  if (known == nullptr) return call.build.Unsupported(fmt::format("activation {}", function));
  OperatorCall inner(call.build.graph(), node, {x}, call.opset());
  return HONE_TRY(known->translate(inner))[0];
}

// x, w[, bias][, what is added before the activation].
Result<Outputs> FusedConv(OperatorCall& call) {
  std::vector<ValueId> inputs = {call.In(0), call.In(1)};
  if (call.Has(2)) inputs.push_back(call.In(2));
  ValueId y = HONE_TRY(Apply(call, "Conv", std::move(inputs)));
  if (call.Has(3)) y = HONE_TRY(call.build.Binary("add", y, call.In(3)));
  const OnnxAttribute* parameters = call.Find("activation_params");
  return Outputs{HONE_TRY(Activated(call, call.Text("activation", ""),
                                    parameters == nullptr ? std::vector<double>{} : parameters->reals, y))};
}

Result<Outputs> FusedGemm(OperatorCall& call) {
  std::vector<ValueId> inputs = {call.In(0), call.In(1)};
  if (call.Has(2)) inputs.push_back(call.In(2));
  ValueId y = HONE_TRY(Apply(call, "Gemm", std::move(inputs)));
  std::vector<double> parameters;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"})
    if (const OnnxAttribute* parameter = call.Find(name); parameter != nullptr) parameters.push_back(parameter->real);
  return Outputs{HONE_TRY(Activated(call, call.Text("activation", ""), parameters, y))};
}

// ---- Channels in groups

// x [N, H, W, C], or channels first; gamma, beta; then x · sigmoid(x) where activation is 1.
Result<Outputs> GroupNorm(OperatorCall& call) {
  Builder& build = call.build;
  if (call.rank(0) != 4) return build.Invalid("it wants images");
  const bool is_last = call.Whole("channels_last", 1) != 0;
  ValueId x = call.In(0);
  if (is_last) x = HONE_TRY(build.Transpose(x, {0, 3, 1, 2}));
  const Shape shape = build.shape(x);
  const int64_t groups = call.Whole("groups", 1);
  if (groups < 1 || shape[1] % groups != 0)
    return build.Invalid(fmt::format("{} groups of {} channels", groups, shape[1]));
  for (size_t i : {1, 2})
    if (CountOf(call.shape(i)) != shape[1]) return build.Invalid("its scale and bias are not one a channel");
  ValueId y = HONE_TRY(build.Reshape(x, {shape[0], groups, shape[1] / groups * shape[2] * shape[3]}));
  ValueId mean = HONE_TRY(build.Reduce("mean", y, {2}));
  ValueId centred = HONE_TRY(build.Binary("sub", y, mean));
  ValueId variance = HONE_TRY(build.Reduce("mean", HONE_TRY(build.Binary("mul", centred, centred)), {2}));
  variance = HONE_TRY(build.Binary("add", variance, build.Scalar(call.Real("epsilon", 1e-5), build.dtype(y))));
  y = HONE_TRY(build.Binary("mul", centred, HONE_TRY(build.Unary("rsqrt", variance))));
  y = HONE_TRY(build.Reshape(y, shape));
  const Shape channel = {shape[1], 1, 1};
  for (auto [i, function] : {std::pair(size_t{1}, "mul"), std::pair(size_t{2}, "add")}) {
    ValueId each = HONE_TRY(build.Cast(HONE_TRY(build.Reshape(call.In(i), channel)), build.dtype(y)));
    y = HONE_TRY(build.Binary(function, y, each));
  }
  if (call.Whole("activation", 0) == 1) y = HONE_TRY(build.Binary("mul", y, HONE_TRY(build.Unary("sigmoid", y))));
  return Outputs{is_last ? HONE_TRY(build.Transpose(y, {0, 2, 3, 1})) : y};
}

}  // namespace

std::vector<Operator> FusedOperators() {
  return {{"com.microsoft.SkipLayerNormalization", 3, SkipLayerNorm},
          {"com.microsoft.SkipSimplifiedLayerNormalization", 3, SkipLayerNorm},
          {"SkipSimplifiedLayerNormalization", 3, SkipLayerNorm},
          {"com.microsoft.EmbedLayerNormalization", 1, EmbedLayerNorm},
          {"com.microsoft.QEmbedLayerNormalization", 1, QuantizedEmbedLayerNorm},
          {"com.microsoft.FusedMatMul", 2, FusedMatMul},
          {"com.microsoft.TransposeMatMul", 2, FusedMatMul},
          {"com.microsoft.FusedConv", 2, FusedConv},
          {"com.microsoft.FusedGemm", 2, FusedGemm},
          {"com.microsoft.GroupNorm", 3, GroupNorm}};
}

}  // namespace hone
