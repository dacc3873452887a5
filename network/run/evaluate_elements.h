// A graph without kernels: node by node, each value in its own type as long as nodes move it, as numbers where they
// compute with it.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "network/graph/graph.h"

namespace hone {

struct Evaluated {
  std::vector<TensorView> outputs;  // in the graph's order; parts of inputs, of constants, or of:
  std::vector<std::shared_ptr<const void>> memory;
};

// As EvaluateNetwork. `inputs`: in the graph's order; their elements are read where they are, and left there.
Result<Evaluated> EvaluateElements(Graph& graph, const std::vector<TensorView>& inputs);

}  // namespace hone
