// The cache of a decoder that looks back W keys alone: `capacity` C ≥ W rows, whose first L(T) are the latest of the T
// keys that there have been, in their order; what lies behind them counts for nothing. It drops G = C - W + 1 keys at
// once: L(T) = T - G·⌈max(0, T - C) / G⌉ (onnxruntime's GroupQueryAttention, sliding_window_cache).
#pragma once

#include "network/graph/graph_builder.h"

namespace hone {

// What a step of `length` keys finds and leaves, for each of a batch.
struct SlidingCache {
  int64_t capacity, window, length;
  ValueId before;  // i32 [batch, 1, 1, 1]: T without the step
  ValueId after;   // and with it; a step may bring fewer keys than `length`
};

// Of the cache's rows and then the step's keys: i32 [batch, 1, 1, C + length]. Where there is none it is beyond all
// others.
Result<ValueId> PositionsOf(Builder& build, const SlidingCache& cache);

// Which of those the cache's rows are after the step: i32 [batch, C].
Result<ValueId> RowsKept(Builder& build, const SlidingCache& cache);

// Rows of each of a batch: of x [batch, heads, n, size], at [batch, count], as [batch, heads, count, size].
Result<ValueId> RowsOfEach(Builder& build, ValueId x, ValueId rows);

}  // namespace hone
