#include "tests/network/model_files.h"

#include <random>

#include "onnx.pb.h"

namespace hone {
namespace {

void SetType(onnx::ValueInfoProto& value, const std::string& name, const std::vector<int64_t>& shape, int type) {
  value.set_name(name);
  auto& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type);
  auto& dimensions = *tensor.mutable_shape();
  for (int64_t extent : shape) {
    auto& dimension = *dimensions.add_dim();
    if (extent < 0) {
      dimension.set_dim_param("batch");
    } else {
      dimension.set_dim_value(extent);
    }
  }
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

void SetAttribute(onnx::AttributeProto& attribute, const ModelFileBuilder::Attribute& from) {
  const auto& [name, value] = from;
  attribute.set_name(name);
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(*whole);
  } else if (const auto* real = std::get_if<float>(&value)) {
    attribute.set_type(onnx::AttributeProto::FLOAT);
    attribute.set_f(*real);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    attribute.set_type(onnx::AttributeProto::STRING);
    attribute.set_s(*text);
  } else if (const auto* reals = std::get_if<std::vector<float>>(&value)) {
    attribute.set_type(onnx::AttributeProto::FLOATS);
    for (float each : *reals) attribute.add_floats(each);
  } else {
    attribute.set_type(onnx::AttributeProto::INTS);
    for (int64_t each : std::get<std::vector<int64_t>>(value)) attribute.add_ints(each);
  }
}

// A field of bytes that the .proto file does not know yet.
void AppendField(int number, const std::string& bytes, std::string& unknown) {
  unknown += static_cast<char>(number << 3 | 2);
  unknown += static_cast<char>(bytes.size());
  unknown += bytes;
}

}  // namespace

struct ModelFileBuilder::Proto {
  onnx::ModelProto model;
  onnx::GraphProto& graph() { return *model.mutable_graph(); }
};

ModelFileBuilder::ModelFileBuilder(int64_t opset) : proto_(std::make_unique<Proto>()) {
  proto_->model.set_ir_version(8);
  proto_->model.set_producer_name("tests");
  proto_->model.add_opset_import()->set_version(opset);
  proto_->graph().set_name("graph");
}

ModelFileBuilder::~ModelFileBuilder() = default;
ModelFileBuilder::ModelFileBuilder(ModelFileBuilder&&) noexcept = default;

ModelFileBuilder& ModelFileBuilder::Input(const std::string& name, const std::vector<int64_t>& shape, int type) {
  SetType(*proto_->graph().add_input(), name, shape, type);
  return *this;
}

ModelFileBuilder& ModelFileBuilder::InputWithoutShape(const std::string& name) {
  auto& value = *proto_->graph().add_input();
  value.set_name(name);
  value.mutable_type()->mutable_tensor_type()->set_elem_type(1);
  return *this;
}

ModelFileBuilder& ModelFileBuilder::Output(const std::string& name, const std::vector<int64_t>& shape, int type) {
  SetType(*proto_->graph().add_output(), name, shape, type);
  return *this;
}

ModelFileBuilder& ModelFileBuilder::Declare(const std::string& name, const std::vector<int64_t>& shape, int type) {
  SetType(*proto_->graph().add_value_info(), name, shape, type);
  return *this;
}

ModelFileBuilder& ModelFileBuilder::Raw(const std::string& name, const std::vector<int64_t>& shape, int type,
                                        const std::string& bytes) {
  auto& tensor = *proto_->graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(type);
  for (int64_t extent : shape) tensor.add_dims(extent);
  tensor.set_raw_data(bytes);
  return *this;
}

ModelFileBuilder& ModelFileBuilder::Floats(const std::string& name, const std::vector<int64_t>& shape,
                                           const std::vector<float>& values) {
  return Raw(name, shape, 1, BytesOf(values));
}

ModelFileBuilder& ModelFileBuilder::Random(const std::string& name, const std::vector<int64_t>& shape, uint32_t seed) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  for (char letter : name) seed = seed * 31 + static_cast<unsigned char>(letter);
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 2001) / 1000.0F - 1;
  return Floats(name, shape, values);
}

ModelFileBuilder& ModelFileBuilder::Wholes(const std::string& name, const std::vector<int64_t>& values) {
  return Raw(name, {static_cast<int64_t>(values.size())}, 7, BytesOf(values));
}

// As exporters of old wrote them: in the typed field.
ModelFileBuilder& ModelFileBuilder::WholeScalar(const std::string& name, int64_t value) {
  auto& tensor = *proto_->graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(7);
  tensor.add_int64_data(value);
  return *this;
}

ModelFileBuilder& ModelFileBuilder::Scalar(const std::string& name, float value) {
  auto& tensor = *proto_->graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(1);
  tensor.add_float_data(value);
  return *this;
}

ModelFileBuilder& ModelFileBuilder::Truths(const std::string& name, const std::vector<int64_t>& shape,
                                           const std::vector<bool>& values) {
  std::string bytes;
  for (bool value : values) bytes.push_back(value ? 1 : 0);
  return Raw(name, shape, 9, bytes);
}

ModelFileBuilder& ModelFileBuilder::External(const std::string& name, const std::vector<int64_t>& shape,
                                             const std::string& location, int64_t offset) {
  auto& tensor = *proto_->graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(1);
  for (int64_t extent : shape) tensor.add_dims(extent);
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  auto add = [&](const std::string& key, const std::string& value) {
    auto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  add("location", location);
  add("offset", std::to_string(offset));
  return *this;
}

ModelFileBuilder& ModelFileBuilder::Node(const std::string& op, const std::vector<std::string>& inputs,
                                         const std::vector<std::string>& outputs,
                                         const std::vector<Attribute>& attributes, const std::string& domain) {
  auto& node = *proto_->graph().add_node();
  node.set_op_type(op);
  node.set_domain(domain);
  node.set_name("n_" + (outputs.empty() ? op : outputs[0]));
  for (const std::string& input : inputs) node.add_input(input);
  for (const std::string& output : outputs) node.add_output(output);
  for (const Attribute& attribute : attributes) SetAttribute(*node.add_attribute(), attribute);
  return *this;
}

ModelFileBuilder& ModelFileBuilder::Reference(const std::string& attribute, const std::string& of) {
  auto& reference = *proto_->graph().mutable_node()->rbegin()->add_attribute();
  reference.set_name(attribute);
  reference.set_ref_attr_name(of);
  return *this;
}

ModelFileBuilder& ModelFileBuilder::Overload(const std::string& overload) {
  AppendField(8, overload, *proto_->graph().mutable_node()->rbegin()->mutable_unknown_fields());
  return *this;
}

ModelFileBuilder& ModelFileBuilder::Body(const std::string& attribute, const ModelFileBuilder& body) {
  auto& added = *proto_->graph().mutable_node()->rbegin()->add_attribute();
  added.set_name(attribute);
  added.set_type(onnx::AttributeProto::GRAPH);
  *added.mutable_g() = body.proto_->graph();
  return *this;
}

ModelFileBuilder& ModelFileBuilder::Tensor(const std::string& attribute, const std::vector<int64_t>& shape, int type,
                                           const std::string& bytes) {
  auto& added = *proto_->graph().mutable_node()->rbegin()->add_attribute();
  added.set_name(attribute);
  added.set_type(onnx::AttributeProto::TENSOR);
  auto& tensor = *added.mutable_t();
  tensor.set_data_type(type);
  for (int64_t extent : shape) tensor.add_dims(extent);
  tensor.set_raw_data(bytes);
  return *this;
}

ModelFileBuilder& ModelFileBuilder::Function(const std::string& name, const ModelFileBuilder& body,
                                             const std::vector<Attribute>& defaults, const std::string& overload) {
  auto& function = *proto_->model.add_functions();
  function.set_name(name);
  function.set_domain("functions");
  *function.mutable_opset_import() = body.proto_->model.opset_import();
  *function.mutable_node() = body.proto_->graph().node();
  for (const auto& input : body.proto_->graph().input()) function.add_input(input.name());
  for (const auto& output : body.proto_->graph().output()) function.add_output(output.name());
  for (const Attribute& each : defaults) {
    onnx::AttributeProto attribute;
    SetAttribute(attribute, each);
    AppendField(11, attribute.SerializeAsString(), *function.mutable_unknown_fields());
  }
  if (!overload.empty()) AppendField(13, overload, *function.mutable_unknown_fields());
  return *this;
}

std::string ModelFileBuilder::Bytes() const { return proto_->model.SerializeAsString(); }

std::vector<SampleModel> SampleModels() {
  using Ints = std::vector<int64_t>;
  std::vector<SampleModel> models;
  auto add = [&](std::string name, const ModelFileBuilder& builder) {
    models.push_back({std::move(name), builder.Bytes()});
  };

  add("conv_batchnorm_relu",
      ModelFileBuilder(15)
          .Input("x", {2, 4, 9, 7})
          .Random("w", {6, 2, 3, 3})
          .Random("scale", {6})
          .Random("shift", {6})
          .Random("mean", {6})
          .Floats("var", {6}, {1, 2, 0.5, 0.7F, 1.5F, 3})
          .Node("Conv", {"x", "w"}, {"c"}, {{"pads", Ints{1, 0, 1, 2}}, {"strides", Ints{2, 1}}, {"group", int64_t{2}}})
          .Node("BatchNormalization", {"c", "scale", "shift", "mean", "var"}, {"n"})
          .Node("Relu", {"n"}, {"y"})
          .Output("y"));
  add("residual_pools",
      ModelFileBuilder(11)
          .Input("x", {1, 3, 11, 11})
          .Random("w1", {4, 3, 3, 3})
          .Random("b1", {4})
          .Random("w2", {4, 4, 1, 1})
          .Random("b2", {4})
          .Random("w3", {10, 4})
          .Random("b3", {10})
          .Scalar("zero", 0)
          .Scalar("six", 6)
          .Node("Conv", {"x", "w1", "b1"}, {"c1"}, {{"auto_pad", "SAME_UPPER"}, {"strides", Ints{2, 2}}})
          .Node("Clip", {"c1", "zero", "six"}, {"r1"})
          .Node("MaxPool", {"r1"}, {"p"},
                {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{1, 1}}})
          .Node("AveragePool", {"p"}, {"a"},
                {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}, {"count_include_pad", int64_t{1}}})
          .Node("Conv", {"a", "w2", "b2"}, {"c2"})
          .Node("Add", {"c2", "r1"}, {"sum"})
          .Node("Relu", {"sum"}, {"r2"})
          .Node("GlobalAveragePool", {"r2"}, {"g"})
          .Node("Flatten", {"g"}, {"f"})
          .Node("Gemm", {"f", "w3", "b3"}, {"y"}, {{"transB", int64_t{1}}, {"beta", 0.5F}})
          .Output("y"));
  add("squeeze_excite", ModelFileBuilder(18)
                            .Input("x", {1, 6, 5, 4})
                            .Random("w0", {6, 1, 3, 3})
                            .Random("w1", {2, 6, 1, 1})
                            .Random("b1", {2})
                            .Random("w2", {6, 2, 1, 1})
                            .Random("b2", {6})
                            .Wholes("axes", {-1, -2})
                            .Node("Conv", {"x", "w0"}, {"d"}, {{"group", int64_t{6}}, {"pads", Ints{1, 1, 1, 1}}})
                            .Node("Sigmoid", {"d"}, {"s0"})
                            .Node("Mul", {"d", "s0"}, {"silu"})
                            .Node("ReduceMean", {"silu", "axes"}, {"m"}, {{"keepdims", int64_t{1}}})
                            .Node("Conv", {"m", "w1", "b1"}, {"c1"})
                            .Node("Relu", {"c1"}, {"r1"})
                            .Node("Conv", {"r1", "w2", "b2"}, {"c2"})
                            .Node("Sigmoid", {"c2"}, {"s2"})
                            .Node("Mul", {"s2", "silu"}, {"y"})
                            .Output("y"));
  add("attention", ModelFileBuilder(18)
                       .Input("ids", {1, 5}, 7)
                       .Random("table", {11, 8})
                       .Random("positions", {1, 5, 8})
                       .Random("gamma", {8})
                       .Random("beta", {8})
                       .Random("wq", {8, 8})
                       .Random("bq", {8})
                       .Random("wk", {8, 8})
                       .Random("wo", {8, 8})
                       .Random("w1", {8, 12})
                       .Random("b1", {12})
                       .Wholes("heads", {1, 5, 2, 4})
                       .Wholes("merged", {0, 0, -1})
                       .Scalar("scale", 0.5F)
                       .Scalar("half", 0.5F)
                       .Scalar("one", 1)
                       .Scalar("root", 1.41421356F)
                       .Node("Gather", {"table", "ids"}, {"e"})
                       .Node("Add", {"e", "positions"}, {"ep"})
                       .Node("LayerNormalization", {"ep", "gamma", "beta"}, {"h"}, {{"epsilon", 1e-6F}})
                       .Node("MatMul", {"h", "wq"}, {"q0"})
                       .Node("Add", {"q0", "bq"}, {"q1"})
                       .Node("Reshape", {"q1", "heads"}, {"q2"})
                       .Node("Transpose", {"q2"}, {"q"}, {{"perm", Ints{0, 2, 1, 3}}})
                       .Node("MatMul", {"h", "wk"}, {"k1"})
                       .Node("Reshape", {"k1", "heads"}, {"k2"})
                       .Node("Transpose", {"k2"}, {"k"}, {{"perm", Ints{0, 2, 3, 1}}})
                       .Node("Transpose", {"k2"}, {"v"}, {{"perm", Ints{0, 2, 1, 3}}})
                       .Node("MatMul", {"q", "k"}, {"s0"})
                       .Node("Mul", {"s0", "scale"}, {"s1"})
                       .Node("Softmax", {"s1"}, {"p"}, {{"axis", int64_t{-1}}})
                       .Node("MatMul", {"p", "v"}, {"o0"})
                       .Node("Transpose", {"o0"}, {"o1"}, {{"perm", Ints{0, 2, 1, 3}}})
                       .Node("Reshape", {"o1", "merged"}, {"o2"})
                       .Node("MatMul", {"o2", "wo"}, {"o3"})
                       .Node("Add", {"o3", "h"}, {"o4"})
                       .Node("MatMul", {"o4", "w1"}, {"f0"})
                       .Node("Add", {"f0", "b1"}, {"f1"})
                       .Node("Div", {"f1", "root"}, {"g0"})
                       .Node("Erf", {"g0"}, {"g1"})
                       .Node("Add", {"g1", "one"}, {"g2"})
                       .Node("Mul", {"half", "g2"}, {"g3"})
                       .Node("Mul", {"f1", "g3"}, {"y"})
                       .Output("y"));
  add("layer_norm_decomposed", ModelFileBuilder(13)
                                   .Input("x", {3, 10})
                                   .Random("gamma", {10})
                                   .Random("beta", {10})
                                   .Scalar("eps", 1e-5F)
                                   .Scalar("two", 2)
                                   .Node("ReduceMean", {"x"}, {"mean"}, {{"axes", Ints{-1}}})
                                   .Node("Sub", {"x", "mean"}, {"d"})
                                   .Node("Pow", {"d", "two"}, {"sq"})
                                   .Node("ReduceMean", {"sq"}, {"var"}, {{"axes", Ints{-1}}})
                                   .Node("Add", {"var", "eps"}, {"ve"})
                                   .Node("Sqrt", {"ve"}, {"sd"})
                                   .Node("Div", {"d", "sd"}, {"n"})
                                   .Node("Mul", {"n", "gamma"}, {"ng"})
                                   .Node("Add", {"ng", "beta"}, {"y"})
                                   .Output("y"));
  add("movement", ModelFileBuilder(18)
                      .Input("x", {2, 3, 8})
                      .Wholes("starts", {7, 0})
                      .Wholes("ends", {INT64_MIN, 2})
                      .Wholes("axes", {2, 1})
                      .Wholes("steps", {-2, 1})
                      .Wholes("pads", {0, 1, 0, 0, 0, 2})
                      .Scalar("fill", 0.25F)
                      .Wholes("which", {2, -1, 0})
                      .Wholes("split", {1, 2})
                      .Wholes("wide", {3, 2, 3, 6})
                      .Node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"s"})
                      .Node("Pad", {"s", "pads", "fill"}, {"p"})
                      .Node("Gather", {"p", "which"}, {"g"}, {{"axis", int64_t{2}}})
                      .Node("Concat", {"g", "p"}, {"c"}, {{"axis", int64_t{2}}})
                      .Node("Split", {"c", "split"}, {"c1", "c2"}, {{"axis", int64_t{1}}})
                      .Node("Concat", {"c2", "c1"}, {"cc"}, {{"axis", int64_t{1}}})
                      .Node("Shape", {"x"}, {"shape"})
                      .Node("Expand", {"cc", "shape3"}, {"e"})
                      .Wholes("shape3", {2, 3, 9})
                      .Node("Transpose", {"e"}, {"y"}, {{"perm", Ints{2, 0, 1}}})
                      .Output("y"));
  add("shape_arithmetic", ModelFileBuilder(17)
                              .Input("x", {2, 6, 4})
                              .WholeScalar("one", 1)
                              .Wholes("zero", {0})
                              .Wholes("minus", {-1})
                              .Node("Shape", {"x"}, {"shape"})
                              .Node("Gather", {"shape", "one"}, {"six"})
                              .Node("Constant", {}, {"two"}, {{"value_int", int64_t{2}}})
                              .Node("Div", {"six", "two"}, {"three"})
                              .Node("Unsqueeze", {"three", "zero"}, {"three1"})
                              .Node("Concat", {"minus", "three1"}, {"target"}, {{"axis", int64_t{0}}})
                              .Node("Reshape", {"x", "target"}, {"r"})
                              .Node("Softmax", {"r"}, {"sm"}, {{"axis", int64_t{0}}})
                              .Node("ReduceMax", {"sm"}, {"y"}, {{"axes", Ints{1}}, {"keepdims", int64_t{0}}})
                              .Output("y"));
  add("old_softmax",
      ModelFileBuilder(11).Input("x", {2, 3, 4}).Node("Softmax", {"x"}, {"y"}, {{"axis", int64_t{1}}}).Output("y"));
  add("activations", ModelFileBuilder(20)
                         .Input("x", {4, 9})
                         .Input("m", {4, 9}, 9)
                         .Random("w", {9, 9})
                         .Scalar("sixth", 1.0F / 6)
                         .Scalar("three", 3)
                         .Scalar("zero", 0)
                         .Scalar("six", 6)
                         .Random("slope", {9})
                         .Node("MatMul", {"x", "w"}, {"a"})
                         .Node("Add", {"a", "three"}, {"a3"})
                         .Node("Clip", {"a3", "zero", "six"}, {"a6"})
                         .Node("Mul", {"a", "a6"}, {"am"})
                         .Node("Mul", {"am", "sixth"}, {"hs"})
                         .Node("Gelu", {"hs"}, {"ge"}, {{"approximate", "tanh"}})
                         .Node("PRelu", {"ge", "slope"}, {"pr"})
                         .Node("Elu", {"pr"}, {"el"})
                         .Node("HardSigmoid", {"el"}, {"sig"}, {{"alpha", 0.3F}})
                         .Node("Softplus", {"sig"}, {"sp"})
                         .Node("Where", {"m", "sp", "zero"}, {"wh"})
                         .Node("Cast", {"m"}, {"mf"}, {{"to", int64_t{1}}})
                         .Node("Min", {"wh", "mf", "x"}, {"mi"})
                         .Node("Ceil", {"mi"}, {"ce"})
                         .Node("LeakyRelu", {"ce"}, {"y"})
                         .Output("y"));
  add("line_convolution",
      ModelFileBuilder(18)
          .Input("x", {1, 3, 12})
          .Random("w", {5, 3, 3})
          .Random("b", {5})
          .Node("Conv", {"x", "w", "b"}, {"c"}, {{"dilations", Ints{2}}, {"pads", Ints{2, 1}}})
          .Node("MaxPool", {"c"}, {"p"}, {{"kernel_shape", Ints{2}}, {"dilations", Ints{3}}, {"strides", Ints{2}}})
          .Node("LogSoftmax", {"p"}, {"y"}, {{"axis", int64_t{1}}})
          .Output("y"));
  add("broadcast_matmul", ModelFileBuilder(18)
                              .Input("a", {2, 1, 3, 4})
                              .Input("b", {5, 4, 2})
                              .Node("MatMul", {"a", "b"}, {"m"})
                              .Wholes("one", {1})
                              .Node("ReduceSum", {"m", "one"}, {"s"}, {{"keepdims", int64_t{0}}})
                              .Random("v", {2})
                              .Node("MatMul", {"s", "v"}, {"y"})
                              .Output("y"));
  add("powers",  // of which code for GPUs has none
      ModelFileBuilder(18)
          .Input("x", {5, 6})
          .Random("w", {6, 6})
          .Node("Relu", {"x"}, {"r"})
          .Node("MatMul", {"r", "w"}, {"m"})
          .Node("Sigmoid", {"m"}, {"s"})
          .Node("Pow", {"r", "s"}, {"p"})
          .Node("Add", {"p", "m"}, {"y"})
          .Output("y"));
  add("dense_blocks", ModelFileBuilder(18)
                          .Input("x", {1, 3, 4, 4})
                          .Random("w1", {2, 3, 1, 1})
                          .Random("w2", {3, 4, 3, 3})
                          .Node("Conv", {"x", "w1"}, {"c1"})
                          .Node("Relu", {"c1"}, {"r1"})
                          .Node("Neg", {"r1"}, {"n1"})
                          .Node("Concat", {"r1", "n1"}, {"cat1"}, {{"axis", int64_t{1}}})
                          .Node("Conv", {"cat1", "w2"}, {"c2"}, {{"pads", Ints{1, 1, 1, 1}}})
                          .Node("Concat", {"cat1", "c2"}, {"cat2"}, {{"axis", int64_t{1}}})
                          .Node("Concat", {"c2", "r1"}, {"cat3"}, {{"axis", int64_t{1}}})
                          .Output("cat2")
                          .Output("cat3"));
  add("group_norm_shuffle", ModelFileBuilder(21)
                                .Input("x", {1, 8, 4, 4})
                                .Random("scale", {8})
                                .Random("bias", {8})
                                .Node("GroupNormalization", {"x", "scale", "bias"}, {"g"}, {{"num_groups", int64_t{2}}})
                                .Node("DepthToSpace", {"g"}, {"d"}, {{"blocksize", int64_t{2}}})
                                .Node("Trilu", {"d"}, {"y"}, {{"upper", int64_t{0}}})
                                .Output("y"));
  return models;
}

std::vector<SampleModel> SampleModelsInParts() {
  return {{"selected_rows", ModelFileBuilder(18)
                                .Input("x", {16, 6})
                                .Random("w", {6, 8})
                                .Random("v", {8, 3})
                                .Wholes("last", {1})
                                .Wholes("first", {0})
                                .Scalar("zero", 0)
                                .Node("MatMul", {"x", "w"}, {"m"})
                                .Node("ReduceSum", {"m", "last"}, {"s"}, {{"keepdims", int64_t{0}}})
                                .Node("Greater", {"s", "zero"}, {"p"})
                                .Node("NonZero", {"p"}, {"at"})
                                .Node("Squeeze", {"at", "first"}, {"rows"})
                                .Node("Gather", {"m", "rows"}, {"g"})
                                .Node("MatMul", {"g", "v"}, {"y"})
                                .Output("y")
                                .Bytes()}};
}

}  // namespace hone
