#include "network/onnx/unroll_loop.h"

#include <fmt/format.h>

#include "network/onnx/rename_values.h"

namespace hone {
namespace {

constexpr size_t kOwn = 2;  // inputs of a Loop and of its body before the states

OnnxNode MakeNode(const OnnxNode& of, const std::string& op, std::vector<std::string> inputs,
                  const std::string& output) {
  OnnxNode node;
  node.name = of.name;
  node.op = op;
  node.inputs = std::move(inputs);
  node.outputs = {output};
  return node;
}

}  // namespace

bool FitsLoop(const OnnxNode& loop, const OnnxBody& body) {
  if (loop.inputs.size() < kOwn || body.inputs.size() != loop.inputs.size()) return false;
  const size_t states = loop.inputs.size() - kOwn;
  return body.outputs.size() >= 1 + states && loop.outputs.size() + 1 <= body.outputs.size();
}

UnrolledLoop UnrollLoop(const OnnxNode& loop, const OnnxBody& body, int64_t steps, const std::string& prefix) {
  UnrolledLoop unrolled;
  auto constant = [&](const std::string& name, const Numbers& numbers) {
    unrolled.initializers.push_back({name, std::make_shared<HostTensor>(ToHost(numbers, numbers.dtype))});
    return name;
  };
  Numbers yes = MakeNumbers(DType::kBool, {});
  yes.whole = {1};
  ValueNames always = {{body.inputs[1], constant(prefix + " condition", yes)}};
  for (const OnnxTensor& tensor : body.initializers) {
    unrolled.initializers.push_back({prefix + tensor.name, tensor.tensor});
    always[tensor.name] = prefix + tensor.name;
  }
  const size_t states = loop.inputs.size() - kOwn;
  std::vector<std::string> state(loop.inputs.begin() + kOwn, loop.inputs.end());
  std::vector<std::vector<std::string>> collected(body.outputs.size() - 1 - states);
  for (int64_t step = 0; step < steps; ++step) {
    const std::string own = fmt::format("{}{}.", prefix, step);
    ValueNames renamed = always;
    renamed[body.inputs[0]] = constant(own + " step", WholeNumbers({step}, {}));
    for (size_t i = 0; i < states; ++i) renamed[body.inputs[kOwn + i]] = state[i];
    for (const OnnxNode& inner : body.nodes)
      for (const std::string& output : inner.outputs)
        if (!output.empty()) renamed[output] = own + output;
    for (const OnnxNode& inner : body.nodes) {
      OnnxNode node = inner;
      RenameValues(node.inputs, renamed);
      RenameValues(node.outputs, renamed);
      RenameInBodies(node, renamed);
      unrolled.nodes.push_back(std::move(node));
    }
    std::vector<std::string> results(body.outputs.begin() + 1, body.outputs.end());
    RenameValues(results, renamed);
    for (size_t i = 0; i < states; ++i) state[i] = results[i];
    for (size_t i = 0; i < collected.size(); ++i) collected[i].push_back(results[states + i]);
  }
  for (size_t i = 0; i < loop.outputs.size(); ++i) {
    if (loop.outputs[i].empty()) continue;
    if (i < states) {
      unrolled.nodes.push_back(MakeNode(loop, "Identity", {state[i]}, loop.outputs[i]));
      continue;
    }
    const std::string all = fmt::format("{}collected {}", prefix, i);
    unrolled.nodes.push_back(MakeNode(loop, "SequenceConstruct", collected[i - states], all));
    OnnxNode joined = MakeNode(loop, "ConcatFromSequence", {all}, loop.outputs[i]);
    for (const auto& [name, value] : {std::pair("axis", int64_t{0}), std::pair("new_axis", int64_t{1})}) {
      OnnxAttribute attribute;
      attribute.name = name;
      attribute.kind = OnnxAttribute::Kind::kInt;
      attribute.whole = value;
      joined.attributes.push_back(std::move(attribute));
    }
    unrolled.nodes.push_back(std::move(joined));
  }
  return unrolled;
}

}  // namespace hone
