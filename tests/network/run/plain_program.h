// Models written as plain values, and programs of them that are run by definition: no kernels are asked for.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "network/run/program.h"

namespace hone::plain_program {

inline OnnxValue Value(std::string name, DType dtype = DType::kF32) {
  OnnxValue value;
  value.name = std::move(name);
  value.type.is_tensor = value.type.has_dtype = true;
  value.type.dtype = dtype;
  return value;
}

inline OnnxNode Node(const std::string& op, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  OnnxNode node;
  node.name = "n_" + outputs[0];
  node.op = op;
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  return node;
}

inline OnnxNode With(OnnxNode node, const std::string& name, std::shared_ptr<const OnnxBody> body) {
  OnnxAttribute attribute;
  attribute.name = name;
  attribute.kind = OnnxAttribute::Kind::kGraph;
  attribute.body = std::move(body);
  node.attributes.push_back(std::move(attribute));
  return node;
}

inline OnnxNode With(OnnxNode node, const std::string& name, int64_t whole) {
  OnnxAttribute attribute;
  attribute.name = name;
  attribute.kind = OnnxAttribute::Kind::kInt;
  attribute.whole = whole;
  node.attributes.push_back(std::move(attribute));
  return node;
}

inline HostTensor Reals(Shape shape, std::vector<double> values) {
  Numbers numbers = MakeNumbers(DType::kF32, std::move(shape));
  numbers.real = std::move(values);
  return ToHost(numbers, DType::kF32);
}

inline HostTensor Wholes(Shape shape, const std::vector<int64_t>& values) {
  return ToHost(WholeNumbers(values, std::move(shape)), DType::kI64);
}

inline OnnxTensor Constant(std::string name, HostTensor tensor) {
  return {std::move(name), std::make_shared<HostTensor>(std::move(tensor))};
}

inline OnnxModel Model(std::vector<OnnxValue> inputs, std::vector<OnnxNode> nodes,
                       const std::vector<std::string>& outputs) {
  OnnxModel model;
  model.opset = 18;
  model.inputs = std::move(inputs);
  model.nodes = std::move(nodes);
  for (const std::string& name : outputs) model.outputs.push_back(Value(name));
  return model;
}

class Plain {
 public:
  explicit Plain(OnnxModel model) {
    ProgramContext context;
    context.path = "program.onnx";
    context.is_plain = true;
    context_ = std::make_shared<const ProgramContext>(std::move(context));
    program_ = std::make_unique<Program>(std::move(model), context_);
  }

  std::vector<Numbers> Run(const std::vector<HostTensor>& inputs) {
    Result<std::vector<TensorView>> views = Try(inputs);
    EXPECT_TRUE(views) << (views ? "" : views.error().Text());
    std::vector<Numbers> results;
    if (!views) return std::vector<Numbers>(8);
    for (const TensorView& view : *views) results.push_back(ToNumbers(view));
    return results;
  }

  Result<std::vector<TensorView>> Try(const std::vector<HostTensor>& inputs) {
    std::vector<TensorView> views;
    for (const HostTensor& input : inputs) views.push_back(ViewOf(input));
    return program_->Run(views);
  }

  size_t version_count() const { return context_->versions->size(); }

 private:
  std::shared_ptr<const ProgramContext> context_;
  std::unique_ptr<Program> program_;
};

}  // namespace hone::plain_program
