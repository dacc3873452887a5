// Operators that fetch elements from where other elements say, or put them there. Where a kernel can gather they are
// one; the others run on the host, on the elements as memory has them if they can.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using evaluating::StridesOf;
using Computed = Result<std::vector<Numbers>>;

// An index that may count from the end.
Result<int64_t> Position(int64_t index, int64_t extent) {
  if (index < -extent || index >= extent)
    return Error{ErrorKind::kInvalid, fmt::format("index {} of {} elements", index, extent), ""};
  return index < 0 ? index + extent : index;
}

// What scattered updates do to the elements that are there.
enum class Reduction : uint8_t { kNone, kAdd, kMul, kMax, kMin };

Result<Reduction> ReductionOf(const OperatorCall& call) {
  constexpr std::string_view kNames[] = {"none", "add", "mul", "max", "min"};
  const std::string wanted = call.Text("reduction", "none");
  const auto found = std::find(std::begin(kNames), std::end(kNames), wanted);
  if (found == std::end(kNames)) return call.build.Invalid("reduction=" + wanted);
  return static_cast<Reduction>(found - std::begin(kNames));
}

template <typename Element>
void Combine(Reduction reduction, Element* to, const Element* by, size_t count) {
  auto each = [&](auto with) {
    for (size_t i = 0; i < count; ++i) to[i] = with(to[i], by[i]);
  };
  switch (reduction) {
    case Reduction::kNone: return each([](Element, Element b) { return b; });
    case Reduction::kAdd: return each([](Element a, Element b) { return a + b; });
    case Reduction::kMul: return each([](Element a, Element b) { return a * b; });
    case Reduction::kMax: return each([](Element a, Element b) { return std::max(a, b); });
    case Reduction::kMin: return each([](Element a, Element b) { return std::min(a, b); });
  }
}

void Combine(Reduction reduction, Numbers& out, int64_t at, const Numbers& update, size_t from, size_t count) {
  if (out.is_real())
    Combine(reduction, out.real.data() + at, update.real.data() + from, count);
  else
    Combine(reduction, out.whole.data() + at, update.whole.data() + from, count);
}

// Blocks of elements in memory: of floats any reduction, of the others what replaces them.
class BlocksInMemory {
 public:
  BlocksInMemory(Reduction reduction, DType dtype, int64_t block)
      : reduction_(reduction),
        dtype_(dtype),
        block_(static_cast<size_t>(block)),
        bytes_(static_cast<size_t>(ByteSize(dtype))) {}

  bool IsTaken() const { return reduction_ == Reduction::kNone || dtype_ == DType::kF32 || dtype_ == DType::kF64; }

  // Block number i of the updates at element `at`. REQUIRES: IsTaken().
  void Put(void* out, int64_t at, const void* updates, size_t i) const {
    char* to = static_cast<char*>(out) + static_cast<size_t>(at) * bytes_;
    const char* by = static_cast<const char*>(updates) + i * block_ * bytes_;
    if (reduction_ == Reduction::kNone)
      std::memcpy(to, by, block_ * bytes_);
    else if (dtype_ == DType::kF32)
      Combine(reduction_, reinterpret_cast<float*>(to), reinterpret_cast<const float*>(by), block_);
    else
      Combine(reduction_, reinterpret_cast<double*>(to), reinterpret_cast<const double*>(by), block_);
  }

  // The block at element `at`, as number i of the result.
  void Get(const void* in, int64_t at, void* out, size_t i) const {
    std::memcpy(static_cast<char*>(out) + i * block_ * bytes_,
                static_cast<const char*>(in) + static_cast<size_t>(at) * bytes_, block_ * bytes_);
  }

 private:
  Reduction reduction_;
  DType dtype_;
  size_t block_, bytes_;
};

Result<Outputs> ScatterElements(OperatorCall& call) {
  const Shape x = call.shape(0), indices = call.shape(1);
  const int64_t axis = HONE_TRY(call.Axis(call.Whole("axis", 0), call.rank(0)));
  const Reduction reduction = HONE_TRY(ReductionOf(call));
  if (indices != call.shape(2) || indices.size() != x.size())
    return call.build.Invalid(fmt::format("indices of {} for updates of {} into {}", ShapeText(indices),
                                          ShapeText(call.shape(2)), ShapeText(x)));
  for (size_t d = 0; d < x.size(); ++d)
    if (static_cast<int64_t>(d) != axis && indices[d] > x[d])
      return call.build.Invalid(fmt::format("updates of {} into {}", ShapeText(indices), ShapeText(x)));
  ValueId which = call.In(1);
  // Indices that are one for whole rows are read once a row.
  if (const Node* spread = call.build.graph().ProducerOf(which); spread != nullptr && spread->kind == NodeKind::kExpand)
    if (call.build.shape(spread->inputs[0]).size() == x.size()) which = spread->inputs[0];
  const Shape own = call.build.shape(which);
  size_t lead = x.size();  // dimensions before rows
  while (lead > static_cast<size_t>(axis) + 1 && own[lead - 1] == 1 && indices[lead - 1] == x[lead - 1]) --lead;
  const Shape walked(indices.begin(), indices.begin() + static_cast<int64_t>(lead));
  const int64_t block = CountOf(Shape(x.begin() + static_cast<int64_t>(lead), x.end()));
  std::vector<int64_t> strides = StridesOf(x), steps = StridesOf(own);
  const int64_t step = strides[static_cast<size_t>(axis)], extent = x[static_cast<size_t>(axis)];
  strides[static_cast<size_t>(axis)] = 0;
  for (size_t d = 0; d < own.size(); ++d)
    if (own[d] == 1) steps[d] = 0;
  strides.resize(lead);
  steps.resize(lead);
  // What is done with each block: its place in the result, its number among the updates.
  auto walk = [=](const auto& index_at, const auto& put) -> Result<void> {
    std::optional<Error> error;
    evaluating::ForEach<2>(walked, {strides, steps}, [&](size_t i, const auto& at) {
      Result<int64_t> position = Position(index_at(static_cast<size_t>(at[1])), extent);
      if (!position)
        error = position.error();
      else
        put(at[0] + *position * step, i);
    });
    if (error) return *error;
    return {};
  };
  const DType dtype = call.build.dtype(call.In(0));
  HostOperation host{call.node().op, ".w=", {{dtype, x}}};
  host.compute = [=](Arguments in) -> Computed {
    Numbers out = *in[0];
    HONE_TRY(walk([&](size_t i) { return in[1]->whole[i]; },
                  [&](int64_t to, size_t i) {
                    const auto count = static_cast<size_t>(block);
                    Combine(reduction, out, to, *in[2], i * count, count);
                  }));
    return std::vector{std::move(out)};
  };
  const BlocksInMemory blocks(reduction, dtype, block);
  if (blocks.IsTaken() && call.build.dtype(which) == DType::kI64) {
    const auto all = static_cast<size_t>(CountOf(x) * ByteSize(dtype));
    host.run = [=](std::span<const void* const> in, std::span<void* const> out) -> Result<void> {
      if (all > 0) std::memcpy(out[0], in[0], all);
      return walk([&](size_t i) { return static_cast<const int64_t*>(in[1])[i]; },
                  [&](int64_t to, size_t i) { blocks.Put(out[0], to, in[2], i); });
    };
  }
  return call.build.Host(std::move(host), {call.In(0), which, call.In(2)});
}

// Where the tuples of indices into x's dimensions from `first` on point to, in elements: put(number of the tuple,
// place).
template <typename Put>
Result<void> ForEachPlace(std::span<const int64_t> indices, size_t depth, const Shape& x, size_t first, Put put) {
  const std::vector<int64_t> strides = StridesOf(x);
  for (size_t i = 0; i < indices.size() / depth; ++i) {
    int64_t place = 0;
    for (size_t d = 0; d < depth; ++d)
      place += HONE_TRY(Position(indices[i * depth + d], x[first + d])) * strides[first + d];
    put(i, place);
  }
  return {};
}

Result<std::vector<int64_t>> PointedAt(const Numbers& indices, const Shape& x, size_t first) {
  const auto depth = static_cast<size_t>(indices.shape.back());
  std::vector<int64_t> places(indices.whole.size() / depth);
  HONE_TRY(ForEachPlace(indices.whole, depth, x, first, [&](size_t i, int64_t place) { places[i] = place; }));
  return places;
}

// The shape with its first `depth` dimensions as one.
Shape AsRows(const Shape& x, size_t depth) {
  Shape rows = {CountOf(Shape(x.begin(), x.begin() + static_cast<int64_t>(depth)))};
  rows.insert(rows.end(), x.begin() + static_cast<int64_t>(depth), x.end());
  return rows;
}

// Where the file says which rows are new, they are gathered from both: of several for one place, the last one.
Result<Outputs> ScatterKnownRows(OperatorCall& call, const Numbers& indices) {
  Builder& build = call.build;
  const Shape x = call.shape(0);
  const auto depth = static_cast<size_t>(indices.shape.back());
  const Shape rows = AsRows(x, depth);
  const int64_t block = CountOf(x) / rows[0];
  std::vector<int64_t> from(static_cast<size_t>(rows[0]));
  std::iota(from.begin(), from.end(), 0);
  const std::vector<int64_t> places = HONE_TRY(PointedAt(indices, x, 0));
  for (size_t i = 0; i < places.size(); ++i)
    from[static_cast<size_t>(places[i] / block)] = rows[0] + static_cast<int64_t>(i);
  Shape updates = rows;
  updates[0] = static_cast<int64_t>(places.size());
  ValueId y = HONE_TRY(build.Concat(
      {HONE_TRY(build.Reshape(call.In(0), rows)), HONE_TRY(build.Reshape(call.In(2), std::move(updates)))}, 0));
  y = HONE_TRY(build.Gather(y, build.Constant(WholeNumbers(from, {rows[0]})), 0));
  return Outputs{HONE_TRY(build.Reshape(y, x))};
}

// The same of what is read.
Result<Outputs> GatherKnownRows(OperatorCall& call, const Numbers& indices, size_t batch, Shape shape) {
  Builder& build = call.build;
  const Shape x = call.shape(0);
  const size_t depth = batch + static_cast<size_t>(indices.shape.back());
  const Shape rows = AsRows(x, depth);
  const int64_t block = CountOf(x) / rows[0],
                batches = CountOf(Shape(x.begin(), x.begin() + static_cast<int64_t>(batch)));
  std::vector<int64_t> from = HONE_TRY(PointedAt(indices, x, batch));
  const size_t in_batch = from.size() / static_cast<size_t>(batches);
  for (size_t i = 0; i < from.size(); ++i)
    from[i] = from[i] / block + static_cast<int64_t>(i / in_batch) * (rows[0] / batches);
  const auto count = static_cast<int64_t>(from.size());
  ValueId y = HONE_TRY(build.Reshape(call.In(0), rows));
  y = HONE_TRY(build.Gather(y, build.Constant(WholeNumbers(std::move(from), {count})), 0));
  return Outputs{HONE_TRY(build.Reshape(y, std::move(shape)))};
}

Result<Outputs> ScatterND(OperatorCall& call) {
  const Shape x = call.shape(0), indices = call.shape(1);
  const Reduction reduction = HONE_TRY(ReductionOf(call));
  if (indices.empty() || indices.back() < 1 || indices.back() > call.rank(0))
    return call.build.Invalid(fmt::format("indices of {} into {}", ShapeText(indices), ShapeText(x)));
  Shape wanted(indices.begin(), indices.end() - 1);
  wanted.insert(wanted.end(), x.begin() + indices.back(), x.end());
  if (call.shape(2) != wanted)
    return call.build.Invalid(fmt::format("updates of {}, wanted {}", ShapeText(call.shape(2)), ShapeText(wanted)));
  const Numbers* known = call.build.graph().TryElements(call.In(1));
  if (known != nullptr && !known->is_real() && reduction == Reduction::kNone && CountOf(x) > 0 && CountOf(wanted) > 0)
    return ScatterKnownRows(call, *known);
  const int64_t block = CountOf(Shape(x.begin() + indices.back(), x.end()));
  const DType dtype = call.build.dtype(call.In(0));
  const auto depth = static_cast<size_t>(indices.back()), count = static_cast<size_t>(block);
  HostOperation host{"ScatterND", ".w=", {{dtype, x}}};
  host.compute = [=](Arguments in) -> Computed {
    Numbers out = *in[0];
    HONE_TRY(ForEachPlace(in[1]->whole, depth, x, 0,
                          [&](size_t i, int64_t place) { Combine(reduction, out, place, *in[2], i * count, count); }));
    return std::vector{std::move(out)};
  };
  const BlocksInMemory blocks(reduction, dtype, block);
  if (blocks.IsTaken() && call.build.dtype(call.In(1)) == DType::kI64) {
    const auto all = static_cast<size_t>(CountOf(x) * ByteSize(dtype)), many = static_cast<size_t>(CountOf(indices));
    host.run = [=](std::span<const void* const> in, std::span<void* const> out) -> Result<void> {
      if (all > 0) std::memcpy(out[0], in[0], all);
      return ForEachPlace({static_cast<const int64_t*>(in[1]), many}, depth, x, 0,
                          [&](size_t i, int64_t place) { blocks.Put(out[0], place, in[2], i); });
    };
  }
  return call.build.Host(std::move(host), {call.In(0), call.In(1), call.In(2)});
}

Result<Outputs> GatherND(OperatorCall& call) {
  const Shape x = call.shape(0), indices = call.shape(1);
  const int64_t batch = call.Whole("batch_dims", 0);
  if (indices.empty() || batch < 0 || batch >= static_cast<int64_t>(indices.size()) || indices.back() < 1 ||
      batch + indices.back() > call.rank(0) || !std::equal(x.begin(), x.begin() + batch, indices.begin()))
    return call.build.Invalid(
        fmt::format("indices of {} into {} with {} batch dimensions", ShapeText(indices), ShapeText(x), batch));
  const auto first = static_cast<size_t>(batch);
  const auto rest = first + static_cast<size_t>(indices.back());
  Shape shape(indices.begin(), indices.end() - 1);
  shape.insert(shape.end(), x.begin() + static_cast<int64_t>(rest), x.end());
  const Numbers* known = call.build.graph().TryElements(call.In(1));
  if (known != nullptr && !known->is_real() && CountOf(x) > 0 && CountOf(shape) > 0)
    return GatherKnownRows(call, *known, first, std::move(shape));
  if (batch == 0 && indices.back() == 1) {  // rows, as Gather has them
    const ValueId rows = HONE_TRY(call.build.Reshape(call.In(1), Shape(indices.begin(), indices.end() - 1)));
    return Outputs{HONE_TRY(Apply(call, "Gather", {call.In(0), rows}))};
  }
  const int64_t block = CountOf(Shape(x.begin() + static_cast<int64_t>(rest), x.end()));
  const int64_t batches = CountOf(Shape(x.begin(), x.begin() + batch));
  const DType dtype = call.build.dtype(call.In(0));
  const auto depth = static_cast<size_t>(indices.back()), many = static_cast<size_t>(CountOf(indices));
  const int64_t batch_elements = batches == 0 ? 0 : CountOf(x) / batches;
  const size_t in_batch = batches == 0 ? 1 : std::max<size_t>(1, many / depth / static_cast<size_t>(batches));
  auto begin_of = [=](size_t i) { return static_cast<int64_t>(i / in_batch) * batch_elements; };
  HostOperation host{"GatherND", ".w", {{dtype, shape}}};
  host.compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    HONE_TRY(ForEachPlace(in[1]->whole, depth, x, first, [&](size_t i, int64_t place) {
      for (int64_t k = 0; k < block; ++k)
        evaluating::CopyElement(*in[0], begin_of(i) + place + k, out,
                                i * static_cast<size_t>(block) + static_cast<size_t>(k));
    }));
    return std::vector{std::move(out)};
  };
  if (call.build.dtype(call.In(1)) == DType::kI64) {
    const BlocksInMemory blocks(Reduction::kNone, dtype, block);
    host.run = [=](std::span<const void* const> in, std::span<void* const> out) -> Result<void> {
      return ForEachPlace({static_cast<const int64_t*>(in[1]), many}, depth, x, first,
                          [&](size_t i, int64_t place) { blocks.Get(in[0], begin_of(i) + place, out[0], i); });
    };
  }
  return call.build.Host(std::move(host), {call.In(0), call.In(1)});
}

// A cache [batch, …, rows, …] in which each of the batch gets new rows, from one of its own on: in a circle, or up to
// the last.
struct NewRows {
  int64_t batch, prefix, rows, added, row;  // of each of the batch `prefix` times `rows` rows of `row` elements
  bool is_circular;

  // Calls put(element of the cache, number of the new row).
  template <typename Put>
  Result<void> ForEach(const int64_t* begins, Put put) const {
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t begin = begins == nullptr ? 0 : begins[b];
      if (begin < 0 || (!is_circular && begin > rows - added))
        return Error{ErrorKind::kInvalid, fmt::format("{} rows from {} on, of a cache of {}", added, begin, rows), ""};
      for (int64_t p = b * prefix; p < (b + 1) * prefix; ++p)
        for (int64_t i = 0; i < added; ++i)
          put((p * rows + (begin % rows + i) % rows) * row, static_cast<size_t>(p * added + i));
    }
    return {};
  }
};

Result<Outputs> TensorScatter(OperatorCall& call) {
  const Shape x = call.shape(0), updates = call.shape(1);
  const auto axis = static_cast<size_t>(HONE_TRY(call.Axis(call.Whole("axis", -2), call.rank(0))));
  const std::string mode = call.Text("mode", "linear");
  if (mode != "linear" && mode != "circular") return call.build.Invalid("mode=" + mode);
  Shape wanted = x;
  if (axis < updates.size()) wanted[axis] = std::min(x[axis], updates[axis]);
  if (axis == 0 || updates != wanted || (call.Has(2) && call.shape(2) != Shape{x[0]}))
    return call.build.Invalid(
        fmt::format("rows of {} along dimension {} of {}", ShapeText(updates), axis, ShapeText(x)));
  auto count = [&](size_t from, size_t to) {
    return CountOf(Shape(x.begin() + static_cast<int64_t>(from), x.begin() + static_cast<int64_t>(to)));
  };
  const NewRows rows{x[0], count(1, axis), x[axis], updates[axis], count(axis + 1, x.size()), mode == "circular"};
  const DType dtype = call.build.dtype(call.In(0));
  std::vector<ValueId> inputs = {call.In(0), call.In(1)};
  if (call.Has(2)) inputs.push_back(call.In(2));
  HostOperation host{"TensorScatter", ".=w", {{dtype, x}}};
  host.compute = [=](Arguments in) -> Computed {
    Numbers out = *in[0];
    const auto many = static_cast<size_t>(rows.row);
    HONE_TRY(rows.ForEach(in.size() > 2 ? in[2]->whole.data() : nullptr,
                          [&](int64_t to, size_t i) { Combine(Reduction::kNone, out, to, *in[1], i * many, many); }));
    return std::vector{std::move(out)};
  };
  if (!call.Has(2) || call.build.dtype(call.In(2)) == DType::kI64) {
    const auto all = static_cast<size_t>(CountOf(x) * ByteSize(dtype));
    const BlocksInMemory blocks(Reduction::kNone, dtype, rows.row);
    host.run = [=](std::span<const void* const> in, std::span<void* const> out) -> Result<void> {
      if (all > 0) std::memcpy(out[0], in[0], all);
      return rows.ForEach(in.size() > 2 ? static_cast<const int64_t*>(in[2]) : nullptr,
                          [&](int64_t to, size_t i) { blocks.Put(out[0], to, in[1], i); });
    };
  }
  return call.build.Host(std::move(host), inputs);
}

}  // namespace

std::vector<Operator> ScatteringOperators() {
  return {{"Scatter", 3, ScatterElements},
          {"ScatterElements", 3, ScatterElements},
          {"ScatterND", 3, ScatterND},
          {"TensorScatter", 2, TensorScatter},
          {"GatherND", 2, GatherND}};
}

}  // namespace hone
