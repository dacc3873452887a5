#include "network/onnx/captured.h"

#include <set>

namespace hone {
namespace {

void AddCaptured(const OnnxBody& body, std::vector<std::string>& captured) {
  std::set<std::string> own(body.inputs.begin(), body.inputs.end());
  for (const OnnxTensor& tensor : body.initializers) own.insert(tensor.name);
  for (const OnnxNode& node : body.nodes) own.insert(node.outputs.begin(), node.outputs.end());
  auto add = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if (!name.empty() && own.count(name) == 0) captured.push_back(name);
  };
  for (const OnnxNode& node : body.nodes) {
    add(node.inputs);
    add(node.captured);
  }
  add(body.outputs);
}

}  // namespace

std::vector<std::string> CapturedBy(const OnnxNode& node) {
  std::vector<std::string> captured;
  for (const OnnxAttribute& attribute : node.attributes)
    if (attribute.body != nullptr) AddCaptured(*attribute.body, captured);
  return captured;
}

}  // namespace hone
