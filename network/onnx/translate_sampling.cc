// Operators that read between elements at places that are data. They run on the host.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "network/graph/on_elements.h"
#include "network/graph/walk.h"
#include "network/onnx/deform_columns.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using evaluating::CubicWeight;
using Computed = Result<std::vector<Numbers>>;

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

// A place between the elements of a plane or volume: a coordinate for each dimension that is sampled.
using Place = std::array<double, 8>;  // as many dimensions as CheckShape allows

// Reads a plane or volume between its elements.
struct Sampler {
  enum class Mode : uint8_t { kNearest, kLinear, kCubic };
  std::vector<int64_t> extents;  // of the dimensions that are sampled
  Border border = Border::kZeros;
  Mode mode = Mode::kLinear;
  bool align_corners = false;

  size_t rank() const { return extents.size(); }
  int64_t elements() const { return CountOf(extents); }
  int64_t MostTaps() const { return static_cast<int64_t>(std::pow(mode == Mode::kCubic ? 4 : 2, rank())); }

  double Bounded(double x, size_t d) const {
    const auto size = static_cast<double>(extents[d]);
    if (border == Border::kNearest) return std::clamp(x, 0.0, size - 1);
    if (border == Border::kReflection) {
      x = align_corners ? Mirrored(x, 0, size - 1) : Mirrored(x, -0.5, size - 0.5);
      return std::clamp(x, 0.0, size - 1);
    }
    return x;
  }

  // Of a point of the grid, which names the last dimension first.
  template <typename T>
  Place PlaceOf(const T* point) const {
    Place at{};
    for (size_t d = 0; d < rank(); ++d) {
      const auto given = static_cast<double>(point[rank() - 1 - d]);
      const auto size = static_cast<double>(extents[d]);
      at[d] = align_corners ? (given + 1) / 2 * (size - 1) : ((given + 1) * size - 1) / 2;
      if (mode == Mode::kNearest) at[d] = std::nearbyint(at[d]);
      if (mode != Mode::kCubic) at[d] = Bounded(at[d], d);
      if (std::isnan(at[d]) || std::abs(at[d]) > 1e15) at[d] = -1e15;  // far outside
    }
    return at;
  }

  // Calls visit(element, factor) for those of the nearest elements in each dimension that count at a place. Beyond the
  // border are zeros, or other elements.
  template <typename Visit>
  void ForEachTap(const Place& at, const Visit& visit) const {
    const int64_t taps = mode == Mode::kCubic ? 4 : 2, before = mode == Mode::kCubic ? 1 : 0, total = MostTaps();
    std::array<int64_t, 8> base;
    for (size_t d = 0; d < rank(); ++d) base[d] = static_cast<int64_t>(std::floor(at[d])) - before;
    for (int64_t tap = 0; tap < total; ++tap) {
      double factor = 1;
      int64_t rest = tap, element = 0, scale = 1;
      bool is_zero = false;
      for (size_t d = rank(); d-- > 0;) {
        int64_t index = base[d] + rest % taps;
        rest /= taps;
        const double distance = at[d] - static_cast<double>(index);
        factor *= mode == Mode::kCubic ? CubicWeight(distance, -0.75) : std::max(0.0, 1 - std::abs(distance));
        if (index < 0 || index >= extents[d]) {
          is_zero |= border == Border::kZeros;
          index = is_zero ? 0 : static_cast<int64_t>(Bounded(static_cast<double>(index), d));
        }
        element += index * scale;
        scale *= extents[d];
      }
      if (factor != 0 && !is_zero) visit(element, factor);
    }
  }
};

// The same for elements in memory: where a few places are read is found once for all channels.
void SampleFloats(const Sampler& sampler, const Shape& x, int64_t points, const float* data, const float* grid,
                  float* out) {
  constexpr int64_t kPoints = 128;
  const int64_t plane = sampler.elements(), most = sampler.MostTaps();
  std::vector<int64_t> elements(static_cast<size_t>(kPoints * most));
  std::vector<float> factors(static_cast<size_t>(kPoints * most));
  std::array<int64_t, kPoints + 1> ends{};  // of the taps of each point
  for (int64_t n = 0; n < x[0]; ++n)
    for (int64_t first = 0; first < points; first += kPoints) {
      const int64_t here = std::min(kPoints, points - first);
      int64_t count = 0;
      for (int64_t p = 0; p < here; ++p) {
        const float* point = grid + (n * points + first + p) * static_cast<int64_t>(sampler.rank());
        sampler.ForEachTap(sampler.PlaceOf(point), [&](int64_t element, double factor) {
          elements[static_cast<size_t>(count)] = element;
          factors[static_cast<size_t>(count++)] = static_cast<float>(factor);
        });
        ends[static_cast<size_t>(p) + 1] = count;
      }
      for (int64_t c = 0; c < x[1]; ++c) {
        const float* channel = data + (n * x[1] + c) * plane;
        float* to = out + (n * x[1] + c) * points + first;
        for (size_t p = 0; p < static_cast<size_t>(here); ++p) {
          float sum = 0;
          for (auto t = static_cast<size_t>(ends[p]); t < static_cast<size_t>(ends[p + 1]); ++t)
            sum += factors[t] * channel[elements[t]];
          to[p] = sum;
        }
      }
    }
}

Result<Outputs> GridSample(OperatorCall& call) {
  const Shape x = call.shape(0), grid = call.shape(1);
  const size_t rank = x.size() < 3 ? 0 : x.size() - 2;
  if (rank < 1 || grid.size() != x.size() || grid[0] != x[0] || grid.back() != static_cast<int64_t>(rank))
    return call.build.Invalid(fmt::format("a grid of {} for {}", ShapeText(grid), ShapeText(x)));
  if (!IsFloat(call.build.dtype(call.In(0)))) return call.build.Unsupported("it samples whole numbers");
  const std::string mode = call.Text("mode", "linear"), padding = call.Text("padding_mode", "zeros");
  Sampler sampler;
  if (mode == "linear" || mode == "bilinear")
    sampler.mode = Sampler::Mode::kLinear;
  else if (mode == "cubic" || mode == "bicubic")
    sampler.mode = Sampler::Mode::kCubic;
  else if (mode == "nearest")
    sampler.mode = Sampler::Mode::kNearest;
  else
    return call.build.Invalid("mode=" + mode);
  sampler.extents.assign(x.begin() + 2, x.end());
  if (sampler.elements() == 0) return call.build.Unsupported("it samples no elements");
  sampler.border = padding == "border"       ? Border::kNearest
                   : padding == "reflection" ? Border::kReflection
                                             : Border::kZeros;
  sampler.align_corners = call.Whole("align_corners", 0) != 0;
  Shape shape = {x[0], x[1]};
  shape.insert(shape.end(), grid.begin() + 1, grid.end() - 1);
  const int64_t points = CountOf(Shape(grid.begin() + 1, grid.end() - 1));
  const DType dtype = call.build.dtype(call.In(0));
  HostOperation host{"GridSample", "rr", {{dtype, shape}}};
  host.steps = static_cast<double>(CountOf(shape)) * std::pow(4.0, static_cast<double>(rank));
  host.compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    const int64_t plane = sampler.elements();
    for (int64_t n = 0; n < x[0]; ++n)
      for (int64_t p = 0; p < points; ++p) {
        const Place at = sampler.PlaceOf(in[1]->real.data() + (n * points + p) * grid.back());
        for (int64_t c = 0; c < x[1]; ++c) {
          const double* data = in[0]->real.data() + (n * x[1] + c) * plane;
          double value = 0;
          sampler.ForEachTap(at, [&](int64_t element, double factor) { value += factor * data[element]; });
          out.real[static_cast<size_t>((n * x[1] + c) * points + p)] = value;
        }
      }
    return std::vector{std::move(out)};
  };
  if (dtype == DType::kF32 && call.build.dtype(call.In(1)) == DType::kF32)
    host.run = [=](std::span<const void* const> in, std::span<void* const> out) -> Result<void> {
      SampleFloats(sampler, x, points, static_cast<const float*>(in[0]), static_cast<const float*>(in[1]),
                   static_cast<float*>(out[0]));
      return {};
    };
  return call.build.Host(std::move(host), {call.In(0), call.In(1)});
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
  return call.build.Host({"AffineGrid", "r", {{dtype, shape}}, compute}, {call.In(0)});
}

// The columns on the host, and their product with the weights as a convolution of 1x1.
Result<Outputs> DeformConv(OperatorCall& call) {
  Builder& build = call.build;
  if (call.rank(0) != 4 || call.rank(1) != 4) return build.Unsupported("images of other than two dimensions");
  const Shape x = call.shape(0), w = call.shape(1);
  DeformedWindows of;
  of.image = x;
  of.window = {w[2], w[3]};
  of.stride = call.Wholes("strides", {1, 1});
  of.dilation = call.Wholes("dilations", {1, 1});
  const std::vector<int64_t> pads = call.Wholes("pads", {0, 0, 0, 0});
  of.offset_groups = call.Whole("offset_group", 1);
  const int64_t groups = call.Whole("group", 1);
  if (of.stride.size() != 2 || of.dilation.size() != 2 || pads.size() != 4 || of.offset_groups < 1 || groups < 1 ||
      x[1] % of.offset_groups != 0 || w[1] * groups != x[1] || call.Wholes("kernel_shape", of.window) != of.window)
    return build.Invalid("its windows, groups and weights disagree");
  int64_t extents[2];
  for (size_t d = 0; d < 2; ++d) {
    if (of.stride[d] < 1 || of.dilation[d] < 1) return build.Invalid("a stride or dilation below 1");
    const int64_t room = x[2 + d] + pads[d] + pads[2 + d] - (of.dilation[d] * (of.window[d] - 1) + 1);
    if (room < 0) return build.Invalid("the window does not fit the image");
    extents[d] = room / of.stride[d] + 1;
  }
  of.height = extents[0];
  of.width = extents[1];
  of.top = pads[0];
  of.left = pads[1];
  if (call.shape(2) != of.Offsets() || (call.Has(4) && call.shape(4) != of.Mask()))
    return build.Invalid(fmt::format("offsets of {}, wanted {}", ShapeText(call.shape(2)), ShapeText(of.Offsets())));
  const DType dtype = build.dtype(call.In(0));
  HostOperation host{"DeformConv", "r==", {{dtype, of.Columns()}}};
  host.compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, of.Columns());
    DeformColumns(of, in[0]->real.data(), in[1]->real.data(), in.size() > 2 ? in[2]->real.data() : nullptr,
                  out.real.data());
    return std::vector{std::move(out)};
  };
  if (dtype == DType::kF32) {
    host.run = [=](std::span<const void* const> in, std::span<void* const> out) -> Result<void> {
      DeformColumns(of, static_cast<const float*>(in[0]), static_cast<const float*>(in[1]),
                    in.size() > 2 ? static_cast<const float*>(in[2]) : nullptr, static_cast<float*>(out[0]));
      return {};
    };
  }
  host.steps = static_cast<double>(CountOf(of.Columns())) * 4;
  std::vector<ValueId> inputs = {call.In(0), call.In(2)};
  if (call.Has(4)) inputs.push_back(call.In(4));
  Node conv;
  conv.kind = NodeKind::kConv;
  conv.window = conv.stride = conv.dilation = {1, 1};
  conv.pads = {0, 0, 0, 0};
  conv.groups = groups;
  conv.inputs = {HONE_TRY(build.Host(std::move(host), inputs))[0],
                 HONE_TRY(build.Reshape(call.In(1), {w[0], w[1] * w[2] * w[3], 1, 1}))};
  if (call.Has(3)) conv.inputs.push_back(call.In(3));
  return Outputs{HONE_TRY(build.Add(std::move(conv)))};
}

// Windows beside each other along the last dimension whose element number `part` lies in the image: there from `offset`
// on, a stride apart.
struct ColumnRun {
  int64_t part, window, count, offset;
};

std::vector<ColumnRun> RunsOfColumns(const Shape& image, const Shape& block, const Shape& windows,
                                     const std::vector<int64_t>& strides, const std::vector<int64_t>& dilations,
                                     const std::vector<int64_t>& pads) {
  const size_t last = image.size() - 1;
  const int64_t parts = CountOf(block), rows = CountOf(windows) / windows[last];
  std::vector<ColumnRun> runs;
  for (int64_t part = 0; part < parts; ++part)
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t shift = part % block[last] * dilations[last] - pads[last];
      const int64_t first = shift < 0 ? (-shift + strides[last] - 1) / strides[last] : 0;
      const int64_t end =
          std::min(windows[last], shift < image[last] ? (image[last] - shift - 1) / strides[last] + 1 : 0);
      int64_t rest_of_part = part / block[last], rest_of_row = row, scale = image[last];
      int64_t offset = first * strides[last] + shift;
      bool is_inside = first < end;
      for (size_t d = last; d-- > 0; scale *= image[d]) {
        const int64_t at = rest_of_row % windows[d] * strides[d] + rest_of_part % block[d] * dilations[d] - pads[d];
        rest_of_row /= windows[d];
        rest_of_part /= block[d];
        is_inside = is_inside && at >= 0 && at < image[d];
        offset += at * scale;
      }
      if (is_inside) runs.push_back({part, row * windows[last] + first, end - first, offset});
    }
  return runs;
}

// Several elements at once, as vectors.
template <typename T>
void AddLine(const T* __restrict x, int64_t count, WideElement<T>* __restrict to) {
  constexpr int kAtOnce = 8;
  int64_t i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce)
    for (int k = 0; k < kAtOnce; ++k) to[i + k] += static_cast<WideElement<T>>(x[i + k]);
  for (; i < count; ++i) to[i] += static_cast<WideElement<T>>(x[i]);
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
  if (rank == 0 || block.size() != rank || dilations.size() != rank || strides.size() != rank ||
      pads.size() != 2 * rank || x.size() != 3 || CountOf(block) < 1 || x[1] % CountOf(block) != 0)
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
  HostOperation host{"Col2Im", ".", {{dtype, shape}}};
  ComputeOnElements(host, dtype, [=]<typename T>(std::type_identity<T>, auto in, auto out) -> Result<void> {
    const std::vector<ColumnRun> runs = RunsOfColumns(image, block, windows, strides, dilations, pads);
    const int64_t parts = CountOf(block), step = strides.back();
    std::vector<WideElement<T>> sums(static_cast<size_t>(plane));
    for (int64_t c = 0; c < x[0] * channels; ++c) {
      std::ranges::fill(sums, 0);
      for (const ColumnRun& run : runs) {
        const T* column = static_cast<const T*>(in[0]) + (c * parts + run.part) * x[2] + run.window;
        WideElement<T>* to = sums.data() + run.offset;
        if (step == 1)
          AddLine(column, run.count, to);
        else
          for (int64_t i = 0; i < run.count; ++i) to[i * step] += static_cast<WideElement<T>>(column[i]);
      }
      std::ranges::transform(sums, static_cast<T*>(out[0]) + c * plane, [](auto sum) { return static_cast<T>(sum); });
    }
    return {};
  });
  return call.build.Host(std::move(host), {call.In(0)});
}

}  // namespace

std::vector<Operator> SamplingOperators() {
  return {{"GridSample", 2, GridSample},
          {"AffineGrid", 2, AffineGrid},
          {"DeformConv", 3, DeformConv},
          {"Col2Im", 3, Col2Im}};
}

}  // namespace hone
