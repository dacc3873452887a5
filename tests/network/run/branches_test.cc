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

// y by one branch of a first If, z by one of a second.
OnnxModel TwoIfs(const std::shared_ptr<OnnxBody>& first, const std::shared_ptr<OnnxBody>& second) {
  return Model({Value("x"), Value("c", DType::kBool)},
               {IfOf({"c"}, "y", first, first), IfOf({"c"}, "z", second, second)}, {"y", "z"});
}

HostTensor Truths(Shape shape, const std::string& bytes) { return {DType::kBool, std::move(shape), bytes}; }

HostTensor Yes() { return Truths({}, "\1"); }

TEST(Branches, AValueThatIsReadLaterIsItsOwnBranchs) {
  const auto first = Branch({Node("Relu", {"x"}, {"t"}), Node("NonZero", {"t"}, {"o1"})}, "o1");
  const auto second = Branch({Node("Neg", {"x"}, {"t"}), Node("Identity", {"t"}, {"o2"})}, "o2");
  const std::vector<Numbers> results = Plain(TwoIfs(first, second)).Run({Reals({4}, {1, -1, 2, -2}), Yes()});
  EXPECT_THAT(results[0].whole, ElementsAre(0, 2));
  EXPECT_THAT(results[1].real, ElementsAre(-1, 1, -2, 2));
}

TEST(Branches, ValuesOfOneNameMayWaitInBoth) {
  const auto first = Branch({Node("NonZero", {"x"}, {"t"}), Node("Shape", {"t"}, {"o"})}, "o");
  const auto second =
      Branch({Node("Abs", {"x"}, {"a"}), Node("NonZero", {"a"}, {"t"}), Node("Squeeze", {"t"}, {"o"})}, "o");
  const std::vector<Numbers> results = Plain(TwoIfs(first, second)).Run({Reals({4}, {1, -1, 0, -2}), Yes()});
  EXPECT_THAT(results[0].whole, ElementsAre(1, 3));
  EXPECT_THAT(results[1].whole, ElementsAre(0, 1, 3));
}

TEST(Branches, WhatWaitsInOneIsNotWaitedForInAnother) {
  const auto first = Branch({Node("NonZero", {"x"}, {"t"}), Node("Shape", {"t"}, {"o1"})}, "o1");
  const auto second = Branch({Node("Neg", {"x"}, {"t"}), Node("Relu", {"t"}, {"o2"})}, "o2");
  const std::vector<Numbers> results = Plain(TwoIfs(first, second)).Run({Reals({4}, {1, -1, 0, -2}), Yes()});
  EXPECT_THAT(results[0].whole, ElementsAre(1, 3));
  EXPECT_THAT(results[1].real, ElementsAre(0, 1, 0, 2));
}

TEST(Branches, AConstantThatIsReadLaterIsItsOwnBranchs) {
  OnnxNode cast = With(Node("Cast", {"at"}, {"reals"}), "to", 1);
  const auto first = Branch({Node("NonZero", {"x"}, {"at"}), cast, Node("Add", {"reals", "k"}, {"o1"})}, "o1",
                            {Constant("k", Reals({}, {100}))});
  const auto second = Branch({Node("Add", {"x", "k"}, {"o2"})}, "o2", {Constant("k", Reals({}, {5}))});
  const std::vector<Numbers> results = Plain(TwoIfs(first, second)).Run({Reals({3}, {1, 0, 2}), Yes()});
  EXPECT_THAT(results[0].real, ElementsAre(100, 102));
  EXPECT_THAT(results[1].real, ElementsAre(6, 5, 7));
}

TEST(Branches, ValuesAreNotThoseOfTheSameNameAroundThem) {
  const auto branch = Branch({Node("Relu", {"x"}, {"q"}), Node("NonZero", {"q"}, {"o"})}, "o");
  OnnxModel model = Model({Value("x")}, {IfOf({"c"}, "y", branch, branch), Node("Neg", {"x"}, {"q"})}, {"y", "q"});
  model.initializers = {Constant("c", Yes())};
  const std::vector<Numbers> results = Plain(std::move(model)).Run({Reals({4}, {1, -1, 2, -2})});
  EXPECT_THAT(results[0].whole, ElementsAre(0, 2));
  EXPECT_THAT(results[1].real, ElementsAre(-1, 1, -2, 2));
}

// What a Loop within a branch reads from around it, and an If within a branch.
TEST(Branches, BodiesWithinReadTheirOwnBranchs) {
  auto with_loop = [](const std::string& op) {
    auto body = std::make_shared<OnnxBody>();
    body->inputs = {"i", "before", "sum"};
    body->nodes = {Node("Add", {"sum", "t"}, {"next"}), Node("Identity", {"before"}, {"goes_on"})};
    body->outputs = {"goes_on", "next"};
    OnnxNode loop = With(Node("Loop", {"n", "", "x"}, {"o"}), "body", body);
    loop.captured = CapturedBy(loop);
    return Branch({Node(op, {"x"}, {"t"}), loop}, "o");
  };
  OnnxModel model = TwoIfs(with_loop("Relu"), with_loop("Neg"));
  model.inputs.push_back(Value("n", DType::kI64));
  std::vector<Numbers> results = Plain(std::move(model)).Run({Reals({2}, {1, -1}), Yes(), Wholes({}, {2})});
  EXPECT_THAT(results[0].real, ElementsAre(3, -1));
  EXPECT_THAT(results[1].real, ElementsAre(-1, 1));

  auto with_if = [](const std::string& op) {
    const auto inner = Branch({Node("NonZero", {"t"}, {"u"}), Node("Squeeze", {"u"}, {"v"})}, "v");
    return Branch({Node(op, {"x"}, {"t"}), IfOf({"c"}, "o", inner, inner)}, "o");
  };
  results = Plain(TwoIfs(with_if("Relu"), with_if("Neg"))).Run({Reals({3}, {1, -1, 0}), Yes()});
  EXPECT_THAT(results[0].whole, ElementsAre(0));
  EXPECT_THAT(results[1].whole, ElementsAre(0, 1));
}

// Values of branches get names of hone's; a file may have the same.
TEST(Branches, NamesThatLookLikeThoseOfBranchesAreOthers) {
  const auto branch = Branch({Node("Relu", {"x"}, {"t"}), Node("NonZero", {"t"}, {"o"})}, "o");
  const std::string looks_so = "branch 1: t";
  OnnxModel model = Model(
      {Value("x")}, {IfOf({"c"}, "y", branch, branch), Node("Neg", {"x"}, {looks_so}), Node("Abs", {looks_so}, {"z"})},
      {"y", "z"});
  model.initializers = {Constant("c", Yes())};
  const std::vector<Numbers> results = Plain(std::move(model)).Run({Reals({4}, {1, -1, 2, -2})});
  EXPECT_THAT(results[0].whole, ElementsAre(0, 2));
  EXPECT_THAT(results[1].real, ElementsAre(1, 1, 2, 2));
}

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
