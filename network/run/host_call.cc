#include "network/run/host_call.h"

#include <fmt/format.h>

#include "base/check.h"
#include "network/graph/evaluate_in_place.h"

namespace hone {
namespace {

size_t BytesOf(const Graph& graph, ValueId value) {
  return static_cast<size_t>(CountOf(graph.shape(value)) * ByteSize(graph.dtype(value)));
}

// In the order of the call's nodes.
Result<std::vector<Numbers>> Compute(const Graph& graph, const KernelCall& call,
                                     const std::vector<const Numbers*>& inputs) {
  std::vector<Numbers> results;
  const Node& first = graph.nodes[call.host_nodes.front()];
  if (first.kind != NodeKind::kHost) {
    results.push_back(HONE_TRY(Evaluate(first, inputs, graph.values[first.output].type)));
    return results;
  }
  std::vector<Numbers> computed = HONE_TRY(first.host->compute(inputs));
  for (NodeId node : call.host_nodes)
    results.push_back(std::move(computed[static_cast<size_t>(graph.nodes[node].axis)]));
  return results;
}

Error InCall(Error error, const KernelCall& call) {
  error.where = fmt::format("{} (node {})", call.label, call.nodes.front());
  return error;
}

// On the elements where they lie.
Result<void> RunInPlace(const Graph& graph, const KernelCall& call, const HostOperation& host,
                        std::span<void* const> operands) {
  const std::vector<const void*> inputs(operands.begin(), operands.begin() + static_cast<long>(call.inputs.size()));
  std::vector<void*> results(host.types.size(), nullptr);
  for (size_t i = 0; i < call.host_nodes.size(); ++i)
    results[static_cast<size_t>(graph.nodes[call.host_nodes[i]].axis)] = operands[call.inputs.size() + i];
  return host.run(inputs, results);
}

}  // namespace

Result<void> RunHostCall(const Graph& graph, const KernelCall& call, std::span<void* const> operands) {
  const Node& first = graph.nodes[call.host_nodes.front()];
  if (first.kind == NodeKind::kHost && first.host->run) {
    Result<void> done = RunInPlace(graph, call, *first.host, operands);
    return done ? done : InCall(done.error(), call);
  }
  if (first.kind != NodeKind::kHost) {
    std::vector<ElementsView> elements;
    for (size_t i = 0; i < call.inputs.size(); ++i)
      elements.push_back({&graph.values[call.inputs[i]].type, operands[i]});
    const Result<bool> done =
        EvaluateInPlace(first, elements, {&graph.values[first.output].type, operands[elements.size()]});
    if (!done) return InCall(done.error(), call);
    if (*done) return {};
  }
  std::vector<Numbers> inputs;
  std::vector<const Numbers*> arguments;
  inputs.reserve(call.inputs.size());
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const ValueId value = call.inputs[i];
    inputs.push_back(ToNumbers(graph.dtype(value), graph.shape(value),
                               {static_cast<const char*>(operands[i]), BytesOf(graph, value)}));
    arguments.push_back(&inputs.back());
  }
  Result<std::vector<Numbers>> results = Compute(graph, call, arguments);
  if (!results) return InCall(results.error(), call);
  for (size_t i = 0; i < results->size(); ++i) {
    const ValueId output = graph.nodes[call.host_nodes[i]].output;
    const Numbers& result = (*results)[i];
    HONE_CHECK(result.shape == graph.shape(output));
    StoreElements(result, graph.dtype(output), operands[call.inputs.size() + i]);
  }
  return {};
}

}  // namespace hone
