#include "network/onnx/find_weights.h"

#include <string_view>
#include <unordered_map>

namespace hone {
namespace {

// Which operands layers keep their weights in.
bool IsWeightOperand(const OnnxNode& node, size_t i, const OnnxValue& value) {
  auto rank = value.type.dimensions.size();
  if (node.op == "Conv") return i == 1 || i == 2;
  if (node.op == "Gemm") return i == 1 || i == 2;
  if (node.op == "MatMul") return i == 1 && rank == 2;
  if (node.op == "BatchNormalization") return i >= 1 && i <= 4;
  if (node.op == "LayerNormalization" || node.op == "InstanceNormalization" || node.op == "GroupNormalization") {
    return i == 1 || i == 2;
  }
  return false;
}

// A table of rows, such as an embedding's; boxes that a suppression chose from are read in the same way.
bool IsTableOperand(const OnnxNode& node, size_t i, const OnnxValue& value) {
  return node.op == "Gather" && i == 0 && value.type.dimensions.size() == 2;
}

// Operators that hand a weight on as it is.
bool HandsOn(const OnnxNode& node, size_t i) {
  for (std::string_view op : {"Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Cast"}) {
    if (node.op == op) return i == 0;
  }
  return false;
}

bool IsReal(const OnnxValue& value) { return value.type.has_dtype && IsFloat(value.type.dtype); }

}  // namespace

std::unordered_set<std::string> FindWeights(const OnnxModel& model, const std::set<std::string>& data) {
  std::unordered_set<std::string> initialisers;
  for (const OnnxTensor& tensor : model.initializers) initialisers.insert(tensor.name);
  std::unordered_map<std::string, const OnnxValue*> open;
  const std::string* first = nullptr;
  for (const OnnxValue& input : model.inputs) {
    if (initialisers.contains(input.name)) continue;
    if (first == nullptr) first = &input.name;
    if (IsReal(input) && !data.contains(input.name)) open.emplace(input.name, &input);
  }
  std::unordered_map<std::string, const OnnxValue*> handed = open;  // value → the input that it comes from
  std::unordered_set<std::string> weights, tables, data_of_others;
  for (const OnnxNode& node : model.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      auto found = handed.find(node.inputs[i]);
      if (found == handed.end()) continue;
      const OnnxValue* input = found->second;
      if (IsWeightOperand(node, i, *input)) {
        weights.insert(input->name);
      } else if (IsTableOperand(node, i, *input)) {
        tables.insert(input->name);
      } else if (!HandsOn(node, i)) {
        data_of_others.insert(input->name);
      }
      if (HandsOn(node, i) && !node.outputs.empty()) handed.emplace(node.outputs[0], input);
    }
  }
  for (const std::string& table : tables)
    if (data_of_others.count(table) == 0) weights.insert(table);
  if (weights.empty()) return weights;
  for (const auto& [name, input] : open)
    if (name != *first) weights.insert(name);
  if (weights.size() == model.inputs.size()) weights.erase(*first);
  return weights;
}

}  // namespace hone
