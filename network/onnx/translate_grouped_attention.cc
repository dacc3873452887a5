// onnxruntime's GroupQueryAttention: the attention of decoders that keep their keys and values, as its tools write it.
#include <fmt/format.h>

#include <algorithm>

#include "network/graph/quantization.h"
#include "network/onnx/attend.h"
#include "network/onnx/sliding_cache.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

constexpr int64_t kMostHeads = 1 << 16, kMostKeys = 1 << 24;

// In the order of the operator's inputs.
enum Input : size_t {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kLast,   // [batch]: the place of the last key
  kTotal,  // keys after this step, of the batch's longest
  kCos,
  kSin,
  kPositions,
  kBias,
  kSink,
  kKeyScale,
  kValueScale,
  kQueryNorm,
  kKeyNorm,
  kQueryLengths
};

// What a step is: `batch` times `length` new keys, after which there are `total`. A first one has no others. One that
// gives its lengths may bring fewer keys than `length` for some of the batch, and may be a first one or a later one.
struct Step {
  int64_t batch, length, total;
  ValueId last;    // i32 [batch, 1, 1, 1]
  ValueId before;  // i32 [batch, 1, 1, 1]: keys there have been; 0 in a first step
  bool has_lengths;
  bool is_first() const { return length == total && !has_lengths; }
};

Result<void> CheckTaken(const OperatorCall& call) {
  if (call.node().outputs.size() > 3 && !call.node().outputs[3].empty() && call.Whole("qk_output", 0) == 0)
    return call.build.Invalid("an output that qk_output does not choose");
  return {};
}

ValueId Whole32(Builder& build, int64_t value) { return build.Scalar(static_cast<double>(value), DType::kI32); }

Result<ValueId> Positions32(Builder& build, int64_t count, size_t after) {
  return build.Cast(Positions(build, count, after), DType::kI32);
}

Result<Step> StepOf(OperatorCall& call) {
  Builder& build = call.build;
  const std::vector<int64_t> total = HONE_TRY(call.ConstantInput(kTotal, "the number of keys"));
  const bool has_lengths = call.Has(kQueryLengths);
  Step step{call.shape(kQuery)[0], call.shape(kQuery)[1], total.empty() ? 0 : total[0], {}, {}, has_lengths};
  if (step.total > kMostKeys)
    return Error{ErrorKind::kLimit, fmt::format("{} keys; hone's limit is {}", step.total, kMostKeys), ""};
  if (total.size() != 1 || step.total < step.length)
    return build.Invalid(fmt::format("{} queries among {} keys", step.length, fmt::join(total, ", ")));
  if (!step.is_first() && !has_lengths && step.length != 1 && step.batch != 1)
    return build.Invalid("several queries after a cache, and a batch of more than one");
  if (CountOf(call.shape(kLast)) != step.batch)
    return build.Invalid(fmt::format("lengths {} of {} batches", ShapeText(call.shape(kLast)), step.batch));
  step.last = HONE_TRY(build.Reshape(HONE_TRY(build.Cast(call.In(kLast), DType::kI32)), {step.batch, 1, 1, 1}));
  if (has_lengths) {
    if (CountOf(call.shape(kQueryLengths)) != step.batch)
      return build.Invalid(fmt::format("lengths {} of {} chunks", ShapeText(call.shape(kQueryLengths)), step.batch));
    ValueId lengths = HONE_TRY(build.Cast(call.In(kQueryLengths), DType::kI32));
    lengths = HONE_TRY(build.Reshape(lengths, {step.batch, 1, 1, 1}));
    step.before = HONE_TRY(build.Binary("sub", step.last, HONE_TRY(build.Binary("sub", lengths, Whole32(build, 1)))));
  } else {
    step.before = step.is_first() ? build.Constant(MakeNumbers(DType::kI32, {step.batch, 1, 1, 1}))
                                  : HONE_TRY(build.Binary("sub", step.last, Whole32(build, step.length - 1)));
  }
  return step;
}

// How a cache keeps what floats say: as it is, or as whole numbers with a scale, two a byte where they have four bits.
struct CacheForm {
  ValueId scale = {};  // f32, for all or [1, heads, 1, size]; none: as it is
  int64_t bits = 8;
};

Result<CacheForm> CacheFormOf(OperatorCall& call, const char* type, size_t scale, const Shape& now) {
  Builder& build = call.build;
  const std::string kind = call.Text(type, "NONE");
  if (kind == "NONE") return CacheForm{};
  if (kind != "PER_TENSOR" && kind != "PER_CHANNEL") return build.Invalid(fmt::format("{}={}", type, kind));
  CacheForm form{{}, call.Whole("kv_cache_bit_width", 8)};
  const Shape each = kind == "PER_TENSOR" ? Shape{} : Shape{1, now[1], 1, now[3]};
  if (!call.Has(scale) || CountOf(call.shape(scale)) != CountOf(each) || !IsFloat(build.dtype(call.In(scale))))
    return build.Invalid(fmt::format("{} wants scales {}", kind, ShapeText(each)));
  if ((form.bits != 8 && form.bits != 4) || now[3] * form.bits % 8 != 0)
    return build.Invalid(fmt::format("{} bits of heads of {}", form.bits, now[3]));
  form.scale = HONE_TRY(build.Cast(HONE_TRY(build.Reshape(call.In(scale), each)), DType::kF32));
  return form;
}

// [batch, heads, length, size] as the cache keeps it.
Result<ValueId> ForCache(Builder& build, const CacheForm& form, ValueId x) {
  if (!form.scale) return x;
  x = HONE_TRY(build.Cast(x, DType::kF32));
  ValueId bytes = HONE_TRY(Quantize(build, {x, form.scale, {}, DType::kI8}));
  if (form.bits == 8) return bytes;
  auto number = [&](double value) { return build.Scalar(value, DType::kI32); };
  bytes = HONE_TRY(build.Cast(bytes, DType::kI32));
  bytes = HONE_TRY(build.Binary("min", HONE_TRY(build.Binary("max", bytes, number(-8))), number(7)));
  bytes = HONE_TRY(build.Binary("add", bytes, number(8)));
  Shape shape = build.shape(bytes), pairs = shape;
  shape.back() /= 2;
  pairs.back() = shape.back();
  pairs.push_back(2);
  bytes = HONE_TRY(build.Reshape(bytes, pairs));
  const ValueId lower = HONE_TRY(build.Slice(bytes, 4, 0, 1)), upper = HONE_TRY(build.Slice(bytes, 4, 1, 1));
  bytes = HONE_TRY(build.Binary("add", lower, HONE_TRY(build.Binary("mul", upper, number(16)))));
  return build.Cast(HONE_TRY(build.Reshape(bytes, shape)), DType::kU8);
}

// And back.
Result<ValueId> FromCache(Builder& build, const CacheForm& form, ValueId x, DType dtype) {
  if (!form.scale) return x;
  if (form.bits == 8) return Dequantize(build, {x, form.scale, {}, DType::kI8}, dtype);
  auto number = [&](double value) { return build.Scalar(value, DType::kI32); };
  x = HONE_TRY(build.Cast(x, DType::kI32));
  Shape shape = build.shape(x), one = shape;
  shape.back() *= 2;
  one.push_back(1);
  x = HONE_TRY(build.Reshape(x, one));
  x = HONE_TRY(
      build.Concat({HONE_TRY(build.Binary("mod", x, number(16))), HONE_TRY(build.Binary("div", x, number(16)))}, 4));
  x = HONE_TRY(build.Binary("sub", HONE_TRY(build.Reshape(x, shape)), number(8)));
  return Dequantize(build, {x, form.scale, {}, DType::kI32}, dtype);
}

// Elements `count` along dimension 2 of four, zeros behind what there is.
Result<ValueId> Filled(Builder& build, ValueId x, int64_t count) {
  const Shape shape = build.shape(x);
  if (shape[2] >= count) return build.Slice(x, 2, 0, count);
  Node pad;
  pad.kind = NodeKind::kPad;
  pad.inputs = {x};
  pad.starts.assign(4, 0);
  pad.extents = shape;
  pad.extents[2] = count;
  return build.Add(std::move(pad));
}

// That the cache `past` is one for keys or values like these.
Result<void> CheckCache(OperatorCall& call, size_t past, ValueId now) {
  Builder& build = call.build;
  const Shape shape = build.shape(now), old = call.shape(past);
  if (build.dtype(call.In(past)) != build.dtype(now))
    return build.Invalid(fmt::format("a cache of {} for {}", Name(build.dtype(call.In(past))), Name(build.dtype(now))));
  if (old.size() != 4 || old[0] != shape[0] || old[1] != shape[1] || old[3] != shape[3])
    return build.Invalid(fmt::format("a cache of {} before {}", ShapeText(old), ShapeText(shape)));
  return {};
}

// The cache after the step: what counted of it, the new, zeros.
Result<ValueId> Present(OperatorCall& call, const Step& step, size_t past, ValueId now) {
  Builder& build = call.build;
  if (!call.Has(past)) {
    if (!step.is_first()) return build.Invalid(fmt::format("{} keys, and no cache", step.total));
    return now;
  }
  HONE_TRY(CheckCache(call, past, now));
  const Shape old = call.shape(past);
  const int64_t count = std::max(step.total, old[2]);
  if (step.is_first()) return Filled(build, now, count);
  const ValueId at = HONE_TRY(Positions32(build, count, 1)), zero = build.Scalar(0, build.dtype(now));
  ValueId kept = HONE_TRY(Filled(build, call.In(past), count));
  ValueId added = now;  // one: everywhere
  if (step.length > 1) {
    ValueId which = HONE_TRY(build.Binary("sub", at, step.before));
    which = HONE_TRY(
        build.Binary("min", HONE_TRY(build.Binary("max", which, Whole32(build, 0))), Whole32(build, step.length - 1)));
    added = HONE_TRY(RowsOfEach(build, now, HONE_TRY(build.Reshape(which, {step.batch, count}))));
  }
  added = HONE_TRY(build.Select(HONE_TRY(build.Binary("le", at, step.last)), added, zero));
  return build.Select(HONE_TRY(build.Binary("lt", at, step.before)), kept, added);
}

// What the step reads and leaves of keys, and of values.
struct Cached {
  ValueId read[2];     // [batch, heads, keys, size]
  ValueId present[2];  // as a cache keeps it
  ValueId at;          // i32 [1 or batch, 1, 1, keys]: their positions; those beyond the last count for nothing
};

// `parts` as a cache keeps them, all that came before in it.
Result<Cached> ReadAll(OperatorCall& call, const Step& step, const ValueId parts[2]) {
  Builder& build = call.build;
  Cached cached;
  for (size_t i : {0, 1}) {
    cached.present[i] = HONE_TRY(Present(call, step, kPastKey + i, parts[i]));
    cached.read[i] = HONE_TRY(build.Slice(cached.present[i], 2, 0, step.total));
  }
  cached.at = HONE_TRY(Positions32(build, step.total, 0));
  return cached;
}

// The same where the cache has the keys of a window alone.
Result<Cached> ReadWindow(OperatorCall& call, const Step& step, int64_t window, const ValueId parts[2]) {
  Builder& build = call.build;
  if (!call.Has(kPastKey) || !call.Has(kPastValue)) return build.Invalid("a cache that slides is missing");
  if (call.node().outputs.size() > 3 && !call.node().outputs[3].empty())
    return build.Unsupported("scores of a cache that slides");
  for (size_t i : {0, 1}) HONE_TRY(CheckCache(call, kPastKey + i, parts[i]));
  const int64_t capacity = call.shape(kPastKey)[2];
  if (window < 1 || capacity < window || call.shape(kPastValue)[2] != capacity)
    return build.Invalid(fmt::format("a cache of {} keys and {} values slides over a window of {}", capacity,
                                     call.shape(kPastValue)[2], window));
  const SlidingCache cache{capacity, window, step.length, step.before,
                           HONE_TRY(build.Binary("add", step.last, Whole32(build, 1)))};
  const ValueId kept = HONE_TRY(RowsKept(build, cache));
  Cached cached;
  for (size_t i : {0, 1}) {
    cached.read[i] = HONE_TRY(After(build, call.In(kPastKey + i), parts[i]));
    cached.present[i] = HONE_TRY(RowsOfEach(build, cached.read[i], kept));
  }
  cached.at = HONE_TRY(PositionsOf(build, cache));
  return cached;
}

// A bias of scores, whose columns are absolute positions, for keys at [batch, 1, 1, keys].
Result<ValueId> BiasAt(Builder& build, ValueId bias, const Step& step, ValueId at) {
  Shape shape = build.shape(bias);
  if (shape.size() != 4 || shape[3] != step.total)
    return build.Invalid(fmt::format("a bias {} of {} keys", ShapeText(shape), step.total));
  shape[0] = step.batch;
  bias = HONE_TRY(build.Transpose(HONE_TRY(build.Expand(bias, shape)), {0, 1, 3, 2}));
  at = HONE_TRY(build.Reshape(at, {step.batch, build.shape(at)[3]}));
  at = HONE_TRY(build.Binary("min", at, Whole32(build, step.total - 1)));
  return build.Transpose(HONE_TRY(RowsOfEach(build, bias, at)), {0, 1, 3, 2});
}

// Both turned by the angles of their positions.
Result<void> Turn(OperatorCall& call, const Step& step, ValueId* q, ValueId* k) {
  Builder& build = call.build;
  if (!call.Has(kCos) || !call.Has(kSin) || call.rank(kCos) != 2 || call.rank(kSin) != 2)
    return build.Invalid("tables of angles have two dimensions");
  const int64_t half = call.shape(kCos)[1];
  ValueId at = HONE_TRY(Positions32(build, step.length, 1)), first = step.before;
  if (call.Has(kPositions)) {
    ValueId given = HONE_TRY(build.Cast(call.In(kPositions), DType::kI32));
    if (step.is_first()) {  // of the first query alone
      if (CountOf(build.shape(given)) == 0) return build.Invalid("it has no positions");
      given = HONE_TRY(build.Reshape(given, {CountOf(build.shape(given)), 1, 1, 1}));
      first = HONE_TRY(build.Slice(given, 0, 0, 1));
    } else {
      if (CountOf(build.shape(given)) != step.batch * step.length)
        return build.Invalid(fmt::format("positions {} of {} queries", ShapeText(build.shape(given)), step.length));
      first = HONE_TRY(build.Reshape(given, {step.batch, 1, step.length, 1}));
      at = Whole32(build, 0);
    }
  }
  at = HONE_TRY(build.Binary("add", at, first));
  if (step.has_lengths && !call.Has(kPositions))
    at = HONE_TRY(build.Binary("min", at, step.last));  // any that there is
  at = HONE_TRY(build.Expand(at, {step.batch, 1, step.length, 1}));
  at = HONE_TRY(build.Reshape(at, {step.batch, step.length}));
  ValueId angles[2];
  for (size_t i : {0, 1}) {
    angles[i] = HONE_TRY(build.Gather(call.In(i == 0 ? kCos : kSin), at, 0));
    angles[i] = HONE_TRY(build.Reshape(angles[i], {step.batch, 1, step.length, half}));
  }
  for (ValueId* x : {q, k})
    *x = HONE_TRY(Rotate(build, *x, angles[0], angles[1], 2 * half, call.Whole("rotary_interleaved", 0) != 0));
  return {};
}

// Each head's vectors over their root mean square, weighted.
Result<ValueId> Normed(OperatorCall& call, ValueId x, size_t weights, double epsilon) {
  Builder& build = call.build;
  const int64_t size = build.shape(x)[3];
  if (call.shape(weights) != Shape{size})
    return build.Invalid(fmt::format("weights {} of heads of {}", ShapeText(call.shape(weights)), size));
  return build.Binary("mul", HONE_TRY(OverRootMeanSquare(build, x, {3}, epsilon)), call.In(weights));
}

Result<Outputs> GroupQueryAttention(OperatorCall& call) {
  Builder& build = call.build;
  HONE_TRY(CheckTaken(call));
  const int64_t heads = call.Whole("num_heads", 0), own = call.Whole("kv_num_heads", 0);
  if (heads < 1 || own < 1 || heads > kMostHeads || heads % own != 0)
    return build.Invalid(fmt::format("{} heads, and {} of keys", heads, own));
  for (size_t i : {kLast, kTotal})
    if (!call.Has(i)) return build.Invalid(fmt::format("operand {} is missing", i));
  if (call.rank(kQuery) != 3 || call.Has(kKey) != call.Has(kValue))
    return build.Invalid("it wants three dimensions, and keys and values together");
  const Step step = HONE_TRY(StepOf(call));
  ValueId parts[3] = {call.In(kQuery), call.Has(kKey) ? call.In(kKey) : ValueId(),
                      call.Has(kKey) ? call.In(kValue) : ValueId()};
  if (!call.Has(kKey)) {  // side by side
    const int64_t all = heads + 2 * own, size = call.shape(kQuery)[2] / all;
    if (size * all != call.shape(kQuery)[2])
      return build.Invalid(fmt::format("{} cannot be split into {} heads", ShapeText(call.shape(kQuery)), all));
    parts[0] = HONE_TRY(build.Slice(call.In(kQuery), 2, 0, heads * size));
    parts[1] = HONE_TRY(build.Slice(call.In(kQuery), 2, heads * size, own * size));
    parts[2] = HONE_TRY(build.Slice(call.In(kQuery), 2, (heads + own) * size, own * size));
  }
  for (size_t i : {0, 1, 2}) {
    parts[i] = HONE_TRY(SplitHeads(build, parts[i], i == 0 ? heads : own));
    if (build.shape(parts[i])[0] != step.batch || build.shape(parts[i])[2] != step.length)
      return build.Invalid("queries, keys and values are of different lengths");
  }
  if (call.Has(kQueryNorm) != call.Has(kKeyNorm)) return build.Invalid("norms of queries and of keys come together");
  if (call.Has(kQueryNorm)) {
    const double both = call.Real("qk_norm_epsilon", 1e-6);
    parts[0] = HONE_TRY(Normed(call, parts[0], kQueryNorm, call.Real("q_norm_epsilon", both)));
    parts[1] = HONE_TRY(Normed(call, parts[1], kKeyNorm, call.Real("k_norm_epsilon", both)));
  }
  if (call.Whole("do_rotary", 0) != 0) HONE_TRY(Turn(call, step, &parts[0], &parts[1]));
  CacheForm forms[2];
  for (size_t i : {0, 1}) {
    forms[i] =
        HONE_TRY(CacheFormOf(call, i == 0 ? "k_quant_type" : "v_quant_type", kKeyScale + i, build.shape(parts[1 + i])));
    parts[1 + i] = HONE_TRY(ForCache(build, forms[i], parts[1 + i]));
  }
  const int64_t window = call.Whole("local_window_size", -1);
  const bool slides = call.Whole("sliding_window_cache", 0) != 0;
  Cached cached = HONE_TRY(slides ? ReadWindow(call, step, window, parts + 1) : ReadAll(call, step, parts + 1));
  for (size_t i : {0, 1}) cached.read[i] = HONE_TRY(FromCache(build, forms[i], cached.read[i], build.dtype(parts[0])));
  Attention of{parts[0], cached.read[0], cached.read[1]};
  of.scale = ScaleOf(call, build.shape(of.q)[3]);
  of.softcap = call.Real("softcap", 0);
  of.precision = build.dtype(of.q);
  const ValueId keys = cached.at;
  if (call.Has(kBias))
    of.biases.push_back(slides ? HONE_TRY(BiasAt(build, call.In(kBias), step, keys)) : call.In(kBias));
  const ValueId queries = HONE_TRY(build.Binary("add", HONE_TRY(Positions32(build, step.length, 1)), step.before));
  of.allowed.push_back(HONE_TRY(build.Binary("le", keys, step.last)));
  if (call.Whole("causal", 1) != 0) of.allowed.push_back(HONE_TRY(build.Binary("le", keys, queries)));
  of.may_forbid_all = step.has_lengths;  // of a query behind its chunk
  if (window > 0) {
    const ValueId edge = HONE_TRY(build.Binary("sub", queries, Whole32(build, std::min(window, kMostKeys))));
    of.allowed.push_back(HONE_TRY(build.Binary("gt", keys, edge)));
    of.may_forbid_all |= step.is_first();  // of a query behind its sequence, whose window is behind it, too
  }
  if (call.Has(kSink)) {
    if (CountOf(call.shape(kSink)) != heads) return build.Invalid("its sinks are not one a head");
    of.sink = HONE_TRY(build.Reshape(call.In(kSink), {1, heads, 1, 1}));
  } else if (call.Whole("smooth_softmax", 0) > 0) {
    of.sink = build.Constant(MakeNumbers(of.precision, {1, 1, 1, 1}));
  }
  const Attended done = HONE_TRY(Attend(build, of));
  ValueId shown = call.Whole("qk_output", 0) == 2 ? done.probabilities : done.biased;
  if (call.Whole("qk_output", 0) == 1) {  // 0 where there is no key
    const DType dtype = build.dtype(shown);
    const ValueId is_none = HONE_TRY(build.Binary("eq", shown, build.Scalar(-kInfinity, dtype)));
    shown = HONE_TRY(build.Select(is_none, build.Scalar(0, dtype), shown));
  }
  return Outputs{HONE_TRY(JoinHeads(build, done.result)), cached.present[0], cached.present[1], shown};
}

}  // namespace

std::vector<Operator> GroupedAttentionOperators() {
  return {{"com.microsoft.GroupQueryAttention", 1, GroupQueryAttention}};
}

}  // namespace hone
