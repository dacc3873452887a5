// What lies in the place of an output's elements: nothing may be written there but what the same trip makes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/codegen/lower/lowered.h"

namespace hone::in_output_test {
namespace {

using lowered::Lowered;
using lowered::RefusalOf;
using testing::HasSubstr;
using testing::Not;

// t reads `index` of e; y reads all of e.
std::string Reading(const std::string& index) {
  return "kernel a(x: f32[6, 50]) -> y: f32[6, 50] {\n e: f32[6, 50]\n e[i, j] = exp(x[i, j])\n t: f32[6]\n t[i] = "
         "sum(j < 50) " +
         index + "\n y[i, j] = e[i, j] / t[i]\n}";
}

const std::string kPlaced = "compute_at t y.i\ncompute_at e y.i\nstore e output\n";

TEST(InOutput, ARowIsWhereItsResultWillBe) {
  for (const char* schedule : {"", "split e.j 16\nvectorize e.j.1", "split y.j 16\nvectorize y.j.1\nparallel y.i",
                               "split t.j 16\ncompute_at e t.j.0 keep y.i"})
    EXPECT_EQ(RefusalOf(Reading("e[i, j]"), kPlaced + schedule), "accepted") << schedule;
  const Result<LoopProgram> lowered = Lowered(Reading("e[i, j]"), kPlaced + "split e.j 16\nvectorize e.j.1");
  ASSERT_TRUE(lowered);
  EXPECT_EQ(lowered->workspace_per_worker, 64);  // t
  // Lanes beyond the row's end write nothing.
  EXPECT_THAT(PrintProgram(*lowered), HasSubstr("y[y.i, 16*e.j.0 + e.j.1] = exp("));
  EXPECT_THAT(PrintProgram(*lowered), Not(HasSubstr("per_worker e")));
}

// Rows of the next tile may be another worker's, and finished.
TEST(InOutput, LanesBeyondATileWriteNothing) {
  const Result<LoopProgram> lowered = Lowered(
      Reading("e[i, j]"),
      "split y.i 3\nparallel y.i.0\ncompute_at t y.i.0\ncompute_at e y.i.0\nstore e output\nsplit e.i 2\nunroll e.i.1");
  ASSERT_TRUE(lowered);
  EXPECT_THAT(PrintProgram(*lowered), HasSubstr(") if -2*e.i.0 - e.i.1 + 2 >= 0 and "));
}

TEST(InOutput, TilesOfRowsAreTaken) {
  EXPECT_EQ(RefusalOf(Reading("e[i, j]"),
                      "split y.i 4\ncompute_at t y.i.0\ncompute_at e y.i.0\nstore e output\nunroll y.i.1\n"),
            "accepted");
}

TEST(InOutput, IsRefusedWhereAnotherTripWritesOrReads) {
  const std::string more = "e is stored in y, but what is read there is more than what a trip of its loop writes";
  EXPECT_THAT(RefusalOf(Reading("e[5 - i, j]"), kPlaced), HasSubstr(more));
  EXPECT_THAT(RefusalOf(Reading("pad(e[i + 1, j], 0.0)"), kPlaced), HasSubstr(more));
  // Each trip of y.j writes 10 elements, and e's sum wants all of them.
  EXPECT_THAT(RefusalOf(Reading("e[i, j]"), "split y.j 10\ncompute_at t y.j.0\ncompute_at e y.j.0\nstore e output"),
              HasSubstr(more));
  EXPECT_THAT(RefusalOf(Reading("e[i, j]"), kPlaced + "split y.j 16\nunroll y.j.1\ntail y.j peel"), HasSubstr(more));
}

}  // namespace
}  // namespace hone::in_output_test
