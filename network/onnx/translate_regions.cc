// Operators that read regions of images, whose places are data. They run on the host.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "network/graph/walk.h"
#include "network/onnx/align_regions.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using Computed = Result<std::vector<Numbers>>;

constexpr double kFarthest = 1 << 30;  // elements from an image's corner

Result<Outputs> RoiAlign(OperatorCall& call) {
  const Shape x = call.shape(0), rois = call.shape(1);
  if (x.size() != 4 || rois.size() != 2 || rois[1] != 4 || call.shape(2) != Shape{rois[0]})
    return call.build.Invalid("it wants an image, regions of four corners, and each region's image");
  const int64_t height = call.Whole("output_height", 1), width = call.Whole("output_width", 1);
  const int64_t ratio = call.Whole("sampling_ratio", 0);
  if (height < 1 || width < 1 || ratio < 0) return call.build.Invalid("its output has no elements");
  const double scale = call.Real("spatial_scale", 1);
  const bool is_max = call.Text("mode", "avg") == "max";
  // Since opset 16 pixels have their centre at a half, unless the file says otherwise.
  const bool is_half = call.Text("coordinate_transformation_mode",
                                 call.opset() >= 16 ? "half_pixel" : "output_half_pixel") == "half_pixel";
  const RegionGrid grid{x, height, width, ratio, scale, is_half, is_max};
  const Shape shape = {rois[0], x[1], height, width};
  const DType dtype = call.build.dtype(call.In(0));
  HostOperation host{"RoiAlign", "rrw", {{dtype, shape}}};
  host.compute = [=](Arguments in) -> Computed {
    return std::vector{HONE_TRY(AlignRegions(grid, *in[0], *in[1], *in[2], dtype))};
  };
  if (dtype == DType::kF32 && call.build.dtype(call.In(1)) == dtype && call.build.dtype(call.In(2)) == DType::kI64) {
    host.run = [=](std::span<const void* const> in, std::span<void* const> out) {
      return AlignRegions(grid, static_cast<const float*>(in[0]), static_cast<const float*>(in[1]),
                          static_cast<const int64_t*>(in[2]), rois[0], static_cast<float*>(out[0]));
    };
  }
  host.steps = static_cast<double>(CountOf(shape)) * 1e6;
  return call.build.Host(std::move(host), {call.In(0), call.In(1), call.In(2)});
}

// The greatest element of each bin, 0 of one outside the image. `regions`: its image, left, top, right, bottom of each.
template <typename Real>
Result<void> PoolRegions(const Shape& x, const Shape& y, double scale, const Real* image, const Real* regions,
                         Real* result) {
  for (int64_t r = 0; r < y[0]; ++r, regions += 5) {
    // A coordinate beyond all images is outside of them.
    auto place = [&](int i) {
      const double at = std::round(static_cast<double>(regions[i]) * scale);
      return at >= -kFarthest && at <= kFarthest ? static_cast<int64_t>(at) : static_cast<int64_t>(kFarthest);
    };
    if (!(regions[0] >= 0 && regions[0] < static_cast<Real>(x[0])))
      return Error{ErrorKind::kInvalid, fmt::format("region {} is of image {} of {}", r, regions[0], x[0]), ""};
    const int64_t begin[] = {place(2), place(1)}, end[] = {place(4), place(3)};
    const Real* plane = image + static_cast<int64_t>(regions[0]) * x[1] * x[2] * x[3];
    // Of bin i of a dimension.
    auto bounds = [&](int d, int64_t i) {
      const double bin =
          static_cast<double>(std::max<int64_t>(1, end[d] - begin[d] + 1)) / static_cast<double>(y[2 + d]);
      auto bound = [&](double at) { return std::clamp<int64_t>(static_cast<int64_t>(at) + begin[d], 0, x[2 + d]); };
      return std::pair(bound(std::floor(static_cast<double>(i) * bin)),
                       bound(std::ceil(static_cast<double>(i + 1) * bin)));
    };
    for (int64_t c = 0; c < x[1]; ++c, plane += x[2] * x[3]) {
      for (int64_t i = 0; i < y[2] * y[3]; ++i) {
        const auto [top, bottom] = bounds(0, i / y[3]);
        const auto [left, right] = bounds(1, i % y[3]);
        Real most = top < bottom && left < right ? plane[top * x[3] + left] : Real{0};
        for (int64_t row = top; row < bottom; ++row)
          for (int64_t column = left; column < right; ++column) most = std::max(most, plane[row * x[3] + column]);
        *result++ = most;
      }
    }
  }
  return {};
}

Result<Outputs> MaxRoiPool(OperatorCall& call) {
  const Shape x = call.shape(0), regions = call.shape(1);
  const std::vector<int64_t> size = call.Wholes("pooled_shape", {});
  if (x.size() != 4 || regions.size() != 2 || regions[1] != 5 || size.size() != 2 || size[0] < 1 || size[1] < 1)
    return call.build.Invalid(
        fmt::format("regions {} of {} in bins {}", ShapeText(regions), ShapeText(x), ShapeText(Shape(size))));
  const double scale = call.Real("spatial_scale", 1);
  const DType dtype = call.build.dtype(call.In(0));
  if (!IsFloat(dtype) || call.build.dtype(call.In(1)) != dtype)
    return call.build.Invalid("image and regions are floats of one type");
  const Shape shape = {regions[0], x[1], size[0], size[1]};
  HONE_TRY(CheckShape(shape));
  HostOperation host{"MaxRoiPool", "r=", {{dtype, shape}}};
  host.compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    HONE_TRY(PoolRegions(x, shape, scale, in[0]->real.data(), in[1]->real.data(), out.real.data()));
    return std::vector{std::move(out)};
  };
  if (dtype == DType::kF32) {
    host.run = [=](std::span<const void* const> in, std::span<void* const> out) {
      return PoolRegions(x, shape, scale, static_cast<const float*>(in[0]), static_cast<const float*>(in[1]),
                         static_cast<float*>(out[0]));
    };
  }
  host.steps = static_cast<double>(CountOf(shape)) * static_cast<double>(x[2] * x[3]);
  return call.build.Host(std::move(host), {call.In(0), call.In(1)});
}

// onnxruntime's: x [N, C, H, W]; regions [regions, 4], each from the first to the last of an image's rows and columns
// as 0 to 1; which image each is of; height and width of what is made of it.
Result<Outputs> CropAndResize(OperatorCall& call) {
  const Shape x = call.shape(0), regions = call.shape(1);
  const std::vector<int64_t> size = HONE_TRY(call.ConstantInput(3, "the size of regions"));
  const std::string mode = call.Text("mode", "bilinear");
  if (x.size() != 4 || regions.size() != 2 || regions[1] != 4 || call.shape(2) != Shape{regions[0]} ||
      size.size() != 2 || CountOf(x) == 0 || !IsFloat(call.build.dtype(call.In(0))))
    return call.build.Invalid(fmt::format("regions {} of {}", ShapeText(regions), ShapeText(x)));
  if (mode != "bilinear" && mode != "nearest") return call.build.Invalid("mode=" + mode);
  const Shape shape = {regions[0], x[1], size[0], size[1]};
  HONE_TRY(CheckShape(shape));
  const double outside = call.Real("extrapolation_value", 0);
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    // Row or column i of a region, in those of the image.
    auto place = [&](int64_t region, int64_t d, int64_t i) {
      const auto last = static_cast<double>(x[static_cast<size_t>(2 + d)] - 1);
      const auto count = static_cast<double>(shape[static_cast<size_t>(2 + d)]);
      const double from = in[1]->real[static_cast<size_t>(4 * region + d)] * last;
      const double to = in[1]->real[static_cast<size_t>(4 * region + 2 + d)] * last;
      return count > 1 ? from + static_cast<double>(i) * (to - from) / (count - 1) : (from + to) / 2;
    };
    size_t at = 0;
    for (int64_t region = 0; region < shape[0]; ++region) {
      const int64_t image = in[2]->whole[static_cast<size_t>(region)];
      if (image < 0 || image >= x[0])
        return Error{ErrorKind::kInvalid, fmt::format("a region of image {} of {}", image, x[0]), ""};
      for (int64_t c = 0; c < shape[1]; ++c) {
        const double* plane = in[0]->real.data() + (image * x[1] + c) * x[2] * x[3];
        for (int64_t i = 0; i < shape[2] * shape[3]; ++i) {
          const double row = place(region, 0, i / shape[3]), column = place(region, 1, i % shape[3]);
          double& value = out.real[at++];
          value = outside;
          if (!(row >= 0 && row <= static_cast<double>(x[2] - 1) && column >= 0 &&
                column <= static_cast<double>(x[3] - 1)))
            continue;
          auto element = [&](double r, double k) {
            return plane[static_cast<int64_t>(r) * x[3] + static_cast<int64_t>(k)];
          };
          if (mode == "nearest") {
            value = element(std::round(row), std::round(column));
            continue;
          }
          const double r = std::floor(row), k = std::floor(column);
          auto line = [&](double of) {
            const double left = element(of, k);
            return left + (element(of, std::ceil(column)) - left) * (column - k);
          };
          value = line(r) + (line(std::ceil(row)) - line(r)) * (row - r);
        }
      }
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host({"CropAndResize", "rrw", {{dtype, shape}}, compute}, {call.In(0), call.In(1), call.In(2)});
}

}  // namespace

std::vector<Operator> RegionOperators() {
  return {{"RoiAlign", 3, RoiAlign}, {"MaxRoiPool", 2, MaxRoiPool}, {"com.microsoft.CropAndResize", 4, CropAndResize}};
}

}  // namespace hone
