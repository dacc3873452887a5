#include "network/graph/fold_quantized.h"

#include <algorithm>
#include <cmath>

#include "ir/graph/dtype_traits.h"
#include "network/graph/evaluate_internal.h"
#include "network/graph/quantization.h"
#include "network/graph/rewrite_pass.h"

namespace hone {
namespace {

class QuantizedFolder : public RewritePass {
 public:
  using RewritePass::RewritePass;

 private:
  // A contraction's operand.
  struct Weight {
    ValueId bytes;              // i8, centred
    std::vector<int64_t> sums;  // of each output channel's
  };

  Result<void> Visit(const Node& node) override {
    switch (node.kind) {
      case NodeKind::kConv:
      case NodeKind::kMatMul: return FoldContraction(node);
      case NodeKind::kReduce: return FoldMean(node);
      case NodeKind::kUnary: return node.function == "round" ? FoldDivision(node) : Result<void>();
      case NodeKind::kBinary: return node.function == "add" ? FoldBias(node) : Result<void>();
      case NodeKind::kCast: return FoldRoundTrip(node);
      default: return {};
    }
  }

  // ---- contractions

  size_t OutputChannel(const Node& node) const {  // a dimension of the weight
    if (node.kind == NodeKind::kConv || node.flag) return 0;
    return graph_.shape(node.inputs[1]).size() - 1;
  }

  // A vector of the contraction's output channels, in the shape in which it goes with its output.
  static Shape ChannelShape(const Node& node, int64_t channels) {
    return node.kind == NodeKind::kConv ? Shape{channels, 1, 1} : Shape{channels};
  }

  // One for all, or one an output channel: as many as channels. nullopt: neither, or unknown.
  std::optional<std::vector<double>> ByChannel(const Node& node, ValueId parameter, const Shape& weight) {
    const Numbers* known = graph_.TryElements(parameter);
    if (known == nullptr) return std::nullopt;
    const size_t channel = OutputChannel(node);
    const auto channels = static_cast<size_t>(weight[channel]), count = known->real.size() + known->whole.size();
    const Shape& own = known->shape;
    if (count != 1) {
      if (own.size() > weight.size() || count != channels) return std::nullopt;
      const size_t shift = weight.size() - own.size();
      if (channel < shift || own[channel - shift] != weight[channel]) return std::nullopt;
    }
    std::vector<double> values(channels);
    for (size_t i = 0; i < channels; ++i) values[i] = known->RealAt(count == 1 ? 0 : i);
    return values;
  }

  // The weight less its zero point as i8; nullopt: it is no constant, or does not fit.
  std::optional<Weight> CentredWeight(Builder& build, const Node& node, const Quantized& w) {
    const Numbers* elements = graph_.TryElements(w.value);
    if (elements == nullptr || (node.kind == NodeKind::kMatMul && elements->shape.size() != 2)) return std::nullopt;
    const Shape shape = elements->shape;
    std::vector<double> zeros(static_cast<size_t>(shape[OutputChannel(node)]), 0);
    Numbers centred = *elements;
    if (w.zero) {
      const std::optional<std::vector<double>> known = ByChannel(node, w.zero, shape);
      if (!known) return std::nullopt;
      zeros = *known;
    }
    const int64_t step = evaluating::StridesOf(shape)[OutputChannel(node)];
    Weight weight{{}, std::vector<int64_t>(zeros.size(), 0)};
    centred.dtype = DType::kI8;
    for (size_t i = 0; i < centred.whole.size(); ++i) {
      const size_t channel = i / static_cast<size_t>(step) % zeros.size();
      int64_t& value = centred.whole[i];
      value -= static_cast<int64_t>(zeros[channel]);
      if (value < INT8_MIN || value > INT8_MAX) return std::nullopt;
      weight.sums[channel] += value;
    }
    weight.bytes = build.Constant(centred);
    return weight;
  }

  Result<ValueId> Vector(Builder& build, const std::vector<int64_t>& values, Shape shape) {
    Numbers numbers = MakeNumbers(DType::kI32, std::move(shape));
    numbers.whole = values;
    SettleInType(numbers);
    return build.Constant(numbers);
  }

  // Σ (x − zero)·w + bias in i32; none: what it is computed from is no constant.
  Result<ValueId> SumOfProducts(Builder& build, const Node& node, const Quantized& x, const Quantized& w,
                                std::vector<int64_t> bias) {
    const std::optional<double> zero = x.zero ? graph_.ScalarOf(x.zero) : 0;
    if (x.zero && CountOf(graph_.shape(x.zero)) != 1) return ValueId();
    const std::optional<Weight> weight = CentredWeight(build, node, w);
    if (!weight) return ValueId();
    bias.resize(weight->sums.size(), 0);
    if (zero)
      for (size_t i = 0; i < bias.size(); ++i) bias[i] -= static_cast<int64_t>(*zero) * weight->sums[i];
    Node product = node;
    product.inputs = {x.value, weight->bytes};
    const bool is_padded = std::any_of(node.pads.begin(), node.pads.end(), [](int64_t pad) { return pad != 0; });
    if (!zero && is_padded && node.kind == NodeKind::kConv) {
      product.inputs[0] = HONE_TRY(Surround(build, x.value, node.pads, x.zero));
      std::ranges::fill(product.pads, 0);
    }
    const bool is_biased = std::any_of(bias.begin(), bias.end(), [](int64_t each) { return each != 0; });
    const auto channels = static_cast<int64_t>(bias.size());
    const Shape shape = ChannelShape(node, channels);
    if (node.kind == NodeKind::kConv) {
      product.fill = zero.value_or(0);
      if (is_biased) product.inputs.push_back(HONE_TRY(Vector(build, bias, {channels})));
    }
    ValueId sum = HONE_TRY(graph_.Add(std::move(product)));
    if (node.kind == NodeKind::kMatMul && is_biased)
      sum = HONE_TRY(build.Binary("add", sum, HONE_TRY(Vector(build, bias, shape))));
    if (zero) return sum;
    const ValueId off = HONE_TRY(build.Reshape(HONE_TRY(build.Cast(x.zero, DType::kI32)), {}));
    return build.Binary("sub", sum, HONE_TRY(build.Binary("mul", HONE_TRY(Vector(build, weight->sums, shape)), off)));
  }

  Result<void> FoldContraction(const Node& node) {
    Builder build(graph_, node.origin);
    if (graph_.dtype(node.output) == DType::kI32) {
      if (IsByte(graph_.dtype(node.inputs[0])) || node.inputs.size() > 2) return {};
      const std::optional<Quantized> x = FindCentred(graph_, node.inputs[0]), w = FindCentred(graph_, node.inputs[1]);
      if (!x || !w) return {};
      if (const ValueId sum = HONE_TRY(SumOfProducts(build, node, *x, *w, {}))) Replace(node.output, sum);
      return {};
    }
    const std::optional<Quantized> x = FindDequantize(graph_, node.inputs[0]);
    const std::optional<Quantized> w = FindDequantize(graph_, node.inputs[1]);
    if (!x || !w || !IsByte(x->type) || !IsByte(w->type)) return {};
    const std::optional<double> x_scale = graph_.ScalarOf(x->scale);
    const Shape weight = graph_.shape(node.inputs[1]);
    const std::optional<std::vector<double>> w_scales = ByChannel(node, w->scale, weight);
    if (!x_scale || !w_scales) return {};
    Numbers factors = MakeNumbers(DType::kF32, ChannelShape(node, static_cast<int64_t>(w_scales->size())));
    for (size_t i = 0; i < w_scales->size(); ++i)
      factors.real[i] = static_cast<float>(*x_scale) * static_cast<float>((*w_scales)[i]);
    std::vector<int64_t> bias;
    ValueId term;
    if (node.inputs.size() > 2) {
      const std::optional<std::vector<int64_t>> whole = WholeBias(node.inputs[2], factors.real);
      if (whole)
        bias = *whole;
      else
        term = HONE_TRY(build.Reshape(node.inputs[2], factors.shape));
    }
    const ValueId sum = HONE_TRY(SumOfProducts(build, node, *x, *w, bias));
    if (!sum) return {};
    if (factors.real.size() > 1 &&
        std::all_of(factors.real.begin(), factors.real.end(), [&](double each) { return each == factors.real[0]; })) {
      factors.real.resize(1);
      factors.shape = {};
    }
    ValueId y = HONE_TRY(build.Binary("mul", HONE_TRY(build.Cast(sum, DType::kF32)), build.Constant(factors)));
    if (term) y = HONE_TRY(build.Binary("add", y, term));
    Replace(node.output, y);
    return {};
  }

  // A dequantised constant whose scales are these: what it is in whole numbers.
  std::optional<std::vector<int64_t>> WholeBias(ValueId value, const std::vector<double>& scales) {
    constexpr double kNear = 1e-5;
    if (!graph_.is_constant(value)) return std::nullopt;
    const std::optional<Quantized> found = FindDequantize(graph_, value);
    if (!found || found->type != DType::kI32 || found->zero) return std::nullopt;
    const Numbers *elements = graph_.TryElements(found->value), *own = graph_.TryElements(found->scale);
    if (elements == nullptr || own == nullptr || elements->whole.size() != scales.size()) return std::nullopt;
    if (own->real.size() != 1 && own->real.size() != scales.size()) return std::nullopt;
    for (size_t i = 0; i < scales.size(); ++i) {
      const double scale = own->real[own->real.size() == 1 ? 0 : i];
      if (std::abs(scale - scales[i]) > kNear * scales[i]) return std::nullopt;
    }
    return elements->whole;
  }

  // A sum in i32 times constants, as contractions become: sum and factors.
  struct Scaled {
    ValueId sum;
    ValueId factors;
  };
  std::optional<Scaled> FindScaled(ValueId value) const {
    const Node* product = FindInner(value, NodeKind::kBinary, "mul");
    const Node* real = product == nullptr ? nullptr : FindInner(product->inputs[0], NodeKind::kCast);
    if (real == nullptr || graph_.dtype(real->inputs[0]) != DType::kI32 || !graph_.is_constant(product->inputs[1]))
      return std::nullopt;
    return Scaled{real->inputs[0], product->inputs[1]};
  }

  // Σ·s + (b·s): b joins the sum.
  Result<void> FoldBias(const Node& node) {
    for (size_t side : {0, 1}) {
      const std::optional<Scaled> scaled = FindScaled(node.inputs[side]);
      const ValueId term = node.inputs[1 - side];
      if (!scaled || graph_.shape(node.output) != graph_.shape(node.inputs[side]) || !graph_.is_constant(term))
        continue;
      const Numbers* factors = graph_.TryElements(scaled->factors);
      if (factors == nullptr) continue;
      const auto count = static_cast<size_t>(CountOf(graph_.shape(term)));
      std::vector<double> scales = factors->real;
      if (scales.size() == 1) scales.resize(count, scales[0]);
      const std::optional<std::vector<int64_t>> whole = WholeBias(term, scales);
      if (!whole) continue;
      Builder build(graph_, node.origin);
      ValueId sum = HONE_TRY(build.Binary("add", scaled->sum, HONE_TRY(Vector(build, *whole, graph_.shape(term)))));
      sum = HONE_TRY(build.Cast(sum, DType::kF32));
      Replace(node.output, HONE_TRY(build.Binary("mul", sum, scaled->factors)));
      return {};
    }
    return {};
  }

  // ---- factors

  // value / scale as a factor of what it is made of; none: it is not made of products.
  Result<ValueId> Divided(Builder& build, ValueId value, ValueId scale) {
    if (graph_.is_constant(value)) return build.Binary("div", value, scale);
    const Node* node = graph_.ProducerOf(value);
    if (node == nullptr) return ValueId();
    // What is made of whole numbers is computed again where others read it.
    const Node* real = node->kind == NodeKind::kBinary ? Find(node->inputs[0], NodeKind::kCast) : nullptr;
    const bool is_cheap = real != nullptr && !IsFloat(graph_.dtype(real->inputs[0]));
    if (!IsOnlyRead(value) && !is_cheap) return ValueId();
    const std::vector<ValueId> inputs = node->inputs;
    const std::string function = node->function;
    if (node->kind == NodeKind::kBinary && function == "mul" && graph_.is_constant(inputs[1]))
      return build.Binary("mul", inputs[0], HONE_TRY(build.Binary("div", inputs[1], scale)));
    if (node->kind == NodeKind::kUnary && function == "relu") {
      const ValueId x = HONE_TRY(Divided(build, inputs[0], scale));
      return x ? build.Unary("relu", x) : Result<ValueId>(ValueId());
    }
    if (node->kind != NodeKind::kBinary) return ValueId();
    if (function != "add" && function != "min" && function != "max") return ValueId();
    const ValueId a = HONE_TRY(Divided(build, inputs[0], scale));
    const ValueId b = a ? HONE_TRY(Divided(build, inputs[1], scale)) : ValueId();
    return b ? build.Binary(function, a, b) : Result<ValueId>(ValueId());
  }

  Result<void> FoldDivision(const Node& node) {
    const Node* quotient = FindInner(node.inputs[0], NodeKind::kBinary, "div");
    if (quotient == nullptr || graph_.dtype(node.output) != DType::kF32) return {};
    const std::optional<double> scale = graph_.ScalarOf(quotient->inputs[1]);
    if (!scale || !(*scale > 0) || !std::isfinite(*scale)) return {};
    Builder build(graph_, node.origin);
    const Node copy = *quotient;
    if (const ValueId y = HONE_TRY(Divided(build, copy.inputs[0], copy.inputs[1]))) Replace(copy.output, y);
    return {};
  }

  // mean((x − z)·s) = (Σ (x − z)) · (s / count)
  Result<void> FoldMean(const Node& node) {
    const std::optional<Quantized> x = FindDequantize(graph_, node.inputs[0]);
    if (node.function != "mean" || !x || !IsByte(x->type)) return {};
    if (CountOf(graph_.shape(x->scale)) != 1 || (x->zero && CountOf(graph_.shape(x->zero)) != 1)) return {};
    const int64_t count =
        CountOf(graph_.shape(node.inputs[0])) / std::max<int64_t>(CountOf(graph_.shape(node.output)), 1);
    constexpr int64_t kMostAdded = int64_t{1} << 22;  // so that 255 times as much fits i32
    if (count < 1 || count > kMostAdded) return {};
    Builder build(graph_, node.origin);
    const ValueId centred = HONE_TRY(Centre(build, x->value, x->zero));
    ValueId sum = HONE_TRY(build.Cast(HONE_TRY(build.Reduce("sum", centred, node.axes)), DType::kF32));
    ValueId factor = HONE_TRY(build.Binary("div", x->scale, build.Scalar(static_cast<double>(count), DType::kF32)));
    Replace(node.output, HONE_TRY(build.Binary("mul", sum, factor)));
    return {};
  }

  // ---- round trips

  // Whether a parameter of one number is the same constant in both.
  bool IsSame(ValueId a, ValueId b) {
    if (!a || !b) return (!a || graph_.ScalarOf(a) == 0.0) && (!b || graph_.ScalarOf(b) == 0.0);
    if (a == b) return CountOf(graph_.shape(a)) == 1;
    const std::optional<double> first = graph_.ScalarOf(a), second = graph_.ScalarOf(b);
    return first && second && *first == *second;
  }

  static bool MovesElements(NodeKind kind) {
    return kind == NodeKind::kReshape || kind == NodeKind::kTranspose || kind == NodeKind::kSlice ||
           kind == NodeKind::kConcat || kind == NodeKind::kExpand || kind == NodeKind::kMaxPool;
  }

  // The whole numbers that a float stands for under some parameters; none: it is made otherwise.
  Result<ValueId> Undone(ValueId value, const Quantized& q, int depth) {
    constexpr int kDeepest = 8;
    const std::optional<Quantized> found = FindDequantize(graph_, value);
    if (found) {
      const bool is_same = found->type == q.type && IsSame(found->scale, q.scale) && IsSame(found->zero, q.zero);
      return is_same ? found->value : ValueId();
    }
    const Node* moved = graph_.ProducerOf(value);
    if (moved == nullptr || !MovesElements(moved->kind) || !IsOnlyRead(value) || depth > kDeepest) return ValueId();
    Node copy = *moved;
    for (ValueId& input : copy.inputs) {
      input = HONE_TRY(Undone(input, q, depth + 1));
      if (!input) return ValueId();
    }
    return graph_.Add(std::move(copy));
  }

  Result<void> FoldRoundTrip(const Node& node) {
    const std::optional<Quantized> q = FindQuantize(graph_, node.output);
    if (!q) return {};
    if (const ValueId same = HONE_TRY(Undone(q->value, *q, 0))) Replace(node.output, same);
    return {};
  }
};

}  // namespace

Result<void> FoldQuantized(Graph& graph) { return QuantizedFolder(graph).Run(); }

}  // namespace hone
