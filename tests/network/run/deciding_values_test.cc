// Values that decide shapes and are not what they should be: too many numbers, too few, none at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/onnx/import_network.h"
#include "tests/network/model_files.h"
#include "tests/network/run/plain_program.h"

namespace hone::deciding_values_test {
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

// An operator that wants one number "n" of an input: whole, or a real one.
struct OneNumber {
  OnnxNode node;
  bool is_real = false;
};

std::vector<OneNumber> AllThatWantOneNumber() {
  std::vector<OneNumber> all = {{Node("Pad", {"x", "pads", "n"}, {"y"}), true},
                                {Node("OneHot", {"which", "n", "values"}, {"y"})}};
  for (size_t i = 0; i < 3; ++i) {
    std::vector<std::string> bounds = {"one", "one", "one"};
    bounds[i] = "n";
    all.push_back({Node("Range", bounds, {"y"})});
  }
  for (const char* op : {"HannWindow", "HammingWindow", "BlackmanWindow"}) all.push_back({Node(op, {"n"}, {"y"})});
  return all;
}

TEST(DecidingValues, OneNumberIsWantedWhereOneDecides) {
  for (const OneNumber& each : AllThatWantOneNumber()) {
    OnnxModel model = Model({Value("x"), Value("n", each.is_real ? DType::kF32 : DType::kI64)},
                            {Node("Neg", {"x"}, {"z"}), each.node}, {"z", "y"});
    model.initializers = {Constant("pads", Wholes({2}, {1, 1})), Constant("one", Wholes({}, {1})),
                          Constant("which", Wholes({1}, {0})), Constant("values", Reals({2}, {0, 1}))};
    Plain program(std::move(model));
    auto n = [&](int64_t count) {
      return each.is_real ? Reals({count}, std::vector<double>(static_cast<size_t>(count), 2))
                          : Wholes({count}, std::vector<int64_t>(static_cast<size_t>(count), 2));
    };
    const Result<std::vector<TensorView>> fits = program.Try({Reals({2}, {1, 2}), n(1)});
    EXPECT_TRUE(fits) << each.node.op << ": " << fits.error().Text();
    for (int64_t count : {0, 2}) {
      const Result<std::vector<TensorView>> run = program.Try({Reals({2}, {1, 2}), n(count)});
      ASSERT_FALSE(run) << each.node.op;
      EXPECT_EQ(run.error().kind, ErrorKind::kInvalid);
      EXPECT_THAT(run.error().Text(), HasSubstr("node n_y (" + each.node.op + ")"));
      EXPECT_THAT(run.error().Text(), HasSubstr("has " + std::to_string(count) + " elements, wanted 1"));
    }
  }
}

// Operands that decide shapes, and that an operator does without in some opsets or with some attributes.
TEST(DecidingValues, OneThatIsNotThereIsMissed) {
  for (const std::vector<std::string>& inputs : {std::vector<std::string>{"x"}, {"x", ""}}) {
    ModelFileBuilder builder;
    builder.Input("x", {2, 3}).Node("TopK", inputs, {"y", "i"}).Output("y");
    const Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"m.onnx", ""});
    ASSERT_TRUE(model) << model.error().Text();
    for (bool in_stages : {false, true}) {
      ImportOptions options;
      options.in_stages = in_stages;
      const Result<Network> network = BuildNetwork(*model, "m.onnx", options);
      ASSERT_FALSE(network);
      EXPECT_EQ(network.error().kind, ErrorKind::kInvalid);
      EXPECT_THAT(network.error().Text(), HasSubstr("node n_y (TopK)"));
      EXPECT_THAT(network.error().Text(), HasSubstr("operand 2, k, is missing"));
    }
  }
}

TEST(DecidingValues, ASliceBackwardsOfNothingIsNothing) {
  OnnxModel model = Model({Value("x")}, {Node("Slice", {"x", "begin", "end", "axis", "step"}, {"y"})}, {"y"});
  model.initializers = {Constant("begin", Wholes({1}, {-1})), Constant("end", Wholes({1}, {INT64_MIN})),
                        Constant("axis", Wholes({1}, {1})), Constant("step", Wholes({1}, {-1}))};
  Plain program(std::move(model));
  EXPECT_THAT(program.Run({Reals({2, 2}, {1, 2, 3, 4})})[0].real, ElementsAre(2, 1, 4, 3));
  const Numbers none = program.Run({Reals({2, 0}, {})})[0];
  EXPECT_THAT(none.shape, ElementsAre(2, 0));
  EXPECT_THAT(none.real, IsEmpty());
}

}  // namespace
}  // namespace hone::deciding_values_test
