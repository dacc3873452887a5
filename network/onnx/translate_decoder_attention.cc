// onnxruntime's DecoderMaskedMultiHeadAttention: one new key of each batch in a cache of a fixed length, or keys of an
// encoder that stay as they are.
#include <fmt/format.h>

#include "network/onnx/attend.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

// In the order of the operator's inputs.
enum DecoderInput : size_t {
  kNewQuery,
  kNewKey,
  kNewValue,
  kKeyMask,    // [batch, keys]: which count
  kScoreBias,  // [batch or 1, heads or 1, 1, keys]
  kCacheOfKeys,
  kCacheOfValues,  // [batch, heads, most keys, size]
  kCacheLength,    // keys before the new one
  kBeams,
  kBeamOrigins,
  kInputBias  // of queries, keys and values, one after the other
};

// Columns `begin` and on of the bias are added to x [batch, 1, heads · size], which is split into heads.
Result<ValueId> BiasedHeads(OperatorCall& call, ValueId x, int64_t begin, int64_t heads) {
  Builder& build = call.build;
  if (build.shape(x).size() != 3) return build.Invalid("queries, keys and values want three dimensions");
  if (call.Has(kInputBias)) {
    const int64_t width = build.shape(x)[2];
    if (call.rank(kInputBias) != 1 || begin + width > call.shape(kInputBias)[0])
      return build.Invalid(
          fmt::format("a bias {} for {}", ShapeText(call.shape(kInputBias)), ShapeText(build.shape(x))));
    x = HONE_TRY(build.Binary("add", x, HONE_TRY(build.Slice(call.In(kInputBias), 0, begin, width))));
  }
  return SplitHeads(build, x, heads);
}

// What `values` says of the first keys, `fill` of those behind.
Result<ValueId> OfAllKeys(Builder& build, ValueId values, int64_t keys, double fill) {
  Node pad;
  pad.kind = NodeKind::kPad;
  pad.extents = build.shape(values);
  if (pad.extents.empty()) return build.Invalid("a mask or bias that is a scalar");
  if (pad.extents.back() == keys) return values;
  if (pad.extents.back() > keys) return build.Invalid(fmt::format("{} for {} keys", ShapeText(pad.extents), keys));
  pad.inputs = {values};
  pad.starts.assign(pad.extents.size(), 0);
  pad.extents.back() = keys;
  pad.fill = fill;
  return build.Add(std::move(pad));
}

Result<Outputs> DecoderAttention(OperatorCall& call) {
  Builder& build = call.build;
  const int64_t heads = call.Whole("num_heads", 0);
  if (heads < 1 || call.rank(kNewQuery) != 3 || call.shape(kNewQuery)[1] != 1)
    return build.Invalid(fmt::format("{} heads of {}, wanted one query", heads, ShapeText(call.shape(kNewQuery))));
  if (call.Has(kBeamOrigins)) return build.Unsupported("beams that share a cache");
  if (!call.Has(kNewKey) || !call.Has(kNewValue)) return build.Unsupported("queries, keys and values in one operand");
  if (call.Has(kCacheOfKeys) != call.Has(kCacheOfValues))
    return build.Invalid("a cache of keys and one of values come together");
  const int64_t width = call.shape(kNewQuery)[2];
  Attention of{HONE_TRY(BiasedHeads(call, call.In(kNewQuery), 0, heads)), call.In(kNewKey), call.In(kNewValue)};
  of.scale = ScaleOf(call, build.shape(of.q)[3]);
  of.precision = build.dtype(of.q);
  of.forbidden = call.Real("mask_filter_value", -10000);
  if (call.Has(kCacheOfKeys)) {
    if (!call.Has(kCacheLength) || CountOf(call.shape(kCacheLength)) != 1 ||
        call.Whole("past_present_share_buffer", 0) == 0)
      return build.Unsupported("a cache that grows");
    of.k = HONE_TRY(BiasedHeads(call, of.k, width, heads));
    of.v = HONE_TRY(BiasedHeads(call, of.v, 2 * width, heads));
    const Shape cache = call.shape(kCacheOfKeys), now = build.shape(of.k);
    if (cache.size() != 4 || cache[2] < 1 || now != Shape{cache[0], cache[1], 1, cache[3]} ||
        build.shape(of.v) != now || call.shape(kCacheOfValues) != cache)
      return build.Invalid(fmt::format("caches {} and {} for {}", ShapeText(cache),
                                       ShapeText(call.shape(kCacheOfValues)), ShapeText(now)));
    ValueId before = HONE_TRY(build.Reshape(call.In(kCacheLength), {1, 1, 1, 1}));
    before = HONE_TRY(build.Cast(before, DType::kI64));
    const ValueId is_new = HONE_TRY(build.Binary("eq", Positions(build, cache[2], 1), before));
    of.k = HONE_TRY(build.Select(is_new, of.k, call.In(kCacheOfKeys)));
    of.v = HONE_TRY(build.Select(is_new, of.v, call.In(kCacheOfValues)));
    const ValueId counts = HONE_TRY(build.Binary("le", Positions(build, cache[2], 0), before));
    of.biases.push_back(
        HONE_TRY(build.Select(counts, build.Scalar(0, of.precision), build.Scalar(-kInfinity, of.precision))));
  } else if (call.rank(kNewKey) != 4) {
    return build.Invalid("keys of an encoder want four dimensions");
  }
  const int64_t batch = build.shape(of.q)[0], keys = build.shape(of.k)[2];
  if (call.Has(kKeyMask)) {
    if (call.rank(kKeyMask) != 2 || call.shape(kKeyMask)[0] != batch)
      return build.Invalid(fmt::format("a mask {} of {} batches", ShapeText(call.shape(kKeyMask)), batch));
    ValueId mask = HONE_TRY(build.Cast(call.In(kKeyMask), DType::kI32));
    mask = HONE_TRY(OfAllKeys(build, mask, keys, 0));
    mask = HONE_TRY(build.Reshape(mask, {batch, 1, 1, keys}));
    of.allowed.push_back(HONE_TRY(build.Binary("ne", mask, build.Scalar(0, DType::kI32))));
  }
  if (call.Has(kScoreBias)) of.biases.push_back(HONE_TRY(OfAllKeys(build, call.In(kScoreBias), keys, 0)));
  if (call.node().outputs.size() > 3 && !call.node().outputs[3].empty() && call.Has(kCacheOfKeys))
    return build.Unsupported("scores of a cache as an output");
  const Attended done = HONE_TRY(Attend(build, of));
  return Outputs{HONE_TRY(JoinHeads(build, done.result)), of.k, of.v, done.scores};
}

}  // namespace

std::vector<Operator> DecoderAttentionOperators() {
  return {{"com.microsoft.DecoderMaskedMultiHeadAttention", 3, DecoderAttention}};
}

}  // namespace hone
