#include "network/graph/evaluate_network.h"

namespace hone {

Result<std::vector<Numbers>> EvaluateNetwork(Graph& graph, const std::vector<Numbers>& data,
                                             const ValueVisitor& visit) {
  std::map<ValueId, Numbers> values;
  for (size_t i = 0; i < data.size(); ++i) values[graph.inputs[i]] = data[i];
  IdVector<ValueId, int> readers = CountReaders(graph);
  for (const Node& node : graph.nodes) {
    if (graph.is_constant(node.output) || readers[node.output] == 0) continue;
    std::vector<const Numbers*> arguments;
    for (ValueId input : node.inputs)
      arguments.push_back(graph.is_constant(input) ? HONE_TRY(graph.Elements(input)) : &values.at(input));
    Result<Numbers> result = Evaluate(node, arguments, graph.values[node.output].type);
    if (!result) {
      result.error().where = node.origin;
      return std::move(result).error();
    }
    if (visit) HONE_TRY(visit(node, arguments, *result));
    values[node.output] = *std::move(result);
    for (ValueId input : node.inputs)
      if (--readers[input] == 0) values.erase(input);
    graph.ForgetElements();
  }
  std::vector<Numbers> outputs;
  for (ValueId output : graph.outputs)
    outputs.push_back(graph.is_constant(output) ? *HONE_TRY(graph.Elements(output)) : values.at(output));
  return outputs;
}

}  // namespace hone
