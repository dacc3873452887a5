// ONNX files made for tests, and small models in the spelling of PyTorch's exporters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace hone {

// One file under construction. Element types are ONNX's: 1 float, 6 int32, 7 int64, 9 bool.
class ModelFileBuilder {
 public:
  using Attribute =
      std::pair<std::string, std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>>>;

  explicit ModelFileBuilder(int64_t opset = 18);
  ~ModelFileBuilder();
  ModelFileBuilder(ModelFileBuilder&&) noexcept;

  // A dimension below 0 is symbolic, "batch".
  ModelFileBuilder& Input(const std::string& name, const std::vector<int64_t>& shape, int type = 1);
  ModelFileBuilder& InputWithoutShape(const std::string& name);
  ModelFileBuilder& Output(const std::string& name, const std::vector<int64_t>& shape = {}, int type = 1);
  ModelFileBuilder& Declare(const std::string& name, const std::vector<int64_t>& shape, int type = 1);
  ModelFileBuilder& Floats(const std::string& name, const std::vector<int64_t>& shape,
                           const std::vector<float>& values);
  // Small values that differ from each other.
  ModelFileBuilder& Random(const std::string& name, const std::vector<int64_t>& shape, uint32_t seed = 1);
  ModelFileBuilder& Wholes(const std::string& name, const std::vector<int64_t>& values);
  ModelFileBuilder& WholeScalar(const std::string& name, int64_t value);
  ModelFileBuilder& Scalar(const std::string& name, float value);
  ModelFileBuilder& Truths(const std::string& name, const std::vector<int64_t>& shape, const std::vector<bool>& values);
  ModelFileBuilder& External(const std::string& name, const std::vector<int64_t>& shape, const std::string& location,
                             int64_t offset = 0);
  // A tensor whose bytes are `bytes`, whatever its shape says.
  ModelFileBuilder& Raw(const std::string& name, const std::vector<int64_t>& shape, int type, const std::string& bytes);
  // Node "n_OUTPUT".
  ModelFileBuilder& Node(const std::string& op, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const std::vector<Attribute>& attributes = {},
                         const std::string& domain = "");
  // Of the last node: an attribute that is its function's attribute `of`, and which of several functions it calls.
  ModelFileBuilder& Reference(const std::string& attribute, const std::string& of);
  ModelFileBuilder& Overload(const std::string& overload);
  // Of the last node: an attribute that is a graph, with the nodes, initialisers, inputs and outputs of `body`.
  ModelFileBuilder& Body(const std::string& attribute, const ModelFileBuilder& body);
  // Of the last node: an attribute that is a tensor.
  ModelFileBuilder& Tensor(const std::string& attribute, const std::vector<int64_t>& shape, int type,
                           const std::string& bytes);
  // A function of the domain "functions": the nodes, inputs, outputs and opset of `body`. Attributes have defaults.
  ModelFileBuilder& Function(const std::string& name, const ModelFileBuilder& body,
                             const std::vector<Attribute>& defaults = {}, const std::string& overload = "");

  std::string Bytes() const;

 private:
  struct Proto;
  std::unique_ptr<Proto> proto_;
};

// One small network for each way of writing things down.
struct SampleModel {
  std::string name;
  std::string bytes;
};
std::vector<SampleModel> SampleModels();
// Those that run in parts: what they compute decides shapes.
std::vector<SampleModel> SampleModelsInParts();

}  // namespace hone
