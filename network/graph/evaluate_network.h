// Whole networks by ONNX's definitions, node by node.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "network/graph/graph.h"

namespace hone {

// Sees each value when it is computed, with what it was computed from; what it leaves there is what others read.
using ValueVisitor = std::function<Result<void>(const Node&, std::span<const Numbers* const>, Numbers& value)>;

// Outputs of a network; values nobody reads any more are forgotten. kInvalid: data that index outside of what they
// index; errors of the visitor.
Result<std::vector<Numbers>> EvaluateNetwork(Graph& graph, const std::vector<Numbers>& data,
                                             const ValueVisitor& visit = {});

}  // namespace hone
