#include "network/onnx/branch_names.h"

#include <fmt/format.h>

#include "network/onnx/rename_values.h"

namespace hone {
namespace {

constexpr std::string_view kBegin = "branch ", kEnd = ": ";

}  // namespace

std::string BranchNames::NextPrefix() {
  if (count_ == 0) {
    for (const OnnxTensor& tensor : model_.initializers) Note(tensor.name);
    for (const OnnxValue& input : model_.inputs) Note(input.name);
    NoteAll(model_.nodes);
  }
  while (true) {
    std::string prefix = fmt::format("{}{}{}", kBegin, ++count_, kEnd);
    if (taken_.count(prefix) == 0) return prefix;
  }
}

OnnxBody BranchNames::Apart(const OnnxBody& branch) {
  const std::string prefix = NextPrefix();
  OnnxBody body = branch;
  ValueNames renamed;
  for (const OnnxTensor& tensor : body.initializers) renamed[tensor.name] = prefix + tensor.name;
  for (const OnnxNode& node : body.nodes)
    for (const std::string& output : node.outputs)
      if (!output.empty()) renamed[output] = prefix + output;
  for (OnnxTensor& tensor : body.initializers) tensor.name = renamed.at(tensor.name);
  for (OnnxNode& node : body.nodes) {
    RenameValues(node.inputs, renamed);
    RenameValues(node.outputs, renamed);
    RenameInBodies(node, renamed);
  }
  RenameValues(body.outputs, renamed);
  return body;
}

void BranchNames::Note(const std::string& name) {
  if (!name.starts_with(kBegin)) return;
  if (const size_t end = name.find(kEnd); end != std::string::npos) taken_.insert(name.substr(0, end + kEnd.size()));
}

void BranchNames::NoteAll(const std::vector<OnnxNode>& nodes) {
  for (const OnnxNode& node : nodes) {
    for (const std::string& output : node.outputs) Note(output);
    for (const OnnxAttribute& attribute : node.attributes) {
      if (attribute.body == nullptr) continue;
      for (const std::string& input : attribute.body->inputs) Note(input);
      for (const OnnxTensor& tensor : attribute.body->initializers) Note(tensor.name);
      NoteAll(attribute.body->nodes);
    }
  }
}

}  // namespace hone
