#include "network/run/part_models.h"

#include <algorithm>

namespace hone {
namespace {

OnnxModel PartOf(const OnnxModel& whole) {
  OnnxModel model;
  model.producer = whole.producer;
  model.opset = whole.opset;
  return model;
}

OnnxValue InputOf(const std::string& name, DType dtype) {
  OnnxValue input;
  input.name = name;
  input.type.is_tensor = input.type.has_dtype = true;
  input.type.dtype = dtype;
  return input;
}

}  // namespace

PartModel ModelOfRest(const OnnxModel& whole, const Rest& rest, std::vector<OnnxNode> waiting,
                      const std::map<std::string, TensorView>& values) {
  PartModel part{PartOf(whole), {}};
  OnnxModel& model = part.model;
  model.initializers = rest.constants;
  std::set<std::string> known, computed, read;
  for (const OnnxTensor& tensor : rest.constants) known.insert(tensor.name);
  for (const OnnxNode& node : waiting) computed.insert(node.outputs.begin(), node.outputs.end());
  for (const OnnxNode& node : waiting)
    for (const auto* names : {&node.inputs, &node.captured})
      for (const std::string& name : *names)
        if (!name.empty() && !known.contains(name) && !computed.contains(name) && read.insert(name).second)
          model.inputs.push_back(InputOf(name, values.at(name).dtype));
  for (const OnnxValue& output : whole.outputs)
    if (computed.contains(output.name)) model.outputs.push_back(output);
  std::ranges::set_intersection(rest.deciding, read, std::inserter(part.deciding, part.deciding.end()));
  model.nodes = std::move(waiting);
  return part;
}

OnnxModel ModelOfBody(const OnnxModel& whole, const Rest& rest, const OnnxNode& loop, const OnnxBody& body) {
  OnnxModel model = PartOf(whole);
  model.nodes = body.nodes;
  model.initializers = body.initializers;
  for (const std::string& name : body.inputs) model.inputs.push_back(InputOf(name, DType::kF32));
  std::set<std::string> read;
  for (const std::string& name : loop.captured) {
    if (!read.insert(name).second) continue;
    const auto constant = std::ranges::find(rest.constants, name, &OnnxTensor::name);
    if (constant != rest.constants.end())
      model.initializers.push_back(*constant);
    else
      model.inputs.push_back(InputOf(name, DType::kF32));
  }
  for (const std::string& name : body.outputs) {
    const auto declared = std::ranges::find(body.declared, name, &OnnxValue::name);
    model.outputs.push_back(declared == body.declared.end() ? OnnxValue() : *declared);
    model.outputs.back().name = name;
  }
  return model;
}

}  // namespace hone
