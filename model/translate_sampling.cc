// Operators that read between elements: resizing, grids, regions. They run on the host.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/translate.h"
#include "model/walk.h"

namespace hone {
namespace {

using evaluating::Arguments;
using evaluating::Lines;
using Computed = Result<std::vector<Numbers>>;

// ---- Resize

enum class Interpolation : uint8_t { kNearest, kLinear, kCubic };

struct Resizing {
  Interpolation mode = Interpolation::kNearest;
  std::string coordinates = "half_pixel";
  std::string nearest = "round_prefer_floor";
  double cubic = -0.75;
  double extrapolated = 0;
  bool excludes_outside = false;
  bool antialias = false;
};

// An element of a resized dimension: a weighted sum of elements of the original one, or a fixed value.
struct Tap {
  std::vector<std::pair<int64_t, double>> from;  // element, weight
  bool is_outside = false;
};

double OriginalCoordinate(const Resizing& how, int64_t at, double scale, int64_t from, int64_t to, double begin,
                          double end) {
  const auto x = static_cast<double>(at), in = static_cast<double>(from), out = static_cast<double>(to);
  if (how.coordinates == "align_corners") return to == 1 ? 0 : x * (in - 1) / (out - 1);
  if (how.coordinates == "asymmetric") return x / scale;
  if (how.coordinates == "pytorch_half_pixel") return to > 1 ? (x + 0.5) / scale - 0.5 : 0;
  if (how.coordinates == "half_pixel_symmetric") {
    const double adjustment = out / (scale * in);
    return in / 2 * (1 - adjustment) + (x + 0.5) / scale - 0.5;
  }
  if (how.coordinates == "tf_half_pixel_for_nn") return (x + 0.5) / scale;
  if (how.coordinates == "tf_crop_and_resize")
    return to > 1 ? begin * (in - 1) + x * (end - begin) * (in - 1) / (out - 1) : 0.5 * (begin + end) * (in - 1);
  return (x + 0.5) / scale - 0.5;  // half_pixel
}

int64_t NearestElement(const std::string& mode, double x) {
  const double below = std::floor(x), ahead = x - below;
  if (mode == "floor") return static_cast<int64_t>(below);
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(x));
  if (mode == "round_prefer_ceil") return static_cast<int64_t>(ahead >= 0.5 ? below + 1 : below);
  return static_cast<int64_t>(ahead > 0.5 ? below + 1 : below);
}

double CubicWeight(double distance, double a) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

Tap TapAt(const Resizing& how, int64_t at, double scale, int64_t from, int64_t to, double begin, double end) {
  Tap tap;
  const double x = OriginalCoordinate(how, at, scale, from, to, begin, end);
  if (how.coordinates == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(from - 1))) {
    tap.is_outside = true;
    return tap;
  }
  if (how.mode == Interpolation::kNearest) {
    tap.from = {{std::clamp<int64_t>(NearestElement(how.nearest, x), 0, from - 1), 1.0}};
    return tap;
  }
  // Where it shrinks, an antialiased filter is as much wider.
  const double stretch = how.antialias ? std::min(scale, 1.0) : 1.0;
  const double reach = (how.mode == Interpolation::kLinear ? 1 : 2) / stretch;
  double total = 0;
  for (auto i = static_cast<int64_t>(std::floor(x - reach)) + 1; static_cast<double>(i) < x + reach; ++i) {
    const double distance = (static_cast<double>(i) - x) * stretch;
    double weight =
        how.mode == Interpolation::kLinear ? std::max(0.0, 1 - std::abs(distance)) : CubicWeight(distance, how.cubic);
    if (how.excludes_outside && (i < 0 || i >= from)) weight = 0;
    total += weight;
    tap.from.emplace_back(std::clamp<int64_t>(i, 0, from - 1), weight);
  }
  if ((how.excludes_outside || how.antialias) && total != 0)
    for (auto& [_, weight] : tap.from) weight /= total;
  return tap;
}

// One dimension resized.
Numbers ResizeAlong(const Numbers& x, int64_t axis, const std::vector<Tap>& taps, double extrapolated) {
  Shape shape = x.shape;
  shape[static_cast<size_t>(axis)] = static_cast<int64_t>(taps.size());
  Numbers out = MakeNumbers(x.dtype, shape);
  const Lines from(x.shape, axis), to(shape, axis);
  for (int64_t i = 0; i < to.count(); ++i) {
    for (int64_t k = 0; k < to.extent; ++k) {
      const Tap& tap = taps[static_cast<size_t>(k)];
      double sum = tap.is_outside ? extrapolated : 0;
      for (const auto& [element, weight] : tap.from) sum += weight * x.RealAt(from.At(i, element));
      if (out.is_real()) {
        out.real[to.At(i, k)] = sum;
      } else {
        out.whole[to.At(i, k)] = static_cast<int64_t>(std::nearbyint(sum));
      }
    }
  }
  return out;
}

Result<std::vector<double>> ConstantReals(OperatorCall& call, size_t i, std::string_view what) {
  if (!call.build.graph().is_constant(call.In(i)))
    return call.build.Unsupported(
        fmt::format("{} are computed when the network runs, and shapes must be known before", what));
  const Numbers* elements = HONE_TRY(call.build.graph().Elements(call.In(i)));
  std::vector<double> values;
  for (size_t k = 0; k < elements->real.size() + elements->whole.size(); ++k) values.push_back(elements->RealAt(k));
  return values;
}

struct ResizedDimension {
  int64_t axis = 0;
  double scale = 1;
  int64_t extent = 0;
  double begin = 0, end = 1;  // the region of tf_crop_and_resize
};

Result<std::vector<ResizedDimension>> ReadDimensions(OperatorCall& call, size_t region, size_t scales, size_t sizes) {
  const Shape& x = call.shape(0);
  std::vector<int64_t> axes(x.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (call.Find("axes") != nullptr) axes = call.Wholes("axes", {});
  for (int64_t& axis : axes) axis = HONE_TRY(call.Axis(axis, call.rank(0)));
  std::vector<double> given_scales, given_region;
  std::vector<int64_t> given_sizes;
  if (call.Has(scales)) given_scales = HONE_TRY(ConstantReals(call, scales, "the scales"));
  if (call.Find("scales") != nullptr) given_scales = call.Find("scales")->reals;
  if (call.Has(sizes) && sizes != scales) given_sizes = HONE_TRY(call.ConstantInput(sizes, "the sizes"));
  if (call.Has(region) && region != scales) given_region = HONE_TRY(ConstantReals(call, region, "the region"));
  if (given_scales.empty() == given_sizes.empty()) return call.build.Invalid("it wants scales or sizes");
  if (std::max(given_scales.size(), given_sizes.size()) != axes.size())
    return call.build.Invalid(fmt::format("{} scales or sizes of {} dimensions",
                                          std::max(given_scales.size(), given_sizes.size()), axes.size()));
  std::vector<ResizedDimension> dimensions;
  for (size_t i = 0; i < axes.size(); ++i) {
    ResizedDimension dimension;
    dimension.axis = axes[i];
    const auto extent = static_cast<double>(x[static_cast<size_t>(axes[i])]);
    if (!given_scales.empty()) {
      dimension.scale = given_scales[i];
      if (!(dimension.scale > 0 && dimension.scale * extent < 1e12))
        return call.build.Invalid(fmt::format("a scale of {}", dimension.scale));
      dimension.extent = static_cast<int64_t>(std::floor(extent * dimension.scale));
    } else {
      dimension.extent = given_sizes[i];
      if (dimension.extent < 1) return call.build.Invalid(fmt::format("a size of {}", dimension.extent));
      dimension.scale = static_cast<double>(dimension.extent) / extent;
    }
    if (given_region.size() == 2 * axes.size()) {
      dimension.begin = given_region[i];
      dimension.end = given_region[i + axes.size()];
    }
    dimensions.push_back(dimension);
  }
  const std::string policy = call.Text("keep_aspect_ratio_policy", "stretch");
  if (!given_sizes.empty() && policy != "stretch") {
    double scale = dimensions[0].scale;
    for (const ResizedDimension& each : dimensions)
      scale = policy == "not_larger" ? std::min(scale, each.scale) : std::max(scale, each.scale);
    for (ResizedDimension& each : dimensions) {
      each.scale = scale;
      each.extent =
          static_cast<int64_t>(std::nearbyint(scale * static_cast<double>(x[static_cast<size_t>(each.axis)])));
    }
  }
  return dimensions;
}

Result<Outputs> Resize(OperatorCall& call) {
  const bool is_upsample = call.node().op == "Upsample", is_first = call.opset() < 11;
  Resizing how;
  const std::string mode = call.Text("mode", "nearest");
  if (mode != "nearest" && mode != "linear" && mode != "cubic") return call.build.Invalid("mode=" + mode);
  how.mode = mode == "nearest"  ? Interpolation::kNearest
             : mode == "linear" ? Interpolation::kLinear
                                : Interpolation::kCubic;
  how.coordinates = is_first || is_upsample ? "asymmetric" : call.Text("coordinate_transformation_mode", "half_pixel");
  how.nearest = is_first || is_upsample ? "floor" : call.Text("nearest_mode", "round_prefer_floor");
  how.cubic = call.Real("cubic_coeff_a", -0.75);
  how.extrapolated = call.Real("extrapolation_value", 0);
  how.excludes_outside = call.Whole("exclude_outside", 0) != 0;
  how.antialias = call.Whole("antialias", 0) != 0;
  const bool only_scales = is_first || is_upsample;
  std::vector<ResizedDimension> dimensions =
      HONE_TRY(ReadDimensions(call, only_scales ? 99 : 1, only_scales ? 1 : 2, only_scales ? 99 : 3));
  const Shape x = call.shape(0);
  if (CountOf(x) == 0) return call.build.Invalid("there is nothing to resize");
  for (const ResizedDimension& each : dimensions)
    if (each.extent < 1 || each.extent > (int64_t{1} << 24) || each.scale < 1e-6)
      return call.build.Invalid(fmt::format("{} elements become {}", x[static_cast<size_t>(each.axis)], each.extent));
  Shape shape = x;
  std::vector<std::pair<int64_t, std::vector<Tap>>> steps;
  for (const ResizedDimension& each : dimensions) {
    const int64_t from = x[static_cast<size_t>(each.axis)];
    shape[static_cast<size_t>(each.axis)] = each.extent;
    if (each.extent == from && each.scale == 1 && how.coordinates != "tf_crop_and_resize") continue;
    std::vector<Tap> taps;
    for (int64_t at = 0; at < each.extent; ++at)
      taps.push_back(TapAt(how, at, each.scale, from, each.extent, each.begin, each.end));
    steps.emplace_back(each.axis, std::move(taps));
  }
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = *in[0];
    if (dtype != DType::kF32 && dtype != DType::kF64 && steps.size() > 1) {  // rounded once, at the end
      out = MakeNumbers(DType::kF64, in[0]->shape);
      for (size_t i = 0; i < out.real.size(); ++i) out.real[i] = in[0]->RealAt(i);
    }
    for (const auto& [axis, taps] : steps) out = ResizeAlong(out, axis, taps, how.extrapolated);
    if (out.is_real() != IsFloat(dtype)) {
      Numbers rounded = MakeNumbers(dtype, out.shape);
      for (size_t i = 0; i < rounded.whole.size(); ++i)
        rounded.whole[i] = static_cast<int64_t>(std::nearbyint(out.real[i]));
      out = std::move(rounded);
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host({call.node().op, {{dtype, shape}}, compute}, {call.In(0)});
}

// ---- Grids

enum class Border : uint8_t { kZeros, kNearest, kReflection };

// A coordinate mirrored at the borders until it lies between them.
double Mirrored(double x, double low, double high) {
  const double range = high - low;
  if (range <= 0) return low;
  double at = std::fmod(std::abs(x - low), 2 * range);
  if (at > range) at = 2 * range - at;
  return low + at;
}

// Reads a plane or volume between its elements.
struct Sampler {
  std::vector<int64_t> extents;  // of the dimensions that are sampled
  Border border = Border::kZeros;
  bool align_corners = false;

  double Bounded(double x, size_t d) const {
    const auto size = static_cast<double>(extents[d]);
    if (border == Border::kNearest) return std::clamp(x, 0.0, size - 1);
    if (border == Border::kReflection) {
      x = align_corners ? Mirrored(x, 0, size - 1) : Mirrored(x, -0.5, size - 0.5);
      return std::clamp(x, 0.0, size - 1);
    }
    return x;
  }

  double ElementAt(const double* data, const std::vector<int64_t>& index) const {
    int64_t offset = 0;
    for (size_t d = 0; d < extents.size(); ++d) {
      int64_t at = index[d];
      if (at < 0 || at >= extents[d]) {
        if (border == Border::kZeros) return 0;
        at = static_cast<int64_t>(Bounded(static_cast<double>(at), d));
      }
      offset = offset * extents[d] + at;
    }
    return data[offset];
  }

  // A sum over the `taps` nearest elements in each dimension.
  template <typename Weight>
  double Sum(const double* data, const std::vector<double>& at, int64_t before, int64_t taps,
             const Weight& weight) const {
    const size_t rank = extents.size();
    std::vector<int64_t> base(rank), index(rank);
    int64_t total = 1;
    for (size_t d = 0; d < rank; ++d) {
      base[d] = static_cast<int64_t>(std::floor(at[d])) - before;
      total *= taps;
    }
    double sum = 0;
    for (int64_t tap = 0; tap < total; ++tap) {
      double factor = 1;
      int64_t rest = tap;
      for (size_t d = rank; d-- > 0;) {
        index[d] = base[d] + rest % taps;
        rest /= taps;
        factor *= weight(at[d] - static_cast<double>(index[d]));
      }
      if (factor != 0) sum += factor * ElementAt(data, index);
    }
    return sum;
  }
};

Result<Outputs> GridSample(OperatorCall& call) {
  const Shape x = call.shape(0), grid = call.shape(1);
  const size_t rank = x.size() < 3 ? 0 : x.size() - 2;
  if (rank < 1 || grid.size() != x.size() || grid[0] != x[0] || grid.back() != static_cast<int64_t>(rank))
    return call.build.Invalid(fmt::format("a grid of {} for {}", ShapeText(grid), ShapeText(x)));
  if (!IsFloat(call.build.dtype(call.In(0)))) return call.build.Unsupported("it samples whole numbers");
  std::string mode = call.Text("mode", "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  if (mode != "linear" && mode != "nearest" && mode != "cubic") return call.build.Invalid("mode=" + mode);
  const std::string padding = call.Text("padding_mode", "zeros");
  Sampler sampler;
  sampler.extents.assign(x.begin() + 2, x.end());
  sampler.border = padding == "border"       ? Border::kNearest
                   : padding == "reflection" ? Border::kReflection
                                             : Border::kZeros;
  sampler.align_corners = call.Whole("align_corners", 0) != 0;
  Shape shape = {x[0], x[1]};
  shape.insert(shape.end(), grid.begin() + 1, grid.end() - 1);
  const int64_t points = CountOf(Shape(grid.begin() + 1, grid.end() - 1));
  const int64_t plane = CountOf(sampler.extents);
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    std::vector<double> at(rank);
    for (int64_t n = 0; n < x[0]; ++n) {
      for (int64_t p = 0; p < points; ++p) {
        for (size_t d = 0; d < rank; ++d) {  // the grid names the last dimension first
          const double given = in[1]->real[static_cast<size_t>((n * points + p) * grid.back()) + (rank - 1 - d)];
          const auto size = static_cast<double>(sampler.extents[d]);
          at[d] = sampler.align_corners ? (given + 1) / 2 * (size - 1) : ((given + 1) * size - 1) / 2;
          if (mode == "nearest") at[d] = std::nearbyint(at[d]);
          if (mode != "cubic") at[d] = sampler.Bounded(at[d], d);
          if (std::isnan(at[d]) || std::abs(at[d]) > 1e15) at[d] = -1e15;  // far outside
        }
        for (int64_t c = 0; c < x[1]; ++c) {
          const double* data = in[0]->real.data() + (n * x[1] + c) * plane;
          double value = 0;
          if (mode == "cubic") {
            value = sampler.Sum(data, at, 1, 4, [](double distance) { return CubicWeight(distance, -0.75); });
          } else {
            value = sampler.Sum(data, at, 0, 2, [](double distance) { return std::max(0.0, 1 - std::abs(distance)); });
          }
          out.real[static_cast<size_t>((n * x[1] + c) * points + p)] = value;
        }
      }
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host({"GridSample",
                          {{dtype, shape}},
                          compute,
                          static_cast<double>(CountOf(shape)) * std::pow(4.0, static_cast<double>(rank))},
                         {call.In(0), call.In(1)});
}

Result<Outputs> AffineGrid(OperatorCall& call) {
  std::vector<int64_t> size = HONE_TRY(call.ConstantInput(1, "the size"));
  HONE_TRY(CheckShape(size));
  const auto rank = static_cast<int64_t>(size.size()) - 2;
  const Shape theta = call.shape(0);
  if (rank < 2 || rank > 3 || theta != Shape{size[0], rank, rank + 1})
    return call.build.Invalid(fmt::format("a transformation of {} for {}", ShapeText(theta), ShapeText(size)));
  Shape shape = {size[0]};
  shape.insert(shape.end(), size.begin() + 2, size.end());
  shape.push_back(rank);
  const bool align = call.Whole("align_corners", 0) != 0;
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    const Shape space(size.begin() + 2, size.end());
    const int64_t points = CountOf(space);
    for (int64_t n = 0; n < size[0]; ++n) {
      for (int64_t p = 0; p < points; ++p) {
        std::vector<double> at(static_cast<size_t>(rank) + 1, 1);
        int64_t rest = p;
        for (size_t d = space.size(); d-- > 0;) {
          const auto i = static_cast<double>(rest % space[d]), extent = static_cast<double>(space[d]);
          rest /= space[d];
          // The last dimension is the first coordinate.
          at[space.size() - 1 - d] =
              align ? (space[d] == 1 ? 0 : -1 + 2 * i / (extent - 1)) : -1 + (2 * i + 1) / extent;
        }
        for (int64_t row = 0; row < rank; ++row) {
          double sum = 0;
          for (int64_t k = 0; k <= rank; ++k)
            sum += in[0]->real[static_cast<size_t>((n * rank + row) * (rank + 1) + k)] * at[static_cast<size_t>(k)];
          out.real[static_cast<size_t>((n * points + p) * rank + row)] = sum;
        }
      }
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host({"AffineGrid", {{dtype, shape}}, compute}, {call.In(0)});
}

// ---- Regions

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
  const Shape shape = {rois[0], x[1], height, width};
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    // Four neighbours' weights and offsets; none outside the image.
    auto neighbours = [&](double y, double z) {
      std::vector<std::pair<int64_t, double>> found;
      if (y < -1 || y > static_cast<double>(x[2]) || z < -1 || z > static_cast<double>(x[3])) return found;
      y = std::max(y, 0.0);
      z = std::max(z, 0.0);
      auto y0 = static_cast<int64_t>(y), z0 = static_cast<int64_t>(z);
      int64_t y1 = y0 + 1, z1 = z0 + 1;
      if (y0 >= x[2] - 1) {
        y0 = y1 = x[2] - 1;
        y = static_cast<double>(y0);
      }
      if (z0 >= x[3] - 1) {
        z0 = z1 = x[3] - 1;
        z = static_cast<double>(z0);
      }
      const double down = y - static_cast<double>(y0), right = z - static_cast<double>(z0);
      found = {{y0 * x[3] + z0, (1 - down) * (1 - right)},
               {y0 * x[3] + z1, (1 - down) * right},
               {y1 * x[3] + z0, down * (1 - right)},
               {y1 * x[3] + z1, down * right}};
      return found;
    };
    const double offset = is_half ? 0.5 : 0;
    for (int64_t r = 0; r < rois[0]; ++r) {
      const int64_t image = in[2]->whole[static_cast<size_t>(r)];
      if (image < 0 || image >= x[0])
        return Error{ErrorKind::kInvalid, fmt::format("region {} is of image {} of {}", r, image, x[0]), ""};
      const double* roi = in[1]->real.data() + r * 4;
      const double left = roi[0] * scale - offset, top = roi[1] * scale - offset;
      double wide = roi[2] * scale - offset - left, high = roi[3] * scale - offset - top;
      if (!is_half) {
        wide = std::max(wide, 1.0);
        high = std::max(high, 1.0);
      }
      const double bin_high = high / static_cast<double>(height), bin_wide = wide / static_cast<double>(width);
      const int64_t rows = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(bin_high));
      const int64_t columns = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(bin_wide));
      if (rows > 1'000 || columns > 1'000)
        return Error{ErrorKind::kInvalid, fmt::format("region {} is {} by {}", r, high, wide), ""};
      for (int64_t c = 0; c < x[1]; ++c) {
        const double* data = in[0]->real.data() + (image * x[1] + c) * x[2] * x[3];
        for (int64_t i = 0; i < height; ++i) {
          for (int64_t j = 0; j < width; ++j) {
            double value = 0;
            bool is_first = true;
            for (int64_t a = 0; a < rows; ++a) {
              for (int64_t b = 0; b < columns; ++b) {
                const double y =
                    top +
                    (static_cast<double>(i) + (static_cast<double>(a) + 0.5) / static_cast<double>(rows)) * bin_high;
                const double z =
                    left +
                    (static_cast<double>(j) + (static_cast<double>(b) + 0.5) / static_cast<double>(columns)) * bin_wide;
                double sum = 0, top_of_four = -INFINITY;
                for (const auto& [at, weight] : neighbours(y, z)) {
                  sum += weight * data[at];
                  top_of_four = std::max(top_of_four, weight * data[at]);
                }
                if (is_max) {
                  if (std::isinf(top_of_four)) top_of_four = 0;
                  value = is_first ? top_of_four : std::max(value, top_of_four);
                } else {
                  value += sum;
                }
                is_first = false;
              }
            }
            if (!is_max) value /= static_cast<double>(std::max<int64_t>(rows * columns, 1));
            out.real[static_cast<size_t>(((r * x[1] + c) * height + i) * width + j)] = value;
          }
        }
      }
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host({"RoiAlign", {{dtype, shape}}, compute, static_cast<double>(CountOf(shape)) * 1e6},
                         {call.In(0), call.In(1), call.In(2)});
}

// Columns of windows added up where they came from.
Result<Outputs> Col2Im(OperatorCall& call) {
  const Shape image = HONE_TRY(call.ConstantInput(1, "the image's shape"));
  const Shape block = HONE_TRY(call.ConstantInput(2, "the block's shape"));
  const size_t rank = image.size();
  const std::vector<int64_t> dilations = call.Wholes("dilations", std::vector<int64_t>(rank, 1));
  const std::vector<int64_t> strides = call.Wholes("strides", std::vector<int64_t>(rank, 1));
  const std::vector<int64_t> pads = call.Wholes("pads", std::vector<int64_t>(2 * rank, 0));
  const Shape x = call.shape(0);
  HONE_TRY(CheckShape(image));
  HONE_TRY(CheckShape(block));
  if (block.size() != rank || dilations.size() != rank || strides.size() != rank || pads.size() != 2 * rank ||
      x.size() != 3 || CountOf(block) < 1 || x[1] % CountOf(block) != 0)
    return call.build.Invalid("image, block, strides, dilations and pads disagree");
  Shape windows;
  for (size_t d = 0; d < rank; ++d) {
    if (strides[d] < 1 || dilations[d] < 1) return call.build.Invalid("a stride or dilation below 1");
    const int64_t room = image[d] + pads[d] + pads[rank + d] - (dilations[d] * (block[d] - 1) + 1);
    if (room < 0) return call.build.Invalid("the block does not fit the image");
    windows.push_back(room / strides[d] + 1);
  }
  if (CountOf(windows) != x[2]) return call.build.Invalid(fmt::format("{} windows, wanted {}", x[2], CountOf(windows)));
  const int64_t channels = x[1] / CountOf(block), plane = CountOf(image);
  Shape shape = {x[0], channels};
  shape.insert(shape.end(), image.begin(), image.end());
  const DType dtype = call.build.dtype(call.In(0));
  if (!IsFloat(dtype)) return call.build.Unsupported("it adds up whole numbers");
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    const int64_t parts = CountOf(block);
    for (int64_t row = 0; row < x[0] * x[1]; ++row) {
      for (int64_t window = 0; window < x[2]; ++window) {
        int64_t rest_of_block = row % parts, rest_of_window = window, offset = 0, scale = 1;
        bool is_inside = true;
        for (size_t d = rank; d-- > 0;) {
          const int64_t at =
              rest_of_window % windows[d] * strides[d] + rest_of_block % block[d] * dilations[d] - pads[d];
          rest_of_window /= windows[d];
          rest_of_block /= block[d];
          is_inside = is_inside && at >= 0 && at < image[d];
          offset += at * scale;
          scale *= image[d];
        }
        if (is_inside)
          out.real[static_cast<size_t>(row / parts * plane + offset)] +=
              in[0]->real[static_cast<size_t>(row * x[2] + window)];
      }
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host({"Col2Im", {{dtype, shape}}, compute}, {call.In(0)});
}

}  // namespace

std::vector<Operator> SamplingOperators() {
  return {{"Resize", 1, Resize},         {"Upsample", 1, Resize},   {"GridSample", 2, GridSample},
          {"AffineGrid", 2, AffineGrid}, {"RoiAlign", 3, RoiAlign}, {"Col2Im", 3, Col2Im}};
}

}  // namespace hone
