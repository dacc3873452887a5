// Runs a plan's kernels in the reference interpreter, and the network that it was made from by its definition: what the
// importer writes computes what the file says.
#pragma once

#include <map>
#include <random>
#include <vector>

#include "ir/interpret.h"
#include "ir/parse.h"
#include "model/graph.h"
#include "model/lower.h"

namespace hone {

using ValueNumbers = std::map<ValueId, Numbers>;

// Inputs that meet the borders of what networks do: floats around 0, indices from the end too.
inline ValueNumbers RandomInputs(const Graph& graph, uint32_t seed) {
  std::mt19937 random(seed);
  ValueNumbers inputs;
  for (ValueId input : graph.inputs) {
    Numbers numbers = MakeNumbers(graph.dtype(input), graph.shape(input));
    for (double& value : numbers.real) value = static_cast<float>(static_cast<double>(random() % 4001) / 1000 - 2);
    for (int64_t& value : numbers.whole) {
      value = graph.dtype(input) == DType::kBool ? static_cast<int64_t>(random() % 2)
                                                 : static_cast<int64_t>(random() % 9) - 4;
    }
    inputs.emplace(input, std::move(numbers));
  }
  return inputs;
}

// Outputs of the network, node by node.
inline Result<std::vector<Numbers>> EvaluateGraph(Graph& graph, ValueNumbers values) {
  for (const Node& node : graph.nodes) {
    if (graph.is_constant(node.output)) continue;
    std::vector<const Numbers*> arguments;
    for (ValueId input : node.inputs) {
      arguments.push_back(graph.is_constant(input) ? HONE_TRY(graph.Elements(input)) : &values.at(input));
    }
    const ValueType& type = graph.values[static_cast<size_t>(node.output)].type;
    values[node.output] = HONE_TRY(Evaluate(node, arguments, type));
  }
  std::vector<Numbers> outputs;
  for (ValueId output : graph.outputs) {
    outputs.push_back(graph.is_constant(output) ? *HONE_TRY(graph.Elements(output)) : values.at(output));
  }
  return outputs;
}

// The same through the plan's kernels, whose operands are rounded as kernels have them.
inline Result<std::vector<Numbers>> InterpretPlan(Graph& graph, const Plan& plan, const ValueNumbers& inputs) {
  std::map<ValueId, HostTensor> stored;
  for (const auto& [id, numbers] : inputs) stored[id] = ToHost(numbers, KernelType(numbers.dtype));
  for (const KernelCall& call : plan.calls) {
    Kernel kernel = HONE_TRY(ParseKernel(call.kernel));
    std::vector<OperandView> views;
    for (ValueId input : call.inputs) {
      ValueId at = plan.storage[static_cast<size_t>(input)];
      if (graph.is_constant(input) && stored.count(at) == 0) {
        stored[at] = ToHost(*HONE_TRY(graph.Elements(input)), KernelType(graph.dtype(input)));
      }
      auto found = stored.find(at);
      if (found == stored.end()) return Error{ErrorKind::kInternal, "read before it is computed", call.label};
      views.push_back({found->second.data.data()});
    }
    Interpreter interpreter(kernel, views);
    int64_t count = CountOf(graph.shape(call.output));
    std::vector<int64_t> indices(static_cast<size_t>(count));
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
    std::vector<Reference> references(indices.size());
    interpreter.Evaluate(0, indices, references);
    Numbers result = MakeNumbers(graph.dtype(call.output), graph.shape(call.output));
    for (size_t i = 0; i < indices.size(); ++i) {
      if (result.is_real()) {
        result.real[i] = references[i].value;
      } else {
        result.whole[i] = static_cast<int64_t>(references[i].value);
      }
    }
    stored[call.output] = ToHost(result, KernelType(result.dtype));
  }
  std::vector<Numbers> outputs;
  for (ValueId output : graph.outputs) {
    HostTensor tensor = graph.is_constant(output) ? ToHost(*HONE_TRY(graph.Elements(output)), graph.dtype(output))
                                                  : stored.at(plan.storage[static_cast<size_t>(output)]);
    tensor.shape = graph.shape(output);
    outputs.push_back(ToNumbers(tensor));
  }
  return outputs;
}

}  // namespace hone
