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
