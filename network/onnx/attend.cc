#include "network/onnx/attend.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

namespace hone {

Result<ValueId> SplitHeads(Builder& build, ValueId x, int64_t heads) {
  const Shape shape = build.shape(x);
  if (shape.size() != 3 || heads < 1 || shape[2] % heads != 0)
    return build.Invalid(fmt::format("{} cannot be split into {} heads", ShapeText(shape), heads));
  ValueId split = HONE_TRY(build.Reshape(x, {shape[0], shape[1], heads, shape[2] / heads}));
  return build.Transpose(split, {0, 2, 1, 3});
}

Result<ValueId> JoinHeads(Builder& build, ValueId x) {
  const Shape shape = build.shape(x);
  ValueId moved = HONE_TRY(build.Transpose(x, {0, 2, 1, 3}));
  return build.Reshape(moved, {shape[0], shape[2], shape[1] * shape[3]});
}

ValueId Positions(Builder& build, int64_t count, size_t after, int64_t first) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  Shape shape(4, 1);
  shape[3 - after] = count;
  return build.Constant(WholeNumbers(values, shape));
}

Result<Attended> Attend(Builder& build, const Attention& of) {
  const Shape q = build.shape(of.q), k = build.shape(of.k), v = build.shape(of.v);
  const bool fits = q.size() == 4 && k.size() == 4 && v.size() == 4 && q[0] == k[0] && k[0] == v[0] && k[1] == v[1] &&
                    k[1] >= 1 && q[1] % k[1] == 0 && q[3] == k[3] && k[2] == v[2];
  if (!fits)
    return build.Invalid(fmt::format("queries of {}, keys of {} and values of {} do not go together", ShapeText(q),
                                     ShapeText(k), ShapeText(v)));
  const DType dtype = build.dtype(of.q);
  const Shape shape = {q[0], q[1], q[2], k[2]};
  // Heads of q that share one of k lie one after the other: they are rows of one product.
  const int64_t rows = q[1] / k[1] * q[2];
  Attended done;
  ValueId scores = HONE_TRY(build.Reshape(of.q, {q[0], k[1], rows, q[3]}));
  scores = HONE_TRY(build.Reshape(HONE_TRY(build.MatMul(scores, of.k, true)), shape));
  if (of.scale != 1) scores = HONE_TRY(build.Binary("mul", scores, build.Scalar(of.scale, dtype)));
  done.scores = scores;
  if (of.softcap > 0) {
    ValueId cap = build.Scalar(of.softcap, dtype);
    scores = HONE_TRY(build.Unary("tanh", HONE_TRY(build.Binary("div", scores, cap))));
    scores = HONE_TRY(build.Binary("mul", scores, cap));
  }
  done.bounded = scores;
  ValueId bias;
  auto add = [&](ValueId term) -> Result<void> {
    bias = bias ? HONE_TRY(build.Binary("add", bias, term)) : term;
    return {};
  };
  for (ValueId term : of.biases) HONE_TRY(add(HONE_TRY(build.Cast(term, dtype))));
  for (ValueId condition : of.allowed)
    HONE_TRY(add(HONE_TRY(build.Select(condition, build.Scalar(0, dtype), build.Scalar(of.forbidden, dtype)))));
  if (bias) scores = HONE_TRY(build.Binary("add", scores, bias));
  if (build.shape(scores) != shape)
    return build.Invalid(fmt::format("a mask of {} for scores of {}", ShapeText(build.shape(bias)), ShapeText(shape)));
  done.biased = scores;
  if (of.sink) {
    ValueId sink = HONE_TRY(build.Expand(of.sink, {q[0], q[1], q[2], 1}));
    scores = HONE_TRY(build.Concat({scores, HONE_TRY(build.Cast(sink, dtype))}, 3));
  }
  Node softmax;
  softmax.kind = NodeKind::kSoftmax;
  softmax.axis = 3;
  softmax.inputs = {HONE_TRY(build.Cast(scores, of.precision))};
  ValueId shares = HONE_TRY(build.Add(std::move(softmax)));
  if (of.sink) shares = HONE_TRY(build.Slice(shares, 3, 0, k[2]));
  if (bias && of.may_forbid_all) {
    const auto last = static_cast<int64_t>(build.shape(bias).size()) - 1;
    ValueId top = HONE_TRY(build.Reduce("max", bias, {last}));
    ValueId none = HONE_TRY(build.Binary("eq", top, build.Scalar(-kInfinity, dtype)));
    shares = HONE_TRY(build.Select(none, build.Scalar(0, of.precision), shares));
  }
  done.probabilities = HONE_TRY(build.Cast(shares, dtype));
  ValueId result = HONE_TRY(build.Reshape(done.probabilities, {q[0], k[1], rows, k[2]}));
  result = HONE_TRY(build.MatMul(result, of.v));
  done.result = HONE_TRY(build.Reshape(result, {q[0], q[1], q[2], v[3]}));
  return done;
}

Result<ValueId> Causal(Builder& build, int64_t queries, int64_t keys, int64_t before) {
  return build.Binary("le", Positions(build, keys, 0), Positions(build, queries, 1, before));
}

Result<ValueId> After(Builder& build, ValueId past, ValueId now) {
  if (build.shape(past).size() != 4) return build.Invalid("a cache has four dimensions");
  if (build.shape(past)[2] == 0) return now;
  return build.Concat({past, now}, 2);
}

double ScaleOf(const OperatorCall& call, int64_t size) {
  const double scale = call.Real("scale", 0);
  return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(size));
}

Result<ValueId> Rotate(Builder& build, ValueId x, ValueId cos, ValueId sin, int64_t rotated, bool is_interleaved) {
  const Shape shape = build.shape(x);
  const int64_t half = rotated / 2;
  if (rotated < 2 || rotated % 2 != 0 || rotated > shape[3] || build.shape(cos).back() != half ||
      build.shape(sin).back() != half)
    return build.Invalid(
        fmt::format("a rotation of {} elements of {} by angles of {}", rotated, shape[3], ShapeText(build.shape(cos))));
  const ValueId turned = HONE_TRY(build.Slice(x, 3, 0, rotated));
  ValueId a, b;
  if (is_interleaved) {
    a = HONE_TRY(build.Slice(turned, 3, 0, half, 2));
    b = HONE_TRY(build.Slice(turned, 3, 1, half, 2));
  } else {
    a = HONE_TRY(build.Slice(turned, 3, 0, half));
    b = HONE_TRY(build.Slice(turned, 3, half, half));
  }
  auto sum = [&](std::string_view function, ValueId of_cos, ValueId of_sin) -> Result<ValueId> {
    return build.Binary(function, HONE_TRY(build.Binary("mul", cos, of_cos)),
                        HONE_TRY(build.Binary("mul", sin, of_sin)));
  };
  ValueId first = HONE_TRY(sum("sub", a, b)), second = HONE_TRY(sum("add", b, a)), done;
  if (is_interleaved) {
    Shape pair = build.shape(first);
    pair.push_back(1);
    done = HONE_TRY(build.Concat({HONE_TRY(build.Reshape(first, pair)), HONE_TRY(build.Reshape(second, pair))}, 4));
    done = HONE_TRY(build.Reshape(done, build.shape(turned)));
  } else {
    done = HONE_TRY(build.Concat({first, second}, 3));
  }
  if (rotated == shape[3]) return done;
  return build.Concat({done, HONE_TRY(build.Slice(x, 3, rotated, shape[3] - rotated))}, 3);
}

}  // namespace hone
