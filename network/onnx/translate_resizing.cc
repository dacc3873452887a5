// Resize and its predecessors: each dimension a sum of weighted elements of the original one. Of floats and up to
// kMostTaps elements these are gathers; what is left runs on the host.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using evaluating::CubicWeight;
using evaluating::Lines;
using Computed = Result<std::vector<Numbers>>;

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

// In floats, as onnxruntime computes it: where a place falls between two elements their rounding decides.
float OriginalCoordinate(const Resizing& how, int64_t at, float scale, int64_t from, int64_t to, float begin,
                         float end) {
  const auto x = static_cast<float>(at), in = static_cast<float>(from), out = static_cast<float>(to);
  if (how.coordinates == "align_corners") return to == 1 ? 0 : x * (in - 1) / (scale * in - 1);
  if (how.coordinates == "asymmetric") return x / scale;
  if (how.coordinates == "pytorch_half_pixel") return to > 1 ? (x + 0.5F) / scale - 0.5F : 0;
  if (how.coordinates == "half_pixel_symmetric") {
    const float adjustment = out / (scale * in);
    return in / 2 * (1 - adjustment) + (x + 0.5F) / scale - 0.5F;
  }
  if (how.coordinates == "tf_half_pixel_for_nn") return (x + 0.5F) / scale;
  if (how.coordinates == "tf_crop_and_resize")
    return to > 1 ? begin * (in - 1) + x * (end - begin) * (in - 1) / (out - 1) : 0.5F * (begin + end) * (in - 1);
  return (x + 0.5F) / scale - 0.5F;  // half_pixel
}

constexpr float kStillHalf = 1e-6F;  // what onnxruntime takes for the middle between two elements

int64_t NearestElement(const std::string& mode, float x) {
  const float below = std::floor(x), ahead = x - below;
  if (mode == "floor") return static_cast<int64_t>(below);
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(x));
  if (std::abs(ahead - 0.5F) <= kStillHalf) return static_cast<int64_t>(below) + (mode == "round_prefer_ceil" ? 1 : 0);
  return static_cast<int64_t>(below) + (ahead > 0.5F ? 1 : 0);
}

Tap TapAt(const Resizing& how, int64_t at, float scale, int64_t from, int64_t to, float begin, float end) {
  Tap tap;
  const float coordinate = OriginalCoordinate(how, at, scale, from, to, begin, end);
  if (how.coordinates == "tf_crop_and_resize" && !(coordinate >= 0 && coordinate <= static_cast<float>(from - 1))) {
    tap.is_outside = true;
    return tap;
  }
  if (how.mode == Interpolation::kNearest) {
    tap.from = {{std::clamp<int64_t>(NearestElement(how.nearest, coordinate), 0, from - 1), 1.0}};
    return tap;
  }
  const double x = coordinate;
  // Where it shrinks, an antialiased filter is as much wider.
  const double stretch = how.antialias ? std::min<double>(scale, 1) : 1.0;
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

constexpr size_t kMostTaps = 4;

// Without elements that count nothing; what stands twice once.
Tap Merged(const Tap& tap) {
  std::map<int64_t, double> weights;
  for (const auto& [element, weight] : tap.from) weights[element] += weight;
  Tap merged;
  for (const auto& [element, weight] : weights)
    if (weight != 0) merged.from.emplace_back(element, weight);
  return merged;
}

// One dimension resized by a gather for each tap; nullopt: too many, or an element outside.
Result<std::optional<ValueId>> GatherAlong(Builder& build, ValueId x, int64_t axis, const std::vector<Tap>& taps) {
  std::vector<Tap> merged;
  size_t most = 1;
  for (const Tap& tap : taps) {
    if (tap.is_outside) return std::optional<ValueId>();
    merged.push_back(Merged(tap));
    most = std::max(most, merged.back().from.size());
  }
  if (most > kMostTaps) return std::optional<ValueId>();
  const auto extent = static_cast<int64_t>(taps.size());
  Shape weight_shape(build.shape(x).size() - static_cast<size_t>(axis), 1);
  weight_shape[0] = extent;
  std::optional<ValueId> sum;
  for (size_t k = 0; k < most; ++k) {
    Numbers which = MakeNumbers(DType::kI32, {extent}), weights = MakeNumbers(build.dtype(x), weight_shape);
    bool is_one = true;
    for (size_t i = 0; i < merged.size(); ++i) {
      const auto [element, weight] =
          k < merged[i].from.size() ? merged[i].from[k] : std::pair<int64_t, double>(taps[i].from[0].first, 0);
      which.whole[i] = element;
      weights.real[i] = weight;
      is_one = is_one && weight == 1;
    }
    Node gather;
    gather.kind = NodeKind::kGather;
    gather.axis = axis;
    gather.inputs = {x, build.Constant(which)};
    ValueId part = HONE_TRY(build.Add(std::move(gather)));
    if (!is_one) part = HONE_TRY(build.Binary("mul", part, build.Constant(weights)));
    sum = sum ? HONE_TRY(build.Binary("add", *sum, part)) : part;
  }
  return sum;
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
  if (!call.build.graph().is_constant(call.In(i))) return call.Undecided(i, what);
  const Numbers* elements = HONE_TRY(call.build.graph().Elements(call.In(i)));
  std::vector<double> values;
  for (size_t k = 0; k < elements->real.size() + elements->whole.size(); ++k) values.push_back(elements->RealAt(k));
  return values;
}

struct ResizedDimension {
  int64_t axis = 0;
  float scale = 1;
  int64_t extent = 0;
  float begin = 0, end = 1;  // the region of tf_crop_and_resize
};

Result<std::vector<ResizedDimension>> ReadDimensions(OperatorCall& call, size_t region, size_t scales, size_t sizes) {
  const Shape& x = call.shape(0);
  std::vector<int64_t> axes(x.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (call.Find("axes") != nullptr) axes = call.Wholes("axes", {});
  for (int64_t& axis : axes) axis = HONE_TRY(call.Axis(axis, call.rank(0)));
  HONE_TRY(call.Axes(axes, call.rank(0)));  // none of them twice
  std::vector<double> given_scales, given_region;
  std::vector<int64_t> given_sizes;
  if (call.Has(scales)) given_scales = HONE_TRY(ConstantReals(call, scales, "one of the scales"));
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
    const auto extent = static_cast<float>(x[static_cast<size_t>(axes[i])]);
    if (!given_scales.empty()) {
      dimension.scale = static_cast<float>(given_scales[i]);
      if (!(dimension.scale > 0 && dimension.scale * extent < 1e12F))
        return call.build.Invalid(fmt::format("a scale of {}", dimension.scale));
      dimension.extent = static_cast<int64_t>(std::floor(extent * dimension.scale));
    } else {
      dimension.extent = given_sizes[i];
      if (dimension.extent < 1) return call.build.Invalid(fmt::format("a size of {}", dimension.extent));
      dimension.scale = static_cast<float>(dimension.extent) / extent;
    }
    if (given_region.size() == 2 * axes.size()) {
      dimension.begin = static_cast<float>(given_region[i]);
      dimension.end = static_cast<float>(given_region[i + axes.size()]);
    }
    dimensions.push_back(dimension);
  }
  const std::string policy = call.Text("keep_aspect_ratio_policy", "stretch");
  if (!given_sizes.empty() && policy != "stretch") {
    float scale = dimensions[0].scale;
    for (const ResizedDimension& each : dimensions)
      scale = policy == "not_larger" ? std::min(scale, each.scale) : std::max(scale, each.scale);
    for (ResizedDimension& each : dimensions) {
      each.scale = scale;
      const auto extent = static_cast<float>(x[static_cast<size_t>(each.axis)]);
      each.extent = static_cast<int64_t>(std::floor(scale * extent + 0.5F));  // halves go up
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
    if (each.extent < 1 || each.extent > (int64_t{1} << 24) || each.scale < 1e-6F)
      return call.build.Invalid(fmt::format("{} elements become {}", x[static_cast<size_t>(each.axis)], each.extent));
  Shape shape = x;
  std::vector<std::pair<int64_t, std::vector<Tap>>> steps;
  for (const ResizedDimension& each : dimensions) {
    const int64_t from = x[static_cast<size_t>(each.axis)];
    shape[static_cast<size_t>(each.axis)] = each.extent;
    if (each.extent == from && each.scale == 1 && how.coordinates != "tf_crop_and_resize") continue;
    Resizing here = how;
    if (only_scales && each.scale < 1) here.nearest = "ceil";  // as ONNX's example of opset 10 has it
    std::vector<Tap> taps;
    for (int64_t at = 0; at < each.extent; ++at)
      taps.push_back(TapAt(here, at, each.scale, from, each.extent, each.begin, each.end));
    steps.emplace_back(each.axis, std::move(taps));
  }
  const DType dtype = call.build.dtype(call.In(0));
  if (dtype == DType::kF32 || dtype == DType::kF64) {
    std::optional<ValueId> resized = call.In(0);
    for (const auto& [axis, taps] : steps)
      if (resized) resized = HONE_TRY(GatherAlong(call.build, *resized, axis, taps));
    if (resized) return Outputs{*resized};
  }
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
    out.dtype = dtype;
    return std::vector{std::move(out)};
  };
  return call.build.Host({call.node().op, ".", {{dtype, shape}}, compute}, {call.In(0)});
}

}  // namespace

std::vector<Operator> ResizingOperators() { return {{"Resize", 1, Resize}, {"Upsample", 1, Resize}}; }

}  // namespace hone
