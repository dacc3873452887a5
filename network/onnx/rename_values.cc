#include "network/onnx/rename_values.h"

namespace hone {
namespace {

void RenameDeclared(OnnxBody& body, const ValueNames& renamed) {
  for (OnnxValue& value : body.declared)
    if (const auto found = renamed.find(value.name); found != renamed.end()) value.name = found->second;
}

}  // namespace

void RenameValues(std::vector<std::string>& names, const ValueNames& renamed) {
  for (std::string& name : names)
    if (const auto found = renamed.find(name); found != renamed.end()) name = found->second;
}

void RenameInBodies(OnnxNode& node, const ValueNames& renamed) {
  RenameValues(node.captured, renamed);
  for (OnnxAttribute& attribute : node.attributes) {
    if (attribute.body == nullptr) continue;
    auto body = std::make_shared<OnnxBody>(*attribute.body);
    ValueNames outside = renamed;
    for (const std::string& own : body->inputs) outside.erase(own);
    for (const OnnxTensor& own : body->initializers) outside.erase(own.name);
    for (const OnnxNode& inner : body->nodes)
      for (const std::string& own : inner.outputs) outside.erase(own);
    for (OnnxNode& inner : body->nodes) {
      RenameValues(inner.inputs, outside);
      RenameInBodies(inner, outside);
    }
    RenameValues(body->outputs, outside);
    RenameDeclared(*body, outside);
    attribute.body = std::move(body);
  }
}

void PrefixInBodies(OnnxNode& node, const std::string& prefix) {
  for (OnnxAttribute& attribute : node.attributes) {
    if (attribute.body == nullptr) continue;
    auto body = std::make_shared<OnnxBody>(*attribute.body);
    ValueNames own;
    auto add = [&](const std::string& name) {
      if (!name.empty()) own[name] = prefix + name;
    };
    for (const std::string& input : body->inputs) add(input);
    for (const OnnxTensor& tensor : body->initializers) add(tensor.name);
    for (const OnnxNode& inner : body->nodes)
      for (const std::string& output : inner.outputs) add(output);
    for (OnnxTensor& tensor : body->initializers) tensor.name = own.at(tensor.name);
    for (OnnxNode& inner : body->nodes) {
      PrefixInBodies(inner, prefix);
      RenameInBodies(inner, own);
      RenameValues(inner.inputs, own);
      RenameValues(inner.outputs, own);
    }
    RenameValues(body->inputs, own);
    RenameValues(body->outputs, own);
    RenameDeclared(*body, own);
    attribute.body = std::move(body);
  }
}

}  // namespace hone
