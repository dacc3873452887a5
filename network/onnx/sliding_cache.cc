#include "network/onnx/sliding_cache.h"

#include <limits>

#include "network/onnx/attend.h"

namespace hone {
namespace {

ValueId Whole(Builder& build, int64_t value) { return build.Scalar(static_cast<double>(value), DType::kI32); }

// L(T).
Result<ValueId> Resident(Builder& build, const SlidingCache& cache, ValueId keys) {
  const int64_t dropped = cache.capacity - cache.window + 1;
  ValueId over = HONE_TRY(build.Binary("sub", keys, Whole(build, cache.capacity - dropped + 1)));
  over = HONE_TRY(build.Binary("div", HONE_TRY(build.Binary("max", over, Whole(build, 0))), Whole(build, dropped)));
  return build.Binary("sub", keys, HONE_TRY(build.Binary("mul", over, Whole(build, dropped))));
}

Result<ValueId> CountFrom(Builder& build, ValueId first, int64_t count) {
  return build.Binary("add", HONE_TRY(build.Cast(Positions(build, count, 0), DType::kI32)), first);
}

}  // namespace

Result<ValueId> PositionsOf(Builder& build, const SlidingCache& cache) {
  const ValueId resident = HONE_TRY(Resident(build, cache, cache.before));
  ValueId old = HONE_TRY(CountFrom(build, HONE_TRY(build.Binary("sub", cache.before, resident)), cache.capacity));
  ValueId now = HONE_TRY(CountFrom(build, cache.before, cache.length));
  const ValueId none = Whole(build, std::numeric_limits<int32_t>::max());
  old = HONE_TRY(build.Select(HONE_TRY(build.Binary("lt", old, cache.before)), old, none));
  now = HONE_TRY(build.Select(HONE_TRY(build.Binary("lt", now, cache.after)), now, none));
  return build.Concat({old, now}, 3);
}

Result<ValueId> RowsKept(Builder& build, const SlidingCache& cache) {
  const ValueId had = HONE_TRY(Resident(build, cache, cache.before)),
                has = HONE_TRY(Resident(build, cache, cache.after));
  const ValueId at = HONE_TRY(CountFrom(build, HONE_TRY(build.Binary("sub", cache.after, has)), cache.capacity));
  const ValueId since = HONE_TRY(build.Binary("sub", at, cache.before));
  ValueId row = HONE_TRY(build.Select(HONE_TRY(build.Binary("lt", since, Whole(build, 0))),
                                      HONE_TRY(build.Binary("add", since, had)),
                                      HONE_TRY(build.Binary("add", since, Whole(build, cache.capacity)))));
  row = HONE_TRY(build.Binary("max", row, Whole(build, 0)));  // behind those that count, any
  row = HONE_TRY(build.Binary("min", row, Whole(build, cache.capacity + cache.length - 1)));
  return build.Reshape(row, {build.shape(row)[0], cache.capacity});
}

Result<ValueId> RowsOfEach(Builder& build, ValueId x, ValueId rows) {
  const Shape shape = build.shape(x);
  const int64_t batch = shape[0], heads = shape[1], count = build.shape(rows)[1];
  if (batch == 1) return build.Gather(x, HONE_TRY(build.Reshape(rows, {count})), 2);
  x = HONE_TRY(build.Reshape(HONE_TRY(build.Transpose(x, {0, 2, 1, 3})), {batch * shape[2], heads * shape[3]}));
  ValueId first = HONE_TRY(build.Cast(Positions(build, batch, 0), DType::kI32));
  first = HONE_TRY(build.Binary("mul", HONE_TRY(build.Reshape(first, {batch, 1})), Whole(build, shape[2])));
  x = HONE_TRY(build.Gather(x, HONE_TRY(build.Binary("add", rows, first)), 0));
  return build.Transpose(HONE_TRY(build.Reshape(x, {batch, count, heads, shape[3]})), {0, 2, 1, 3});
}

}  // namespace hone
