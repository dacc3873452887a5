// Operators whose places are data, beside what onnxruntime 1.32 computes, and places that are not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/network/contributed_models.h"

namespace hone::places_test {
namespace {

using namespace contributed_test;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kLongs = 7;

Result<std::vector<double>> Scattered(const std::string& mode, const std::vector<int64_t>& begins) {
  ModelFileBuilder builder;
  builder.Floats("cache", {2, 4, 1}, std::vector<float>(8, 0)).Floats("rows", {2, 2, 1}, {1, 2, 3, 4});
  builder.Raw("begins", {2}, kLongs, BytesOf(begins));
  builder.Node("TensorScatter", {"cache", "rows", "begins"}, {"y"}, {{"mode", mode}, {"axis", int64_t{1}}});
  return HONE_TRY(Computed(builder.Output("y")))[0].real;
}

TEST(TensorScatter, WritesRowsOfEachFromItsOwnPlaceOn) {
  EXPECT_THAT(*Scattered("linear", {0, 2}), ElementsAre(1, 2, 0, 0, 0, 0, 3, 4));
  EXPECT_THAT(*Scattered("circular", {1, 3}), ElementsAre(0, 1, 2, 0, 4, 0, 0, 3));
  EXPECT_THAT(*Scattered("circular", {9, 5}), ElementsAre(0, 1, 2, 0, 0, 3, 4, 0));
}

TEST(TensorScatter, RefusesRowsThatAreNotThere) {
  EXPECT_THAT(Scattered("linear", {1, 3}).error().Text(), HasSubstr("2 rows from 3 on, of a cache of 4"));
  EXPECT_THAT(Scattered("linear", {-1, 0}).error().Text(), HasSubstr("2 rows from -1 on, of a cache of 4"));
  EXPECT_THAT(Scattered("circular", {0, -9}).error().Text(), HasSubstr("2 rows from -9 on, of a cache of 4"));
}

Result<std::vector<double>> Pooled(const std::vector<float>& region, float scale) {
  std::vector<float> image(32);
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i);
  ModelFileBuilder builder;
  builder.Floats("x", {1, 2, 4, 4}, image).Floats("regions", {1, 5}, region);
  builder.Node("MaxRoiPool", {"x", "regions"}, {"y"},
               {{"pooled_shape", std::vector<int64_t>{2, 2}}, {"spatial_scale", scale}});
  return HONE_TRY(Computed(builder.Output("y")))[0].real;
}

TEST(MaxRoiPool, TakesTheGreatestOfEachBin) {
  EXPECT_THAT(*Pooled({0, 0, 0, 3, 3}, 1), ElementsAre(5, 7, 13, 15, 21, 23, 29, 31));
  EXPECT_THAT(*Pooled({0, 1, 1, 2, 9}, 1),
              ElementsAre(13, 14, 0, 0, 29, 30, 0, 0));  // below the image there is nothing
  EXPECT_THAT(*Pooled({0, -2, -3, 1, 1}, 1), ElementsAre(0, 0, 0, 5, 0, 0, 0, 21));
  EXPECT_THAT(*Pooled({0, 3, 3, 1, 1}, 1), ElementsAre(15, 15, 15, 15, 31, 31, 31, 31));
  EXPECT_THAT(*Pooled({0, 0.5F, 1.5F, 2.5F, 3.4F}, 1), ElementsAre(10, 11, 14, 15, 26, 27, 30, 31));
  EXPECT_THAT(*Pooled({0, 0.5F, 1.5F, 2.5F, 3.4F}, 0.5F), ElementsAre(4, 5, 8, 9, 20, 21, 24, 25));
}

TEST(MaxRoiPool, RefusesARegionOfAnImageThatIsNotThere) {
  EXPECT_THAT(Pooled({1, 0, 0, 3, 3}, 1).error().Text(), HasSubstr("region 0 is of image 1 of 1"));
  EXPECT_THAT(Pooled({-1, 0, 0, 3, 3}, 1).error().Text(), HasSubstr("region 0 is of image -1 of 1"));
}

}  // namespace
}  // namespace hone::places_test
