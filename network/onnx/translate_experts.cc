// onnxruntime's mixtures of experts (com.microsoft): MoE and QMoE. Each token is multiplied by the weights of the few
// experts that its router chooses, where they lie.
#include <fmt/format.h>

#include "network/onnx/translate.h"

namespace hone {
namespace {

// The experts' weights of one layer as a file has them: [experts, rows, columns], in bytes with scales where they are
// quantised.
struct Layer {
  size_t weights = 0, bias = 0, scales = 0, zeros = 0;  // operands; scales 0: floats
  int64_t bits = 8;
};

// What all layers share: the rows that are multiplied, and which expert does it.
struct Routes {
  int64_t experts = 0;
  ValueId which;  // i32 [rows]
};

// Zero points of 4 bits, two a byte in rows of whole bytes, as bytes.
Result<ValueId> ZeroPoints(OperatorCall& call, const Layer& layer, const Shape& scales) {
  Builder& build = call.build;
  const ValueId zeros = call.In(layer.zeros);
  if (layer.bits == 8) return zeros;
  const int64_t count = scales.back(), bytes = (count + 1) / 2, rows = CountOf(scales) / count;
  if (CountOf(build.shape(zeros)) != rows * bytes)
    return build.Invalid(
        fmt::format("zero points {} beside scales {}", ShapeText(build.shape(zeros)), ShapeText(scales)));
  const ValueId packed = HONE_TRY(build.Reshape(zeros, {rows, bytes, 1})), sixteen = build.Scalar(16, DType::kU8);
  const ValueId lower = HONE_TRY(build.Binary("mod", packed, sixteen));
  const ValueId upper = HONE_TRY(build.Binary("div", packed, sixteen));
  const ValueId pairs = HONE_TRY(build.Concat({lower, upper}, 2));
  return build.Slice(HONE_TRY(build.Reshape(pairs, {rows, 2 * bytes})), 1, 0, count);
}

// x[rows, columns] by the weights of each row's expert, with its bias.
Result<ValueId> Multiply(OperatorCall& call, const Routes& routes, const Layer& layer, ValueId x) {
  Builder& build = call.build;
  const Shape w = call.shape(layer.weights);
  const int64_t columns = build.shape(x)[1];
  if (w.size() != 3 || w[0] != routes.experts || w[1] < 1)
    return build.Invalid(fmt::format("weights {} of {} experts", ShapeText(w), routes.experts));
  HONE_TRY(CheckShape({w[0], w[1], columns}));
  Node dense;
  dense.kind = NodeKind::kDense;
  dense.flag = true;
  dense.groups = routes.experts;
  dense.extents = {w[1], columns};
  dense.inputs = {x, call.In(layer.weights)};
  dense.function = "same";
  if (layer.scales > 0) {
    const Shape scales = call.shape(layer.scales);
    if (scales.empty() || CountOf(scales) % (w[0] * w[1]) != 0 || CountOf(scales) == 0)
      return build.Invalid(fmt::format("scales {} beside weights {}", ShapeText(scales), ShapeText(w)));
    const int64_t blocks = CountOf(scales) / (w[0] * w[1]);
    if (columns % blocks != 0 || (layer.bits == 4 && columns / blocks % 2 != 0))
      return build.Unsupported(fmt::format("{} blocks in rows of {}", blocks, columns));
    dense.function = layer.bits == 4 ? "u4" : "u8";
    dense.axis = blocks > 1 ? columns / blocks : 0;
    dense.inputs.push_back(HONE_TRY(build.Cast(call.In(layer.scales), build.dtype(x))));
    if (call.Has(layer.zeros)) dense.inputs.push_back(HONE_TRY(ZeroPoints(call, layer, scales)));
  }
  dense.inputs.push_back(routes.which);
  const ValueId y = HONE_TRY(build.Add(std::move(dense)));
  if (!call.Has(layer.bias)) return y;
  return build.Binary("add", y, HONE_TRY(build.Gather(call.In(layer.bias), routes.which, 0)));
}

// gate · sigmoid(alpha · gate) · (linear + beta), both kept within a limit.
Result<ValueId> GatedSwish(OperatorCall& call, ValueId gate, ValueId linear) {
  Builder& build = call.build;
  const DType dtype = build.dtype(gate);
  auto number = [&](double value) { return build.Scalar(value, dtype); };
  if (call.Find("swiglu_limit") != nullptr) {
    const double limit = call.Real("swiglu_limit", 0);
    gate = HONE_TRY(build.Binary("min", gate, number(limit)));
    linear = HONE_TRY(build.Binary("max", HONE_TRY(build.Binary("min", linear, number(limit))), number(-limit)));
  }
  const double alpha = call.Real("activation_alpha", 1), beta = call.Real("activation_beta", 0);
  const ValueId scaled = alpha == 1 ? gate : HONE_TRY(build.Binary("mul", gate, number(alpha)));
  const ValueId swish = HONE_TRY(build.Binary("mul", gate, HONE_TRY(build.Unary("sigmoid", scaled))));
  if (beta != 0) linear = HONE_TRY(build.Binary("add", linear, number(beta)));
  return build.Binary("mul", swish, linear);
}

// What becomes of the first layer's result, with the third layer's beside it if there is one.
Result<ValueId> Activate(OperatorCall& call, ValueId first, ValueId third) {
  Builder& build = call.build;
  const std::string type = call.Text("activation_type", "relu");
  const int64_t fusion = call.Whole("swiglu_fusion", 0);
  if (type != "swiglu") {
    if (type != "relu" && type != "gelu" && type != "silu" && type != "identity")
      return build.Unsupported("activation_type=" + type);
    if (type != "identity") first = HONE_TRY(build.Unary(type == "gelu" ? "gelu_tanh" : type, first));
    return third ? build.Binary("mul", first, third) : Result<ValueId>(first);
  }
  if (call.Whole("swiglu_limit_after_activation", 0) != 0) return build.Unsupported("a limit after the activation");
  if (fusion == 0) {
    if (!third) return build.Invalid("swiglu that is not fused wants a third layer");
    return GatedSwish(call, first, third);
  }
  const Shape shape = build.shape(first);
  if (third || shape[1] % 2 != 0 || fusion > 2) return build.Invalid("its fused layer has no two halves");
  const int64_t half = shape[1] / 2;
  const ValueId pairs =
      HONE_TRY(build.Reshape(first, fusion == 1 ? Shape{shape[0], half, 2} : Shape{shape[0], 2, half}));
  ValueId parts[2];
  for (size_t i : {0, 1}) {
    parts[i] = HONE_TRY(build.Slice(pairs, fusion == 1 ? 2 : 1, static_cast<int64_t>(i), 1));
    parts[i] = HONE_TRY(build.Reshape(parts[i], {shape[0], half}));
  }
  return GatedSwish(call, parts[0], parts[1]);
}

// Of each token the k likeliest experts, and what each of them counts.
Result<Outputs> Choose(OperatorCall& call, int64_t k) {
  Builder& build = call.build;
  const ValueId logits = HONE_TRY(build.Cast(call.In(1), DType::kF32));
  Node softmax;
  softmax.kind = NodeKind::kSoftmax;
  softmax.axis = 1;
  softmax.inputs = {logits};
  const ValueId likely = HONE_TRY(build.Add(std::move(softmax)));
  constexpr int64_t kOpset = 11;
  OnnxNode top = call.node();
  top.op = "TopK";
  top.domain.clear();
  top.attributes.clear();
  top.outputs.resize(2);
  OperatorCall inner(build.graph(), top, {likely, build.Constant(WholeNumbers({k}, {1}))}, kOpset);
  return FindOperator(top.op)->translate(inner);
}

// `is_normal`: what the experts count adds up to one.
Result<Outputs> Mixture(OperatorCall& call, const Layer& first, const Layer& second, const Layer& third,
                        bool is_normal) {
  Builder& build = call.build;
  if (!call.Has(second.weights)) return build.Invalid(fmt::format("operand {} is missing", second.weights));
  const Shape x = call.shape(0);
  const int64_t k = call.Whole("k", 1);
  if (call.Whole("use_sparse_mixer", 0) != 0) return build.Unsupported("a sparse mixer");
  if (x.empty() || x.back() < 1 || call.rank(1) != 2 || call.shape(1)[0] != CountOf(x) / x.back())
    return build.Invalid(fmt::format("routes {} of tokens {}", ShapeText(call.shape(1)), ShapeText(x)));
  const int64_t tokens = call.shape(1)[0], width = x.back();
  Routes routes{call.shape(1)[1], {}};
  if (k < 1 || k > routes.experts) return build.Invalid(fmt::format("k={} of {} experts", k, routes.experts));
  const Outputs chosen = HONE_TRY(Choose(call, k));
  routes.which = HONE_TRY(build.Reshape(HONE_TRY(build.Cast(chosen[1], DType::kI32)), {tokens * k}));
  ValueId share = chosen[0];
  if (is_normal) share = HONE_TRY(build.Binary("div", share, HONE_TRY(build.Reduce("sum", share, {1}))));
  ValueId rows = HONE_TRY(build.Reshape(call.In(0), {tokens, 1, width}));
  rows = HONE_TRY(build.Reshape(HONE_TRY(build.Expand(rows, {tokens, k, width})), {tokens * k, width}));
  ValueId beside;
  if (call.Has(third.weights)) beside = HONE_TRY(Multiply(call, routes, third, rows));
  ValueId y = HONE_TRY(Activate(call, HONE_TRY(Multiply(call, routes, first, rows)), beside));
  y = HONE_TRY(Multiply(call, routes, second, y));
  if (build.shape(y)[1] != width)
    return build.Invalid(fmt::format("experts make {} of tokens {}", ShapeText(build.shape(y)), ShapeText(x)));
  y = HONE_TRY(build.Cast(HONE_TRY(build.Reshape(y, {tokens, k, width})), DType::kF32));
  y = HONE_TRY(build.Binary("mul", y, HONE_TRY(build.Reshape(share, {tokens, k, 1}))));
  y = HONE_TRY(build.Cast(HONE_TRY(build.Reduce("sum", y, {1})), build.dtype(call.In(0))));
  return Outputs{HONE_TRY(build.Reshape(y, x))};
}

Result<Outputs> MoE(OperatorCall& call) {
  return Mixture(call, {2, 3}, {4, 5}, {6, 7}, call.Whole("normalize_routing_weights", 0) != 0);
}

Result<Outputs> QMoE(OperatorCall& call) {
  constexpr size_t kRouterWeights = 14;
  if (call.Text("quant_type", "int") != "int")
    return call.build.Unsupported("weights of " + call.Text("quant_type", ""));
  for (size_t i = kRouterWeights; i < call.input_count(); ++i)
    if (call.Has(i)) return call.build.Unsupported(fmt::format("operand {}", i));
  const int64_t bits = call.Whole("expert_weight_bits", 4);
  Layer layers[] = {{2, 4, 3, 11}, {5, 7, 6, 12}, {8, 10, 9, 13}};
  for (size_t i : {0, 1, 2}) {
    layers[i].bits = call.Whole(fmt::format("fc{}_expert_weight_bits", i + 1), bits);
    if (!call.Has(layers[i].weights)) continue;
    if (layers[i].bits != 4 && layers[i].bits != 8)
      return call.build.Unsupported(fmt::format("weights of {} bits", layers[i].bits));
    if (!call.Has(layers[i].scales)) return call.build.Invalid(fmt::format("operand {} is missing", layers[i].scales));
  }
  // onnxruntime takes the softmax of the chosen experts alone, whatever normalize_routing_weights says.
  return Mixture(call, layers[0], layers[1], layers[2], true);
}

}  // namespace

std::vector<Operator> ExpertOperators() { return {{"com.microsoft.MoE", 3, MoE}, {"com.microsoft.QMoE", 3, QMoE}}; }

}  // namespace hone
