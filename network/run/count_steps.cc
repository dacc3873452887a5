#include "network/run/count_steps.h"

#include <algorithm>

namespace hone {

double CountSteps(const Graph& graph) {
  double steps = 0;
  for (const Node& node : graph.nodes) {
    if (graph.is_constant(node.output)) continue;
    auto each = static_cast<double>(CountOf(graph.shape(node.output)));
    for (ValueId input : node.inputs) steps += static_cast<double>(CountOf(graph.shape(input)));
    if (node.kind == NodeKind::kMatMul || node.kind == NodeKind::kDense)
      each *= static_cast<double>(graph.shape(node.inputs[0]).back());
    if (node.kind == NodeKind::kConv) {
      const Shape& w = graph.shape(node.inputs[1]);
      each *= static_cast<double>(CountOf(w)) / static_cast<double>(std::max<int64_t>(w[0], 1));
    }
    if (node.kind == NodeKind::kMaxPool || node.kind == NodeKind::kAveragePool)
      each *= static_cast<double>(CountOf(node.window));
    if (node.host != nullptr) each += node.host->steps;
    steps += each;
  }
  return steps;
}

}  // namespace hone
