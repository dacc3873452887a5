// Models whose shapes are decided by inputs and by what they compute, by definition: no kernels are asked for.
#include "network/run/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/onnx/resolve_sequences.h"
#include "network/onnx/symbols.h"
#include "tests/network/model_files.h"
#include "tests/network/run/plain_program.h"

namespace hone::program_test {
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
using testing::IsEmpty;

TEST(Program, TheSameModelRunsForOneShapeAfterAnother) {
  Plain program(Model({Value("x")}, {Node("Neg", {"x"}, {"y"})}, {"y"}));
  EXPECT_THAT(program.Run({Reals({2}, {1, 2})})[0].real, ElementsAre(-1, -2));
  const Numbers longer = program.Run({Reals({3, 1}, {1, 2, 3})})[0];
  EXPECT_THAT(longer.shape, ElementsAre(3, 1));
  EXPECT_THAT(longer.real, ElementsAre(-1, -2, -3));
  EXPECT_THAT(program.Run({Reals({2}, {5, 6})})[0].real, ElementsAre(-5, -6));
}

// How many elements are positive decides how long everything after is.
TEST(Program, WhereElementsAreDecidesAShape) {
  OnnxModel model =
      Model({Value("x")},
            {Node("Relu", {"x"}, {"r"}), Node("NonZero", {"r"}, {"at"}), Node("Squeeze", {"at", "zero"}, {"which"}),
             Node("Gather", {"r", "which"}, {"kept"}), Node("Neg", {"kept"}, {"y"}), Node("Shape", {"y"}, {"count"})},
            {"r", "y", "count"});
  model.initializers = {Constant("zero", Wholes({1}, {0}))};
  Plain program(std::move(model));
  std::vector<Numbers> results = program.Run({Reals({4}, {1, -2, 3, 0})});
  EXPECT_THAT(results[0].real, ElementsAre(1, 0, 3, 0));
  EXPECT_THAT(results[1].real, ElementsAre(-1, -3));
  EXPECT_THAT(results[2].whole, ElementsAre(2));
  results = program.Run({Reals({4}, {-1, -2, -3, 7})});
  EXPECT_THAT(results[1].real, ElementsAre(-7));
  EXPECT_THAT(results[2].whole, ElementsAre(1));
  results = program.Run({Reals({4}, {-1, -2, -3, -4})});
  EXPECT_THAT(results[1].real, IsEmpty());
}

TEST(Program, ANumberThatIsComputedDecidesAShape) {
  OnnxModel model = Model({Value("x"), Value("n", DType::kI64)},
                          {Node("Add", {"n", "one"}, {"more"}), Node("Concat", {"more", "rest"}, {"shape"}),
                           Node("Reshape", {"x", "shape"}, {"y"})},
                          {"y"});
  model.nodes[1] = With(model.nodes[1], "axis", 0);
  model.initializers = {Constant("one", Wholes({1}, {1})), Constant("rest", Wholes({1}, {-1}))};
  Plain program(std::move(model));
  EXPECT_THAT(program.Run({Reals({6}, {1, 2, 3, 4, 5, 6}), Wholes({1}, {1})})[0].shape, ElementsAre(2, 3));
  EXPECT_THAT(program.Run({Reals({6}, {1, 2, 3, 4, 5, 6}), Wholes({1}, {2})})[0].shape, ElementsAre(3, 2));
  Result<std::vector<TensorView>> wrong = program.Try({Reals({6}, {1, 2, 3, 4, 5, 6}), Wholes({1}, {4})});
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().Text(), HasSubstr("n_y"));
}

TEST(Program, AComputedConditionChoosesABranch) {
  auto then_branch = std::make_shared<OnnxBody>(), else_branch = std::make_shared<OnnxBody>();
  then_branch->nodes = {Node("Neg", {"x"}, {"t"})};
  then_branch->outputs = {"t"};
  else_branch->nodes = {Node("Concat", {"x", "x"}, {"e"})};
  else_branch->nodes[0] = With(else_branch->nodes[0], "axis", 0);
  else_branch->outputs = {"e"};
  OnnxNode choice =
      With(With(Node("If", {"is_negative"}, {"y"}), "then_branch", then_branch), "else_branch", else_branch);
  choice.captured = {"x"};
  OnnxModel model = Model({Value("x")},
                          {Node("ReduceSum", {"x"}, {"sum"}), Node("Less", {"sum", "zero"}, {"is_negative"}), choice,
                           Node("Abs", {"y"}, {"z"})},
                          {"z"});
  model.nodes[0] = With(model.nodes[0], "keepdims", 0);
  model.initializers = {Constant("zero", Reals({}, {0}))};
  Plain program(std::move(model));
  EXPECT_THAT(program.Run({Reals({2}, {-1, -2})})[0].real, ElementsAre(1, 2));
  EXPECT_THAT(program.Run({Reals({2}, {1, 2})})[0].real, ElementsAre(1, 2, 1, 2));
}

// state ← state + step·k, collected, until it is above 5.
OnnxModel Looping() {
  auto body = std::make_shared<OnnxBody>();
  body->inputs = {"i", "before", "state"};
  body->nodes = {Node("Cast", {"i"}, {"step"}), Node("Mul", {"step", "k"}, {"scaled"}),
                 Node("Add", {"state", "scaled"}, {"next"}), Node("LessOrEqual", {"next", "limit"}, {"goes_on"}),
                 Node("Identity", {"next"}, {"seen"})};
  body->nodes[0] = With(body->nodes[0], "to", 1);
  body->initializers = {Constant("limit", Reals({}, {5}))};
  body->outputs = {"goes_on", "next", "seen"};
  OnnxNode loop = With(Node("Loop", {"most", "", "begin"}, {"last", "all"}), "body", body);
  loop.captured = {"k"};
  return Model({Value("begin"), Value("k"), Value("most", DType::kI64)}, {loop, Node("Neg", {"all"}, {"y"})},
               {"last", "y"});
}

TEST(Program, ALoopRunsAsOftenAsItsBodySays) {
  Plain program(Looping());
  std::vector<Numbers> results = program.Run({Reals({}, {1}), Reals({}, {2}), Wholes({}, {10})});
  EXPECT_THAT(results[0].real, ElementsAre(7));
  EXPECT_THAT(results[1].real, ElementsAre(-1, -3, -7));
  results = program.Run({Reals({}, {1}), Reals({}, {2}), Wholes({}, {2})});
  EXPECT_THAT(results[0].real, ElementsAre(3));
  EXPECT_THAT(results[1].real, ElementsAre(-1, -3));
  results = program.Run({Reals({}, {1}), Reals({}, {2}), Wholes({}, {0})});
  EXPECT_THAT(results[0].real, ElementsAre(1));
  EXPECT_THAT(results[1].shape, ElementsAre(0));
}

// What it collects, where computed values decide the shape of that.
TEST(Program, ALoopThatTakesNoStepGivesWhatItsBodySaysItDoes) {
  auto collected = [](int64_t steps, int64_t declared, bool is_in_function = false) {
    ModelFileBuilder body;
    body.Input("i", {}, 7).Input("before", {}, 9).Input("state", {2}).Node("NonZero", {"state"}, {"at"});
    body.Node("Squeeze", {"at"}, {"which"}).Node("Gather", {"state", "which"}, {"seen"});
    body.Node("Identity", {"before"}, {"goes_on"}).Node("Neg", {"state"}, {"next"});
    body.Output("goes_on", {}, 9).Output("next", {2}).Output("seen", {declared});
    ModelFileBuilder builder, function;
    builder.Input("n", {}, 7).Input("x", {2}).Output("all");
    ModelFileBuilder& around = is_in_function ? function : builder;
    around.Node("Loop", {"n", "", "x"}, {"last", "all"}).Body("body", body);
    if (is_in_function) {
      function.Input("n", {}).Input("x", {}).Output("all");
      builder.Function("Loops", function).Node("Loops", {"n", "x"}, {"all"}, {}, "functions");
    }
    Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"loop.onnx", ""});
    EXPECT_TRUE(model) << model.error().Text();
    Plain program(*std::move(model));
    const Result<std::vector<TensorView>> results = program.Try({Wholes({}, {steps}), Reals({2}, {1, 2})});
    return results ? ShapeText((*results)[0].shape) : results.error().Text();
  };
  EXPECT_EQ(collected(3, 2), ShapeText(Shape{3, 2}));
  EXPECT_EQ(collected(0, 2), ShapeText(Shape{0, 2}));
  EXPECT_EQ(collected(0, 2, true), ShapeText(Shape{0, 2}));
  EXPECT_THAT(collected(0, -1), HasSubstr("nothing says which shape its results have"));
}

// A cut between two parts moves nothing of what only crosses it.
TEST(Program, WhatIsOnlyHandedOnStaysWhereItIs) {
  OnnxModel model = Model({Value("x"), Value("big")},
                          {Node("NonZero", {"x"}, {"at"}), Node("Squeeze", {"at"}, {"which"}),
                           Node("Gather", {"x", "which"}, {"y"}), Node("Identity", {"big"}, {"same"})},
                          {"y", "big", "same"});
  Plain program(std::move(model));
  const std::vector<HostTensor> inputs = {Reals({3}, {5, 0, 7}), Reals({4}, {1, 2, 3, 4})};
  const Result<std::vector<TensorView>> results = program.Try(inputs);
  ASSERT_TRUE(results) << results.error().Text();
  EXPECT_THAT(ToNumbers((*results)[0]).real, ElementsAre(5, 7));
  EXPECT_EQ((*results)[1].data, inputs[1].data.data());
  EXPECT_EQ((*results)[2].data, inputs[1].data.data());
}

TEST(Program, AScanOfNothingGivesNothing) {
  auto body = std::make_shared<OnnxBody>();
  body->inputs = {"sum", "x"};
  body->nodes = {Node("Add", {"sum", "x"}, {"next"}), Node("Identity", {"next"}, {"seen"})};
  body->outputs = {"next", "seen"};
  OnnxModel model =
      Model({Value("rows")},
            {With(With(Node("Scan", {"zero", "rows"}, {"total", "sums"}), "body", body), "num_scan_inputs", 1)},
            {"total", "sums"});
  model.initializers = {Constant("zero", Reals({2}, {0, 0}))};
  Plain program(std::move(model));
  const std::vector<Numbers> results = program.Run({Reals({0, 2}, {})});
  EXPECT_THAT(results[0].real, ElementsAre(0, 0));
  EXPECT_THAT(results[1].shape, ElementsAre(0, 2));
}

// y ← d[i] > 0 ? −y : |y|, one i after another: what is computed decides each time.
TEST(Program, VersionsOfAllPartsTogetherAreBounded) {
  constexpr int64_t kChoices = 10;
  OnnxModel model = Model({Value("x"), Value("d")}, {}, {"y" + std::to_string(kChoices)});
  model.initializers = {Constant("zero", Reals({}, {0}))};
  model.nodes = {Node("Identity", {"x"}, {"y0"})};
  for (int64_t i = 0; i < kChoices; ++i) {
    const std::string at = std::to_string(i), y = "y" + at;
    auto negated = std::make_shared<OnnxBody>(), absolute = std::make_shared<OnnxBody>();
    negated->nodes = {Node("Neg", {y}, {"n" + at})};
    negated->outputs = {"n" + at};
    absolute->nodes = {Node("Abs", {y}, {"a" + at})};
    absolute->outputs = {"a" + at};
    OnnxNode choice = With(With(Node("If", {"c" + at}, {"y" + std::to_string(i + 1)}), "then_branch", negated),
                           "else_branch", absolute);
    choice.captured = {y};
    model.initializers.push_back(Constant("i" + at, Wholes({}, {i})));
    for (const OnnxNode& node :
         {Node("Gather", {"d", "i" + at}, {"g" + at}), With(Node("ReduceMax", {y}, {"m" + at}), "keepdims", 0),
          Node("Mul", {"m" + at, "zero"}, {"o" + at}), Node("Add", {"g" + at, "o" + at}, {"h" + at}),
          Node("Greater", {"h" + at, "zero"}, {"c" + at}), choice})
      model.nodes.push_back(node);
  }
  Plain program(std::move(model));
  for (uint32_t run = 0; run < 400; ++run) {
    const uint32_t bits = run * 2654435761U >> 20;
    std::vector<double> d;
    double y = 3;
    for (int64_t i = 0; i < kChoices; ++i) {
      d.push_back((bits >> i & 1) != 0 ? 1 : -1);
      y = d.back() > 0 ? -y : std::abs(y);
    }
    EXPECT_THAT(program.Run({Reals({1}, {3}), Reals({kChoices}, d)})[0].real, ElementsAre(y));
    ASSERT_LE(program.version_count(), 512U) << run;
  }
}

TEST(Program, AScanGoesAlongADimensionFromEitherEnd) {
  auto sums = [](int64_t direction) {
    auto body = std::make_shared<OnnxBody>();
    body->inputs = {"sum", "x"};
    body->nodes = {Node("Add", {"sum", "x"}, {"next"}), Node("Identity", {"next"}, {"seen"})};
    body->outputs = {"next", "seen"};
    OnnxNode scan = With(With(Node("Scan", {"zero", "rows"}, {"total", "sums"}), "body", body), "num_scan_inputs", 1);
    OnnxAttribute directions;
    directions.name = "scan_input_directions";
    directions.kind = OnnxAttribute::Kind::kInts;
    directions.wholes = {direction};
    scan.attributes.push_back(directions);
    OnnxModel model = Model({Value("rows")}, {scan}, {"total", "sums"});
    model.initializers = {Constant("zero", Reals({2}, {0, 0}))};
    return Plain(std::move(model)).Run({Reals({3, 2}, {1, 2, 3, 4, 5, 6})});
  };
  EXPECT_THAT(sums(0)[0].real, ElementsAre(9, 12));
  EXPECT_THAT(sums(0)[1].real, ElementsAre(1, 2, 4, 6, 9, 12));
  EXPECT_THAT(sums(1)[1].real, ElementsAre(5, 6, 8, 10, 9, 12));
}

TEST(Program, OverlappingBoxesAreSuppressed) {
  OnnxModel model = Model({Value("boxes"), Value("scores")},
                          {Node("NonMaxSuppression", {"boxes", "scores", "most", "overlap"}, {"y"})}, {"y"});
  model.initializers = {Constant("most", Wholes({}, {5})), Constant("overlap", Reals({}, {0.5}))};
  Plain program(std::move(model));
  const Numbers kept =
      program.Run({Reals({1, 3, 4}, {0, 0, 1, 1, 0, 0, 1, 0.9, 0, 2, 1, 3}), Reals({1, 1, 3}, {0.5, 0.9, 0.7})})[0];
  EXPECT_THAT(kept.shape, ElementsAre(2, 3));
  EXPECT_THAT(kept.whole, ElementsAre(0, 0, 1, 0, 0, 2));
}

TEST(Program, AnOperatorThatHoneLacksIsSaidBeforeItIsWaitedFor) {
  Plain program(Model({Value("x")}, {Node("NonZero", {"x"}, {"at"}), Node("Nonsense", {"at"}, {"y"})}, {"y"}));
  Result<std::vector<TensorView>> run = program.Try({Reals({2}, {0, 1})});
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(run.error().Text(), HasSubstr("Nonsense"));
}

TEST(Symbols, HaveOneSize) {
  auto value = [](const std::string& name, const std::vector<std::string>& symbols) {
    OnnxValue of = Value(name);
    of.type.has_shape = true;
    for (const std::string& symbol : symbols) of.type.dimensions.push_back({-1, symbol});
    return of;
  };
  Symbols symbols;
  ASSERT_TRUE(symbols.Bind(value("ids", {"batch", "length"}), {2, 10}));
  EXPECT_THAT(symbols.ShapeOf(value("mask", {"length", "", "other"})), ElementsAre(10, -1, -1));
  Result<void> bound = symbols.Bind(value("mask", {"batch", "length"}), {2, 12});
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().Text(), "input mask: it has 12 of \"length\", input ids has 10");
  bound = symbols.Bind(value("mask", {"batch", "length"}), {2});
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().Text(), "input mask: shape 2, wanted batchxlength");
}

// y: the list's places 0 and 2 and the sums of all steps, of x, x + 1, x + 3, which a loop puts in.
OnnxModel CarriesAList(bool is_ended_early, int64_t steps) {
  auto body = std::make_shared<OnnxBody>();
  body->inputs = {"i", "before", "list", "sum"};
  body->nodes = {Node("Cast", {"i"}, {"step"}),
                 Node("Add", {"sum", "step"}, {"next"}),
                 Node("SequenceInsert", {"list", "next"}, {"longer"}),
                 Node("Mul", {"next", "k"}, {"seen"}),
                 Node("Less", {"step", "k"}, {"less"}),
                 Node("Identity", {"yes"}, {"goes_on"})};
  body->nodes[0] = With(body->nodes[0], "to", 1);
  body->outputs = {is_ended_early ? "less" : "goes_on", "longer", "next", "seen"};
  OnnxNode loop = With(Node("Loop", {"steps", "yes", "empty", "x"}, {"list_after", "last", "all"}), "body", body);
  loop.captured = {"k", "yes"};
  OnnxModel model =
      Model({Value("x"), Value("k")},
            {Node("SequenceEmpty", {}, {"empty"}), loop, Node("SequenceAt", {"list_after", "zero"}, {"a"}),
             Node("SequenceAt", {"list_after", "two"}, {"b"}), Node("Concat", {"a", "b", "last"}, {"y"})},
            {"y", "all"});
  model.nodes[4] = With(model.nodes[4], "axis", 0);
  Numbers yes = MakeNumbers(DType::kBool, {});
  yes.whole = {1};
  model.initializers = {Constant("steps", Wholes({}, {steps})), Constant("yes", ToHost(yes, DType::kBool)),
                        Constant("zero", Wholes({}, {0})), Constant("two", Wholes({}, {2}))};
  ResolveSequences(model);
  return model;
}

TEST(Program, ALoopThatCarriesAListBecomesItsSteps) {
  Plain program(CarriesAList(false, 3));
  const std::vector<Numbers> results = program.Run({Reals({1}, {10}), Reals({1}, {2})});
  EXPECT_THAT(results[0].real, ElementsAre(10, 13, 13));
  EXPECT_THAT(results[1].shape, ElementsAre(3, 1));
  EXPECT_THAT(results[1].real, ElementsAre(20, 22, 26));
}

TEST(Program, OfALoopThatValuesEndTheListIsWhatItCollects) {
  Plain program(CarriesAList(true, 3));
  const std::vector<Numbers> results = program.Run({Reals({1}, {10}), Reals({1}, {2})});
  EXPECT_THAT(results[0].real, ElementsAre(10, 13, 13));
  EXPECT_THAT(program.Run({Reals({1}, {10}), Reals({1}, {9})})[0].real, ElementsAre(10, 13, 13));
  EXPECT_FALSE(program.Try({Reals({1}, {10}), Reals({1}, {0})}));  // one step: there is no place 2
}

// The branch of an If that appends `tensor`, or its negative, to the list around it.
std::shared_ptr<const OnnxBody> Appending(const std::string& tensor, bool is_negative) {
  auto body = std::make_shared<OnnxBody>();
  const std::string name = is_negative ? "negative" : "same";
  body->nodes = {Node(is_negative ? "Neg" : "Identity", {tensor}, {name}),
                 Node("SequenceInsert", {"list", name}, {name + " longer"})};
  body->outputs = {name + " longer"};
  return body;
}

// A loop as long as x has columns: it appends column i of x, as a vector or a matrix, made positive, to a list that
// begins as `begin`.
std::vector<OnnxNode> AppendsColumns(const OnnxNode& begin, bool is_matrix) {
  auto body = std::make_shared<OnnxBody>();
  body->inputs = {"i", "before", "list"};
  OnnxNode branch = With(With(Node("If", {"is positive"}, {"longer"}), "then_branch", Appending("column", false)),
                         "else_branch", Appending("column", true));
  branch.captured = {"list", "column", "list", "column"};
  body->nodes = {With(Node("Gather", {"x", "i"}, {"column"}), "axis", 1),
                 With(Node("ReduceMax", {"column"}, {"most"}), "keepdims", 0),
                 Node("Greater", {"most", "nought"}, {"is positive"}), branch,
                 Node("Identity", {"before"}, {"goes_on"})};
  if (is_matrix) {
    body->nodes[0].outputs = {"vector"};
    body->nodes.insert(body->nodes.begin() + 1, Node("Unsqueeze", {"vector", "behind"}, {"column"}));
  }
  body->outputs = {"goes_on", "longer"};
  OnnxNode loop = With(Node("Loop", {"columns", "", "list of old"}, {"list of all"}), "body", body);
  loop.captured = {"x", "nought", "behind"};
  return {Node("Shape", {"x"}, {"shape"}), With(Node("Gather", {"shape", "one"}, {"columns"}), "axis", 0), begin, loop};
}

// What `read` makes of the list; x is [[1, -2, 3], [4, -5, 6]].
Numbers OfColumns(const OnnxNode& begin, const std::vector<OnnxNode>& read, bool is_matrix = false) {
  std::vector<OnnxNode> nodes = AppendsColumns(begin, is_matrix);
  nodes.insert(nodes.end(), read.begin(), read.end());
  OnnxModel model = Model({Value("x")}, nodes, {"y"});
  model.initializers = {Constant("nought", Reals({}, {0})), Constant("one", Wholes({}, {1})),
                        Constant("last", Wholes({}, {-1})), Constant("behind", Wholes({1}, {1}))};
  ResolveSequences(model);
  return Plain(model).Run({Reals({2, 3}, {1, -2, 3, 4, -5, 6})})[0];
}

TEST(Program, ListsThatALoopAppendsToAreJoinedAlongAnyAxis) {
  auto joined = [&](int64_t axis, int64_t is_new, bool is_matrix) {
    const OnnxNode join = Node("ConcatFromSequence", {"list of all"}, {"y"});
    return OfColumns(Node("SequenceEmpty", {}, {"list of old"}), {With(With(join, "axis", axis), "new_axis", is_new)},
                     is_matrix);
  };
  EXPECT_THAT(joined(0, 1, false).shape, ElementsAre(3, 2));
  EXPECT_THAT(joined(0, 1, false).real, ElementsAre(1, 4, 2, 5, 3, 6));
  for (int64_t axis : {1, -1}) {
    EXPECT_THAT(joined(axis, 1, false).shape, ElementsAre(2, 3));
    EXPECT_THAT(joined(axis, 1, false).real, ElementsAre(1, 2, 3, 4, 5, 6));
  }
  EXPECT_THAT(joined(-2, 1, true).shape, ElementsAre(2, 3, 1));
  for (int64_t axis : {0, -2}) {
    EXPECT_THAT(joined(axis, 0, true).shape, ElementsAre(6, 1));
    EXPECT_THAT(joined(axis, 0, true).real, ElementsAre(1, 4, 2, 5, 3, 6));
  }
  for (int64_t axis : {1, -1}) {
    EXPECT_THAT(joined(axis, 0, true).shape, ElementsAre(2, 3));
    EXPECT_THAT(joined(axis, 0, true).real, ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST(Program, PartsOfATensorAreCountedAndJoinedAgain) {
  const OnnxNode split = With(With(Node("SplitToSequence", {"x"}, {"rows"}), "axis", 0), "keepdims", 0);
  OnnxModel model = Model({Value("x")},
                          {split, With(Node("ConcatFromSequence", {"rows"}, {"y"}), "axis", 0),
                           Node("SequenceLength", {"rows"}, {"count"})},
                          {"y", "count"});
  ResolveSequences(model);
  const std::vector<Numbers> results = Plain(model).Run({Reals({2, 3}, {1, 2, 3, 4, 5, 6})});
  EXPECT_THAT(results[0].real, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(results[0].shape, ElementsAre(6));
  EXPECT_THAT(results[1].whole, ElementsAre(2));
}

TEST(Program, AListThatALoopAppendsToHasWhatWasInItBefore) {
  const OnnxNode begin = Node("SequenceConstruct", {"first"}, {"list of old"});
  const OnnxNode first = With(Node("Gather", {"x", "last"}, {"first"}), "axis", 1);
  const Numbers stacked = OfColumns(
      begin, {first, With(With(Node("ConcatFromSequence", {"list of all"}, {"y"}), "axis", 1), "new_axis", 1)});
  EXPECT_THAT(stacked.shape, ElementsAre(2, 4));
  EXPECT_THAT(stacked.real, ElementsAre(3, 1, 2, 3, 6, 4, 5, 6));
  EXPECT_THAT(OfColumns(begin, {first, Node("SequenceLength", {"list of all"}, {"y"})}).whole, ElementsAre(4));
}

TEST(Program, AnElementOfAListThatALoopAppendedToIsTaken) {
  const OnnxNode empty = Node("SequenceEmpty", {}, {"list of old"});
  EXPECT_THAT(OfColumns(empty, {Node("SequenceAt", {"list of all", "last"}, {"y"})}).real, ElementsAre(3, 6));
}

TEST(Program, WhereTheTimeGoesIsCountedOnDemand) {
  ProgramContext context;
  context.path = "program.onnx";
  context.is_plain = true;
  const std::shared_ptr<WorkShares> shares = context.shares;
  Program program(Model({Value("x")}, {Node("Relu", {"x"}, {"r"}), Node("NonZero", {"r"}, {"y"})}, {"y"}),
                  std::make_shared<const ProgramContext>(context));
  const HostTensor x = Reals({3}, {1, 0, 2});
  ASSERT_TRUE(program.Run({ViewOf(x)}));
  EXPECT_THAT(shares->Sorted(), IsEmpty());
  shares->is_on = true;
  ASSERT_TRUE(program.Run({ViewOf(x)}));
  std::vector<std::string> labels;
  for (const WorkShare& share : shares->Sorted()) {
    labels.push_back(share.label);
    EXPECT_NE(share.why_host, "");
  }
  EXPECT_THAT(labels, testing::Contains("NonZero"));
  EXPECT_GT(shares->total_us(), 0);
}

}  // namespace
}  // namespace hone::program_test
