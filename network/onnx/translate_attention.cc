// Attention and the rotation of positions, ONNX's own and onnxruntime's (com.microsoft).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "network/onnx/attend.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

constexpr int64_t kMostAngles = 1 << 20;

// ---- ONNX's

// A mask with fewer keys than there are allows none of the rest.
Result<ValueId> WholeMask(Builder& build, ValueId mask, int64_t keys) {
  const Shape shape = build.shape(mask);
  if (shape.empty() || shape.size() > 4) return build.Invalid(fmt::format("a mask of {}", ShapeText(shape)));
  if (shape.back() >= keys || shape.back() == 1) return mask;
  Node pad;
  pad.kind = NodeKind::kPad;
  pad.inputs = {mask};
  pad.starts.assign(shape.size(), 0);
  pad.extents = shape;
  pad.extents.back() = keys;
  pad.fill = build.dtype(mask) == DType::kBool ? 0 : -kInfinity;
  return build.Add(std::move(pad));
}

Result<DType> SoftmaxPrecision(const OperatorCall& call, DType standard) {
  const int64_t wanted = call.Whole("softmax_precision", 0);
  if (wanted == 0) return standard;
  const std::optional<DType> dtype = ElementTypeOf(wanted);
  if (!dtype || !IsFloat(*dtype)) return call.build.Invalid("softmax_precision is no type of floats");
  return *dtype;
}

// q, k, v, mask, cached keys and values, how many keys of each batch count.
Result<Outputs> OnnxAttention(OperatorCall& call) {
  Builder& build = call.build;
  Attention of{call.In(0), call.In(1), call.In(2)};
  const bool is_joined = call.rank(0) == 3;
  if (is_joined) {
    const int64_t q_heads = call.Whole("q_num_heads", 0), kv_heads = call.Whole("kv_num_heads", 0);
    of.q = HONE_TRY(SplitHeads(build, of.q, q_heads));
    of.k = HONE_TRY(SplitHeads(build, of.k, kv_heads));
    of.v = HONE_TRY(SplitHeads(build, of.v, kv_heads));
  }
  for (ValueId x : {of.q, of.k, of.v})
    if (build.shape(x).size() != 4) return build.Invalid("queries, keys and values want 3 or 4 dimensions");
  if (call.Has(4) != call.Has(5)) return build.Invalid("a cache of keys and one of values come together");
  int64_t before = 0;
  if (call.Has(4)) {
    if (call.Has(6)) return build.Invalid("a cache, and numbers of keys that count");
    before = call.rank(4) == 4 ? call.shape(4)[2] : 0;
    of.k = HONE_TRY(After(build, call.In(4), of.k));
    of.v = HONE_TRY(After(build, call.In(5), of.v));
  }
  const int64_t queries = build.shape(of.q)[2], keys = build.shape(of.k)[2];
  const DType dtype = build.dtype(of.q);
  of.precision = HONE_TRY(SoftmaxPrecision(call, dtype));
  const auto size = static_cast<double>(build.shape(of.q)[3]);
  of.scale = call.Real("scale", 1 / std::sqrt(size));
  of.softcap = call.Real("softcap", 0);
  ValueId counted;  // [batch, 1, 1, 1]
  if (call.Has(6))
    counted = HONE_TRY(build.Reshape(HONE_TRY(build.Cast(call.In(6), DType::kI64)), {build.shape(of.q)[0], 1, 1, 1}));
  if (call.Has(3)) {
    ValueId mask = HONE_TRY(WholeMask(build, call.In(3), keys));
    (build.dtype(mask) == DType::kBool ? of.allowed : of.biases).push_back(mask);
    of.may_forbid_all = true;
  }
  // The position of each query among the keys.
  ValueId at = Positions(build, queries, 1, before);
  if (counted) {
    at = HONE_TRY(build.Binary(
        "add", HONE_TRY(build.Binary("sub", at, build.Scalar(static_cast<double>(queries), DType::kI64))), counted));
    of.allowed.push_back(HONE_TRY(build.Binary("lt", Positions(build, keys, 0), counted)));
    of.may_forbid_all = true;
  }
  if (call.Whole("is_causal", 0) != 0)
    of.allowed.push_back(HONE_TRY(build.Binary("le", Positions(build, keys, 0), at)));
  for (const bool is_left : {true, false}) {
    const int64_t window = call.Whole(is_left ? "left_window_size" : "right_window_size", -1);
    if (window < 0) continue;
    ValueId edge =
        HONE_TRY(build.Binary(is_left ? "sub" : "add", at, build.Scalar(static_cast<double>(window), DType::kI64)));
    of.allowed.push_back(HONE_TRY(build.Binary(is_left ? "ge" : "le", Positions(build, keys, 0), edge)));
    of.may_forbid_all = true;
  }
  const Attended done = HONE_TRY(Attend(build, of));
  const ValueId shown[] = {done.scores, done.bounded, done.biased, done.probabilities};
  const int64_t mode = call.Whole("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) return build.Invalid(fmt::format("qk_matmul_output_mode={}", mode));
  return Outputs{is_joined ? HONE_TRY(JoinHeads(build, done.result)) : done.result, of.k, of.v, shown[mode]};
}

// ---- onnxruntime's

// Which keys count, as onnxruntime's operators are told: a truth value a key ([batch, keys], [batch, queries, keys]),
// or how many keys of each batch do ([batch]).
Result<ValueId> AllowedKeys(Builder& build, ValueId mask, int64_t batch, int64_t queries, int64_t keys) {
  const Shape shape = build.shape(mask);
  mask = HONE_TRY(build.Cast(mask, DType::kI64));
  if (shape == Shape{batch}) {
    ValueId count = HONE_TRY(build.Reshape(mask, {batch, 1, 1, 1}));
    return build.Binary("lt", Positions(build, keys, 0), count);
  }
  if (shape == Shape{batch, keys} || shape == Shape{batch, queries, keys}) {
    const int64_t rows = shape.size() == 3 ? queries : 1;
    ValueId spread = HONE_TRY(build.Reshape(mask, {batch, 1, rows, keys}));
    return build.Binary("ne", spread, build.Scalar(0, DType::kI64));
  }
  return build.Unsupported(
      fmt::format("a mask of {} for {} batches, {} queries and {} keys", ShapeText(shape), batch, queries, keys));
}

// Where an operator has what it may have beside q, k and v: a mask, the cache of both, a bias of scores.
struct JoinedInputs {
  size_t mask, past, bias;
};

// `all`, [batch, length, columns], holds q, k and v side by side.
Result<Outputs> AttentionOf(OperatorCall& call, ValueId all, const JoinedInputs& at) {
  Builder& build = call.build;
  if (build.shape(all).size() != 3) return build.Invalid("it wants an input of 3 dimensions and a matrix of weights");
  if (call.Whole("do_rotary", 0) != 0 || call.Whole("past_present_share_buffer", 0) != 0)
    return build.Unsupported("do_rotary, or a cache that is its own result");
  const int64_t heads = call.Whole("num_heads", 0), columns = build.shape(all)[2];
  const std::vector<int64_t> sizes =
      call.Wholes("qkv_hidden_sizes", {columns / 3, columns / 3, columns - columns / 3 * 2});
  if (sizes.size() != 3 || sizes[0] < 1 || sizes[1] < 1 || sizes[2] < 1 || sizes[0] + sizes[1] + sizes[2] != columns)
    return build.Invalid(fmt::format("qkv_hidden_sizes {} of {} columns", fmt::join(sizes, "+"), columns));
  ValueId parts[3];
  for (size_t i = 0, begin = 0; i < 3; begin += static_cast<size_t>(sizes[i++])) {
    const ValueId part = HONE_TRY(build.Slice(all, 2, static_cast<int64_t>(begin), sizes[i]));
    parts[i] = HONE_TRY(SplitHeads(build, part, heads));
  }
  Attention of{parts[0], parts[1], parts[2]};
  int64_t before = 0;
  ValueId present;
  if (call.Has(at.past)) {
    const Shape past = call.shape(at.past);
    if (past.size() != 5 || past[0] != 2) return build.Invalid(fmt::format("a cache of {}", ShapeText(past)));
    before = past[3];
    for (size_t i : {0, 1}) {
      ValueId old = HONE_TRY(build.Slice(call.In(at.past), 0, static_cast<int64_t>(i), 1));
      old = HONE_TRY(build.Reshape(old, {past[1], past[2], past[3], past[4]}));
      (i == 0 ? of.k : of.v) = HONE_TRY(After(build, old, parts[i + 1]));
    }
  }
  if (call.node().outputs.size() > 1) {
    Shape one = build.shape(of.k);
    one.insert(one.begin(), 1);
    present = HONE_TRY(build.Concat({HONE_TRY(build.Reshape(of.k, one)), HONE_TRY(build.Reshape(of.v, one))}, 0));
  }
  const Shape q = build.shape(of.q);
  const int64_t keys = build.shape(of.k)[2];
  of.scale = ScaleOf(call, q[3]);
  of.precision = build.dtype(of.q);
  of.forbidden = call.Real("mask_filter_value", -10000);
  if (call.Has(at.mask)) of.allowed.push_back(HONE_TRY(AllowedKeys(build, call.In(at.mask), q[0], q[2], keys)));
  if (call.Has(at.bias)) of.biases.push_back(call.In(at.bias));
  if (call.Whole("unidirectional", 0) != 0) {
    ValueId causal = HONE_TRY(Causal(build, q[2], keys, before));
    of.biases.push_back(HONE_TRY(build.Select(causal, build.Scalar(0, of.precision),
                                              build.Scalar(std::numeric_limits<float>::lowest(), of.precision))));
  }
  Outputs outputs{HONE_TRY(JoinHeads(build, HONE_TRY(Attend(build, of)).result))};
  if (present) outputs.push_back(present);
  return outputs;
}

// input · weights + bias.
Result<Outputs> JoinedAttention(OperatorCall& call) {
  if (call.rank(1) != 2) return call.build.Invalid("it wants a matrix of weights");
  ValueId all = HONE_TRY(call.build.MatMul(call.In(0), call.In(1)));
  if (call.Has(2)) all = HONE_TRY(call.build.Binary("add", all, call.In(2)));
  return AttentionOf(call, all, {.mask = 3, .past = 4, .bias = 5});
}

// The same of bytes: input, weights, bias, scales of the first two, a mask, their zero points, a cache.
Result<Outputs> QuantizedAttention(OperatorCall& call) {
  constexpr size_t kNone = 9;  // beyond its inputs
  if (call.rank(0) != 3 || call.rank(1) != 2)
    return call.build.Invalid("it wants an input of 3 dimensions and a matrix of weights");
  auto optional = [&](size_t i) { return call.Has(i) ? call.In(i) : ValueId(); };
  ValueId all = HONE_TRY(Apply(call, "com.microsoft.MatMulIntegerToFloat",
                               {call.In(0), call.In(1), call.In(3), call.In(4), optional(6), optional(7), call.In(2)}));
  return AttentionOf(call, all, {.mask = 5, .past = 8, .bias = kNone});
}

// q, k, v; biases of the three; which keys count; a bias of scores; cached keys and values.
Result<Outputs> MultiHeadAttention(OperatorCall& call) {
  Builder& build = call.build;
  const int64_t heads = call.Whole("num_heads", 0);
  if (heads < 1) return build.Invalid("it has no heads");
  if (call.Has(8) || call.Has(9)) return build.Unsupported("a cache that is its own result");
  ValueId parts[3];
  if (call.rank(0) == 5 || (call.Has(1) && call.rank(1) == 5)) {  // [batch, length, heads, parts, size]
    const size_t from = call.rank(0) == 5 ? 0 : 1;
    const Shape packed = call.shape(from);
    if (from == 1) parts[0] = call.In(0);
    for (size_t i = from; i < 3; ++i) {
      ValueId part = HONE_TRY(build.Slice(call.In(from), 3, static_cast<int64_t>(i - from), 1));
      parts[i] = HONE_TRY(build.Reshape(part, {packed[0], packed[1], packed[2] * packed[4]}));
    }
  } else {
    if (!call.Has(1) || !call.Has(2)) return build.Invalid("keys and values are missing");
    for (size_t i = 0; i < 3; ++i) parts[i] = call.In(i);
  }
  int64_t begin = 0;
  for (ValueId& part : parts) {
    if (build.shape(part).size() == 3) {
      const int64_t width = build.shape(part)[2];
      if (call.Has(3)) {
        if (begin + width > CountOf(call.shape(3))) return build.Invalid("its bias is too short");
        ValueId bias = HONE_TRY(build.Slice(call.In(3), 0, begin, width));
        part = HONE_TRY(build.Binary("add", part, bias));
      }
      begin += width;
      part = HONE_TRY(SplitHeads(build, part, heads));
    }
  }
  Attention of{parts[0], parts[1], parts[2]};
  int64_t before = 0;
  if (call.Has(6) && call.Has(7)) {
    before = call.rank(6) == 4 ? call.shape(6)[2] : 0;
    of.k = HONE_TRY(After(build, call.In(6), of.k));
    of.v = HONE_TRY(After(build, call.In(7), of.v));
  }
  const Shape q = build.shape(of.q), k = build.shape(of.k);
  if (q.size() != 4 || k.size() != 4) return build.Invalid("queries and keys want 3 or 4 dimensions");
  of.scale = ScaleOf(call, q[3]);
  of.precision = build.dtype(of.q);
  of.forbidden = call.Real("mask_filter_value", -10000);
  if (call.Has(4)) of.allowed.push_back(HONE_TRY(AllowedKeys(build, call.In(4), q[0], q[2], k[2])));
  if (call.Has(5)) of.biases.push_back(call.In(5));
  if (call.Whole("unidirectional", 0) != 0) {
    ValueId causal = HONE_TRY(Causal(build, q[2], k[2], before));
    of.biases.push_back(HONE_TRY(build.Select(causal, build.Scalar(0, of.precision),
                                              build.Scalar(std::numeric_limits<float>::lowest(), of.precision))));
  }
  const Attended done = HONE_TRY(Attend(build, of));
  return Outputs{HONE_TRY(JoinHeads(build, done.result)), of.k, of.v, done.scores};
}

// ---- Rotation of positions

// ONNX's: x, cos, sin, positions; onnxruntime's: x, positions, cos, sin.
Result<Outputs> RotaryEmbedding(OperatorCall& call) {
  Builder& build = call.build;
  const bool is_onnx = call.node().domain.empty() || call.node().domain == "ai.onnx";
  const size_t at_cos = is_onnx ? 1 : 2, at_sin = at_cos + 1, at_positions = is_onnx ? 3 : 1;
  if (!is_onnx && (call.Whole("is_packed_batching", 0) != 0 || call.Real("scale", 1) != 1))
    return build.Unsupported("is_packed_batching, or a scale");
  const bool is_joined = call.rank(0) == 3;
  if (!is_joined && call.rank(0) != 4) return build.Invalid("it wants 3 or 4 dimensions");
  ValueId x = call.In(0);
  int64_t rotated = call.Whole("rotary_embedding_dim", 0);
  if (is_joined) {
    int64_t heads = call.Whole("num_heads", 0);
    if (call.rank(at_cos) == 0) return build.Invalid("angles that are a scalar");
    if (heads == 0 && !is_onnx && rotated == 0)
      heads = call.shape(0)[2] / std::max<int64_t>(2 * call.shape(at_cos).back(), 1);
    x = HONE_TRY(SplitHeads(build, x, heads));
  }
  const Shape shape = build.shape(x);
  if (rotated == 0) rotated = shape[3];
  ValueId angles[2] = {call.In(at_cos), call.In(at_sin)};
  for (ValueId& angle : angles) {
    if (call.Has(at_positions)) {
      ValueId positions = call.In(at_positions);
      if (build.shape(angle).size() != 2) return build.Invalid("a table of angles has two dimensions");
      if (!is_onnx && build.shape(positions) == Shape{1}) {  // of the first
        positions = HONE_TRY(build.Reshape(HONE_TRY(build.Cast(positions, DType::kI64)), {1, 1}));
        ValueId steps = HONE_TRY(build.Reshape(Positions(build, shape[2], 0), {1, shape[2]}));
        positions = HONE_TRY(build.Binary("add", steps, positions));
      }
      if (build.shape(positions).size() != 2) return build.Invalid("positions have two dimensions");
      angle = HONE_TRY(build.Gather(angle, positions, 0));
    }
    const Shape known = build.shape(angle);
    if (known.size() != 3 || (known[0] != 1 && known[0] != shape[0]) || known[1] != shape[2])
      return build.Invalid(fmt::format("angles of {} for {} positions", ShapeText(known), shape[2]));
    angle = HONE_TRY(build.Reshape(angle, {known[0], 1, known[1], known[2]}));
  }
  x = HONE_TRY(Rotate(build, x, angles[0], angles[1], rotated, call.Whole("interleaved", 0) != 0));
  return Outputs{is_joined ? HONE_TRY(JoinHeads(build, x)) : x};
}

// Positions [3, batch, length] in time, height and width; each angle is of one of the three, in sections one after the
// other or every third: x, positions, cos, sin.
Result<Outputs> RotaryEmbeddingOfThree(OperatorCall& call) {
  Builder& build = call.build;
  if (call.Whole("is_packed_batching", 0) != 0 || call.Real("scale", 1) != 1)
    return build.Unsupported("is_packed_batching, or a scale");
  const bool is_joined = call.rank(0) == 3;
  if ((!is_joined && call.rank(0) != 4) || call.rank(2) != 2 || call.rank(3) != 2)
    return build.Invalid("it wants 3 or 4 dimensions, and tables of angles of two");
  const int64_t half = call.shape(2)[1];
  const std::vector<int64_t> sections = call.Wholes("mrope_section", {});
  if (half < 1 || half > kMostAngles || sections.size() != 3 || sections[0] + sections[1] + sections[2] != half ||
      std::any_of(sections.begin(), sections.end(), [&](int64_t each) { return each < 0 || each > half; }))
    return build.Invalid(fmt::format("sections {} of {} angles", fmt::join(sections, "+"), half));
  ValueId x = call.In(0);
  if (is_joined) x = HONE_TRY(SplitHeads(build, x, call.Whole("num_heads", 0)));
  const Shape shape = build.shape(x);
  if (call.shape(1) != Shape{3, shape[0], shape[2]})
    return build.Invalid(fmt::format("positions {} for {}", ShapeText(call.shape(1)), ShapeText(shape)));
  Numbers is_of[3] = {{}, MakeNumbers(DType::kBool, {half}), MakeNumbers(DType::kBool, {half})};
  for (int64_t i = 0; i < half; ++i) {
    int64_t which = i < sections[0] ? 0 : i < sections[0] + sections[1] ? 1 : 2;
    if (call.Whole("mrope_layout", 0) != 0) which = i < 3 * sections[static_cast<size_t>(i % 3)] ? i % 3 : 0;
    if (which > 0) is_of[which].whole[static_cast<size_t>(i)] = 1;
  }
  ValueId angles[2];
  for (size_t table : {0, 1}) {
    const ValueId all = HONE_TRY(build.Gather(call.In(2 + table), call.In(1), 0));
    for (size_t which : {0, 1, 2}) {
      ValueId own = HONE_TRY(build.Slice(all, 0, static_cast<int64_t>(which), 1));
      own = HONE_TRY(build.Reshape(own, {shape[0], 1, shape[2], half}));
      angles[table] = which == 0 ? own : HONE_TRY(build.Select(build.Constant(is_of[which]), own, angles[table]));
    }
  }
  x = HONE_TRY(Rotate(build, x, angles[0], angles[1], 2 * half, call.Whole("interleaved", 0) != 0));
  return Outputs{is_joined ? HONE_TRY(JoinHeads(build, x)) : x};
}

}  // namespace

std::vector<Operator> AttentionOperators() {
  return {{"Attention", 3, OnnxAttention},
          {"RotaryEmbedding", 3, RotaryEmbedding},
          {"com.microsoft.Attention", 2, JoinedAttention},
          {"com.microsoft.QAttention", 5, QuantizedAttention},
          {"com.microsoft.MultiHeadAttention", 1, MultiHeadAttention},
          {"com.microsoft.RotaryEmbedding", 4, RotaryEmbedding},
          {"com.microsoft.MRotaryEmbedding", 4, RotaryEmbeddingOfThree}};
}

}  // namespace hone
