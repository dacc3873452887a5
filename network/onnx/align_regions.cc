#include "network/onnx/align_regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace hone {
namespace {

constexpr int64_t kMostPoints = 1'000;  // of a bin, along a side

// A point along one dimension: the two elements that it lies between.
struct Point {
  int64_t before = 0, after = 0;
  double weight_before = 0, weight_after = 0;
  bool is_inside = false;
};

Point PointAt(double x, int64_t extent) {
  if (extent < 1 || !(x >= -1 && x <= static_cast<double>(extent))) return {};
  x = std::max(x, 0.0);
  const auto before = static_cast<int64_t>(x);
  if (before >= extent - 1) return {extent - 1, extent - 1, 1, 0, true};
  const double after = x - static_cast<double>(before);
  return {before, before + 1, 1 - after, after, true};
}

// The points of all bins along one dimension, bin after bin.
struct Axis {
  int64_t points = 0;  // of a bin
  std::vector<Point> all;

  Axis(double begin, double size, int64_t bins, int64_t ratio, int64_t extent) {
    const double bin = size / static_cast<double>(bins);
    // Not a number, as of a region that is none: no points.
    points = ratio > 0 ? ratio : bin > 0 ? static_cast<int64_t>(std::ceil(std::min(bin, 1e6))) : 0;
    if (points > kMostPoints) return;
    for (int64_t i = 0; i < bins; ++i) {
      for (int64_t p = 0; p < points; ++p) {
        const double within = (static_cast<double>(p) + 0.5) / static_cast<double>(points);
        all.push_back(PointAt(begin + (static_cast<double>(i) + within) * bin, extent));
      }
    }
  }
};

// A neighbour of a point, and its share in the bin.
template <typename Real>
struct Neighbour {
  int64_t offset;
  Real weight;
};

// Where a region's bins read: the neighbours of their points, bin after bin. Points outside the image have none.
template <typename Real>
struct Reads {
  std::vector<Neighbour<Real>> neighbours;
  std::vector<size_t> begins;          // of each bin's, and the end
  std::vector<uint8_t> reach_outside;  // whether a bin has points outside

  void Plan(const RegionGrid& grid, const Axis& down, const Axis& right) {
    neighbours.clear();
    begins.clear();
    reach_outside.clear();
    const int64_t points = down.points * right.points;
    const double share = grid.is_max ? 1 : 1 / static_cast<double>(std::max<int64_t>(points, 1));
    for (int64_t bin = 0; bin < grid.height * grid.width; ++bin) {
      begins.push_back(neighbours.size());
      reach_outside.push_back(0);
      for (int64_t point = 0; point < points; ++point) {
        const Point& y = down.all[static_cast<size_t>(bin / grid.width * down.points + point / right.points)];
        const Point& x = right.all[static_cast<size_t>(bin % grid.width * right.points + point % right.points)];
        if (!y.is_inside || !x.is_inside) {
          reach_outside.back() = 1;
          continue;
        }
        auto add = [&](int64_t row, int64_t column, double weight) {
          neighbours.push_back({row * grid.image[3] + column, static_cast<Real>(share * weight)});
        };
        add(y.before, x.before, y.weight_before * x.weight_before);
        add(y.before, x.after, y.weight_before * x.weight_after);
        add(y.after, x.before, y.weight_after * x.weight_before);
        add(y.after, x.after, y.weight_after * x.weight_after);
      }
    }
    begins.push_back(neighbours.size());
  }
  std::span<const Neighbour<Real>> Of(int64_t bin) const {
    const size_t begin = begins[static_cast<size_t>(bin)];
    return {neighbours.data() + begin, begins[static_cast<size_t>(bin) + 1] - begin};
  }
};

// One bin of all channels, which lie side by side: `image` is H, W, C.
template <typename Real>
void Average(const Real* image, std::span<const Neighbour<Real>> from, std::span<Real> bin) {
  std::fill(bin.begin(), bin.end(), Real{0});
  for (const Neighbour<Real>& each : from) {
    const Real* at = image + each.offset * static_cast<int64_t>(bin.size());
    for (size_t c = 0; c < bin.size(); ++c) bin[c] += each.weight * at[c];
  }
}

// A point outside counts as 0.
template <typename Real>
void Greatest(const Real* image, std::span<const Neighbour<Real>> from, bool reaches_outside, std::span<Real> bin) {
  std::fill(bin.begin(), bin.end(), reaches_outside || from.empty() ? Real{0} : static_cast<Real>(-INFINITY));
  for (const Neighbour<Real>& each : from) {
    const Real* at = image + each.offset * static_cast<int64_t>(bin.size());
    for (size_t c = 0; c < bin.size(); ++c) bin[c] = std::max(bin[c], each.weight * at[c]);
  }
}

// rows × columns, turned.
template <typename Real>
void Turn(const Real* from, int64_t rows, int64_t columns, Real* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
}

template <typename Real>
Result<void> Align(const RegionGrid& grid, const Real* image, const Real* regions, const int64_t* images, int64_t count,
                   Real* result) {
  const int64_t channels = grid.image[1], plane = grid.image[2] * grid.image[3], bins = grid.height * grid.width;
  Reads<Real> reads;
  std::vector<Real> turned(static_cast<size_t>(channels * plane)), all(static_cast<size_t>(channels * bins));
  int64_t turned_image = -1;
  for (int64_t r = 0; r < count; ++r) {
    if (images[r] < 0 || images[r] >= grid.image[0])
      return Error{ErrorKind::kInvalid, fmt::format("region {} is of image {} of {}", r, images[r], grid.image[0]), ""};
    const double offset = grid.has_centre_at_half ? 0.5 : 0;
    double corners[4];
    for (int i = 0; i < 4; ++i) corners[i] = static_cast<double>(regions[r * 4 + i]) * grid.scale - offset;
    double wide = corners[2] - corners[0], high = corners[3] - corners[1];
    if (!grid.has_centre_at_half) {
      wide = std::max(wide, 1.0);
      high = std::max(high, 1.0);
    }
    const Axis down(corners[1], high, grid.height, grid.ratio, grid.image[2]);
    const Axis right(corners[0], wide, grid.width, grid.ratio, grid.image[3]);
    if (std::max(down.points, right.points) > kMostPoints)
      return Error{ErrorKind::kInvalid, fmt::format("region {} is {} by {}", r, high, wide), ""};
    reads.Plan(grid, down, right);
    if (turned_image != images[r]) Turn(image + images[r] * channels * plane, channels, plane, turned.data());
    turned_image = images[r];
    for (int64_t bin = 0; bin < bins; ++bin) {
      const std::span<Real> to(all.data() + bin * channels, static_cast<size_t>(channels));
      if (grid.is_max)
        Greatest(turned.data(), reads.Of(bin), reads.reach_outside[static_cast<size_t>(bin)] != 0, to);
      else
        Average(turned.data(), reads.Of(bin), to);
    }
    Turn(all.data(), bins, channels, result);
    result += channels * bins;
  }
  return {};
}

}  // namespace

Result<void> AlignRegions(const RegionGrid& grid, const float* image, const float* regions, const int64_t* images,
                          int64_t count, float* result) {
  return Align(grid, image, regions, images, count, result);
}

Result<Numbers> AlignRegions(const RegionGrid& grid, const Numbers& image, const Numbers& regions,
                             const Numbers& images, DType dtype) {
  const int64_t count = regions.shape[0];
  Numbers result = MakeNumbers(dtype, {count, grid.image[1], grid.height, grid.width});
  HONE_TRY(Align(grid, image.real.data(), regions.real.data(), images.whole.data(), count, result.real.data()));
  return result;
}

}  // namespace hone
