// Runs a plan, its kernels in the reference interpreter, and the network that it was made from by its definition: what
// the importer writes computes what the file says.
#pragma once

#include <map>
#include <random>
#include <vector>

#include "ir/language/parse.h"
#include "ir/reference/interpret.h"
#include "network/graph/graph.h"
#include "network/run/host_call.h"
#include "network/run/kernel_calls.h"

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

// Outputs through the plan's kernels, whose operands are rounded as kernels have them, in memory shared as the plan
// says.
inline Result<std::vector<Numbers>> InterpretPlan(Graph& graph, const CallPlan& plan, const ValueNumbers& inputs) {
  std::map<ValueId, std::string> memory;  // by root
  auto bytes_of = [&](ValueId value) {
    return static_cast<size_t>(CountOf(graph.shape(value)) * ByteSize(graph.dtype(value)));
  };
  auto address = [&](ValueId value) -> Result<char*> {
    const Place& place = plan.place[value];
    auto found = memory.find(place.root);
    if (found == memory.end() && bytes_of(place.root) == 0) found = memory.emplace(place.root, "").first;
    if (found == memory.end()) return Error{ErrorKind::kInternal, "read before it is computed", ""};
    return found->second.data() + place.offset * ByteSize(graph.dtype(value));
  };
  for (const auto& [id, numbers] : inputs) memory[id] = ToHost(numbers, numbers.dtype).data;
  for (const KernelCall& call : plan.calls) {
    if (call.is_host()) {
      std::vector<void*> operands;
      for (ValueId input : call.inputs) {
        if (graph.is_constant(input) && memory.count(input) == 0)
          memory[input] = ToHost(*HONE_TRY(graph.Elements(input)), graph.dtype(input)).data;
        operands.push_back(HONE_TRY(address(input)));
      }
      for (ValueId output : OutputsOf(graph, call)) {
        const ValueId root = plan.place[output].root;
        if (memory.count(root) == 0) memory[root].resize(bytes_of(root));
        operands.push_back(HONE_TRY(address(output)));
      }
      HONE_TRY(RunHostCall(graph, call, operands));
      continue;
    }
    Kernel kernel = HONE_TRY(ParseKernel(call.kernel));
    std::vector<OperandView> views;
    for (ValueId input : call.inputs) {
      if (graph.is_constant(input) && memory.count(input) == 0) {
        memory[input] = ToHost(*HONE_TRY(graph.Elements(input)), graph.dtype(input)).data;
      }
      views.push_back({HONE_TRY(address(input))});
    }
    Interpreter interpreter(kernel, views);
    std::vector<int64_t> indices(static_cast<size_t>(CountOf(graph.shape(call.output))));
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
    ValueId root = plan.place[call.output].root;
    if (memory.count(root) == 0) memory[root].resize(bytes_of(root));
    const TensorBytes data = ToHost(result, result.dtype).data;
    data.view().copy(HONE_TRY(address(call.output)), data.size());
  }
  std::vector<Numbers> outputs;
  for (ValueId output : graph.outputs) {
    if (graph.is_constant(output)) {
      outputs.push_back(*HONE_TRY(graph.Elements(output)));
      continue;
    }
    HostTensor tensor{graph.dtype(output), graph.shape(output), {}};
    tensor.data = std::string(HONE_TRY(address(output)), bytes_of(output));
    outputs.push_back(ToNumbers(tensor));
  }
  return outputs;
}

}  // namespace hone
