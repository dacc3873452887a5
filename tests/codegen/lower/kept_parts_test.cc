// What is computed part by part and kept: the parts have to be all that is read later, or lowering says no.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/codegen/lower/lowered.h"

namespace hone::kept_parts_test {
namespace {

using lowered::RefusalOf;
using testing::HasSubstr;

// t reads `index` of e for all j below `count`; y reads all of e.
std::string Reading(const std::string& index, int count, const std::string& size = "48") {
  return "kernel a(x: f32[4, " + size + "]) -> y: f32[4, " + size + "] {\n e: f32[4, " + size +
         "]\n e[i, j] = exp(x[i, j])\n t: f32[4]\n t[i] = sum(j < " + std::to_string(count) + ") e[i, " + index +
         "]\n y[i, j] = e[i, j] / t[i]\n}";
}

const std::string kPlaced = "compute_at t y.i\n";

TEST(KeptParts, AreTakenWhereTheyFollowEachOther) {
  for (const char* schedule : {"compute_at e t.j keep y.i", "split t.j 16\ncompute_at e t.j.0 keep y.i",
                               "split t.j 5\ncompute_at e t.j.0 keep y.i", "split t.j 64\ncompute_at e t.j.0 keep y.i",
                               "split y.j 32\nvectorize y.j.1\ncompute_at e t.j keep y.i"})
    EXPECT_EQ(RefusalOf(Reading("j", 48), kPlaced + schedule), "accepted") << schedule;
  EXPECT_EQ(RefusalOf(Reading("47 - j", 48), kPlaced + "split t.j 48\ncompute_at e t.j.0 keep y.i"), "accepted");
}

TEST(KeptParts, AreRefusedWhereTheyAreNotAllThereIs) {
  const std::string whole = kPlaced + "compute_at e t.j keep y.i";
  EXPECT_THAT(RefusalOf(Reading("j", 47), whole), HasSubstr("e is kept inside y, but its parts are not all"));
  EXPECT_THAT(RefusalOf(Reading("2 * j", 24), whole), HasSubstr("gaps between them"));
  EXPECT_THAT(RefusalOf(Reading("j + 1", 47), whole), HasSubstr("not all that is read"));
  EXPECT_THAT(RefusalOf(Reading("47 - j", 48), whole), HasSubstr("e is kept inside y, but "));
  EXPECT_THAT(RefusalOf(Reading("j % 7", 48), whole), HasSubstr("e is kept inside y, but "));
  // The last trip of the loop outside makes fewer of the trips inside.
  EXPECT_THAT(RefusalOf(Reading("j", 48), kPlaced + "split t.j 5\ncompute_at e t.j.1 keep y.i"),
              HasSubstr("do not follow each other in one loop"));
  EXPECT_THAT(
      RefusalOf(Reading("j", 48), kPlaced + "split t.j 5\nreorder t.i t.j.1 t.j.0\ncompute_at e t.j.1 keep y.i"),
      HasSubstr("e is kept inside y, but "));
  EXPECT_THAT(
      RefusalOf(Reading("j", 48), kPlaced + "split t.j 5\nreorder t.i t.j.1 t.j.0\ncompute_at e t.j.0 keep y.i"),
      HasSubstr("e is kept inside y, but "));
}

}  // namespace
}  // namespace hone::kept_parts_test
