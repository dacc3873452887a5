// Transposed convolutions: each input element is spread over a window of the output. Elements of the output that are
// `stride` apart are sums over the same part of the window, so a convolution of stride 1 with a filter for each such
// part gives all of them, channel by channel, and they are put in their places. Where the stride does not divide the
// window, some of the parts have an element less than the others: those are convolutions of their own if that pays.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "network/onnx/translate.h"

namespace hone {
namespace {

// Phases of a stride that are computed at once, and for how many elements of the window.
struct Run {
  int64_t from = 0, phases = 1, taps = 1;
};

// Along one dimension. Element u of the output before padding is cut off is Σ x[i] · w[r] over u = stride·i + r; with
// u = stride·q + phase and r = stride·t + phase, this is Σ x[q − t] · w[stride·t + phase] over `taps` values of t.
struct Spread {
  int64_t from = 0;    // elements of the input
  int64_t window = 1;  // with the gaps of its dilation
  int64_t stride = 1;
  int64_t before = 0, to = 0;  // the output: where it begins, how many elements it has
  bool is_split = false;       // phases with fewer taps are a run of their own

  int64_t taps() const { return (window + stride - 1) / stride; }
  bool can_split() const { return window > stride && window % stride != 0; }
  std::vector<Run> runs() const {
    if (!is_split) return {{0, stride, taps()}};
    const int64_t with_all = window % stride;
    return {{0, with_all, taps()}, {with_all, stride - with_all, taps() - 1}};
  }
  int64_t first() const { return before / stride; }            // of the values of q that are wanted …
  int64_t last() const { return (before + to - 1) / stride; }  // … and the last of them
  // A convolution of the input padded so, by a run, is Σ for q = begin(), begin() + 1 …
  int64_t pad_before(const Run& run) const { return run.taps - 1 - begin(); }
  int64_t pad_after() const { return std::max<int64_t>(last() - (from - 1), 0); }
  int64_t begin() const { return std::min(first(), runs().back().taps - 1); }
};

struct Plan {
  std::vector<Spread> dimensions;
  std::vector<int64_t> dilation;
  int64_t groups = 1;
};

// A run for each dimension: a convolution.
using Part = std::vector<Run>;

int64_t PhasesOf(const Part& part) {
  return std::accumulate(part.begin(), part.end(), int64_t{1},
                         [](int64_t all, const Run& run) { return all * run.phases; });
}

Result<Plan> ReadPlan(OperatorCall& call) {
  const Shape x = call.shape(0), w = call.shape(1);
  Plan plan;
  plan.groups = call.Whole("group", 1);
  if (x.size() < 3 || w.size() != x.size() || plan.groups < 1 || x[1] % plan.groups != 0 || w[0] != x[1])
    return call.build.Invalid(
        fmt::format("a weight of {} for {} in {} groups", ShapeText(w), ShapeText(x), plan.groups));
  const size_t rank = x.size() - 2;
  const std::vector<int64_t> strides = call.Wholes("strides", std::vector<int64_t>(rank, 1));
  plan.dilation = call.Wholes("dilations", std::vector<int64_t>(rank, 1));
  const std::vector<int64_t> pads = call.Wholes("pads", std::vector<int64_t>(2 * rank, 0));
  const std::vector<int64_t> more = call.Wholes("output_padding", std::vector<int64_t>(rank, 0));
  const std::vector<int64_t> wanted = call.Wholes("output_shape", {});
  const std::string automatic = call.Text("auto_pad", "NOTSET");
  if (strides.size() != rank || plan.dilation.size() != rank || pads.size() != 2 * rank || more.size() != rank ||
      (!wanted.empty() && wanted.size() != rank && wanted.size() != rank + 2))
    return call.build.Invalid("strides, dilations, pads and the output's shape disagree about the dimensions");
  for (size_t d = 0; d < rank; ++d) {
    constexpr int64_t kMost = 1 << 30;
    for (int64_t number : {w[2 + d], strides[d], plan.dilation[d], x[2 + d]})
      if (number < 1 || number > kMost)
        return call.build.Invalid(fmt::format("saw an extent, window, stride or dilation of {}", number));
    for (int64_t number : {pads[d], pads[rank + d], more[d], wanted.empty() ? 0 : wanted[wanted.size() - rank + d]})
      if (number < -kMost || number > kMost)
        return call.build.Invalid(fmt::format("saw a pad, an output's padding or an extent of {}", number));
    Spread spread{x[2 + d], (w[2 + d] - 1) * plan.dilation[d] + 1, strides[d], pads[d], 0};
    const int64_t full = spread.stride * (spread.from - 1) + more[d] + spread.window;
    if (!wanted.empty() || automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      spread.to = wanted.empty() ? spread.from * spread.stride : wanted[wanted.size() - rank + d];
      const int64_t total = std::max<int64_t>(full - spread.to, 0);
      spread.before = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
    } else {
      if (automatic == "VALID") spread.before = 0;
      spread.to = full - spread.before - (automatic == "VALID" ? 0 : pads[rank + d]);
    }
    if (spread.to < 1 || spread.to > kMost || spread.before < 0)
      return call.build.Invalid(fmt::format("an output of {} elements from element {}", spread.to, spread.before));
    plan.dimensions.push_back(spread);
  }
  return plan;
}

// Splits the phases of a dimension where the multiplications that this saves take longer than another kernel.
void SplitPhases(Plan& plan, const Shape& x, const Shape& w) {
  constexpr double kSaved = 2e6;  // multiply-adds: some 30 µs of one core
  double work = static_cast<double>(x[0]) * static_cast<double>(w[0]) * static_cast<double>(w[1]);
  for (const Spread& of : plan.dimensions)
    work *= static_cast<double>(of.from) * static_cast<double>(of.taps() * of.stride);
  for (Spread& of : plan.dimensions) {
    if (!of.can_split()) continue;
    const double left = work * static_cast<double>(of.window) / static_cast<double>(of.taps() * of.stride);
    if (work - left < kSaved) continue;
    of.is_split = true;
    work = left;
  }
}

// Filters [outputs·phases, channels of a group, taps…] from w[channels, outputs of a group, window…]: for each output
// channel one for each phase, the last tap first.
Result<ValueId> Filters(Builder& build, ValueId w, const Plan& plan, const Part& part) {
  const size_t rank = plan.dimensions.size();
  const Shape from = build.shape(w);
  const int64_t inputs = from[0] / plan.groups, outputs = from[1];
  Shape spread = {from[0], outputs};
  for (size_t d = 0; d < rank; ++d) {
    const Spread& of = plan.dimensions[d];
    const size_t axis = 2 + d;
    if (plan.dilation[d] > 1) {  // zeros between its elements
      Shape apart = build.shape(w);
      apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(axis) + 1, 1);
      Node pad;
      pad.kind = NodeKind::kPad;
      pad.inputs = {HONE_TRY(build.Reshape(w, apart))};
      pad.starts.assign(apart.size(), 0);
      pad.extents = apart;
      pad.extents[axis + 1] = plan.dilation[d];
      w = HONE_TRY(build.Add(std::move(pad)));
      apart.erase(apart.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
      apart[axis] *= plan.dilation[d];
      w = HONE_TRY(build.Slice(HONE_TRY(build.Reshape(w, apart)), axis, 0, of.window));
    }
    if (of.taps() * of.stride > of.window) {
      Node pad;
      pad.kind = NodeKind::kPad;
      pad.inputs = {w};
      pad.extents = build.shape(w);
      pad.starts.assign(pad.extents.size(), 0);
      pad.extents[axis] = of.taps() * of.stride;
      w = HONE_TRY(build.Add(std::move(pad)));
    }
    spread.insert(spread.end(), {of.taps(), of.stride});
  }
  // [channels, outputs, taps, phases, …] → [channels, outputs, phases …, taps …]
  w = HONE_TRY(build.Reshape(w, spread));
  for (size_t d = 0; d < rank; ++d) {
    w = HONE_TRY(build.Slice(w, 2 + 2 * d, 0, part[d].taps));
    w = HONE_TRY(build.Slice(w, 3 + 2 * d, part[d].from, part[d].phases));
  }
  std::vector<int64_t> order = {0, 1};
  const int64_t phases = PhasesOf(part);
  Shape apart = {plan.groups, inputs, outputs, phases};
  for (size_t d = 0; d < rank; ++d) order.push_back(static_cast<int64_t>(3 + 2 * d));
  for (size_t d = 0; d < rank; ++d) order.push_back(static_cast<int64_t>(2 + 2 * d));
  w = HONE_TRY(build.Transpose(w, order));
  for (const Run& run : part) apart.push_back(run.taps);
  // → [groups, outputs, phases, channels of a group, taps …]
  w = HONE_TRY(build.Reshape(w, apart));
  order = {0, 2, 3, 1};
  for (size_t d = 0; d < rank; ++d) order.push_back(static_cast<int64_t>(4 + d));
  w = HONE_TRY(build.Transpose(w, order));
  for (size_t d = 0; d < rank; ++d) {
    const int64_t taps = part[d].taps;
    if (taps == 1) continue;
    std::vector<int64_t> backwards(static_cast<size_t>(taps));
    std::iota(backwards.rbegin(), backwards.rend(), 0);
    w = HONE_TRY(build.Gather(w, build.Constant(WholeNumbers(backwards, {taps})), static_cast<int64_t>(4 + d)));
  }
  Shape shape = {plan.groups * outputs * phases, inputs};
  for (const Run& run : part) shape.push_back(run.taps);
  return build.Reshape(w, shape);
}

// A convolution of stride 1 over any number of dimensions.
Result<ValueId> Convolve(OperatorCall& call, std::vector<ValueId> inputs, const Plan& plan, const Part& part) {
  OnnxNode node = call.node();
  node.op = "Conv";
  node.outputs.resize(1);
  node.attributes.clear();
  OnnxAttribute groups, pads;
  groups.name = "group";
  groups.kind = OnnxAttribute::Kind::kInt;
  groups.whole = plan.groups;
  pads.name = "pads";
  pads.kind = OnnxAttribute::Kind::kInts;
  for (size_t d = 0; d < part.size(); ++d) pads.wholes.push_back(plan.dimensions[d].pad_before(part[d]));
  for (const Spread& of : plan.dimensions) pads.wholes.push_back(of.pad_after());
  node.attributes = {groups, pads};
  OperatorCall inner(call.build.graph(), node, std::move(inputs), call.opset());
  return HONE_TRY(FindOperator("Conv")->translate(inner))[0];
}

// [N, channels, phases …, q …] of the runs of the first part.size() dimensions, of all runs of the others.
Result<ValueId> Phases(OperatorCall& call, const Plan& plan, Part part) {
  Builder& build = call.build;
  const size_t d = part.size();
  if (d < plan.dimensions.size()) {
    std::vector<ValueId> values;
    part.push_back({});
    for (const Run& run : plan.dimensions[d].runs()) {
      part.back() = run;
      values.push_back(HONE_TRY(Phases(call, plan, part)));
    }
    return build.Concat(std::move(values), static_cast<int64_t>(2 + d));
  }
  const int64_t channels = call.shape(1)[1] * plan.groups, phases = PhasesOf(part);
  std::vector<ValueId> inputs = {call.In(0), HONE_TRY(Filters(build, call.In(1), plan, part))};
  if (call.Has(2)) {
    ValueId bias = HONE_TRY(build.Expand(HONE_TRY(build.Reshape(call.In(2), {channels, 1})), {channels, phases}));
    inputs.push_back(HONE_TRY(build.Reshape(bias, {channels * phases})));
  }
  ValueId y = HONE_TRY(Convolve(call, std::move(inputs), plan, part));
  const Shape computed = build.shape(y);
  Shape apart = {computed[0], channels};
  for (const Run& run : part) apart.push_back(run.phases);
  apart.insert(apart.end(), computed.begin() + 2, computed.end());
  return build.Reshape(y, apart);
}

Result<Outputs> ConvTranspose(OperatorCall& call) {
  Builder& build = call.build;
  Plan plan = HONE_TRY(ReadPlan(call));
  SplitPhases(plan, call.shape(0), call.shape(1));
  const size_t rank = plan.dimensions.size();
  const int64_t channels = call.shape(1)[1] * plan.groups;
  const int64_t phases = std::accumulate(plan.dimensions.begin(), plan.dimensions.end(), int64_t{1},
                                         [](int64_t all, const Spread& of) { return all * of.stride; });
  if (call.Has(2) && call.shape(2) != Shape{channels}) return build.Invalid("the bias is not one a channel");
  HONE_TRY(CheckShape({call.shape(0)[0], channels, phases}));
  ValueId y = HONE_TRY(Phases(call, plan, {}));
  // [N, channels, stride…, q…] → [N, channels, q, stride, …]: elements in their places.
  const Shape computed = build.shape(y);
  Shape together = {computed[0], channels};
  std::vector<int64_t> order = {0, 1};
  for (size_t d = 0; d < rank; ++d) {
    together.push_back(computed[2 + rank + d] * plan.dimensions[d].stride);
    order.push_back(static_cast<int64_t>(2 + rank + d));
    order.push_back(static_cast<int64_t>(2 + d));
  }
  if (phases > 1) y = HONE_TRY(build.Transpose(y, order));
  y = HONE_TRY(build.Reshape(y, together));
  for (size_t d = 0; d < rank; ++d) {
    const Spread& of = plan.dimensions[d];
    y = HONE_TRY(build.Slice(y, 2 + d, of.before - of.begin() * of.stride, of.to));
  }
  return Outputs{y};
}

}  // namespace

std::vector<Operator> TransposedOperators() { return {{"ConvTranspose", 2, ConvTranspose}}; }

}  // namespace hone
