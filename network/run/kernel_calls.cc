#include "network/run/kernel_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "ir/graph/dtype_traits.h"
#include "ir/language/parse.h"
#include "network/graph/check_indices.h"
#include "network/run/channels_last.h"
#include "network/run/spell_library.h"
#include "network/run/write_kernel.h"

namespace hone {
namespace {

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
    if (options_.has_channels_last)
      channels_last_ = FindChannelsLast(graph_, [&](NodeId node) { return KernelOf(node); });
    for (NodeId node : graph_.nodes.ids()) Emit(node);
    for (Place& place : plan_.place) place = Resolve(place);
    plan_.channels_last = channels_last_;
    graph_.ForgetElements();
    return std::move(plan_);
  }

  // A kernel that could not be written, so that the plan is of no use.
  bool host_reads_channels_last() const { return host_reads_channels_last_; }

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

  // A value that a library operation computes for its only reader, itself or through epilogues.
  bool EndsChain(ValueId value, int depth = 0) {
    const Node* node = graph_.ProducerOf(value);
    if (node == nullptr || !OnlyReader(value) || depth > 8) return false;
    if (node->kind != NodeKind::kUnary && node->kind != NodeKind::kBinary)
      return SpellLibraryOperation(graph_, *node).has_value();
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
    std::optional<Spelling> spelling = SpellLibraryOperation(graph_, node);
    if (!spelling) return;
    struct Chain {
      Spelling spelling;
      std::vector<NodeId> nodes;
      ValueId output;
    };
    std::vector<Chain> chains = {{*std::move(spelling), {id}, node.output}};  // each an epilogue longer
    while (true) {
      Chain next = chains.back();
      const NodeId reader = OnlyReader(next.output);
      if (!reader || fused_[reader]) break;
      const Node& epilogue = graph_.nodes[reader];
      if (IsOthers(epilogue, next.output) || !SpellEpilogue(graph_, epilogue, next.output, &next.spelling)) break;
      next.nodes.push_back(reader);
      next.output = epilogue.output;
      chains.push_back(std::move(next));
    }
    while (!chains.empty()) {
      const auto refused = options_.refused.find(chains.back().spelling.Text());
      if (refused == options_.refused.end()) break;
      refused_[id] = refused->second;
      chains.pop_back();
    }
    if (chains.empty()) return;
    const Chain& longest = chains.back();
    KernelCall call;
    call.is_library = true;
    for (const NodeId part : longest.nodes) {
      fused_[part] = true;
      call.nodes.push_back(graph_.nodes[part].origin);
    }
    call.kernel = call.label = longest.spelling.Text();
    call.inputs = longest.spelling.inputs;
    call.output = longest.output;
    ends_[longest.nodes.back()] = std::move(call);
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

  // The element-wise nodes after a convolution or product of bytes are computed with it, up to the last one of those
  // that take the least memory: what it is quantised to, not the sums.
  void FuseContraction(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (!IsLive(node) || !IsOfKernelTypes(graph_, node) || !IsWholeContraction(graph_, node)) return;
    std::vector<NodeId> path = {id};
    size_t end = 0;
    while (path.size() < kMostInlined) {
      const ValueId value = graph_.nodes[path.back()].output;
      const NodeId next = OnlyReader(value);
      if (!next || fused_[next] || ended_[next] || inlined_.count(graph_.nodes[next].output) != 0) break;
      const Node& reader = graph_.nodes[next];
      const bool is_elementwise = reader.kind == NodeKind::kUnary || reader.kind == NodeKind::kBinary ||
                                  reader.kind == NodeKind::kSelect || reader.kind == NodeKind::kCast;
      if (!is_elementwise || !IsOfKernelTypes(graph_, reader) || graph_.shape(reader.output) != graph_.shape(value))
        break;
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
    if (!IsOfKernelTypes(graph_, node) || !IsOfKernelTypes(graph_, reader)) return;
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

  // The last node of the kernel that is written for one; none: none is.
  NodeId KernelOf(NodeId id) const {
    const auto is_written = [&](NodeId at) {
      const Node& node = graph_.nodes[at];
      return IsLive(node) && !fused_[at] && !ends_[at] && node.kind != NodeKind::kHost;
    };
    while (is_written(id) && inlined_.count(graph_.nodes[id].output) != 0) id = reader_[graph_.nodes[id].output];
    const bool shares_memory = is_written(id) && IsView(graph_.nodes[id]);
    return is_written(id) && !shares_memory ? id : NodeId();
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
    // What is computed within the kernel of a part of it has no memory that the part could be read from.
    if (IsView(node) && Count(node.output) > 0 && inlined_.count(node.inputs[0]) == 0) {
      plan_.place[node.output] = ViewPlace(node);
      return;
    }
    if (Count(node.output) == 0 && node.kind != NodeKind::kHost) return;  // there is nothing to compute
    if (node.kind == NodeKind::kHost) return EmitHost(id);
    Result<KernelText> text = Write(node);
    // Smaller kernels, where it reads too much as one.
    if (!text && text.error().kind == ErrorKind::kLimit && EmitInlined(node)) text = Write(node);
    if (!text) return EvaluateApart(id, refused_.contains(id) ? refused_[id] : text.error().Text());
    KernelCall call;
    call.kernel = std::move(text->text);
    call.label = std::move(text->label);
    call.inputs = std::move(text->inputs);
    call.output = node.output;
    for (NodeId at : text->nodes) call.nodes.push_back(graph_.nodes[at].origin);
    plan_.calls.push_back(std::move(call));
  }

  // On the host values lie as the file has them.
  void NoteHostCall(const KernelCall& call) {
    auto is_last = [&](ValueId value) { return channels_last_.contains(value); };
    host_reads_channels_last_ |= std::ranges::any_of(call.inputs, is_last) || is_last(call.output);
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

  static Error NoKernelsOf(DType dtype) {
    return {ErrorKind::kUnsupported, fmt::format("kernels have no tensors of {}", Name(dtype)), ""};
  }

  // What the parser would refuse is no failed request either.
  Result<KernelText> Write(const Node& node) {
    Result<KernelText> text =
        WriteKernel(graph_, node, [&](ValueId value) { return inlined_.count(value) != 0; }, channels_last_);
    if (!text) return text;
    for (ValueId value : text->inputs)
      if (!IsKernelType(graph_.dtype(value))) return NoKernelsOf(graph_.dtype(value));
    if (!IsKernelType(graph_.dtype(node.output))) return NoKernelsOf(graph_.dtype(node.output));
    if (Result<Kernel> parsed = ParseKernel(text->text); !parsed) return parsed.error();
    if (const auto refused = options_.refused.find(text->text); refused != options_.refused.end())
      return Error{ErrorKind::kLimit, refused->second, ""};
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
    call.label = node.function.empty() ? Name(node.kind) : node.function;
    call.host_nodes.push_back(id);
    NoteHostCall(call);
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
  std::map<NodeId, std::string> refused_;             // library calls without an epilogue, and why
  std::map<ValueId, size_t> inlined_;                 // → nodes in its expression
  std::set<ValueId> channels_last_;
  bool host_reads_channels_last_ = false;
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
  Lowerer lowerer(graph, options);
  CallPlan plan = lowerer.Run();
  if (!lowerer.host_reads_channels_last()) return plan;
  LowerOptions as_in_the_file = options;
  as_in_the_file.has_channels_last = false;
  return Lowerer(graph, as_in_the_file).Run();
}

}  // namespace hone
