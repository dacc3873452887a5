// Windows over any number of dimensions and the pools that no kernel is written for. They run
// on the host.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using Computed = Result<std::vector<Numbers>>;

// Where a window lies in each dimension.
struct WindowPlan {
  Shape from, window, to;  // extents of the input, of the window, of the output
  std::vector<int64_t> stride, dilation, before, after;

  size_t rank() const { return from.size(); }

  // The place of an element of the input where the first dimension counts first.
  int64_t ColumnMajor(int64_t element) const {
    int64_t place = 0;
    for (size_t d = rank(); d-- > 0; element /= from[d]) {
      int64_t before_it = 1;
      for (size_t other = 0; other < d; ++other) before_it *= from[other];
      place += element % from[d] * before_it;
    }
    return place;
  }

  // Calls visit(window element, input element) for each element of the window at an output element that lies within the
  // input, in the window's order.
  template <typename Visit>
  void ForEachTap(int64_t output, const Visit& visit) const {
    std::vector<int64_t> begin(rank());
    for (size_t d = rank(); d-- > 0;) {
      begin[d] = output % to[d] * stride[d] - before[d];
      output /= to[d];
    }
    const int64_t taps = CountOf(window);
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t rest = tap, offset = 0, scale = 1;
      bool is_inside = true;
      for (size_t d = rank(); d-- > 0;) {
        const int64_t at = begin[d] + rest % window[d] * dilation[d];
        rest /= window[d];
        is_inside = is_inside && at >= 0 && at < from[d];
        offset += at * scale;
        scale *= from[d];
      }
      if (is_inside) visit(tap, offset);
    }
  }

  // Elements of the window at an output element that lie within the input or its padding, but not beyond it, where the
  // last window of a rounded-up output may reach.
  int64_t CountPadded(int64_t output) const {
    int64_t count = 1;
    for (size_t d = rank(); d-- > 0;) {
      const int64_t begin = output % to[d] * stride[d];
      output /= to[d];
      int64_t fits = 0;
      for (int64_t k = 0; k < window[d]; ++k) fits += begin + k * dilation[d] < from[d] + before[d] + after[d] ? 1 : 0;
      count *= fits;
    }
    return count;
  }
};

Result<void> CheckWindow(const OperatorCall& call, const Shape& window) {
  constexpr int64_t kMostElements = int64_t{1} << 24;
  HONE_TRY(CheckShape(window));
  if (CountOf(window) < 1 || CountOf(window) > kMostElements)
    return call.build.Invalid(fmt::format("a window of {}", ShapeText(window)));
  return {};
}

// How often a window may be larger than the input and its padding.
enum class Overhang : uint8_t { kNever, kOnce };

// Where a window may hang over once, it does where less than a stride is missing: numbers of windows are rounded
// towards zero (ONNX's shape inference, and onnxruntime). Where a stride is missing, there is none.
Result<WindowPlan> PlanWindow(const OperatorCall& call, const Shape& x, Shape window, Overhang overhang) {
  WindowPlan plan;
  const size_t rank = window.size();
  if (x.size() != rank + 2 || rank == 0)
    return call.build.Invalid(fmt::format("a window of {} over {}", ShapeText(window), ShapeText(x)));
  plan.from.assign(x.begin() + 2, x.end());
  plan.window = std::move(window);
  HONE_TRY(CheckWindow(call, plan.window));
  plan.stride = call.Wholes("strides", std::vector<int64_t>(rank, 1));
  plan.dilation = call.Wholes("dilations", std::vector<int64_t>(rank, 1));
  std::vector<int64_t> pads = call.Wholes("pads", std::vector<int64_t>(2 * rank, 0));
  if (plan.stride.size() != rank || plan.dilation.size() != rank || pads.size() != 2 * rank)
    return call.build.Invalid("strides, dilations, pads and the window disagree about the dimensions");
  const std::string automatic = call.Text("auto_pad", "NOTSET");
  const bool rounds_up = call.Whole("ceil_mode", 0) != 0;
  for (size_t d = 0; d < rank; ++d) {
    constexpr int64_t kMost = 1 << 30;
    for (int64_t number : {plan.window[d], plan.stride[d], plan.dilation[d]})
      if (number < 1 || number > kMost)
        return call.build.Invalid(fmt::format("saw a window, stride or dilation of {}", number));
    const int64_t reach = (plan.window[d] - 1) * plan.dilation[d] + 1;
    int64_t before = pads[d], after = pads[rank + d];
    if (automatic == "VALID") before = after = 0;
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      const int64_t count = (plan.from[d] + plan.stride[d] - 1) / plan.stride[d];
      const int64_t pad = std::max<int64_t>((count - 1) * plan.stride[d] + reach - plan.from[d], 0);
      before = automatic == "SAME_UPPER" ? pad / 2 : pad - pad / 2;
      after = pad - before;
    }
    if (before < 0 || after < 0 || before > kMost || after > kMost || plan.from[d] > (int64_t{1} << 40))
      return call.build.Invalid(fmt::format("padding {} and {}", before, after));
    const int64_t room = plan.from[d] + before + after - reach;
    int64_t extent = room / plan.stride[d] + 1;
    if (room < 0 && (overhang == Overhang::kNever || extent < 0))
      return call.build.Invalid(fmt::format("a window of {} does not fit {} elements", reach, plan.from[d]));
    if (rounds_up && room > 0 && room % plan.stride[d] != 0 && extent * plan.stride[d] < plan.from[d] + before)
      ++extent;
    plan.before.push_back(before);
    plan.after.push_back(after);
    plan.to.push_back(extent);
  }
  return plan;
}

Shape Joined(int64_t n, int64_t c, const Shape& space) {
  Shape shape = {n, c};
  shape.insert(shape.end(), space.begin(), space.end());
  return shape;
}

constexpr int64_t kMostPlanes = 16;  // under a window

// A convolution of volumes as one of planes: the planes that a window meets are channels.
Result<Outputs> ConvByPlanes(OperatorCall& call, const WindowPlan& plan, int64_t groups) {
  Builder& build = call.build;
  const Shape x = call.shape(0), w = call.shape(1);
  ValueId padded = call.In(0);
  if (plan.before[0] > 0 || plan.after[0] > 0) {
    Node pad;
    pad.kind = NodeKind::kPad;
    pad.inputs = {padded};
    pad.starts = {0, 0, plan.before[0], 0, 0};
    pad.extents = x;
    pad.extents[2] += plan.before[0] + plan.after[0];
    padded = HONE_TRY(build.Add(std::move(pad)));
  }
  std::vector<ValueId> parts;
  for (int64_t tap = 0; tap < plan.window[0]; ++tap) {
    // The planes that meet plane `tap` of the window, one for each plane of the result.
    ValueId planes = HONE_TRY(build.Slice(padded, 2, tap * plan.dilation[0], plan.to[0], plan.stride[0]));
    planes = HONE_TRY(build.Transpose(planes, {0, 2, 1, 3, 4}));
    parts.push_back(HONE_TRY(build.Reshape(planes, {x[0], plan.to[0], x[1], 1, x[3] * x[4]})));
  }
  const ValueId joined = HONE_TRY(build.Concat(std::move(parts), 3));
  Node conv;
  conv.kind = NodeKind::kConv;
  conv.groups = groups;
  conv.window = {plan.window[1], plan.window[2]};
  conv.stride = {plan.stride[1], plan.stride[2]};
  conv.dilation = {plan.dilation[1], plan.dilation[2]};
  conv.pads = {plan.before[1], plan.before[2], plan.after[1], plan.after[2]};
  conv.inputs = {HONE_TRY(build.Reshape(joined, {x[0] * plan.to[0], x[1] * plan.window[0], x[3], x[4]})),
                 HONE_TRY(build.Reshape(call.In(1), {w[0], w[1] * w[2], w[3], w[4]}))};
  if (call.Has(2)) conv.inputs.push_back(call.In(2));
  ValueId y = HONE_TRY(build.Add(std::move(conv)));
  y = HONE_TRY(build.Reshape(y, {x[0], plan.to[0], w[0], plan.to[1], plan.to[2]}));
  return Outputs{HONE_TRY(build.Transpose(y, {0, 2, 1, 3, 4}))};
}

// A pool of volumes: of their planes, then of what these give along the third dimension.
Result<Outputs> PoolByPlanes(OperatorCall& call, const WindowPlan& plan, NodeKind kind) {
  Builder& build = call.build;
  const Shape x = call.shape(0);
  auto pooled = [&](ValueId value, Shape shape, const std::vector<size_t>& dimensions) -> Result<ValueId> {
    Node node;
    node.kind = kind;
    node.inputs = {HONE_TRY(build.Reshape(value, std::move(shape)))};
    node.window = node.stride = node.dilation = {1, 1};
    node.pads = {0, 0, 0, 0};
    for (size_t i = 0; i < dimensions.size(); ++i) {
      node.window[i] = plan.window[dimensions[i]];
      node.stride[i] = plan.stride[dimensions[i]];
      node.dilation[i] = plan.dilation[dimensions[i]];
      node.pads[i] = plan.before[dimensions[i]];
      node.pads[2 + i] = plan.after[dimensions[i]];
    }
    return build.Add(std::move(node));
  };
  ValueId y = HONE_TRY(pooled(call.In(0), {x[0], x[1] * x[2], x[3], x[4]}, {1, 2}));
  y = HONE_TRY(pooled(y, {x[0], x[1], x[2], plan.to[1] * plan.to[2]}, {0}));
  return Outputs{HONE_TRY(build.Reshape(y, Joined(x[0], x[1], plan.to)))};
}

bool IsAll(const std::vector<int64_t>& numbers, int64_t wanted) {
  return std::all_of(numbers.begin(), numbers.end(), [&](int64_t number) { return number == wanted; });
}

// Whether a kernel has such windows: none is empty, none larger than the input and its padding.
bool HasPlainWindows(const WindowPlan& plan) {
  for (size_t d = 0; d < plan.rank(); ++d) {
    const int64_t padded = plan.from[d] + plan.before[d] + plan.after[d];
    if (std::max(plan.before[d], plan.after[d]) >= plan.window[d] || (plan.window[d] - 1) * plan.dilation[d] >= padded)
      return false;
  }
  return true;
}

}  // namespace

Result<Outputs> ConvOfAnyRank(OperatorCall& call) {
  const Shape x = call.shape(0), w = call.shape(1);
  const int64_t groups = call.Whole("group", 1);
  if (w.size() != x.size() || groups < 1 || x[1] % groups != 0 || w[0] % groups != 0 || w[1] != x[1] / groups)
    return call.build.Invalid(fmt::format("a weight of {} for {} in {} groups", ShapeText(w), ShapeText(x), groups));
  if (call.Has(2) && call.shape(2) != Shape{w[0]}) return call.build.Invalid("the bias is not one a channel");
  const WindowPlan plan = HONE_TRY(PlanWindow(call, x, Shape(w.begin() + 2, w.end()), Overhang::kNever));
  const Shape shape = Joined(x[0], w[0], plan.to);
  const DType dtype = call.build.dtype(call.In(0));
  if (plan.rank() == 3 && plan.window[0] <= kMostPlanes && CountOf(x) > 0 && CountOf(w) > 0)
    return ConvByPlanes(call, plan, groups);
  if (!IsFloat(dtype)) return call.build.Unsupported("it convolves whole numbers");
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    const int64_t points = CountOf(plan.to), plane = CountOf(plan.from), taps = CountOf(plan.window);
    const int64_t in_group = w[1], out_group = w[0] / groups;
    for (int64_t n = 0; n < x[0]; ++n) {
      for (int64_t p = 0; p < points; ++p) {
        plan.ForEachTap(p, [&](int64_t tap, int64_t offset) {
          for (int64_t o = 0; o < w[0]; ++o) {
            double sum = 0;
            for (int64_t c = 0; c < in_group; ++c)
              sum += in[0]->real[static_cast<size_t>((n * x[1] + o / out_group * in_group + c) * plane + offset)] *
                     in[1]->real[static_cast<size_t>((o * in_group + c) * taps + tap)];
            out.real[static_cast<size_t>((n * w[0] + o) * points + p)] += sum;
          }
        });
      }
    }
    if (in.size() > 2)
      for (size_t i = 0; i < out.real.size(); ++i)
        out.real[i] += in[2]->real[i / static_cast<size_t>(points) % static_cast<size_t>(w[0])];
    return std::vector{std::move(out)};
  };
  std::vector<ValueId> inputs = {call.In(0), call.In(1)};
  if (call.Has(2)) inputs.push_back(call.In(2));
  return call.build.Host(
      {"Conv",
       "r==",
       {{dtype, shape}},
       compute,
       static_cast<double>(CountOf(plan.to)) * static_cast<double>(CountOf(w)) * static_cast<double>(x[0])},
      inputs);
}

namespace {

struct PoolRule {
  bool is_max = false, is_lp = false;  // else the mean
  bool counts_padding = false;
  bool is_column_major = false;  // indices count along the first dimension first
  double power = 2;
};

// The pool of each window over `rows` planes; for a maximum the places of the elements, too.
std::vector<Numbers> PoolWindows(const WindowPlan& plan, const PoolRule& rule, int64_t rows, const Numbers& x,
                                 Numbers out) {
  constexpr int64_t kMostAtOnce = 1024, kTapsAtOnce = int64_t{1} << 22;
  const int64_t at_once = std::clamp<int64_t>(kTapsAtOnce / std::max<int64_t>(CountOf(plan.window), 1), 1, kMostAtOnce);
  const int64_t points = CountOf(plan.to), plane = CountOf(plan.from);
  Numbers indices = MakeNumbers(DType::kI64, out.shape);
  // Of a window: its mean, or where its greatest element is, the last NaN if there is one.
  const auto mean = [&](int64_t row, int64_t p, std::span<const int64_t> window) {
    double sum = 0;
    for (int64_t offset : window) {
      const double value = x.RealAt(static_cast<size_t>(row * plane + offset));
      sum += rule.is_lp ? std::pow(std::abs(value), rule.power) : value;
    }
    const auto count = rule.counts_padding ? plan.CountPadded(p) : static_cast<int64_t>(window.size());
    return rule.is_lp ? std::pow(sum, 1 / rule.power) : sum / static_cast<double>(std::max<int64_t>(count, 1));
  };
  const auto greatest = [&](int64_t row, std::span<const int64_t> window) {
    int64_t best = -1;
    double most = 0;
    for (int64_t offset : window) {
      const double value = x.RealAt(static_cast<size_t>(row * plane + offset));
      if (best >= 0 && !(value > most) && !std::isnan(value)) continue;
      best = offset;
      most = value;
    }
    return best;
  };
  // Where a few windows lie is found once for all planes.
  std::vector<int64_t> taps, ends;
  for (int64_t first = 0; first < points; first += at_once) {
    const int64_t here = std::min(at_once, points - first);
    taps.clear();
    ends.assign(1, 0);
    for (int64_t p = first; p < first + here; ++p) {
      plan.ForEachTap(p, [&](int64_t, int64_t offset) { taps.push_back(offset); });
      ends.push_back(static_cast<int64_t>(taps.size()));
    }
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t p = 0; p < here; ++p) {
        const std::span<const int64_t> window(taps.begin() + ends[static_cast<size_t>(p)],
                                              taps.begin() + ends[static_cast<size_t>(p) + 1]);
        const auto to = static_cast<size_t>(row * points + first + p);
        if (!rule.is_max) {
          out.real[to] = mean(row, first + p, window);
          continue;
        }
        const int64_t within = greatest(row, window);
        indices.whole[to] = within < 0 ? -1 : row * plane + within;
        if (within < 0) continue;
        evaluating::CopyElement(x, row * plane + within, out, to);
        if (rule.is_column_major) indices.whole[to] = row * plane + plan.ColumnMajor(within);
      }
  }
  std::vector<Numbers> results;
  results.push_back(std::move(out));
  if (rule.is_max) results.push_back(std::move(indices));
  return results;
}

}  // namespace

Result<Outputs> PoolOfAnyRank(OperatorCall& call) {
  const Shape x = call.shape(0);
  const std::string& op = call.node().op;
  const bool is_max = op == "MaxPool", is_lp = op == "LpPool";
  const WindowPlan plan = HONE_TRY(PlanWindow(call, x, call.Wholes("kernel_shape", {}), Overhang::kOnce));
  const bool counts_padding = call.Whole("count_include_pad", 0) != 0;
  const Shape shape = Joined(x[0], x[1], plan.to);
  const DType dtype = call.build.dtype(call.In(0));
  if (!IsFloat(dtype) && !is_max) return call.build.Unsupported("it averages whole numbers");
  const bool is_even = IsAll(plan.before, 0) && IsAll(plan.after, 0) && IsAll(plan.dilation, 1);
  if (plan.rank() == 3 && IsFloat(dtype) && call.node().outputs.size() == 1 && call.Whole("ceil_mode", 0) == 0 &&
      CountOf(x) > 0 && HasPlainWindows(plan) && (is_max || (op == "AveragePool" && is_even)))
    return PoolByPlanes(call, plan, is_max ? NodeKind::kMaxPool : NodeKind::kAveragePool);
  const PoolRule rule{is_max, is_lp, counts_padding, call.Whole("storage_order", 0) != 0,
                      static_cast<double>(call.Whole("p", 2))};
  auto compute = [=](Arguments in) -> Computed {
    return PoolWindows(plan, rule, x[0] * x[1], *in[0], MakeNumbers(dtype, shape));
  };
  std::vector<TensorType> types = {{dtype, shape}};
  if (is_max) types.push_back({DType::kI64, shape});
  const double steps = static_cast<double>(CountOf(shape)) * static_cast<double>(CountOf(plan.window));
  return call.build.Host({op, ".", types, compute, steps}, {call.In(0)});
}

namespace {

Result<Outputs> GlobalLpPool(OperatorCall& call) {
  const Shape x = call.shape(0);
  if (x.size() < 3) return call.build.Invalid("it wants 3 dimensions or more");
  const double power = static_cast<double>(call.Whole("p", 2));
  Shape shape(x.size(), 1);
  shape[0] = x[0];
  shape[1] = x[1];
  const DType dtype = call.build.dtype(call.In(0));
  if (!IsFloat(dtype)) return call.build.Invalid("it wants floats");
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    const size_t plane = out.real.empty() ? 0 : in[0]->real.size() / out.real.size();
    for (size_t i = 0; i < out.real.size(); ++i) {
      double sum = 0;
      for (size_t k = 0; k < plane; ++k) sum += std::pow(std::abs(in[0]->real[i * plane + k]), power);
      out.real[i] = std::pow(sum, 1 / power);
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host({"GlobalLpPool", "r", {{dtype, shape}}, compute}, {call.In(0)});
}

Result<Outputs> MaxUnpool(OperatorCall& call) {
  const Shape x = call.shape(0);
  const size_t rank = x.size() < 3 ? 0 : x.size() - 2;
  const std::vector<int64_t> window = call.Wholes("kernel_shape", {});
  const std::vector<int64_t> stride = call.Wholes("strides", std::vector<int64_t>(rank, 1));
  const std::vector<int64_t> pads = call.Wholes("pads", std::vector<int64_t>(2 * rank, 0));
  if (rank == 0 || window.size() != rank || stride.size() != rank || pads.size() != 2 * rank || call.shape(1) != x)
    return call.build.Invalid("the window, strides, pads and indices disagree about the dimensions");
  Shape natural = {x[0], x[1]};  // what the indices count in
  for (size_t d = 0; d < rank; ++d)
    natural.push_back((x[2 + d] - 1) * stride[d] - pads[d] - pads[rank + d] + window[d]);
  Shape shape = natural;
  if (call.Has(2)) shape = HONE_TRY(call.ConstantInput(2, "the output's shape"));
  HONE_TRY(CheckShape(shape));
  HONE_TRY(CheckShape(natural));
  if (shape.size() != natural.size()) return call.build.Invalid("the output's shape has other dimensions");
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] < natural[d]) return call.build.Invalid("the output's shape is smaller than what is unpooled");
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    const std::vector<int64_t> from = evaluating::StridesOf(natural), to = evaluating::StridesOf(shape);
    for (size_t i = 0; i < in[1]->whole.size(); ++i) {
      int64_t rest = in[1]->whole[i], offset = 0;
      if (rest < 0 || rest >= CountOf(natural))
        return Error{ErrorKind::kInvalid, fmt::format("index {} of {} elements", rest, CountOf(natural)), ""};
      for (size_t d = 0; d < from.size(); ++d) {
        offset += rest / from[d] * to[d];
        rest %= from[d];
      }
      evaluating::CopyElement(*in[0], static_cast<int64_t>(i), out, static_cast<size_t>(offset));
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host({"MaxUnpool", ".w", {{dtype, shape}}, compute}, {call.In(0), call.In(1)});
}

// x / (bias + alpha/size · Σ x²)^beta over neighbouring channels.
Result<Outputs> LocalResponse(OperatorCall& call) {
  const Shape x = call.shape(0);
  const int64_t size = call.Whole("size", 1);
  if (x.size() < 3 || size < 1) return call.build.Invalid("it wants channels, and a number of them");
  const double alpha = call.Real("alpha", 1e-4), beta = call.Real("beta", 0.75), bias = call.Real("bias", 1);
  const DType dtype = call.build.dtype(call.In(0));
  if (!IsFloat(dtype)) return call.build.Invalid("it wants floats");
  const evaluating::Lines lines(x, 1);
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, x);
    for (int64_t i = 0; i < lines.count(); ++i) {
      for (int64_t c = 0; c < lines.extent; ++c) {
        double squares = 0;
        for (int64_t k = std::max<int64_t>(0, c - (size - 1) / 2); k <= std::min(lines.extent - 1, c + size / 2); ++k) {
          const double value = in[0]->real[lines.At(i, k)];
          squares += value * value;
        }
        out.real[lines.At(i, c)] =
            in[0]->real[lines.At(i, c)] / std::pow(bias + alpha / static_cast<double>(size) * squares, beta);
      }
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host({"LRN", "r", {{dtype, x}}, compute}, {call.In(0)});
}

}  // namespace

std::vector<Operator> WindowOperators() {
  return {{"LpPool", 1, PoolOfAnyRank},
          {"GlobalLpPool", 1, GlobalLpPool},
          {"MaxUnpool", 2, MaxUnpool},
          {"LRN", 1, LocalResponse}};
}

}  // namespace hone
