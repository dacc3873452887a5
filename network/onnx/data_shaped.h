// Operators whose results have as many elements as the elements of their inputs say: no graph of known shapes has them.
// A program computes them between its stages (network/run/program).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "network/graph/host_tensor.h"
#include "network/onnx/onnx_model.h"

namespace hone {

// All results of a node from its inputs; nullptr: left out. kInvalid: operands that do not go together.
using DataShaped = Result<std::vector<Numbers>> (*)(const OnnxNode& node, std::span<const Numbers* const> inputs);

struct DataShapedOperator {
  size_t fewest_inputs;
  DataShaped compute;
};

// By OperatorName; nullptr: no such operator.
const DataShapedOperator* FindDataShaped(const std::string& name);

// Loops, which run a body of their own as often as values say.
bool IsLoop(const OnnxNode& node);

// The first node in a loop's body that cannot run whatever its shapes are; nullptr: there is none. Bodies are imported
// when the network runs.
const OnnxNode* FindUnknown(const OnnxNode& node);

// nullptr: the node has none of that name.
const OnnxAttribute* FindAttribute(const OnnxNode& node, std::string_view name);

}  // namespace hone
