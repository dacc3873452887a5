// Regions of an image against a plain reading of ONNX's definition of RoiAlign.
#include "network/onnx/align_regions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace hone::align_regions_test {
namespace {

// Of the four elements around a point, weighted: their sum, or the greatest. 0 for a point outside.
double AtPoint(const float* plane, int64_t height, int64_t width, double y, double x, bool is_max) {
  if (y < -1 || y > static_cast<double>(height) || x < -1 || x > static_cast<double>(width)) return 0;
  y = std::clamp(y, 0.0, static_cast<double>(height - 1));
  x = std::clamp(x, 0.0, static_cast<double>(width - 1));
  const auto y0 = static_cast<int64_t>(y), x0 = static_cast<int64_t>(x);
  const int64_t y1 = std::min(y0 + 1, height - 1), x1 = std::min(x0 + 1, width - 1);
  const double down = y - static_cast<double>(y0), right = x - static_cast<double>(x0);
  const double values[] = {(1 - down) * (1 - right) * plane[y0 * width + x0],
                           (1 - down) * right * plane[y0 * width + x1], down * (1 - right) * plane[y1 * width + x0],
                           down * right * plane[y1 * width + x1]};
  if (is_max) return *std::max_element(values, values + 4);
  return values[0] + values[1] + values[2] + values[3];
}

double Bin(const RegionGrid& grid, const float* plane, const float* region, int64_t i, int64_t j) {
  const double half = grid.has_centre_at_half ? 0.5 : 0;
  const double left = region[0] * grid.scale - half, top = region[1] * grid.scale - half;
  double wide = region[2] * grid.scale - half - left, high = region[3] * grid.scale - half - top;
  if (!grid.has_centre_at_half) {
    wide = std::max(wide, 1.0);
    high = std::max(high, 1.0);
  }
  const double bin_wide = wide / static_cast<double>(grid.width), bin_high = high / static_cast<double>(grid.height);
  const auto rows = grid.ratio > 0 ? grid.ratio : static_cast<int64_t>(std::ceil(bin_high));
  const auto columns = grid.ratio > 0 ? grid.ratio : static_cast<int64_t>(std::ceil(bin_wide));
  double sum = 0, most = -INFINITY;
  for (int64_t a = 0; a < rows; ++a) {
    for (int64_t b = 0; b < columns; ++b) {
      const double y =
          top + (static_cast<double>(i) + (static_cast<double>(a) + 0.5) / static_cast<double>(rows)) * bin_high;
      const double x =
          left + (static_cast<double>(j) + (static_cast<double>(b) + 0.5) / static_cast<double>(columns)) * bin_wide;
      const double value = AtPoint(plane, grid.image[2], grid.image[3], y, x, grid.is_max);
      sum += value;
      most = std::max(most, value);
    }
  }
  if (rows * columns <= 0) return 0;
  return grid.is_max ? most : sum / static_cast<double>(rows * columns);
}

struct Case {
  RegionGrid grid;
  std::vector<float> image, regions;
  std::vector<int64_t> images;
};

Case RandomCase(uint32_t seed) {
  std::mt19937 random(seed);
  auto between = [&](int low, int high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  Case made;
  made.grid.image = {between(1, 2), between(1, 3), between(1, 12), between(1, 12)};
  made.grid.height = between(1, 4);
  made.grid.width = between(1, 4);
  made.grid.ratio = between(0, 3);
  made.grid.scale = seed % 3 == 0 ? 0.25 : 1;
  made.grid.has_centre_at_half = seed % 2 == 0;
  made.grid.is_max = seed % 5 == 0;
  std::uniform_real_distribution<float> value(-1, 1), corner(-6, 18);
  made.image.resize(static_cast<size_t>(CountOf(made.grid.image)));
  for (float& each : made.image) each = value(random);
  for (int64_t r = between(1, 6); r > 0; --r) {
    float left = corner(random), right = corner(random), top = corner(random), bottom = corner(random);
    if (left > right) std::swap(left, right);
    if (top > bottom) std::swap(top, bottom);
    made.regions.insert(made.regions.end(), {left, top, right, bottom});
    made.images.push_back(between(0, static_cast<int>(made.grid.image[0]) - 1));
  }
  return made;
}

TEST(AlignRegions, ReadsBetweenElementsAsDefined) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Case made = RandomCase(seed);
    const RegionGrid& grid = made.grid;
    const auto count = static_cast<int64_t>(made.images.size());
    std::vector<float> result(static_cast<size_t>(count * grid.image[1] * grid.height * grid.width));
    ASSERT_TRUE(AlignRegions(grid, made.image.data(), made.regions.data(), made.images.data(), count, result.data()));
    Numbers image = MakeNumbers(DType::kF32, grid.image), regions = MakeNumbers(DType::kF32, {count, 4});
    std::copy(made.image.begin(), made.image.end(), image.real.begin());
    std::copy(made.regions.begin(), made.regions.end(), regions.real.begin());
    Result<Numbers> exact = AlignRegions(grid, image, regions, WholeNumbers(made.images, {count}), DType::kF32);
    ASSERT_TRUE(exact) << exact.error().Text();
    size_t at = 0;
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < grid.image[1]; ++c) {
        const float* plane = made.image.data() +
                             (made.images[static_cast<size_t>(r)] * grid.image[1] + c) * grid.image[2] * grid.image[3];
        for (int64_t bin = 0; bin < grid.height * grid.width; ++bin, ++at) {
          const double wanted = Bin(grid, plane, made.regions.data() + r * 4, bin / grid.width, bin % grid.width);
          ASSERT_NEAR(exact->real[at], wanted, 1e-12) << "seed " << seed << " element " << at;
          ASSERT_NEAR(result[at], wanted, 1e-5) << "seed " << seed << " element " << at;
        }
      }
    }
  }
}

TEST(AlignRegions, WhatLiesOutsideIsNotRead) {
  RegionGrid grid;
  grid.image = {1, 1, 2, 2};
  grid.ratio = 1;
  const float infinite = std::numeric_limits<float>::infinity(), image[] = {infinite, infinite, infinite, infinite};
  const float regions[] = {100, 100, 101, 101};
  const int64_t images[] = {0};
  float result = 7;
  ASSERT_TRUE(AlignRegions(grid, image, regions, images, 1, &result));
  EXPECT_EQ(result, 0);
}

TEST(AlignRegions, AnImageWithoutRowsOrColumnsIsNotRead) {
  for (const Shape& image : {Shape{1, 1, 0, 8}, Shape{1, 1, 8, 0}}) {
    RegionGrid grid;
    grid.image = image;
    grid.height = grid.width = 2;
    const float regions[] = {0, 0, 4, 4};
    const int64_t images[] = {0};
    float result[] = {7, 7, 7, 7};
    ASSERT_TRUE(AlignRegions(grid, static_cast<const float*>(nullptr), regions, images, 1, result));
    for (float each : result) EXPECT_EQ(each, 0);
  }
}

TEST(AlignRegions, RegionsThatCannotBeAreRefused) {
  RegionGrid grid;
  grid.image = {2, 1, 4, 4};
  const float image[32] = {}, regions[] = {0, 0, 4, 4}, huge[] = {0, 0, 1e9F, 4};
  float result = 0;
  for (const int64_t wrong : {int64_t{-1}, int64_t{2}, std::numeric_limits<int64_t>::max()}) {
    Result<void> done = AlignRegions(grid, image, regions, &wrong, 1, &result);
    ASSERT_FALSE(done);
    EXPECT_NE(done.error().message.find("of image"), std::string::npos);
  }
  const int64_t right = 1;
  EXPECT_FALSE(AlignRegions(grid, image, huge, &right, 1, &result));
  const float none[] = {NAN, 0, NAN, 4};
  EXPECT_TRUE(AlignRegions(grid, image, none, &right, 1, &result));
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace hone::align_regions_test
