#include "network/run/spell_library.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/graph/dtype_traits.h"
#include "network/run/write_kernel.h"

namespace hone {
namespace {

std::string Pair(const std::vector<int64_t>& numbers) {
  return numbers[0] == numbers[1] ? std::to_string(numbers[0]) : fmt::format("[{},{}]", numbers[0], numbers[1]);
}

std::string Margin(const std::vector<int64_t>& pads) {
  if (pads[0] == pads[2] && pads[1] == pads[3]) return Pair(pads);
  return fmt::format("[{}]", fmt::join(pads, ","));
}

class Speller {
 public:
  explicit Speller(const Graph& graph) : graph_(graph) {}

  std::optional<Spelling> SpellConv(const Node& node) {
    const Shape &x = graph_.shape(node.inputs[0]), &w = graph_.shape(node.inputs[1]);
    bool is_depthwise = node.groups == x[1] && node.groups == w[0] && node.groups > 1;
    Spelling spelling;
    spelling.name = is_depthwise ? "depthwise_conv2d" : "conv2d";
    if (x[0] != 1) spelling.attributes = fmt::format("N={},", x[0]);
    spelling.attributes += fmt::format("C={},H={},W={}", x[1], x[2], x[3]);
    if (!is_depthwise) spelling.attributes += fmt::format(",O={}", w[0]);
    spelling.attributes += fmt::format(",R={},S={},stride={},pad={}", w[2], w[3], Pair(node.stride), Margin(node.pads));
    if (node.dilation != std::vector<int64_t>{1, 1}) spelling.attributes += ",dilation=" + Pair(node.dilation);
    if (!is_depthwise && node.groups > 1) spelling.attributes += fmt::format(",groups={}", node.groups);
    spelling.takes_const = true;
    spelling.is_const = graph_.is_constant(node.inputs[1]);
    spelling.channel = 1;
    spelling.inputs = {node.inputs[0], node.inputs[1]};
    if (node.inputs.size() > 2) {
      spelling.epilogues = "+bias";
      spelling.is_const = spelling.is_const && graph_.is_constant(node.inputs[2]);
      spelling.inputs.push_back(node.inputs[2]);
    }
    return spelling;
  }

  std::optional<Spelling> SpellMatMul(const Node& node) {
    const Shape &a = graph_.shape(node.inputs[0]), &b = graph_.shape(node.inputs[1]), &y = graph_.shape(node.output);
    Spelling spelling;
    int64_t n = y.back(), k = a.back();
    spelling.channel = y.size() - 1;
    spelling.inputs = node.inputs;
    spelling.is_const = graph_.is_constant(node.inputs[1]);
    spelling.takes_const = true;
    int64_t batch_of_b = CountOf(Shape(b.begin(), b.end() - 2));
    if (batch_of_b == 1) {  // all rows of a against one matrix
      spelling.name = node.flag ? "dense" : "matmul";
      spelling.attributes = fmt::format("M={},N={},K={}", CountOf(y) / n, n, k);
      return spelling;
    }
    if (Shape(a.begin(), a.end() - 2) != Shape(y.begin(), y.end() - 2) ||
        batch_of_b != CountOf(y) / (n * y[y.size() - 2])) {
      return std::nullopt;
    }
    spelling.name = "batch_matmul";
    spelling.attributes =
        fmt::format("B={},M={},N={},K={}{}", batch_of_b, y[y.size() - 2], n, k, node.flag ? ",tb=1" : "");
    return spelling;
  }

  std::optional<Spelling> SpellDense(const Node& node) {
    const Shape& y = graph_.shape(node.output);
    const std::ptrdiff_t chosen = node.flag ? 1 : 0;
    Spelling spelling;
    spelling.name = "dense";
    spelling.attributes = fmt::format("M={},N={},K={}", CountOf(y) / y.back(), y.back(), node.extents[1]);
    if (node.function != "same") spelling.attributes += ",weights=" + node.function;
    if (node.axis > 0) spelling.attributes += fmt::format(",block={}", node.axis);
    if (std::ssize(node.inputs) - chosen > 3) spelling.attributes += ",zero=1";
    if (node.flag) spelling.attributes += fmt::format(",experts={}", node.groups);
    spelling.channel = y.size() - 1;
    spelling.inputs = node.inputs;
    spelling.takes_const = true;
    spelling.is_const = std::all_of(node.inputs.begin() + 1, node.inputs.end() - chosen,
                                    [&](ValueId input) { return graph_.is_constant(input); });
    return spelling;
  }

  std::optional<Spelling> SpellPool(const Node& node) {
    if (node.flag || node.dilation != std::vector<int64_t>{1, 1}) return std::nullopt;
    const Shape& x = graph_.shape(node.inputs[0]);
    Spelling spelling;
    spelling.name = node.kind == NodeKind::kMaxPool ? "maxpool2d" : "avgpool2d";
    if (x[0] != 1) spelling.attributes = fmt::format("N={},", x[0]);
    spelling.attributes +=
        fmt::format("C={},H={},W={},R={},S={},stride={},pad={}{}", x[1], x[2], x[3], node.window[0], node.window[1],
                    Pair(node.stride), Margin(node.pads), node.ceil ? ",ceil=1" : "");
    spelling.channel = 1;
    spelling.inputs = node.inputs;
    return spelling;
  }

  std::optional<Spelling> SpellReduce(const Node& node) {
    const Shape& x = graph_.shape(node.inputs[0]);
    Spelling spelling;
    spelling.inputs = node.inputs;
    if (node.function == "mean" && x.size() == 4 && node.axes == std::vector<int64_t>{2, 3}) {
      spelling.name = "global_avgpool";
      spelling.attributes =
          fmt::format("{}C={},H={},W={}", x[0] == 1 ? "" : fmt::format("N={},", x[0]), x[1], x[2], x[3]);
      spelling.channel = 1;
      return spelling;
    }
    return std::nullopt;
  }

  std::optional<Spelling> SpellRows(const Node& node) {
    const Shape& x = graph_.shape(node.inputs[0]);
    Spelling spelling;
    spelling.inputs = node.inputs;
    spelling.channel = x.size() - 1;
    if (node.kind == NodeKind::kSoftmax) {
      if (node.axis + 1 != static_cast<int64_t>(x.size()) || node.flag) return std::nullopt;
      spelling.name = "softmax";
      spelling.attributes = fmt::format("M={},N={}", CountOf(x) / x.back(), x.back());
      return spelling;
    }
    int64_t n = CountOf(Shape(x.begin() + node.axis, x.end()));
    spelling.name = "layer_norm";
    spelling.attributes = fmt::format("M={},N={}", CountOf(x) / n, n);
    // The usual one is spelled as it is in lists.
    if (static_cast<float>(node.epsilon) != 1e-5F) spelling.attributes += fmt::format(",eps={:.9g}", node.epsilon);
    return spelling;
  }

  std::optional<Spelling> Spell(const Node& node) {
    std::optional<Spelling> spelling;
    for (ValueId input : node.inputs)
      if (Count(input) == 0) return std::nullopt;
    switch (node.kind) {
      case NodeKind::kConv: spelling = SpellConv(node); break;
      case NodeKind::kMatMul: spelling = SpellMatMul(node); break;
      case NodeKind::kDense: spelling = SpellDense(node); break;
      case NodeKind::kMaxPool:
      case NodeKind::kAveragePool: spelling = SpellPool(node); break;
      case NodeKind::kReduce: spelling = SpellReduce(node); break;
      case NodeKind::kSoftmax:
      case NodeKind::kLayerNorm: spelling = SpellRows(node); break;
      default: break;
    }
    const DType dtype = graph_.dtype(node.output);
    if (!spelling) return std::nullopt;
    if (dtype == DType::kF32) {
      if (node.kind == NodeKind::kConv || node.kind == NodeKind::kMatMul || node.kind == NodeKind::kDense)
        spelling->accuracy = graph_.accuracy;
      return spelling;
    }
    // Of whole numbers the library has sums of products, which are i32, and maxima.
    const bool is_known = IsFloat(dtype) || node.kind == NodeKind::kMaxPool ||
                          (dtype == DType::kI32 && (node.kind == NodeKind::kConv || node.kind == NodeKind::kMatMul));
    if (!is_known || !IsOfKernelTypes(graph_, node) || IsWholeContraction(graph_, node)) return std::nullopt;
    spelling->attributes += fmt::format(",dtype={}", Name(dtype));
    return spelling;
  }

 private:
  int64_t Count(ValueId value) const { return CountOf(graph_.shape(value)); }

  const Graph& graph_;
};

// One number an output channel, for all else equal.
bool IsBias(const Graph& graph, const Spelling& spelling, ValueId output, ValueId operand) {
  const Shape &y = graph.shape(output), &own = graph.shape(operand);
  if (own.size() > y.size() || own.size() < y.size() - spelling.channel) return false;
  for (size_t i = 0; i < own.size(); ++i) {
    size_t d = y.size() - 1 - i;
    if (own[own.size() - 1 - i] != (d == spelling.channel ? y[d] : 1)) return false;
  }
  return true;
}

}  // namespace

std::string Spelling::Text() const {
  const std::string_view constant = takes_const && is_const ? ",const=1" : "";
  const std::string promised = accuracy == Accuracy::kStrict ? "" : fmt::format(",accuracy={}", AccuracyName(accuracy));
  return fmt::format("{}({}{}{}){}", name, attributes, constant, promised, epilogues);
}

std::optional<Spelling> SpellLibraryOperation(const Graph& graph, const Node& node) {
  return Speller(graph).Spell(node);
}

bool SpellEpilogue(const Graph& graph, const Node& node, ValueId value, Spelling* spelled) {
  Spelling& spelling = *spelled;
  if (graph.shape(node.output) != graph.shape(value) || graph.dtype(node.output) != graph.dtype(value)) return false;
  if (node.kind == NodeKind::kUnary) {
    for (std::string_view each : {"relu", "relu6", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "hardswish"}) {
      if (node.function != each) continue;
      spelling.epilogues += "+" + node.function;
      return true;
    }
    return false;
  }
  if (node.kind != NodeKind::kBinary || (node.function != "add" && node.function != "mul")) return false;
  ValueId other = node.inputs[0] == value ? node.inputs[1] : node.inputs[0];
  // A layer's own bias comes first and is packed with its weight; a scalar is no bias, and what is computed beside a
  // weight that can be packed is none either: of one row, a residual sum looks like one.
  const bool is_computed = spelling.is_const && !graph.is_constant(other) && graph.shape(other) == graph.shape(value);
  if (node.function == "add" && !is_computed && CountOf(graph.shape(other)) > 1 &&
      IsBias(graph, spelling, value, other) && spelling.takes_const && spelling.epilogues.empty()) {
    spelling.epilogues += "+bias";
    spelling.is_const = spelling.is_const && graph.is_constant(other);
    spelling.inputs.push_back(other);
    return true;
  }
  if (graph.shape(other) != graph.shape(value)) return false;
  spelling.epilogues += "+" + node.function;
  spelling.inputs.push_back(other);
  return true;
}

bool IsKernelType(DType dtype) { return dtype != DType::kI64 && TraitsOf(dtype).is_computed; }

bool IsOfKernelTypes(const Graph& graph, const Node& node) {
  return IsKernelType(graph.dtype(node.output)) &&
         std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId input) { return IsKernelType(graph.dtype(input)); });
}

}  // namespace hone
