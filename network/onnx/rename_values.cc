#include "network/onnx/rename_values.h"

namespace hone {

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
    attribute.body = std::move(body);
  }
}

}  // namespace hone
