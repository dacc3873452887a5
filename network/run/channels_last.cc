#include "network/run/channels_last.h"

#include <algorithm>
#include <vector>

#include "base/id.h"
#include "ir/graph/dtype_traits.h"
#include "network/run/write_kernel.h"

namespace hone {
namespace {

// All filters read all channels.
bool IsDenseConvolution(const Graph& graph, const Node& node) {
  return node.kind == NodeKind::kConv && node.groups == 1 && graph.shape(node.output).size() == 4 &&
         IsWholeContraction(graph, node);
}

bool IsElementwise(const Node& node) {
  return node.kind == NodeKind::kUnary || node.kind == NodeKind::kBinary || node.kind == NodeKind::kSelect ||
         node.kind == NodeKind::kCast;
}

}  // namespace

std::set<ValueId> FindChannelsLast(const Graph& graph, const std::function<NodeId(NodeId)>& kernel_of) {
  std::set<ValueId> values;
  for (NodeId id : graph.nodes.ids()) {
    const NodeId last = IsDenseConvolution(graph, graph.nodes[id]) ? kernel_of(id) : NodeId();
    if (!last) continue;
    const ValueId value = graph.nodes[last].output;
    if (ByteSize(graph.dtype(value)) == 1 && graph.shape(value) == graph.shape(graph.nodes[id].output) &&
        std::ranges::find(graph.outputs, value) == graph.outputs.end())
      values.insert(value);
  }
  IdVector<ValueId, NodeId> reader(graph.values.size());
  for (NodeId id : graph.nodes.ids())
    for (ValueId input : graph.nodes[id].inputs) reader[input] = id;
  auto reads = [&](NodeId id, ValueId value) {
    const NodeId last = kernel_of(id);
    if (!last) return false;
    const Node* node = &graph.nodes[id];
    const ValueId result = graph.nodes[last].output;
    // One of few channels whose result has its channels first is slower for it: 1.4 times, of 16 to 96 over 112×112.
    if (IsDenseConvolution(graph, *node))
      return std::ranges::count(node->inputs, value) == 1 && node->inputs[0] == value && values.contains(result);
    // What is computed of each pixel on the way to a sum over all of them, in its kernel.
    while (IsElementwise(*node) && graph.shape(node->output) == graph.shape(value) && id != last) {
      id = reader[node->output];
      node = &graph.nodes[id];
    }
    if (node->kind == NodeKind::kReduce) return node->axes == std::vector<int64_t>{2, 3};
    return values.contains(result) && graph.shape(result) == graph.shape(value);
  };
  for (bool changed = !values.empty(); changed;) {
    changed = false;
    for (NodeId id : graph.nodes.ids()) {
      if (graph.is_constant(graph.nodes[id].output)) continue;
      for (ValueId input : graph.nodes[id].inputs)
        if (values.contains(input) && !reads(id, input)) changed = values.erase(input) > 0;
    }
  }
  return values;
}

}  // namespace hone
