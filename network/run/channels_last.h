// Values of bytes that lie in memory with their channels last: instructions that sum products take four channels of a
// pixel at once, and what they give are sixteen filters of a pixel. Between two such convolutions nothing is brought
// into another order then.
#pragma once

#include <functional>
#include <set>

#include "network/graph/graph.h"

namespace hone {

// Those that a convolution computes and nothing else reads than convolutions whose results are such values as well,
// what is computed with one of these, and sums over all pixels. `kernel_of`: the last node of the kernel that is
// written for a node; none: no kernel is, since it is an operation of the library, is computed on the host or shares
// memory.
std::set<ValueId> FindChannelsLast(const Graph& graph, const std::function<NodeId(NodeId)>& kernel_of);

}  // namespace hone
