#include "network/graph/simplify.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/graph/dtype_traits.h"
#include "network/graph/fold_quantized.h"
#include "network/graph/graph_builder.h"
#include "network/graph/keep_narrow.h"
#include "network/graph/rewrite_pass.h"

namespace hone {
namespace {

class Simplifier : public RewritePass {
 public:
  using RewritePass::RewritePass;

 private:
  // What a product is made of: computed factors, and one number.
  struct Product {
    std::vector<ValueId> factors;
    double number = 1;
  };

  // Whether a number is what a formula says; those of narrow floats are rounded, and two may be multiplied.
  bool Near(double a, double b, ValueId of) const {
    constexpr double kNear = 1e-5;
    const DType type = graph_.dtype(of);
    const double off = IsNarrowFloat(type) ? 2 * TraitsOf(type).unit_roundoff : kNear;
    return std::abs(a - b) <= off * std::abs(b);
  }

  void Collect(ValueId value, bool is_root, Product* product) {
    if (std::optional<double> number = graph_.ScalarOf(value)) {
      product->number *= *number;
      return;
    }
    const Node* node = is_root ? graph_.ProducerOf(value) : FindInner(value, NodeKind::kBinary);
    if (node != nullptr && node->kind == NodeKind::kBinary && product->factors.size() < 8) {
      if (node->function == "mul") {
        Collect(node->inputs[0], false, product);
        Collect(node->inputs[1], false, product);
        return;
      }
      std::optional<double> divisor = node->function == "div" ? graph_.ScalarOf(node->inputs[1]) : std::nullopt;
      if (divisor && *divisor != 0) {
        product->number /= *divisor;
        Collect(node->inputs[0], false, product);
        return;
      }
    }
    product->factors.push_back(value);
  }

  Result<void> Visit(const Node& node) override {
    if (node.kind == NodeKind::kBinary && (node.function == "mul" || node.function == "div")) {
      if (HONE_TRY(MatchActivation(node))) return {};
      if (HONE_TRY(FoldFactor(node))) return {};
    }
    if (node.kind == NodeKind::kBinary && node.function == "add") {
      if (HONE_TRY(MatchLayerNorm(node))) return {};
      if (HONE_TRY(FoldTerm(node))) return {};
    }
    if (node.kind == NodeKind::kBinary && (node.function == "min" || node.function == "max")) {
      if (HONE_TRY(MatchClip(node))) return {};
    }
    if (node.kind == NodeKind::kConv && HONE_TRY(FoldPadding(node))) return {};
    if (node.kind == NodeKind::kReshape) {
      if (const Node* inner = Find(node.inputs[0], NodeKind::kReshape)) {
        Builder build(graph_, node.origin);
        Replace(node.output, HONE_TRY(build.Reshape(inner->inputs[0], node.extents)));
      }
    }
    if (node.kind == NodeKind::kTranspose) {
      if (const Node* inner = FindInner(node.inputs[0], NodeKind::kTranspose)) {
        std::vector<int64_t> axes;
        for (int64_t axis : node.axes) axes.push_back(inner->axes[static_cast<size_t>(axis)]);
        Builder build(graph_, node.origin);
        Replace(node.output, HONE_TRY(build.Transpose(inner->inputs[0], axes)));
      }
    }
    return {};
  }

  Result<bool> ReplaceByUnary(const Node& node, std::string_view function, ValueId x) {
    if (graph_.shape(x) != graph_.shape(node.output)) return false;
    Builder build(graph_, node.origin);
    ValueId y = HONE_TRY(build.Unary(function, x));
    graph_.values[y].name = graph_.values[node.output].name;
    Replace(node.output, y);
    return true;
  }

  // 1 + f(g(x)), in either order: f's operand.
  std::optional<ValueId> OnePlus(ValueId value, std::string_view function) {
    const Node* sum = FindInner(value, NodeKind::kBinary, "add");
    if (sum == nullptr) return std::nullopt;
    for (size_t side : {0, 1}) {
      std::optional<double> one = graph_.ScalarOf(sum->inputs[side]);
      const Node* f = FindInner(sum->inputs[1 - side], NodeKind::kUnary, function);
      if (one == 1.0 && f != nullptr) return f->inputs[0];
    }
    return std::nullopt;
  }

  // c · x for the x that is asked about.
  bool IsScaled(ValueId value, ValueId x, double factor) {
    Product product;
    Collect(value, true, &product);
    return product.factors == std::vector<ValueId>{x} && Near(product.number, factor, x);
  }

  // √(2/π) · (x + 0.044715 · x³)
  bool IsTanhArgument(ValueId value, ValueId x) {
    Product outer;
    Collect(value, true, &outer);
    if (outer.factors.size() != 1 || !Near(outer.number, std::sqrt(2 / M_PI), x)) return false;
    const Node* sum = Find(outer.factors[0], NodeKind::kBinary, "add");
    if (sum == nullptr) return false;
    for (size_t side : {0, 1}) {
      if (sum->inputs[side] != x) continue;
      Product cube;
      Collect(sum->inputs[1 - side], true, &cube);
      if (!Near(cube.number, 0.044715, x)) continue;
      if (cube.factors == std::vector<ValueId>{x, x, x}) return true;
      if (cube.factors.size() != 1) continue;
      const Node* power = Find(cube.factors[0], NodeKind::kBinary, "pow");
      if (power != nullptr && power->inputs[0] == x && graph_.ScalarOf(power->inputs[1]) == 3.0) return true;
    }
    return false;
  }

  // min(max(x + 3, 0), 6), in either order.
  std::optional<ValueId> HardSwishGate(ValueId value) {
    const Node* outer = FindInner(value, NodeKind::kBinary);
    ValueId inner;
    if (const Node* relu6 = FindInner(value, NodeKind::kUnary, "relu6")) inner = relu6->inputs[0];
    if (outer != nullptr && (outer->function == "min" || outer->function == "max")) {
      const Node* next = FindInner(outer->inputs[0], NodeKind::kBinary, outer->function == "min" ? "max" : "min");
      if (next == nullptr) return std::nullopt;
      const Node *low = outer->function == "max" ? outer : next, *high = outer->function == "min" ? outer : next;
      if (graph_.ScalarOf(low->inputs[1]) != 0.0 || graph_.ScalarOf(high->inputs[1]) != 6.0) return std::nullopt;
      inner = next->inputs[0];
    }
    if (!inner) return std::nullopt;
    const Node* sum = FindInner(inner, NodeKind::kBinary, "add");
    if (sum == nullptr) return std::nullopt;
    for (size_t side : {0, 1}) {
      if (graph_.ScalarOf(sum->inputs[side]) == 3.0) return sum->inputs[1 - side];
    }
    return std::nullopt;
  }

  // max(0, min(1, x/6 + 1/2)), as HardSigmoid of MobileNetV3 becomes.
  std::optional<ValueId> HardSigmoidOf(ValueId value) {
    const Node* low = FindInner(value, NodeKind::kBinary, "max");
    if (low == nullptr || graph_.ScalarOf(low->inputs[1]) != 0.0) return std::nullopt;
    const Node* high = FindInner(low->inputs[0], NodeKind::kBinary, "min");
    if (high == nullptr || graph_.ScalarOf(high->inputs[1]) != 1.0) return std::nullopt;
    const Node* sum = FindInner(high->inputs[0], NodeKind::kBinary, "add");
    if (sum == nullptr || graph_.ScalarOf(sum->inputs[1]) != 0.5) return std::nullopt;
    Product product;
    Collect(sum->inputs[0], false, &product);
    if (product.factors.size() != 1 || !Near(product.number, 1.0 / 6, value)) return std::nullopt;
    return product.factors[0];
  }

  Result<bool> MatchActivation(const Node& node) {
    Product product;
    Collect(node.output, true, &product);
    if (product.factors.size() != 2) return false;
    for (size_t side : {0, 1}) {
      ValueId x = product.factors[side], gate = product.factors[1 - side];
      if (Near(product.number, 0.5, x)) {
        std::optional<ValueId> erf = OnePlus(gate, "erf");
        if (erf && IsScaled(*erf, x, std::sqrt(0.5))) return ReplaceByUnary(node, "gelu", x);
        std::optional<ValueId> tanh = OnePlus(gate, "tanh");
        if (tanh && IsTanhArgument(*tanh, x)) return ReplaceByUnary(node, "gelu_tanh", x);
      }
      if (Near(product.number, 1, x)) {
        const Node* sigmoid = FindInner(gate, NodeKind::kUnary, "sigmoid");
        if (sigmoid != nullptr && sigmoid->inputs[0] == x) return ReplaceByUnary(node, "silu", x);
        if (HardSigmoidOf(gate) == x) return ReplaceByUnary(node, "hardswish", x);
      }
      if (Near(product.number, 1.0 / 6, x) && HardSwishGate(gate) == x) return ReplaceByUnary(node, "hardswish", x);
    }
    return false;
  }

  // max(x, 0) is relu; with min(…, 6) relu6.
  Result<bool> MatchClip(const Node& node) {
    if (!IsFloat(graph_.dtype(node.output))) return false;
    std::optional<double> bound = graph_.ScalarOf(node.inputs[1]);
    if (node.function == "max" && bound == 0.0) {
      const Node* inner = FindInner(node.inputs[0], NodeKind::kBinary, "min");
      if (inner != nullptr && graph_.ScalarOf(inner->inputs[1]) == 6.0)
        return ReplaceByUnary(node, "relu6", inner->inputs[0]);
      return ReplaceByUnary(node, "relu", node.inputs[0]);
    }
    if (node.function == "min" && bound == 6.0) {
      const Node* relu = FindInner(node.inputs[0], NodeKind::kUnary, "relu");
      if (relu != nullptr) return ReplaceByUnary(node, "relu6", relu->inputs[0]);
      const Node* inner = FindInner(node.inputs[0], NodeKind::kBinary, "max");
      if (inner != nullptr && graph_.ScalarOf(inner->inputs[1]) == 0.0)
        return ReplaceByUnary(node, "relu6", inner->inputs[0]);
    }
    return false;
  }

  // A mean over the last dimensions, kept as 1: where they begin.
  std::optional<int64_t> MeanOverLast(const Node& reduce) const {
    auto rank = static_cast<int64_t>(graph_.shape(reduce.inputs[0]).size());
    if (reduce.function != "mean") return std::nullopt;
    for (size_t i = 0; i < reduce.axes.size(); ++i) {
      if (reduce.axes[i] != rank - static_cast<int64_t>(reduce.axes.size() - i)) return std::nullopt;
    }
    return rank - static_cast<int64_t>(reduce.axes.size());
  }

  // (x − mean(x)) / √(mean((x − mean(x))²) + ε) · gamma + beta. The factor may stand on either side, and the quotient
  // may be a product with the reciprocal root.
  Result<bool> MatchLayerNorm(const Node& node) {
    for (size_t side : {0, 1}) {
      ValueId beta = node.inputs[1 - side];
      const Node* scaled = FindInner(node.inputs[side], NodeKind::kBinary, "mul");
      if (scaled == nullptr || !graph_.is_constant(beta)) continue;
      for (size_t inner : {0, 1}) {
        ValueId gamma = scaled->inputs[1 - inner];
        if (!graph_.is_constant(gamma)) continue;
        if (HONE_TRY(MatchNormalized(node, scaled->inputs[inner], gamma, beta))) return true;
      }
    }
    return false;
  }

  Result<bool> MatchNormalized(const Node& node, ValueId normalized, ValueId gamma, ValueId beta) {
    const Node* quotient = FindInner(normalized, NodeKind::kBinary);
    if (quotient == nullptr || (quotient->function != "div" && quotient->function != "mul")) return false;
    for (size_t side : {0, 1}) {
      if (quotient->function == "div" && side == 1) break;
      ValueId centred = quotient->inputs[side];
      const Node* root =
          FindInner(quotient->inputs[1 - side], NodeKind::kUnary, quotient->function == "div" ? "sqrt" : "rsqrt");
      if (root == nullptr && quotient->function == "mul") {  // 1 / √v
        const Node* reciprocal = FindInner(quotient->inputs[1 - side], NodeKind::kBinary, "div");
        if (reciprocal != nullptr && graph_.ScalarOf(reciprocal->inputs[0]) == 1.0) {
          root = FindInner(reciprocal->inputs[1], NodeKind::kUnary, "sqrt");
        }
      }
      const Node* spread = root == nullptr ? nullptr : FindInner(root->inputs[0], NodeKind::kBinary, "add");
      if (spread == nullptr) continue;
      std::optional<double> epsilon = graph_.ScalarOf(spread->inputs[1]);
      const Node* variance = FindInner(spread->inputs[0], NodeKind::kReduce);
      const Node* difference = Find(centred, NodeKind::kBinary, "sub");
      if (!epsilon || variance == nullptr || difference == nullptr) continue;
      const Node* square = FindInner(variance->inputs[0], NodeKind::kBinary, "mul");
      const Node* mean = FindInner(difference->inputs[1], NodeKind::kReduce);
      if (square == nullptr || mean == nullptr || square->inputs[0] != centred || square->inputs[1] != centred)
        continue;
      ValueId x = difference->inputs[0];
      std::optional<int64_t> axis = MeanOverLast(*mean);
      if (!axis || mean->inputs[0] != x || variance->function != "mean" || variance->axes != mean->axes) continue;
      Shape row(graph_.shape(x).begin() + *axis, graph_.shape(x).end());
      if (graph_.shape(gamma) != row || graph_.shape(beta) != row || graph_.shape(x) != graph_.shape(node.output))
        continue;
      Builder build(graph_, node.origin);
      Node norm;
      norm.kind = NodeKind::kLayerNorm;
      norm.axis = *axis;
      norm.epsilon = *epsilon;
      norm.inputs = {x, gamma, beta};
      ValueId y = HONE_TRY(build.Add(std::move(norm)));
      Replace(node.output, y);
      return true;
    }
    return false;
  }

  // The dimension that a layer's output channels run over; -1: `vector` is not one number an output channel.
  int64_t ChannelOf(const Node& layer, ValueId vector) const {
    const Shape &out = graph_.shape(layer.output), &own = graph_.shape(vector);
    size_t channel = layer.kind == NodeKind::kConv ? 1 : out.size() - 1;
    if (own.size() > out.size() || CountOf(own) != out[channel]) return -1;
    for (size_t i = 0; i < own.size(); ++i) {
      if (out.size() - 1 - i != channel && own[own.size() - 1 - i] != 1) return -1;
    }
    if (own.size() < out.size() - channel) return -1;
    return static_cast<int64_t>(channel);
  }

  // A layer with constant weights that nothing else reads; its node.
  const Node* FindLayer(ValueId value) const {
    const Node* layer = FindInner(value, NodeKind::kConv);
    if (layer == nullptr) layer = FindInner(value, NodeKind::kMatMul);
    if (layer == nullptr || !graph_.is_constant(layer->inputs[1])) return nullptr;
    if (layer->kind == NodeKind::kMatMul && graph_.shape(layer->inputs[1]).size() != 2) return nullptr;
    if (layer->kind == NodeKind::kConv && layer->inputs.size() > 2 && !graph_.is_constant(layer->inputs[2]))
      return nullptr;
    return layer;
  }

  // Zeros around an image that a convolution alone reads are its padding.
  Result<bool> FoldPadding(const Node& node) {
    if (node.kind != NodeKind::kConv || !IsFloat(graph_.dtype(node.inputs[0]))) return false;
    const Node* pad = Find(node.inputs[0], NodeKind::kPad);
    if (pad == nullptr || !pad->function.empty() || pad->fill != 0) return false;
    const bool is_padded = std::any_of(node.pads.begin(), node.pads.end(), [](int64_t by) { return by != 0; });
    if (is_padded && node.fill != 0) return false;
    const Shape& x = graph_.shape(pad->inputs[0]);
    Node whole = node;
    whole.fill = 0;
    for (size_t d = 0; d < x.size(); ++d) {
      const int64_t before = pad->starts[d], after = pad->extents[d] - before - x[d];
      if (before < 0 || after < 0 || (d < 2 && before + after > 0)) return false;
      if (d < 2) continue;
      whole.pads[d - 2] += before;
      whole.pads[d] += after;
    }
    whole.inputs[0] = pad->inputs[0];
    Builder build(graph_, node.origin);
    Replace(node.output, HONE_TRY(build.Add(std::move(whole))));
    return true;
  }

  Result<ValueId> ScaleWeight(Builder& build, const Node& layer, ValueId factor) {
    Shape weight = graph_.shape(layer.inputs[1]), shape(weight.size(), 1);
    size_t channel = layer.kind == NodeKind::kConv || layer.flag ? 0 : weight.size() - 1;
    shape[channel] = weight[channel];
    ValueId vector = HONE_TRY(build.Reshape(factor, shape));
    return build.Binary("mul", layer.inputs[1], vector);
  }

  // layer(x) · f, f constant and one a channel, is the layer with its weights and bias times f; (layer(x) + b) · f is
  // the scaled layer + b · f.
  Result<bool> FoldFactor(const Node& node) {
    if (node.function != "mul") return false;
    for (size_t side : {0, 1}) {
      ValueId factor = node.inputs[1 - side];
      if (!graph_.is_constant(factor)) continue;
      const Node* sum = FindInner(node.inputs[side], NodeKind::kBinary, "add");
      ValueId term;
      const Node* found = FindLayer(node.inputs[side]);
      for (size_t inner = 0; sum != nullptr && inner < 2; ++inner) {
        const Node* layer = FindLayer(sum->inputs[inner]);
        if (layer == nullptr || !graph_.is_constant(sum->inputs[1 - inner])) continue;
        if (ChannelOf(*layer, sum->inputs[1 - inner]) < 0) continue;
        found = layer;
        term = sum->inputs[1 - inner];
      }
      if (found == nullptr || ChannelOf(*found, factor) < 0) continue;
      Node layer = *found;
      Shape shape = graph_.shape(layer.output);
      Builder build(graph_, node.origin);
      layer.inputs[1] = HONE_TRY(ScaleWeight(build, layer, factor));
      if (layer.inputs.size() > 2) {
        ValueId vector = HONE_TRY(build.Reshape(factor, graph_.shape(layer.inputs[2])));
        layer.inputs[2] = HONE_TRY(build.Binary("mul", layer.inputs[2], vector));
      }
      ValueId y = HONE_TRY(graph_.Add(layer));
      if (term) y = HONE_TRY(build.Binary("add", y, HONE_TRY(build.Binary("mul", term, factor))));
      if (graph_.shape(y) != graph_.shape(node.output)) continue;
      Replace(node.output, y);
      return true;
    }
    return false;
  }

  // conv(x) + t, t constant and one a channel, is the convolution with that bias; (x + t) + u is x + (t + u).
  Result<bool> FoldTerm(const Node& node) {
    for (size_t side : {0, 1}) {
      ValueId term = node.inputs[1 - side];
      if (!graph_.is_constant(term) || graph_.shape(node.inputs[side]) != graph_.shape(node.output)) continue;
      Builder build(graph_, node.origin);
      const Node* found = FindLayer(node.inputs[side]);
      if (found != nullptr && found->kind == NodeKind::kConv && ChannelOf(*found, term) >= 0) {
        Node layer = *found;
        ValueId bias = HONE_TRY(build.Reshape(term, {graph_.shape(layer.output)[1]}));
        if (layer.inputs.size() > 2) {
          layer.inputs[2] = HONE_TRY(build.Binary("add", layer.inputs[2], bias));
        } else {
          layer.inputs.push_back(bias);
        }
        Replace(node.output, HONE_TRY(graph_.Add(layer)));
        return true;
      }
      const Node* sum = FindInner(node.inputs[side], NodeKind::kBinary, "add");
      for (size_t inner = 0; sum != nullptr && inner < 2; ++inner) {
        ValueId other = sum->inputs[1 - inner], base = sum->inputs[inner];
        // Terms of one shape: a bias stays apart from what is added element by element.
        if (!graph_.is_constant(other) || graph_.shape(other) != graph_.shape(term)) continue;
        ValueId both = HONE_TRY(build.Binary("add", other, term));
        Replace(node.output, HONE_TRY(build.Binary("add", base, both)));
        return true;
      }
    }
    return false;
  }
};

}  // namespace

Result<void> Simplify(Graph& graph) {
  HONE_TRY(FoldQuantized(graph));
  HONE_TRY(KeepNarrow(graph));
  return Simplifier(graph).Run();
}

}  // namespace hone
