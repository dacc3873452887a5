// Files that cannot be taken, one by one: what is said, and where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "network/onnx/import_network.h"
#include "network/run/kernel_calls.h"
#include "tests/network/model_files.h"
#include "tests/support/temporary_directory.h"

namespace hone::bad_models_test {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

Result<Network> Import(const ModelFileBuilder& builder, const ImportOptions& options = {}) {
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"bad.onnx", ""});
  if (!model) return model.error();
  return BuildNetwork(*model, "bad.onnx", options);
}

void ExpectError(const Result<Network>& network, ErrorKind kind, const std::string& words, const std::string& where) {
  ASSERT_FALSE(network);
  EXPECT_EQ(network.error().kind, kind) << network.error().Text();
  EXPECT_THAT(network.error().message, HasSubstr(words));
  EXPECT_EQ(network.error().where, where);
}

ModelFileBuilder Relu(int64_t opset) {
  ModelFileBuilder builder(opset);
  builder.Input("x", {1, 4}).Node("Relu", {"x"}, {"y"}).Output("y");
  return builder;
}

TEST(BadModels, NoModelAtAll) {
  Result<OnnxModel> model = ParseOnnx("this is no model", {"bad.onnx", ""});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(model.error().where, "bad.onnx");
  EXPECT_FALSE(ParseOnnx("", {"bad.onnx", ""}));
}

TEST(BadModels, Opsets) {
  EXPECT_TRUE(Import(Relu(7)));
  EXPECT_TRUE(Import(Relu(24)));
  ExpectError(Import(Relu(28)), ErrorKind::kUnsupported, "opset 28, wanted 1 to 27", "bad.onnx");
  ExpectError(Import(Relu(0)), ErrorKind::kUnsupported, "opset 0, wanted 1 to 27", "bad.onnx");
  ModelFileBuilder scaler(0);  // without operators of ONNX's own their opset need not be said
  scaler.Input("x", {1, 4}).Node("Scaler", {"x"}, {"y"}, {}, "ai.onnx.ml").Output("y");
  EXPECT_THAT(Import(scaler).error().Text(), HasSubstr("(ai.onnx.ml.Scaler): hone runs networks of tensors"));
  EXPECT_TRUE(Import(Relu(6)));
  ModelFileBuilder sum(6);  // a sum of that time broadcasts only where an attribute says so
  sum.Input("x", {4}).Node("Add", {"x", "x"}, {"y"}).Output("y");
  ExpectError(Import(sum), ErrorKind::kUnsupported, "(Add): it meant something else in opset 6", "bad.onnx");
}

TEST(BadModels, Cycles) {
  ModelFileBuilder builder;
  builder.Input("x", {4}).Node("Add", {"x", "b"}, {"a"}).Node("Relu", {"a"}, {"b"}).Output("b");
  Result<Network> network = Import(builder);
  ASSERT_FALSE(network);
  EXPECT_EQ(network.error().kind, ErrorKind::kInvalid);
  EXPECT_THAT(network.error().message, HasSubstr("cycle"));
  EXPECT_THAT(network.error().where, HasSubstr("bad.onnx: node n_"));
}

TEST(BadModels, NodesOutOfOrderAreSorted) {
  ModelFileBuilder builder;
  builder.Input("x", {4}).Node("Relu", {"a"}, {"y"}).Node("Neg", {"x"}, {"a"}).Output("y");
  EXPECT_TRUE(Import(builder));
}

TEST(BadModels, ValuesThatNothingOrTwoNodesCompute) {
  ModelFileBuilder missing;
  missing.Input("x", {4}).Node("Add", {"x", "nowhere"}, {"y"}).Output("y");
  ExpectError(Import(missing), ErrorKind::kInvalid, "reads \"nowhere\", which nothing computes",
              "bad.onnx: node n_y (Add)");
  ModelFileBuilder twice;
  twice.Input("x", {4}).Node("Relu", {"x"}, {"y"}).Node("Neg", {"x"}, {"y"}).Output("y");
  ExpectError(Import(twice), ErrorKind::kInvalid, "computed twice", "bad.onnx: node n_y (Neg)");
  ModelFileBuilder inputs;
  inputs.Input("x", {4}).Input("x", {4}).Node("Relu", {"x"}, {"y"}).Output("y");
  ExpectError(Import(inputs), ErrorKind::kInvalid, "another input has its name", "bad.onnx: input x");
  ModelFileBuilder output;
  output.Input("x", {4}).Node("Relu", {"x"}, {"y"}).Output("z");
  ExpectError(Import(output), ErrorKind::kInvalid, "nothing computes it", "bad.onnx: output z");
}

TEST(BadModels, AttributesThatHoldSomethingElse) {
  auto product = [](const ModelFileBuilder::Attribute& attribute) {
    ModelFileBuilder builder;
    builder.Input("x", {1, 4}).Random("w", {4, 8}).Node("Gemm", {"x", "w"}, {"y"}, {attribute}).Output("y");
    return builder;
  };
  EXPECT_TRUE(Import(product({"alpha", 2.0f})));
  ExpectError(Import(product({"alpha", Ints{2, 2}})), ErrorKind::kInvalid,
              "its attribute alpha holds whole numbers, wanted a real number", "bad.onnx: node n_y (Gemm)");
  ExpectError(Import(product({"transB", std::string("yes")})), ErrorKind::kInvalid,
              "its attribute transB holds a text, wanted a whole number", "bad.onnx: node n_y (Gemm)");
}

TEST(BadModels, UnknownOperatorsAreNamedAndTheRestIsTaken) {
  ModelFileBuilder builder;
  builder.Input("x", {4, 4})
      .Random("w", {4, 4})
      .Node("MatMul", {"x", "w"}, {"m"})
      .Node("FancyNorm", {"m"}, {"f"}, {}, "com.example")
      .Declare("f", {4, 4})
      .Node("MatMul", {"f", "w"}, {"g"})
      .Node("Unique", {"g"}, {"e"})
      .Node("Relu", {"e"}, {"y"})
      .Output("y")
      .Output("g");
  Result<Network> network = Import(builder);
  ASSERT_TRUE(network) << network.error().Text();
  ASSERT_EQ(network->left_out.size(), 3U);
  EXPECT_EQ(network->left_out[0].node, "n_f");
  EXPECT_EQ(network->left_out[0].op, "com.example.FancyNorm");
  EXPECT_EQ(network->left_out[1].node, "n_e");
  EXPECT_EQ(network->left_out[2].node, "n_y");
  EXPECT_THAT(network->left_out[2].reason, HasSubstr("\"e\""));
  EXPECT_EQ(Lower(network->graph).calls.size(), 1U);  // the second product; nothing reads the first
}

TEST(BadModels, NothingThatCouldBeTaken) {
  ModelFileBuilder builder;
  builder.Input("x", {4}).Node("Unique", {"x"}, {"y"}).Output("y");
  ExpectError(Import(builder), ErrorKind::kUnsupported, "n_y (Unique)", "bad.onnx");
}

TEST(BadModels, DimensionsThatAreNotKnown) {
  ModelFileBuilder builder;
  builder.Input("x", {-1, 3}).Node("Relu", {"x"}, {"y"}).Output("y");
  ExpectError(Import(builder), ErrorKind::kInvalid,
              "its shape is batchx3, and every dimension must be known: give it with --shape x=1x3",
              "bad.onnx: input x");
  ImportOptions options;
  options.shapes["x"] = {2, 3};
  EXPECT_TRUE(Import(builder, options));
  options.shapes["x"] = {2, 4};
  ExpectError(Import(builder, options), ErrorKind::kInvalid, "shape 2x4, wanted batchx3", "bad.onnx: input x");
  ImportOptions unknown;
  unknown.shapes["nobody"] = {1};
  ExpectError(Import(builder, unknown), ErrorKind::kInvalid, "names \"nobody\"", "bad.onnx");
  ModelFileBuilder none;
  none.InputWithoutShape("x").Node("Relu", {"x"}, {"y"}).Output("y");
  ExpectError(Import(none), ErrorKind::kInvalid, "its shape is not given", "bad.onnx: input x");
}

TEST(BadModels, OperandsThatDoNotGoTogether) {
  ModelFileBuilder conv;
  conv.Input("x", {1, 3, 8, 8}).Random("w", {4, 2, 3, 3}).Node("Conv", {"x", "w"}, {"y"}).Output("y");
  ExpectError(Import(conv), ErrorKind::kInvalid, "the weight 4x2x3x3 has 2 channels a group, the input 1x3x8x8 has 3",
              "bad.onnx: node n_y (Conv)");
  ModelFileBuilder window;
  window.Input("x", {1, 2, 2, 2}).Random("w", {4, 2, 3, 3}).Node("Conv", {"x", "w"}, {"y"}).Output("y");
  ExpectError(Import(window), ErrorKind::kInvalid, "does not fit", "bad.onnx: node n_y (Conv)");
  ModelFileBuilder add;
  add.Input("x", {2, 3}).Input("z", {2, 4}).Node("Add", {"x", "z"}, {"y"}).Output("y");
  ExpectError(Import(add), ErrorKind::kInvalid, "shapes 2x3 and 2x4 do not go together", "bad.onnx: node n_y (Add)");
  ModelFileBuilder reshape;
  reshape.Input("x", {2, 3}).Wholes("s", {4, -1}).Node("Reshape", {"x", "s"}, {"y"}).Output("y");
  ExpectError(Import(reshape), ErrorKind::kInvalid, "2x3 cannot be read as 4x-1", "bad.onnx: node n_y (Reshape)");
  ModelFileBuilder missing;
  missing.Input("x", {2, 3}).Node("Add", {"x"}, {"y"}).Output("y");
  ExpectError(Import(missing), ErrorKind::kInvalid, "operand 2 is missing", "bad.onnx: node n_y (Add)");
  ModelFileBuilder axis;
  axis.Input("x", {2, 3}).Node("Softmax", {"x"}, {"y"}, {{"axis", int64_t{2}}}).Output("y");
  ExpectError(Import(axis), ErrorKind::kInvalid, "axis 2 of 2 dimensions", "bad.onnx: node n_y (Softmax)");
}

TEST(BadModels, PaddingBeyondAllBounds) {
  for (int64_t pad : {INT64_MIN, INT64_MAX, int64_t{-5}}) {
    ModelFileBuilder builder;
    builder.Input("x", {4}).Wholes("pads", {0, pad}).Node("Pad", {"x", "pads"}, {"y"}).Output("y");
    ExpectError(Import(builder), ErrorKind::kInvalid, "padding 0 and " + std::to_string(pad) + " of 4",
                "bad.onnx: node n_y (Pad)");
  }
}

TEST(BadModels, ShapesThatDependOnData) {
  ModelFileBuilder builder;
  builder.Input("x", {2, 3})
      .Input("s", {2}, 7)
      .Node("Relu", {"x"}, {"r"})
      .Node("Reshape", {"r", "s"}, {"y"})
      .Output("y");
  Result<Network> network = Import(builder);
  ASSERT_TRUE(network);
  ASSERT_EQ(network->left_out.size(), 1U);
  EXPECT_THAT(network->left_out[0].reason, HasSubstr("shapes must be known"));
}

TEST(BadModels, TensorsWhoseBytesDoNotFit) {
  ModelFileBuilder few;
  few.Input("x", {4}).Raw("w", {4}, 1, std::string(12, '\0')).Node("Add", {"x", "w"}, {"y"}).Output("y");
  ExpectError(Import(few), ErrorKind::kCorrupt, "it has 12 bytes, its shape 4 of float wants 16",
              "bad.onnx: initialiser w");
  ModelFileBuilder huge;
  huge.Input("x", {4}).Raw("w", {int64_t{1} << 33, 1 << 20}, 1, "").Node("Add", {"x", "w"}, {"y"}).Output("y");
  ExpectError(Import(huge), ErrorKind::kLimit, "limit", "bad.onnx: initialiser w");
  ModelFileBuilder text;
  text.Input("x", {4}).Raw("w", {1}, 8, "").Node("Add", {"x", "w"}, {"y"}).Output("y");
  ExpectError(Import(text), ErrorKind::kUnsupported, "it holds string", "bad.onnx: initialiser w");
}

// protobuf's own limit: the bytes are never read.
TEST(BadModels, TwoGibibytes) {
  TemporaryDirectory folder;
  const std::string path = folder.path() + "/large.onnx";
  { std::ofstream(path) << '\x08'; }
  ASSERT_EQ(truncate(path.c_str(), int64_t{1} << 31), 0);
  Result<OnnxModel> model = ReadOnnx(path);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().kind, ErrorKind::kLimit);
  EXPECT_THAT(model.error().message, HasSubstr("below 2 GiB"));
  EXPECT_EQ(model.error().where, path);
}

TEST(BadModels, FilesThatAreNotThere) {
  Result<OnnxModel> model = ReadOnnx("/nonexistent/model.onnx");
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().kind, ErrorKind::kNotFound);
  EXPECT_FALSE(ReadOnnx("/"));
}

class ExternalData : public ::testing::Test {
 protected:
  Result<OnnxModel> Read(const std::string& location, int64_t offset = 0) {
    ModelFileBuilder builder;
    builder.Input("x", {4}).External("w", {4}, location, offset).Node("Add", {"x", "w"}, {"y"}).Output("y");
    const std::string path = folder_.path() + "/models/model.onnx";
    mkdir((folder_.path() + "/models").c_str(), 0700);
    std::ofstream(path, std::ios::binary) << builder.Bytes();
    return ReadOnnx(path);
  }
  void Write(const std::string& name, const std::string& bytes) {
    mkdir((folder_.path() + "/models").c_str(), 0700);
    std::ofstream(folder_.path() + "/" + name, std::ios::binary) << bytes;
  }
  TemporaryDirectory folder_;
};

TEST_F(ExternalData, IsReadFromTheModelsFolder) {
  const float values[] = {9, 1, 2, 3, 4};
  Write("models/weights.bin", std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  Result<OnnxModel> model = Read("weights.bin", 4);
  ASSERT_TRUE(model) << model.error().Text();
  EXPECT_EQ(ToNumbers(*model->initializers[0].tensor).real, (std::vector<double>{1, 2, 3, 4}));
}

TEST_F(ExternalData, IsPartOfTheFileThatHasItsWeights) {
  const float values[] = {9, 1, 2, 3, 4};
  Write("models/weights.bin", std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  ASSERT_TRUE(Read("weights.bin", 4));
  const Result<std::string> bytes = WithWeights(folder_.path() + "/models/model.onnx", {});
  ASSERT_TRUE(bytes) << bytes.error().Text();
  const Result<OnnxModel> model = ParseOnnx(*bytes, {"whole.onnx", ""});  // which reads no other file
  ASSERT_TRUE(model) << model.error().Text();
  ASSERT_EQ(model->initializers.size(), 1u);
  EXPECT_EQ(model->initializers[0].tensor->data.view(),
            std::string_view(reinterpret_cast<const char*>(values + 1), 4 * sizeof(float)));
  Write("models/weights.bin", "");
  EXPECT_EQ(WithWeights(folder_.path() + "/models/model.onnx", {}).error().kind, ErrorKind::kCorrupt);
}

TEST_F(ExternalData, IsRefusedFromElsewhere) {
  Write("weights.bin", std::string(16, '\0'));
  ASSERT_EQ(symlink("../weights.bin", (folder_.path() + "/models/link.bin").c_str()), 0);
  ASSERT_EQ(symlink("..", (folder_.path() + "/models/up").c_str()), 0);
  for (const std::string& location :
       {std::string("../weights.bin"), folder_.path() + "/weights.bin", std::string("link.bin"),
        std::string("up/weights.bin"), std::string("."), std::string("")}) {
    Result<OnnxModel> model = Read(location);
    ASSERT_FALSE(model) << location;
    EXPECT_EQ(model.error().kind, ErrorKind::kInvalid) << location << ": " << model.error().Text();
    EXPECT_THAT(model.error().where, HasSubstr("initialiser w"));
  }
}

TEST_F(ExternalData, IsRefusedWhereItIsTooShortOrNotThere) {
  Write("models/weights.bin", std::string(16, '\0'));
  EXPECT_TRUE(Read("weights.bin"));
  Result<OnnxModel> model = Read("weights.bin", 1);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().kind, ErrorKind::kCorrupt);
  for (int64_t offset : {int64_t{-1}, INT64_MIN, int64_t{17}, int64_t{1} << 40, INT64_MAX}) {
    Result<OnnxModel> beyond = Read("weights.bin", offset);
    ASSERT_FALSE(beyond) << offset;
    EXPECT_EQ(beyond.error().kind, ErrorKind::kCorrupt) << offset;
    EXPECT_THAT(beyond.error().where, HasSubstr("initialiser w"));
  }
  Result<OnnxModel> absent = Read("absent.bin");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().kind, ErrorKind::kNotFound);
}

}  // namespace
}  // namespace hone::bad_models_test
