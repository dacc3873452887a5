// Layers of language models that keep a state of one size in a cache's place: attention without a softmax, and the
// short convolution before it. onnxruntime's (com.microsoft) came first, with more attributes than ONNX's.
#include <fmt/format.h>

#include <cmath>

#include "network/graph/walk.h"
#include "network/onnx/attend.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using Computed = Result<std::vector<Numbers>>;

constexpr int64_t kMostUnrolledSteps = 32, kMostDilation = 1 << 20;

// ---- Attention

// A state [keys' width, values' width] for each batch and head. At each step it decays, forgets what the key finds in
// it, takes the value in at the key, and is read by `queries` queries.
struct LinearStates {
  int64_t batch = 0, heads = 0, steps = 0, queries = 1, key_width = 0, value_width = 0;
  bool decays = false, forgets = false;
  int64_t decay_width = 1;  // 1, or one factor for each of the key's elements

  Shape state() const { return {batch, heads, key_width, value_width}; }
};

// What the steps read: queries [batch, heads, steps, queries · key_width], scaled; keys and values [batch, heads,
// steps, width]; factors [batch, heads, steps, decay_width]; shares of what is taken in [batch, heads, steps, 1]; the
// state.
struct LinearOperands {
  ValueId queries, keys, values, factors, shares, state;
};

Result<ValueId> OneStep(Builder& build, ValueId x, int64_t step, Shape shape) {
  return build.Reshape(HONE_TRY(build.Slice(x, 2, step, 1)), std::move(shape));
}

// A few nodes a step: their products and sums are kernels. `of.state` becomes the last one.
Result<ValueId> UnrolledStates(Builder& build, const LinearStates& states, LinearOperands& of) {
  const int64_t b = states.batch, h = states.heads;
  std::vector<ValueId> rows;
  for (int64_t step = 0; step < states.steps; ++step) {
    if (states.decays) {
      const ValueId factor = HONE_TRY(OneStep(build, of.factors, step, {b, h, states.decay_width, 1}));
      of.state = HONE_TRY(build.Binary("mul", of.state, factor));
    }
    const ValueId key = HONE_TRY(OneStep(build, of.keys, step, {b, h, 1, states.key_width}));
    ValueId taken = HONE_TRY(OneStep(build, of.values, step, {b, h, 1, states.value_width}));
    if (states.forgets) {
      taken = HONE_TRY(build.Binary("sub", taken, HONE_TRY(build.MatMul(key, of.state))));
      taken = HONE_TRY(build.Binary("mul", taken, HONE_TRY(build.Slice(of.shares, 2, step, 1))));
    }
    const ValueId column = HONE_TRY(build.Reshape(key, {b, h, states.key_width, 1}));
    of.state = HONE_TRY(build.Binary("add", of.state, HONE_TRY(build.Binary("mul", column, taken))));
    const ValueId queries = HONE_TRY(OneStep(build, of.queries, step, {b, h, states.queries, states.key_width}));
    const ValueId row = HONE_TRY(build.MatMul(queries, of.state));
    rows.push_back(HONE_TRY(build.Reshape(row, {b, 1, h * states.queries * states.value_width})));
  }
  return build.Concat(std::move(rows), 1);
}

// The same over memory, a step after the other; `factors` and `shares` are null where there are none.
template <typename Real>
void RunStates(const LinearStates& of, const Real* queries, const Real* keys, const Real* values, const Real* factors,
               const Real* shares, Real* state, Real* y) {
  std::vector<Real> taken(static_cast<size_t>(of.value_width));
  for (int64_t pair = 0; pair < of.batch * of.heads; ++pair) {
    Real* own = state + pair * of.key_width * of.value_width;
    auto row = [&](int64_t i) { return own + i * of.value_width; };
    for (int64_t step = 0; step < of.steps; ++step) {
      const int64_t at = pair * of.steps + step;
      const Real *key = keys + at * of.key_width, *value = values + at * of.value_width;
      std::copy(value, value + of.value_width, taken.begin());
      for (int64_t i = 0; i < of.key_width; ++i) {
        const Real factor = factors == nullptr ? 1 : factors[at * of.decay_width + (of.decay_width > 1 ? i : 0)];
        for (int64_t j = 0; j < of.value_width; ++j) {
          row(i)[j] *= factor;
          if (shares != nullptr) taken[static_cast<size_t>(j)] -= key[i] * row(i)[j];
        }
      }
      for (int64_t j = 0; shares != nullptr && j < of.value_width; ++j) taken[static_cast<size_t>(j)] *= shares[at];
      Real* result =
          y + ((pair / of.heads * of.steps + step) * of.heads + pair % of.heads) * of.queries * of.value_width;
      std::fill(result, result + of.queries * of.value_width, Real(0));
      for (int64_t i = 0; i < of.key_width; ++i) {
        for (int64_t j = 0; j < of.value_width; ++j) row(i)[j] += key[i] * taken[static_cast<size_t>(j)];
        for (int64_t q = 0; q < of.queries; ++q) {
          const Real query = queries[(at * of.queries + q) * of.key_width + i];
          for (int64_t j = 0; j < of.value_width; ++j) result[q * of.value_width + j] += query * row(i)[j];
        }
      }
    }
  }
}

// Many steps: on the host.
Result<Outputs> HostStates(Builder& build, const LinearStates& states, const LinearOperands& of) {
  const DType dtype = build.dtype(of.queries);
  const TensorType y{dtype, {states.batch, states.steps, states.heads * states.queries * states.value_width}};
  std::vector<ValueId> inputs = {of.state, of.queries, of.keys, of.values};
  if (states.decays) inputs.push_back(of.factors);
  if (states.forgets) inputs.push_back(of.shares);
  HostOperation host{"LinearAttention", "r=====", {y, {dtype, states.state()}}};
  const size_t at_shares = states.decays ? 5 : 4;
  host.compute = [=](Arguments in) -> Computed {
    std::vector<Numbers> results = {MakeNumbers(dtype, y.shape), *in[0]};
    RunStates<double>(states, in[1]->real.data(), in[2]->real.data(), in[3]->real.data(),
                      states.decays ? in[4]->real.data() : nullptr,
                      states.forgets ? in[at_shares]->real.data() : nullptr, results[1].real.data(),
                      results[0].real.data());
    return results;
  };
  if (dtype == DType::kF32) {
    host.run = [=](std::span<const void* const> in, std::span<void* const> results) -> Result<void> {
      auto floats = [&](size_t i) { return static_cast<const float*>(in[i]); };
      std::vector<float> unread[2];
      float* to[2];
      for (size_t i : {0, 1}) {
        const Shape& shape = i == 0 ? y.shape : states.state();
        if (results[i] == nullptr) unread[i].resize(static_cast<size_t>(CountOf(shape)));
        to[i] = results[i] == nullptr ? unread[i].data() : static_cast<float*>(results[i]);
      }
      std::copy(floats(0), floats(0) + CountOf(states.state()), to[1]);
      RunStates<float>(states, floats(1), floats(2), floats(3), states.decays ? floats(4) : nullptr,
                       states.forgets ? floats(at_shares) : nullptr, to[1], to[0]);
      return {};
    };
  }
  host.steps = static_cast<double>(CountOf(states.state())) * static_cast<double>(states.steps) *
               static_cast<double>(2 + states.queries);
  return build.Host(std::move(host), inputs);
}

// Heads [batch, heads, steps, size], each `times` times one after the other.
Result<ValueId> Repeated(Builder& build, ValueId x, int64_t times) {
  const Shape shape = build.shape(x);
  if (times == 1) return x;
  x = HONE_TRY(build.Reshape(x, {shape[0], shape[1], 1, shape[2], shape[3]}));
  x = HONE_TRY(build.Expand(x, {shape[0], shape[1], times, shape[2], shape[3]}));
  return build.Reshape(x, {shape[0], shape[1] * times, shape[2], shape[3]});
}

// Queries, keys, values [batch, steps, heads · width]; the state before; logarithms of factors; shares.
Result<Outputs> LinearAttention(OperatorCall& call) {
  Builder& build = call.build;
  constexpr size_t kState = 3, kDecay = 4, kShare = 5;
  for (size_t i : {0, 1, 2})
    if (!call.Has(i) || call.rank(i) != 3 || call.shape(i)[0] != call.shape(0)[0] ||
        call.shape(i)[1] != call.shape(0)[1])
      return build.Invalid("queries, keys and values want three dimensions and one length");
  const int64_t heads = call.Whole("kv_num_heads", 0), readers = call.Whole("q_num_heads", 0);
  if (heads < 1 || readers < 1 || (readers % heads != 0 && heads % readers != 0) || call.shape(0)[2] % readers != 0 ||
      call.shape(2)[2] % heads != 0)
    return build.Invalid(fmt::format("{} heads of queries and {} of values for {} and {}", readers, heads,
                                     ShapeText(call.shape(0)), ShapeText(call.shape(2))));
  LinearStates states;
  states.batch = call.shape(0)[0];
  states.steps = call.shape(0)[1];
  states.heads = heads;
  states.queries = std::max<int64_t>(1, readers / heads);
  states.key_width = call.shape(0)[2] / readers;
  states.value_width = call.shape(2)[2] / heads;
  const std::string rule = call.Text("update_rule", "gated_delta");
  if (rule != "linear" && rule != "gated" && rule != "delta" && rule != "gated_delta")
    return build.Invalid("update_rule=" + rule);
  states.decays = rule.starts_with("gated");
  states.forgets = rule.ends_with("delta");
  const int64_t width = call.shape(1)[2], key_heads = states.key_width < 1 ? 0 : width / states.key_width;
  if (states.steps < 1 || key_heads < 1 || width != key_heads * states.key_width || heads % key_heads != 0)
    return build.Invalid(fmt::format("keys {} for {} heads of {}", ShapeText(call.shape(1)), heads, states.key_width));

  HONE_TRY(CheckShape(states.state()));
  // Narrow types are what goes in and out; between steps nothing is rounded to them.
  const DType given = build.dtype(call.In(0)), kept = call.Has(kState) ? build.dtype(call.In(kState)) : given;
  const DType dtype = given == DType::kF64 ? given : DType::kF32;
  auto in = [&](size_t i) { return build.Cast(call.In(i), dtype); };
  LinearOperands of;
  of.keys = HONE_TRY(Repeated(build, HONE_TRY(SplitHeads(build, HONE_TRY(in(1)), key_heads)), heads / key_heads));
  of.values = HONE_TRY(SplitHeads(build, HONE_TRY(in(2)), heads));
  of.queries = HONE_TRY(SplitHeads(build, HONE_TRY(in(0)), std::min(readers, heads)));
  of.queries = HONE_TRY(Repeated(build, of.queries, heads / std::min(readers, heads)));
  of.queries = HONE_TRY(build.Binary("mul", of.queries, build.Scalar(ScaleOf(call, states.key_width), dtype)));
  of.state = HONE_TRY(build.Expand(build.Scalar(0, dtype), states.state()));
  if (call.Has(kState)) {
    of.state = HONE_TRY(in(kState));
    if (call.shape(kState) != states.state())
      return build.Invalid(
          fmt::format("a state {}, wanted {}", ShapeText(call.shape(kState)), ShapeText(states.state())));
  }
  // [batch, steps, …] of one element a head, or with what more there may be.
  auto beside = [&](size_t i, int64_t other, std::string_view what) -> Result<ValueId> {
    if (!call.Has(i)) return build.Invalid(fmt::format("{} wants {}", rule, what));
    const Shape shape = call.shape(i), one = {states.batch, states.steps, heads}, wide = {one[0], one[1], other};
    if (shape != one && shape != wide) return build.Invalid(fmt::format("{} of {}", what, ShapeText(shape)));
    if (shape == one || other > heads) return SplitHeads(build, HONE_TRY(in(i)), heads);
    const ValueId all = HONE_TRY(SplitHeads(build, HONE_TRY(in(i)), 1));
    return build.Expand(all, {states.batch, heads, states.steps, 1});
  };
  if (call.Whole("state_window", 0) != 0) return build.Unsupported("a window of states");
  if (states.decays) {
    of.factors = HONE_TRY(beside(kDecay, heads * states.key_width, "decay"));
    of.factors = HONE_TRY(build.Unary("exp", of.factors));
    states.decay_width = build.shape(of.factors)[3];
  }
  if (states.forgets) of.shares = HONE_TRY(beside(kShare, 1, "beta"));
  Outputs outputs;
  if (states.steps > kMostUnrolledSteps) {
    outputs = HONE_TRY(HostStates(build, states, of));
  } else {
    outputs.push_back(HONE_TRY(UnrolledStates(build, states, of)));
    outputs.push_back(of.state);
  }
  return Outputs{HONE_TRY(build.Cast(outputs[0], given)), HONE_TRY(build.Cast(outputs[1], kept))};
}

// ---- Convolution

// x [batch, channels, length]; a window of each channel and, if given, a bias; what came before x: of each position the
// window's sum that ends there. Then what comes before the next x. Channels may be the last dimensions of all of these.
Result<Outputs> CausalConv(OperatorCall& call) {
  Builder& build = call.build;
  constexpr size_t kBias = 2, kBefore = 3;
  if (call.Whole("ndim", 1) != 1 || call.Whole("state_window", 0) != 0)
    return build.Unsupported("more than one dimension, or a window of states");
  const bool is_last = call.Whole("channels_last", 0) != 0;
  const Shape given = call.shape(0), w = call.shape(1);
  if (is_last ? given.size() < 3 : given.size() != 3)
    return build.Invalid(fmt::format("it wants three dimensions, and has {}", ShapeText(given)));
  // Both ways between the layouts; positions stand in the second dimension of one, in the third of the other.
  const int64_t channels = is_last ? CountOf(Shape(given.begin() + 2, given.end())) : given[1];
  auto channels_first = [&](ValueId x) -> Result<ValueId> {
    if (!is_last) return x;
    x = HONE_TRY(build.Reshape(x, {given[0], build.shape(x)[1], channels}));
    return build.Transpose(x, {0, 2, 1});
  };
  auto as_given = [&](ValueId x) -> Result<ValueId> {
    if (!is_last) return x;
    Shape shape = given;
    shape[1] = build.shape(x)[2];
    return build.Reshape(HONE_TRY(build.Transpose(x, {0, 2, 1})), shape);
  };
  const int64_t length = given[is_last ? 1 : 2], dilation = call.Whole("dilation", 1);
  if (w.size() != 3 || w != Shape{channels, 1, w[2]} || w[2] < 1 || dilation < 1 || dilation > kMostDilation)
    return build.Invalid(fmt::format("windows {}, {} apart, for {}", ShapeText(w), dilation, ShapeText(given)));
  const int64_t reach = (w[2] - 1) * dilation;
  const std::string function = call.Text("activation", "none");
  if (function != "none" && function != "silu" && function != "swish") return build.Invalid("activation=" + function);
  HONE_TRY(CheckShape({given[0], channels, reach + length}));
  ValueId all = HONE_TRY(channels_first(call.In(0)));
  if (reach > 0) {
    ValueId before = HONE_TRY(build.Expand(build.Scalar(0, build.dtype(all)), {given[0], channels, reach}));
    if (call.Has(kBefore)) {
      Shape wanted = given;
      wanted[is_last ? 1 : 2] = reach;
      if (call.shape(kBefore) != wanted)
        return build.Invalid(fmt::format("a state {}, wanted {}", ShapeText(call.shape(kBefore)), ShapeText(wanted)));
      before = HONE_TRY(channels_first(call.In(kBefore)));
    }
    all = HONE_TRY(build.Concat({before, all}, 2));
  }
  Node conv;
  conv.kind = NodeKind::kConv;
  conv.inputs = {HONE_TRY(build.Reshape(all, {given[0], channels, 1, reach + length})),
                 HONE_TRY(build.Reshape(call.In(1), {channels, 1, 1, w[2]}))};
  if (call.Has(kBias)) conv.inputs.push_back(call.In(kBias));
  conv.window = {1, w[2]};
  conv.stride = {1, 1};
  conv.dilation = {1, dilation};
  conv.pads = {0, 0, 0, 0};
  conv.groups = channels;
  ValueId y = HONE_TRY(build.Add(std::move(conv)));
  y = HONE_TRY(build.Reshape(y, {given[0], channels, length}));
  if (function != "none") y = HONE_TRY(build.Binary("mul", y, HONE_TRY(build.Unary("sigmoid", y))));
  ValueId after = build.Constant(MakeNumbers(build.dtype(y), {given[0], channels, 0}));  // of a window of one
  if (reach > 0) after = HONE_TRY(build.Slice(all, 2, length, reach));
  return Outputs{HONE_TRY(as_given(y)), HONE_TRY(as_given(after))};
}

}  // namespace

std::vector<Operator> StateOperators() {
  return {{"LinearAttention", 3, LinearAttention},
          {"CausalConvWithState", 2, CausalConv},
          {"com.microsoft.LinearAttention", 3, LinearAttention},
          {"com.microsoft.CausalConvWithState", 2, CausalConv}};
}

}  // namespace hone
