// Nodes that have no kernel, computed on elements where they lie: what moves elements of any type, and what computes
// with whole numbers of 64 bits, which many models do to make masks and positions. As Evaluate computes them, from one
// definition, without a copy of every element in between.
#pragma once

#include <span>

#include "base/result.h"
#include "network/graph/graph.h"

namespace hone {

// Elements as HostTensor has them.
struct ElementsView {
  const TensorType* type = nullptr;
  void* data = nullptr;  // those of inputs are not written
};

// False: not such a node, or elements that are not aligned, and nothing was written. kInvalid: an index outside of what
// it indexes. REQUIRES: types that InferType says; the output overlaps no input.
Result<bool> EvaluateInPlace(const Node& node, std::span<const ElementsView> inputs, const ElementsView& output);

}  // namespace hone
