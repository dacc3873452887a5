// What operators of attention share: heads, the attention itself, caches, the rotation of positions.
#pragma once

#include <limits>
#include <vector>

#include "network/onnx/translate.h"

namespace hone {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// [batch, length, heads·size] as [batch, heads, length, size], and back.
Result<ValueId> SplitHeads(Builder& build, ValueId x, int64_t heads);
Result<ValueId> JoinHeads(Builder& build, ValueId x);

// first, first+1, … of i64, along the last but `after` dimensions of four.
ValueId Positions(Builder& build, int64_t count, size_t after, int64_t first = 0);

// Probabilities of keys for each query: softmax(scale · q·kᵀ, bounded, + biases); their means of v.
struct Attention {
  ValueId q, k, v;  // [batch, heads, length, size]; a head of k and v may serve several of q
  double scale = 1;
  double softcap = 0;                 // scores are bounded by ±softcap, smoothly; 0: they are not
  std::vector<ValueId> biases = {};   // added to scores [batch, heads, queries, keys], which they broadcast to
  std::vector<ValueId> allowed = {};  // truth values that do so; elsewhere `forbidden` is added
  double forbidden = -kInfinity;
  bool may_forbid_all = false;    // of a query: then it gets zeros
  DType precision = DType::kF32;  // of the softmax
  ValueId sink = {};              // [1, heads or 1, 1, 1]: the score of one more key, whose value is zero
};

struct Attended {
  ValueId result;                                  // [batch, heads, queries, size of v]
  ValueId scores, bounded, biased, probabilities;  // [batch, heads, queries, keys]
};

Result<Attended> Attend(Builder& build, const Attention& of);

// Keys up to the query's own position, which is `before` keys further on.
Result<ValueId> Causal(Builder& build, int64_t queries, int64_t keys, int64_t before);

// A cache's keys or values, and then the new ones.
Result<ValueId> After(Builder& build, ValueId past, ValueId now);

// onnxruntime's attribute: 0 is 1/√size.
double ScaleOf(const OperatorCall& call, int64_t size);

// x [batch, heads, length, size]; cos, sin [1 or batch, 1, length, half of `rotated`]. The first `rotated` elements of
// each vector are pairs, the two halves' or neighbours, that are turned.
Result<ValueId> Rotate(Builder& build, ValueId x, ValueId cos, ValueId sin, int64_t rotated, bool is_interleaved);

}  // namespace hone
