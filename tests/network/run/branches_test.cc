// Branches of Ifs that take their node's place: what is in them stays apart from what is around them and in others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/onnx/captured.h"
#include "tests/network/run/plain_program.h"

namespace hone::branches_test {
namespace {

using plain_program::Constant;
using plain_program::Model;
using plain_program::Node;
using plain_program::Plain;
using plain_program::Reals;
using plain_program::Value;
using plain_program::Wholes;
using plain_program::With;
using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<OnnxBody> Branch(std::vector<OnnxNode> nodes, const std::string& output,
                                 std::vector<OnnxTensor> initializers = {}) {
  auto branch = std::make_shared<OnnxBody>();
  branch->nodes = std::move(nodes);
  branch->initializers = std::move(initializers);
  branch->outputs = {output};
  return branch;
}

OnnxNode IfOf(std::vector<std::string> inputs, const std::string& output, std::shared_ptr<const OnnxBody> then_branch,
              std::shared_ptr<const OnnxBody> else_branch) {
  OnnxNode node = With(With(Node("If", std::move(inputs), {output}), "then_branch", std::move(then_branch)),
                       "else_branch", std::move(else_branch));
  node.captured = CapturedBy(node);
  return node;
}

HostTensor Truths(Shape shape, const std::string& bytes) { return {DType::kBool, std::move(shape), bytes}; }

HostTensor Yes() { return Truths({}, "\1"); }

TEST(Branches, AConditionIsOneNumber) {
  const auto branch = Branch({Node("Relu", {"x"}, {"t"})}, "t");
  Plain program(Model({Value("x"), Value("c", DType::kBool)}, {IfOf({"c"}, "y", branch, branch)}, {"y"}));
  EXPECT_THAT(program.Run({Reals({2}, {1, -1}), Truths({1, 1}, "\1")})[0].real, ElementsAre(1, 0));
  for (size_t count : {0, 2}) {
    const Result<std::vector<TensorView>> run =
        program.Try({Reals({2}, {1, -1}), Truths({static_cast<int64_t>(count)}, std::string(count, '\1'))});
    ASSERT_FALSE(run);
    EXPECT_EQ(run.error().kind, ErrorKind::kInvalid);
    EXPECT_THAT(run.error().Text(), HasSubstr("node n_y (If)"));
    EXPECT_THAT(run.error().Text(), HasSubstr("the condition has " + std::to_string(count) + " elements, wanted 1"));
  }
}

TEST(Branches, AnIfHasOneOperand) {
  const auto branch = Branch({Node("Relu", {"x"}, {"t"})}, "t");
  for (const std::vector<std::string>& inputs : {std::vector<std::string>{}, {""}, {"c", "c"}}) {
    Plain program(Model({Value("x"), Value("c", DType::kBool)}, {IfOf(inputs, "y", branch, branch)}, {"y"}));
    const Result<std::vector<TensorView>> run = program.Try({Reals({2}, {1, -1}), Yes()});
    ASSERT_FALSE(run) << inputs.size();
    EXPECT_EQ(run.error().kind, ErrorKind::kInvalid);
    EXPECT_THAT(run.error().Text(), HasSubstr("node n_y (If)"));
  }
}

}  // namespace
}  // namespace hone::branches_test
