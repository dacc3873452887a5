// Functions that a file defines: calls of them are the functions' nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/onnx/import_network.h"
#include "network/onnx/onnx_model.h"
#include "network/run/check_network.h"
#include "tests/network/model_files.h"

namespace hone::functions_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Network> Imported(const ModelFileBuilder& builder) {
  OnnxModel model = HONE_TRY(ParseOnnx(builder.Bytes(), {"functions.onnx", ""}));
  return BuildNetwork(model, "functions.onnx", {});
}

// The first output.
std::vector<double> Computed(const ModelFileBuilder& builder, const std::vector<double>& x) {
  Result<Network> network = Imported(builder);
  EXPECT_TRUE(network) << network.error().Text();
  if (!network) return {};
  EXPECT_TRUE(network->left_out.empty()) << network->left_out[0].op;
  Numbers data = MakeNumbers(DType::kF32, network->graph.shape(network->graph.inputs[0]));
  data.real = x;
  Result<std::vector<Numbers>> outputs = EvaluateNetwork(network->graph, {data});
  EXPECT_TRUE(outputs) << outputs.error().Text();
  return outputs ? (*outputs)[0].real : std::vector<double>();
}

ModelFileBuilder Model() {
  ModelFileBuilder builder;
  builder.Input("x", {2}).Output("y");
  return builder;
}

// slope · x below 0, plus 1.
ModelFileBuilder Leaky() {
  ModelFileBuilder body;
  body.Input("a", {}).Node("LeakyRelu", {"a"}, {"r"}).Reference("alpha", "slope");
  body.Node("Constant", {}, {"one"}, {{"value_float", 1.0F}}).Node("Add", {"r", "one"}, {"b"}).Output("b");
  return body;
}

TEST(Functions, HaveTheAttributesOfTheirCalls) {
  ModelFileBuilder model = Model();
  model.Function("Leaky", Leaky(), {{"slope", 0.5F}});
  model.Node("Leaky", {"x"}, {"r"}, {{"slope", 0.25F}}, "functions");
  model.Node("Leaky", {"r"}, {"y"}, {}, "functions");
  EXPECT_THAT(Computed(model, {8, -12}), ElementsAre(10, 0));  // 9 and -2, then 10 and 0
}

TEST(Functions, WithoutADefaultLeaveTheAttributeOut) {
  ModelFileBuilder model = Model();
  model.Function("Leaky", Leaky()).Node("Leaky", {"x"}, {"y"}, {}, "functions");
  EXPECT_NEAR(Computed(model, {1, -100})[1], 0, 1e-6);  // ONNX's own slope is 0.01
}

TEST(Functions, CallFunctions) {
  ModelFileBuilder twice;
  twice.Input("a", {}).Node("Leaky", {"a"}, {"r"}, {}, "functions").Reference("slope", "outer");
  twice.Node("Leaky", {"r"}, {"b"}, {}, "functions").Output("b");
  ModelFileBuilder model = Model();
  model.Function("Leaky", Leaky(), {{"slope", 0.5F}}).Function("Twice", twice);
  model.Node("Twice", {"x"}, {"y"}, {{"outer", 0.25F}}, "functions");
  EXPECT_THAT(Computed(model, {8, -12}), ElementsAre(10, 0));
}

TEST(Functions, HandInputsOnAndLeaveResultsOut) {
  ModelFileBuilder body;
  body.Input("a", {}).Input("left out", {}).Node("Clip", {"a", "left out"}, {"unread"}).Node("Neg", {"a"}, {"n"});
  body.Output("unread").Output("a").Output("n");
  ModelFileBuilder model = Model();
  model.Function("Both", body).Node("Both", {"x"}, {"", "same", "negative"}, {}, "functions");
  model.Node("Sub", {"same", "negative"}, {"y"});
  EXPECT_THAT(Computed(model, {1, 2}), ElementsAre(2, 4));
}

TEST(Functions, OfOneNameAreToldApartByTheirOverload) {
  ModelFileBuilder negative, positive;
  negative.Input("a", {}).Node("Neg", {"a"}, {"b"}).Output("b");
  positive.Input("a", {}).Node("Abs", {"a"}, {"b"}).Output("b");
  ModelFileBuilder model = Model();
  model.Function("Sign", negative, {}, "minus").Function("Sign", positive, {}, "plus");
  model.Node("Sign", {"x"}, {"r"}, {}, "functions").Overload("plus");
  model.Node("Sign", {"r"}, {"y"}, {}, "functions").Overload("minus");
  EXPECT_THAT(Computed(model, {1, -2}), ElementsAre(-1, -2));
}

TEST(Functions, OfAnOpsetInWhichOperatorsMeantSomethingElseAreLeftOut) {
  ModelFileBuilder body(6);
  body.Input("a", {}).Node("Neg", {"a"}, {"n"}).Node("Add", {"a", "n"}, {"b"}).Output("b");
  ModelFileBuilder model = Model();
  model.Function("Old", body).Node("Old", {"x"}, {"y"}, {}, "functions");
  Result<Network> network = Imported(model);
  ASSERT_TRUE(network) << network.error().Text();
  ASSERT_FALSE(network->left_out.empty());
  EXPECT_THAT(network->left_out[0].reason, HasSubstr("it meant something else in opset 6"));
}

// Until opset 12 a softmax is over all dimensions from its axis on.
TEST(Functions, MeanWhatTheirOwnOpsetSays) {
  ModelFileBuilder body(12);
  body.Input("a", {}).Node("Softmax", {"a"}, {"b"}, {{"axis", int64_t{0}}}).Output("b");
  ModelFileBuilder model(18);
  model.Input("x", {2, 2}).Function("Old", body).Node("Old", {"x"}, {"y"}, {}, "functions").Output("y");
  EXPECT_THAT(Computed(model, {0, 0, 0, 0}), ElementsAre(0.25, 0.25, 0.25, 0.25));
}

// A value of a body, of a graph around or of the call may have any name.
TEST(Functions, HaveValuesOfTheirOwnInBodies) {
  ModelFileBuilder negative, same, body;
  negative.Node("Neg", {"a"}, {"t"}).Node("Add", {"t", "a"}, {"sum"}).Output("sum");
  same.Node("Identity", {"a"}, {"t"}).Output("t");
  body.Input("a", {}).Input("c", {}).Node("If", {"c"}, {"b"}).Output("b");
  body.Body("then_branch", negative).Body("else_branch", same);
  ModelFileBuilder model = Model();
  model.Truths("c", {}, {true}).Function("Branch", body).Node("Abs", {"x"}, {"t"});
  model.Node("Branch", {"t", "c"}, {"y"}, {}, "functions");
  EXPECT_THAT(Computed(model, {1, -2}), ElementsAre(0, 0));
}

TEST(Functions, HaveValuesOfOtherNamesThanTheGraph) {
  ModelFileBuilder body;
  body.Input("a", {}).Node("Abs", {"a"}, {"r"}).Node("Neg", {"r"}, {"b"}).Output("b");
  ModelFileBuilder model = Model();
  model.Function("Minus", body).Node("Identity", {"x"}, {"y/r"}).Node("Minus", {"y/r"}, {"y"}, {}, "functions");
  EXPECT_THAT(Computed(model, {1, -2}), ElementsAre(-1, -2));
}

TEST(Functions, ThatCallThemselvesAreRefused) {
  ModelFileBuilder body;
  body.Input("a", {}).Node("Self", {"a"}, {"b"}, {}, "functions").Output("b");
  ModelFileBuilder model = Model();
  model.Function("Self", body).Node("Self", {"x"}, {"y"}, {}, "functions");
  Result<Network> network = Imported(model);
  ASSERT_FALSE(network);
  EXPECT_EQ(network.error().kind, ErrorKind::kInvalid);
  EXPECT_THAT(network.error().Text(), HasSubstr("themselves"));
}

}  // namespace
}  // namespace hone::functions_test
