#include "network/run/kernel_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "ir/graph/dtype_traits.h"
#include "ir/language/parse.h"
#include "network/graph/check_indices.h"
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

// A library operation being spelled.
struct Spelling {
  std::string name;        // "conv2d"
  std::string attributes;  // "C=64,H=56"
  bool takes_const = false;
  bool is_const = true;  // its weight and biases are constants
  size_t channel = 0;    // dimension of the output, in the value's shape, that a bias runs over
  std::vector<ValueId> inputs;
  std::string epilogues;
  std::vector<std::string> words;

  std::string Text() const {
    return fmt::format("{}({}{}){}", name, attributes, takes_const && is_const ? ",const=1" : "", epilogues);
  }
};

class Lowerer {
 public:
  Lowerer(Graph& graph, const LowerOptions& options)
      : graph_(graph), options_(options), readers_(CountReaders(graph)) {}

  CallPlan Run() {
    FindReaders();
    plan_.place.resize(graph_.values.size());
    for (ValueId value : plan_.place.ids()) plan_.place[value].root = value;
    fused_.resize(graph_.nodes.size());
    ends_.resize(graph_.nodes.size());
    ended_.resize(graph_.nodes.size());
    for (NodeId node : graph_.nodes.ids()) SpellLibraryCall(node);
    for (NodeId node : graph_.nodes.ids()) PlaceParts(node);
    for (NodeId node : graph_.nodes.ids()) FuseContraction(node);
    for (NodeId node : graph_.nodes.ids()) FindInlined(node);
    for (NodeId node : graph_.nodes.ids()) Emit(node);
    for (Place& place : plan_.place) place = Resolve(place);
    graph_.ForgetElements();
    return std::move(plan_);
  }

 private:
  // Concatenations of concatenations, and views of them.
  Place Resolve(Place place) const {
    for (;;) {
      const Place& next = plan_.place[place.root];
      if (next.root == place.root) return place;
      place = {next.root, place.offset + next.offset};
    }
  }

  static constexpr size_t kMostInlined = 24;  // nodes of one kernel

  bool IsLive(const Node& node) const { return !graph_.is_constant(node.output) && readers_[node.output] > 0; }

  void FindReaders() {
    reader_.resize(graph_.values.size());
    for (NodeId id : graph_.nodes.ids()) {
      if (graph_.is_constant(graph_.nodes[id].output)) continue;
      for (ValueId input : graph_.nodes[id].inputs) reader_[input] = id;
    }
  }

  // The node that alone reads a value, once; none: there is none.
  NodeId OnlyReader(ValueId value) const { return readers_[value] == 1 ? reader_[value] : NodeId(); }

  int64_t Count(ValueId value) const { return CountOf(graph_.shape(value)); }

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
      if (node.axis + 1 != static_cast<int64_t>(x.size())) return std::nullopt;
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
      case NodeKind::kMaxPool:
      case NodeKind::kAveragePool: spelling = SpellPool(node); break;
      case NodeKind::kReduce: spelling = SpellReduce(node); break;
      case NodeKind::kSoftmax:
      case NodeKind::kLayerNorm: spelling = SpellRows(node); break;
      default: break;
    }
    const DType dtype = graph_.dtype(node.output);
    if (!spelling || dtype == DType::kF32) return spelling;
    // Of whole numbers the library has sums of products, which are i32, and maxima.
    const bool is_known = IsFloat(dtype) || node.kind == NodeKind::kMaxPool ||
                          (dtype == DType::kI32 && (node.kind == NodeKind::kConv || node.kind == NodeKind::kMatMul));
    if (!is_known || !IsOfKernelTypes(node) || IsWholeContraction(graph_, node)) return std::nullopt;
    spelling->attributes += fmt::format(",dtype={}", Name(dtype));
    return spelling;
  }

  // One number an output channel, for all else equal.
  bool IsBias(const Spelling& spelling, ValueId output, ValueId operand) const {
    const Shape &y = graph_.shape(output), &own = graph_.shape(operand);
    if (own.size() > y.size() || own.size() < y.size() - spelling.channel) return false;
    for (size_t i = 0; i < own.size(); ++i) {
      size_t d = y.size() - 1 - i;
      if (own[own.size() - 1 - i] != (d == spelling.channel ? y[d] : 1)) return false;
    }
    return true;
  }

  // The epilogue that a node is after `value`, with its operand: false if it is none.
  bool ReadEpilogue(Spelling& spelling, const Node& node, ValueId value) {
    if (graph_.shape(node.output) != graph_.shape(value) || graph_.dtype(node.output) != graph_.dtype(value))
      return false;
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
    const bool is_computed =
        spelling.is_const && !graph_.is_constant(other) && graph_.shape(other) == graph_.shape(value);
    if (node.function == "add" && !is_computed && Count(other) > 1 && IsBias(spelling, value, other) &&
        spelling.takes_const && spelling.epilogues.empty()) {
      spelling.epilogues += "+bias";
      spelling.is_const = spelling.is_const && graph_.is_constant(other);
      spelling.inputs.push_back(other);
      return true;
    }
    if (graph_.shape(other) != graph_.shape(value)) return false;
    spelling.epilogues += "+" + node.function;
    spelling.inputs.push_back(other);
    return true;
  }

  // A value that a library operation computes for its only reader, itself or through epilogues.
  bool EndsChain(ValueId value, int depth = 0) {
    const Node* node = graph_.ProducerOf(value);
    if (node == nullptr || !OnlyReader(value) || depth > 8) return false;
    if (node->kind != NodeKind::kUnary && node->kind != NodeKind::kBinary) return Spell(*node).has_value();
    for (ValueId input : node->inputs) {
      if (EndsChain(input, depth + 1)) return true;
    }
    return false;
  }

  // Of two operations that could both take a sum as their epilogue, the first operand's does: in residual blocks that
  // is the branch with the layers.
  bool IsOthers(const Node& next, ValueId value) {
    return next.kind == NodeKind::kBinary && next.inputs[0] != value && EndsChain(next.inputs[0]);
  }

  // Spells a node as a library operation, with the epilogues after it. The call runs where its last node was, since the
  // operands of epilogues may be computed between.
  void SpellLibraryCall(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (!IsLive(node)) return;
    std::optional<Spelling> spelling = Spell(node);
    if (!spelling) return;
    KernelCall call;
    call.is_library = true;
    call.nodes.push_back(node.origin);
    NodeId last = id;
    ValueId value = node.output;
    for (NodeId reader = OnlyReader(value); reader; reader = OnlyReader(value)) {
      const Node& next = graph_.nodes[reader];
      if (fused_[reader] || IsOthers(next, value) || !ReadEpilogue(*spelling, next, value)) break;
      last = reader;
      fused_[last] = true;
      value = next.output;
      call.nodes.push_back(next.origin);
    }
    fused_[id] = true;
    call.kernel = call.label = spelling->Text();
    call.inputs = spelling->inputs;
    call.output = value;
    ends_[last] = std::move(call);
  }

  // A concatenation along the outermost dimension that is not 1 needs no kernel, if its parts are computed by kernels
  // that can write them where they belong: each is computed, and part of this alone.
  void PlaceParts(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (!IsLive(node) || node.kind != NodeKind::kConcat) return;
    const Shape& shape = graph_.shape(node.output);
    if (CountOf(Shape(shape.begin(), shape.begin() + node.axis)) != 1) return;
    std::set<ValueId> parts;
    for (ValueId input : node.inputs) {
      const Node* producer = graph_.ProducerOf(input);
      if (producer == nullptr || IsView(*producer) || producer->kind == NodeKind::kCast) return;
      if (!parts.insert(input).second || plan_.place[input].root != input) return;
    }
    int64_t begin = 0;
    for (ValueId input : node.inputs) {
      plan_.place[input] = {node.output, begin};
      begin += Count(input);
    }
    fused_[id] = true;
  }

  static bool IsCheap(const Node& node) {
    if (node.kind == NodeKind::kUnary)
      return node.function == "neg" || node.function == "relu" || node.function == "abs";
    return node.kind != NodeKind::kBinary || (node.function != "div" && node.function != "pow");
  }

  // Whether kernels have tensors of all that a node reads and writes.
  bool IsOfKernelTypes(const Node& node) const {
    return IsKernelType(graph_.dtype(node.output), options_) &&
           std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId input) { return IsKernelType(graph_.dtype(input), options_); });
  }

  // The element-wise nodes after a convolution or product of bytes are computed with it, up to the last one of those
  // that take the least memory: what it is quantised to, not the sums.
  void FuseContraction(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (!IsLive(node) || !IsOfKernelTypes(node) || !IsWholeContraction(graph_, node)) return;
    std::vector<NodeId> path = {id};
    size_t end = 0;
    while (path.size() < kMostInlined) {
      const ValueId value = graph_.nodes[path.back()].output;
      const NodeId next = OnlyReader(value);
      if (!next || fused_[next] || ended_[next] || inlined_.count(graph_.nodes[next].output) != 0) break;
      const Node& reader = graph_.nodes[next];
      const bool is_elementwise = reader.kind == NodeKind::kUnary || reader.kind == NodeKind::kBinary ||
                                  reader.kind == NodeKind::kSelect || reader.kind == NodeKind::kCast;
      if (!is_elementwise || !IsOfKernelTypes(reader) || graph_.shape(reader.output) != graph_.shape(value)) break;
      path.push_back(next);
      if (ByteSize(graph_.dtype(reader.output)) <= ByteSize(graph_.dtype(graph_.nodes[path[end]].output)))
        end = path.size() - 1;
    }
    for (size_t i = 0; i < end; ++i) inlined_[graph_.nodes[path[i]].output] = i + 1;
    ended_[path[end]] = true;
  }

  // Whether a value is computed within the kernel of its reader.
  void FindInlined(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (!IsLive(node) || fused_[id] || ended_[id] || inlined_.count(node.output) != 0 || !IsPointwise(node.kind))
      return;
    const NodeId at = OnlyReader(node.output);
    if (!at || fused_[at]) return;
    const Node& reader = graph_.nodes[at];
    if (!IsOfKernelTypes(node) || !IsOfKernelTypes(reader)) return;
    if (!IsPointwise(reader.kind) && reader.kind != NodeKind::kReduce) return;
    // What broadcasts would be computed again and again.
    if (!IsCheap(node) && Count(reader.output) > Count(node.output) && reader.kind != NodeKind::kReduce) return;
    // A reduction in the middle of a gather's index, and the like, stays out: indices are read from memory.
    if ((reader.kind == NodeKind::kGather || reader.kind == NodeKind::kGatherElements) &&
        reader.inputs[1] == node.output)
      return;
    size_t nodes = 1;
    for (ValueId input : node.inputs) {
      auto found = inlined_.find(input);
      if (found != inlined_.end()) nodes += found->second;
    }
    if (nodes < kMostInlined) inlined_[node.output] = nodes;
  }

  // Rows of the outermost dimension that is not 1 lie together: they are read where they are. Part of a kernel, they
  // cost nothing either.
  bool IsView(const Node& node) const {
    if (node.kind == NodeKind::kReshape) return true;
    if (node.kind != NodeKind::kSlice || graph_.is_constant(node.inputs[0])) return false;
    const Shape& x = graph_.shape(node.inputs[0]);
    size_t outermost = 0;
    while (outermost < x.size() && x[outermost] == 1) ++outermost;
    for (size_t d = 0; d < x.size(); ++d)
      if (node.steps[d] != 1 || (d != outermost && node.extents[d] != x[d])) return false;
    return true;
  }

  Place ViewPlace(const Node& node) const {
    int64_t offset = 0;
    const Shape& x = graph_.shape(node.inputs[0]);
    if (node.kind == NodeKind::kSlice)
      for (size_t d = 0; d < x.size(); ++d) offset = offset * x[d] + node.starts[d];
    return {node.inputs[0], offset};
  }

  void Emit(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (ends_[id]) {
      plan_.calls.push_back(*std::move(ends_[id]));
      return;
    }
    if (!IsLive(node) || fused_[id] || inlined_.count(node.output) != 0) return;
    if (IsView(node) && Count(node.output) > 0) {
      plan_.place[node.output] = ViewPlace(node);
      return;
    }
    if (Count(node.output) == 0 && node.kind != NodeKind::kHost) return;  // there is nothing to compute
    if (node.kind == NodeKind::kHost) return EmitHost(id);
    Result<KernelText> text = Write(node);
    // Smaller kernels, where it reads too much as one.
    if (!text && text.error().kind == ErrorKind::kLimit && EmitInlined(node)) text = Write(node);
    if (!text) return EvaluateApart(id, text.error().Text());
    KernelCall call;
    call.kernel = std::move(text->text);
    call.label = std::move(text->label);
    call.inputs = std::move(text->inputs);
    call.output = node.output;
    for (NodeId at : text->nodes) call.nodes.push_back(graph_.nodes[at].origin);
    plan_.calls.push_back(std::move(call));
  }

  // The results that are read of one operation are computed together, where the first of them was.
  void EmitHost(NodeId id) {
    const Node& node = graph_.nodes[id];
    KernelCall call = HostCall(
        node, node.host->is_check ? "indices from data are checked first" : "hone has no kernel for this operator");
    call.label = node.host->name;
    call.is_check = node.host->is_check;
    for (NodeId at = id; graph_.nodes.contains(at); ++at) {
      if (graph_.nodes[at].host != node.host || !IsLive(graph_.nodes[at]) || fused_[at]) continue;
      call.host_nodes.push_back(at);
      fused_[at] = true;
    }
    plan_.calls.push_back(std::move(call));
  }

  // What the parser would refuse is no failed request either.
  Result<KernelText> Write(const Node& node) {
    if (!options_.has_narrow_types && !IsOfKernelTypes(node))
      return Error{ErrorKind::kUnsupported, "the device has no kernels of these types", ""};
    Result<KernelText> text = WriteKernel(graph_, node, [&](ValueId value) { return inlined_.count(value) != 0; });
    if (!text) return text;
    if (Result<Kernel> parsed = ParseKernel(text->text); !parsed) return parsed.error();
    return text;
  }

  // Computes before a node what was to be computed within its kernel; false: there is nothing.
  bool EmitInlined(const Node& node) {
    bool any = false;
    for (ValueId input : node.inputs) {
      if (inlined_.erase(input) == 0) continue;
      any = true;
      Emit(graph_.values[input].producer);
    }
    return any;
  }

  // A node that no kernel could be written for.
  void EvaluateApart(NodeId id, const std::string& why) {
    const Node& node = graph_.nodes[id];
    EmitInlined(node);
    KernelCall call = HostCall(node, why);
    call.label = Name(node.kind);
    call.host_nodes.push_back(id);
    plan_.calls.push_back(std::move(call));
  }

  static KernelCall HostCall(const Node& node, const std::string& why) {
    KernelCall call;
    call.inputs = node.inputs;
    call.output = node.output;
    call.nodes = {node.origin};
    call.why_host = why;
    return call;
  }

  Graph& graph_;
  const LowerOptions options_;
  IdVector<ValueId, int> readers_;
  IdVector<ValueId, NodeId> reader_;
  IdVector<NodeId, bool> fused_;                      // part of a library call, or of memory
  IdVector<NodeId, std::optional<KernelCall>> ends_;  // library calls, at their last node
  IdVector<NodeId, bool> ended_;                      // last of a contraction's nodes: no other kernel computes it
  std::map<ValueId, size_t> inlined_;                 // → nodes in its expression
  CallPlan plan_;
};

}  // namespace

std::vector<ValueId> OutputsOf(const Graph& graph, const KernelCall& call) {
  if (!call.is_host()) return {call.output};
  std::vector<ValueId> outputs;
  for (NodeId node : call.host_nodes) outputs.push_back(graph.nodes[node].output);
  return outputs;
}

CallPlan Lower(Graph& graph, const LowerOptions& options) {
  CheckIndices(graph);
  return Lowerer(graph, options).Run();
}

bool IsKernelType(DType dtype, const LowerOptions& options) {
  if (!options.has_narrow_types && (IsNarrowFloat(dtype) || dtype == DType::kU8)) return false;
  return dtype != DType::kI64 && TraitsOf(dtype).is_computed;
}

}  // namespace hone
