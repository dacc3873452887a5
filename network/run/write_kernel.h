// Nodes between library operations as one kernel in the kernel language.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "network/graph/graph.h"

namespace hone {

struct KernelText {
  std::string text;   // one line
  std::string label;  // "mul+add"
  std::vector<ValueId> inputs;
  std::vector<NodeId> nodes;
};

// The value of `node`, with those computed on the way for which `inlines` says so; other values are operands. In memory
// those of `channels_last`, of four dimensions, have the second one last. kUnsupported for what the language cannot
// say; kLimit: too many operands or too long.
Result<KernelText> WriteKernel(Graph& graph, const Node& node, const std::function<bool(ValueId)>& inlines,
                               const std::set<ValueId>& channels_last = {});

// A convolution or a product of bytes, which is summed in i32: it can be computed in the middle of an expression that
// is element-wise otherwise.
bool IsWholeContraction(const Graph& graph, const Node& node);

// Node kinds that can be computed in the middle of a larger expression.
bool IsPointwise(NodeKind kind);

}  // namespace hone
