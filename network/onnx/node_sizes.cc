#include "network/onnx/node_sizes.h"

namespace hone {
namespace {

// Several names, each of which is an object and its letters.
size_t BytesOfTexts(const std::vector<std::string>& texts) {
  size_t bytes = texts.size() * sizeof(std::string);
  for (const std::string& text : texts) bytes += text.size();
  return bytes;
}

void AddNames(const std::vector<std::string>& names, NodeSizes& sizes) {
  sizes.names += names.size();
  sizes.bytes += BytesOfTexts(names);
}

void AddNodes(const std::vector<OnnxNode>& nodes, NodeSizes& sizes);

void AddBody(const OnnxBody& body, NodeSizes& sizes) {
  AddNames(body.inputs, sizes);
  AddNames(body.outputs, sizes);
  for (const OnnxTensor& tensor : body.initializers) AddNames({tensor.name}, sizes);
  for (const OnnxValue& value : body.declared) {
    AddNames({value.name}, sizes);
    sizes.bytes += sizeof(OnnxValue) + value.type.type_name.size();
    for (const OnnxDimension& dimension : value.type.dimensions)
      sizes.bytes += sizeof(dimension) + dimension.symbol.size();
  }
  AddNodes(body.nodes, sizes);
}

void AddNodes(const std::vector<OnnxNode>& nodes, NodeSizes& sizes) {
  sizes.nodes += nodes.size();
  for (const OnnxNode& node : nodes) {
    sizes.bytes += sizeof(OnnxNode) + node.name.size() + node.domain.size() + node.op.size() + node.overload.size();
    for (const auto* names : {&node.inputs, &node.outputs, &node.captured}) AddNames(*names, sizes);
    sizes.bytes += BytesOfAttributes(node.attributes);
    for (const OnnxAttribute& attribute : node.attributes) {
      if (!attribute.reference.empty()) ++sizes.references;
      if (attribute.body != nullptr) AddBody(*attribute.body, sizes);
    }
  }
}

}  // namespace

size_t BytesOfAttributes(const std::vector<OnnxAttribute>& attributes) {
  size_t bytes = 0;
  for (const OnnxAttribute& each : attributes)
    bytes += sizeof(OnnxAttribute) + each.name.size() + each.text.size() + each.reference.size() +
             each.wholes.size() * sizeof(int64_t) + each.reals.size() * sizeof(double) + BytesOfTexts(each.texts);
  return bytes;
}

NodeSizes SizesOf(const std::vector<OnnxNode>& nodes) {
  NodeSizes sizes;
  AddNodes(nodes, sizes);
  return sizes;
}

}  // namespace hone
