// Operators that look for elements, count them, or put them where other elements say. They run on the host.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using evaluating::Lines;
using evaluating::StridesOf;
using Computed = Result<std::vector<Numbers>>;

Error OutOfRange(std::string_view what, int64_t value, int64_t extent) {
  return Error{ErrorKind::kInvalid, fmt::format("{} {} of {} elements", what, value, extent), ""};
}

// An index that may count from the end.
Result<int64_t> Position(int64_t index, int64_t extent) {
  if (index < -extent || index >= extent) return OutOfRange("index", index, extent);
  return index < 0 ? index + extent : index;
}

// NaN is the largest number, as it is where maxima are looked for.
bool IsLess(const Numbers& x, size_t a, size_t b) {
  if (!x.is_real()) return x.whole[a] < x.whole[b];
  return std::isnan(x.real[b]) ? !std::isnan(x.real[a]) : x.real[a] < x.real[b];
}

Result<Outputs> ArgExtreme(OperatorCall& call) {
  const Shape x = call.shape(0);
  const int64_t axis = HONE_TRY(call.Axis(call.Whole("axis", 0), call.rank(0)));
  const bool wants_last = call.Whole("select_last_index", 0) != 0, is_max = call.node().op == "ArgMax";
  const Lines lines(x, axis);
  if (lines.extent == 0) return call.build.Invalid("it looks for an element where there is none");
  Shape shape = x;
  shape[static_cast<size_t>(axis)] = 1;
  HostOperation operation{call.node().op, {{DType::kI64, shape}}, [=](Arguments in) -> Computed {
                            Numbers out = MakeNumbers(DType::kI64, shape);
                            for (int64_t i = 0; i < lines.count(); ++i) {
                              int64_t best = 0;
                              for (int64_t k = 1; k < lines.extent; ++k) {
                                const size_t old = lines.At(i, best), now = lines.At(i, k);
                                const bool beats = is_max ? IsLess(*in[0], old, now) : IsLess(*in[0], now, old);
                                const bool loses = is_max ? IsLess(*in[0], now, old) : IsLess(*in[0], old, now);
                                if (beats || (wants_last && !loses)) best = k;
                              }
                              out.whole[static_cast<size_t>(i)] = best;
                            }
                            return std::vector{std::move(out)};
                          }};
  ValueId y = HONE_TRY(call.build.Host(std::move(operation), {call.In(0)}))[0];
  if (call.Whole("keepdims", 1) != 0) return Outputs{y};
  shape.erase(shape.begin() + axis);
  return Outputs{HONE_TRY(call.build.Reshape(y, shape))};
}

// As below, where memory has it; `values`, `indices`: nullptr if nobody reads them.
void FindTop(const float* x, const Lines& lines, int64_t k, bool wants_largest, const Lines& found, float* values,
             int64_t* indices) {
  auto is_less = [](float a, float b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
  std::vector<float> line(static_cast<size_t>(lines.extent));
  std::vector<int64_t> order(line.size());
  for (int64_t i = 0; i < lines.count(); ++i) {
    for (size_t at = 0; at < line.size(); ++at) line[at] = x[lines.At(i, static_cast<int64_t>(at))];
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t a, int64_t b) {
      const float left = line[static_cast<size_t>(a)], right = line[static_cast<size_t>(b)];
      if (wants_largest ? is_less(right, left) : is_less(left, right)) return true;
      if (wants_largest ? is_less(left, right) : is_less(right, left)) return false;
      return a < b;
    });
    for (int64_t rank = 0; rank < k; ++rank) {
      const int64_t from = order[static_cast<size_t>(rank)];
      if (values != nullptr) values[found.At(i, rank)] = line[static_cast<size_t>(from)];
      if (indices != nullptr) indices[found.At(i, rank)] = from;
    }
  }
}

// The k largest or smallest, in order; of equal ones the first.
Result<Outputs> TopK(OperatorCall& call) {
  int64_t k = call.Whole("k", 0);
  if (call.opset() >= 10) {
    std::vector<int64_t> given = HONE_TRY(call.ConstantInput(1, "k"));
    if (given.size() != 1) return call.build.Invalid("k is no single number");
    k = given[0];
  }
  const Shape x = call.shape(0);
  const int64_t axis = HONE_TRY(call.Axis(call.Whole("axis", -1), call.rank(0)));
  const bool wants_largest = call.Whole("largest", 1) != 0;
  const Lines lines(x, axis);
  if (k < 0 || k > lines.extent) return call.build.Invalid(fmt::format("k={} of {} elements", k, lines.extent));
  Shape shape = x;
  shape[static_cast<size_t>(axis)] = k;
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers values = MakeNumbers(dtype, shape), indices = MakeNumbers(DType::kI64, shape);
    const Lines found(shape, axis);
    std::vector<int64_t> order(static_cast<size_t>(lines.extent));
    for (int64_t i = 0; i < lines.count(); ++i) {
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        const size_t left = lines.At(i, a), right = lines.At(i, b);
        return wants_largest ? IsLess(*in[0], right, left) : IsLess(*in[0], left, right);
      });
      for (int64_t rank = 0; rank < k; ++rank) {
        const int64_t from = order[static_cast<size_t>(rank)];
        evaluating::CopyElement(*in[0], static_cast<int64_t>(lines.At(i, from)), values, found.At(i, rank));
        indices.whole[found.At(i, rank)] = from;
      }
    }
    return std::vector{std::move(values), std::move(indices)};
  };
  HostOperation host{"TopK", {{dtype, shape}, {DType::kI64, shape}}, compute};
  if (dtype == DType::kF32) {
    host.run = [=](std::span<const void* const> in, std::span<void* const> out) -> Result<void> {
      FindTop(static_cast<const float*>(in[0]), lines, k, wants_largest, Lines(shape, axis),
              static_cast<float*>(out[0]), static_cast<int64_t*>(out[1]));
      return {};
    };
  }
  return call.build.Host(std::move(host), {call.In(0)});
}

Result<Outputs> CumSum(OperatorCall& call) {
  std::vector<int64_t> given = HONE_TRY(call.ConstantInput(1, "the axis"));
  if (given.size() != 1) return call.build.Invalid("the axis is no single number");
  const Shape x = call.shape(0);
  const Lines lines(x, HONE_TRY(call.Axis(given[0], call.rank(0))));
  const bool is_exclusive = call.Whole("exclusive", 0) != 0, is_reverse = call.Whole("reverse", 0) != 0;
  const bool is_product = call.node().op == "CumProd";
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, x);
    auto scan = [&](const auto& from, auto& to) {
      for (int64_t i = 0; i < lines.count(); ++i) {
        typename std::decay_t<decltype(to)>::value_type total = is_product ? 1 : 0;
        for (int64_t k = 0; k < lines.extent; ++k) {
          const size_t at = lines.At(i, is_reverse ? lines.extent - 1 - k : k);
          if (is_exclusive) to[at] = total;
          total = is_product ? total * from[at] : total + from[at];
          if (!is_exclusive) to[at] = total;
        }
      }
    };
    if (out.is_real()) {
      scan(in[0]->real, out.real);
    } else {
      scan(in[0]->whole, out.whole);
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host({call.node().op, {{dtype, x}}, compute}, {call.In(0)});
}

// 1 where the first maximum of a line is, 0 elsewhere.
Result<Outputs> Hardmax(OperatorCall& call) {
  const Shape x = call.shape(0);
  int64_t axis = HONE_TRY(call.Axis(call.Whole("axis", call.opset() < 13 ? 1 : -1), call.rank(0)));
  Shape seen = x;
  if (call.opset() < 13) {  // all dimensions from the axis on, read as one
    const int64_t rows = CountOf(Shape(x.begin(), x.begin() + axis));
    seen = {rows, rows == 0 ? 0 : CountOf(x) / rows};
    axis = 1;
  }
  const Lines lines(seen, axis);
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, x);
    for (int64_t i = 0; i < lines.count() && lines.extent > 0; ++i) {
      int64_t best = 0;
      for (int64_t k = 1; k < lines.extent; ++k)
        if (IsLess(*in[0], lines.At(i, best), lines.At(i, k))) best = k;
      out.real[lines.At(i, best)] = 1;
    }
    return std::vector{std::move(out)};
  };
  if (!IsFloat(dtype)) return call.build.Invalid("it wants floats");
  return call.build.Host({"Hardmax", {{dtype, x}}, compute}, {call.In(0)});
}

// What a scattered update does to the element that is there.
void Combine(const std::string& reduction, Numbers& out, size_t at, const Numbers& update, size_t from) {
  auto apply = [&](auto& to, const auto& by) {
    if (reduction == "add") {
      to[at] += by[from];
    } else if (reduction == "mul") {
      to[at] *= by[from];
    } else if (reduction == "max") {
      to[at] = std::max(to[at], by[from]);
    } else if (reduction == "min") {
      to[at] = std::min(to[at], by[from]);
    } else {
      to[at] = by[from];
    }
  };
  if (out.is_real()) {
    apply(out.real, update.real);
  } else {
    apply(out.whole, update.whole);
  }
}

Result<std::string> ReductionOf(const OperatorCall& call) {
  std::string reduction = call.Text("reduction", "none");
  for (std::string_view known : {"none", "add", "mul", "max", "min"})
    if (reduction == known) return reduction;
  return call.build.Invalid("reduction=" + reduction);
}

Result<Outputs> ScatterElements(OperatorCall& call) {
  const Shape x = call.shape(0), indices = call.shape(1);
  const int64_t axis = HONE_TRY(call.Axis(call.Whole("axis", 0), call.rank(0)));
  const std::string reduction = HONE_TRY(ReductionOf(call));
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
        put(static_cast<size_t>(at[0] + *position * step), i);
    });
    if (error) return *error;
    return {};
  };
  const DType dtype = call.build.dtype(call.In(0));
  HostOperation host{call.node().op, {{dtype, x}}};
  host.compute = [=](Arguments in) -> Computed {
    Numbers out = *in[0];
    HONE_TRY(walk([&](size_t i) { return in[1]->whole[i]; },
                  [&](size_t to, size_t i) {
                    for (size_t k = 0; k < static_cast<size_t>(block); ++k)
                      Combine(reduction, out, to + k, *in[2], i * static_cast<size_t>(block) + k);
                  }));
    return std::vector{std::move(out)};
  };
  if (reduction == "none" && call.build.dtype(which) == DType::kI64) {
    const auto bytes = static_cast<size_t>(ByteSize(dtype)), all = static_cast<size_t>(CountOf(x)) * bytes;
    host.run = [=](std::span<const void* const> in, std::span<void* const> out) -> Result<void> {
      auto* y = static_cast<char*>(out[0]);
      if (all > 0) std::memcpy(y, in[0], all);
      const size_t part = static_cast<size_t>(block) * bytes;
      return walk(
          [&](size_t i) { return static_cast<const int64_t*>(in[1])[i]; },
          [&](size_t to, size_t i) { std::memcpy(y + to * bytes, static_cast<const char*>(in[2]) + i * part, part); });
    };
  }
  return call.build.Host(std::move(host), {call.In(0), which, call.In(2)});
}

// Where each tuple of indices points to in x, in elements.
Result<std::vector<int64_t>> PointedAt(const Numbers& indices, const Shape& x, size_t first) {
  const auto depth = static_cast<size_t>(indices.shape.back());
  const std::vector<int64_t> strides = StridesOf(x);
  std::vector<int64_t> offsets(depth == 0 ? 0 : indices.whole.size() / depth, 0);
  for (size_t i = 0; i < offsets.size(); ++i)
    for (size_t d = 0; d < depth; ++d)
      offsets[i] += HONE_TRY(Position(indices.whole[i * depth + d], x[first + d])) * strides[first + d];
  return offsets;
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
  const std::string reduction = HONE_TRY(ReductionOf(call));
  if (indices.empty() || indices.back() < 1 || indices.back() > call.rank(0))
    return call.build.Invalid(fmt::format("indices of {} into {}", ShapeText(indices), ShapeText(x)));
  Shape wanted(indices.begin(), indices.end() - 1);
  wanted.insert(wanted.end(), x.begin() + indices.back(), x.end());
  if (call.shape(2) != wanted)
    return call.build.Invalid(fmt::format("updates of {}, wanted {}", ShapeText(call.shape(2)), ShapeText(wanted)));
  const Numbers* known = call.build.graph().TryElements(call.In(1));
  if (known != nullptr && reduction == "none" && CountOf(x) > 0 && CountOf(wanted) > 0)
    return ScatterKnownRows(call, *known);
  const int64_t block = CountOf(Shape(x.begin() + indices.back(), x.end()));
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = *in[0];
    std::vector<int64_t> offsets = HONE_TRY(PointedAt(*in[1], x, 0));
    for (size_t i = 0; i < offsets.size(); ++i)
      for (int64_t k = 0; k < block; ++k)
        Combine(reduction, out, static_cast<size_t>(offsets[i] + k), *in[2],
                i * static_cast<size_t>(block) + static_cast<size_t>(k));
    return std::vector{std::move(out)};
  };
  return call.build.Host({"ScatterND", {{dtype, x}}, compute}, {call.In(0), call.In(1), call.In(2)});
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
  if (known != nullptr && CountOf(x) > 0 && CountOf(shape) > 0)
    return GatherKnownRows(call, *known, first, std::move(shape));
  const int64_t block = CountOf(Shape(x.begin() + static_cast<int64_t>(rest), x.end()));
  const int64_t batches = CountOf(Shape(x.begin(), x.begin() + batch));
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    std::vector<int64_t> offsets = HONE_TRY(PointedAt(*in[1], x, first));
    const int64_t batch_elements = batches == 0 ? 0 : CountOf(x) / batches;
    const size_t in_batch = batches == 0 ? 1 : std::max<size_t>(1, offsets.size() / static_cast<size_t>(batches));
    for (size_t i = 0; i < offsets.size(); ++i)
      for (int64_t k = 0; k < block; ++k)
        evaluating::CopyElement(*in[0], static_cast<int64_t>(i / in_batch) * batch_elements + offsets[i] + k, out,
                                i * static_cast<size_t>(block) + static_cast<size_t>(k));
    return std::vector{std::move(out)};
  };
  return call.build.Host({"GatherND", {{dtype, shape}}, compute}, {call.In(0), call.In(1)});
}

Result<Outputs> OneHot(OperatorCall& call) {
  std::optional<double> depth = call.build.graph().ScalarOf(call.In(1));
  if (!depth) return call.Undecided(1, "the depth");
  if (!(*depth >= 1 && *depth < 1e9)) return call.build.Invalid(fmt::format("a depth of {}", *depth));
  if (call.shape(2) != Shape{2}) return call.build.Invalid("it wants the values for off and on");
  const auto extent = static_cast<int64_t>(*depth);
  Shape shape = call.shape(0);
  const int64_t axis = HONE_TRY(call.Axis(call.Whole("axis", -1), call.rank(0) + 1));
  shape.insert(shape.begin() + axis, extent);
  const Lines lines(shape, axis);
  const DType dtype = call.build.dtype(call.In(2));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    for (int64_t i = 0; i < lines.count(); ++i) {
      const double index = in[0]->RealAt(static_cast<size_t>(i));
      const double hot = index < 0 ? index + static_cast<double>(extent) : index;
      for (int64_t k = 0; k < extent; ++k)
        evaluating::CopyElement(*in[1], static_cast<double>(k) == hot ? 1 : 0, out, lines.At(i, k));
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host({"OneHot", {{dtype, shape}}, compute}, {call.In(0), call.In(2)});
}

Result<Outputs> ReverseSequence(OperatorCall& call) {
  const Shape x = call.shape(0);
  const int64_t time = HONE_TRY(call.Axis(call.Whole("time_axis", 0), call.rank(0)));
  const int64_t batch = HONE_TRY(call.Axis(call.Whole("batch_axis", 1), call.rank(0)));
  if (time == batch || call.shape(1) != Shape{x[static_cast<size_t>(batch)]})
    return call.build.Invalid("it wants a length for each element of the batch");
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, x);
    const std::vector<int64_t> strides = StridesOf(x);
    std::vector<int64_t> only_time(x.size(), 0), only_batch(x.size(), 0);
    only_time[static_cast<size_t>(time)] = only_batch[static_cast<size_t>(batch)] = 1;
    const int64_t extent = x[static_cast<size_t>(time)];
    for (int64_t length : in[1]->whole)
      if (length < 0 || length > extent) return OutOfRange("a length of", length, extent);
    evaluating::ForEach<2>(x, {only_time, only_batch}, [&](size_t i, const auto& at) {
      const int64_t length = in[1]->whole[static_cast<size_t>(at[1])];
      const int64_t from = at[0] < length ? length - 1 - at[0] : at[0];
      evaluating::CopyElement(*in[0], static_cast<int64_t>(i) + (from - at[0]) * strides[static_cast<size_t>(time)],
                              out, i);
    });
    return std::vector{std::move(out)};
  };
  return call.build.Host({"ReverseSequence", {{dtype, x}}, compute}, {call.In(0), call.In(1)});
}

Result<Outputs> Determinant(OperatorCall& call) {
  const Shape x = call.shape(0);
  if (x.size() < 2 || x[x.size() - 1] != x[x.size() - 2]) return call.build.Invalid("it wants square matrices");
  const Shape shape(x.begin(), x.end() - 2);
  const auto n = static_cast<size_t>(x.back());
  const DType dtype = call.build.dtype(call.In(0));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    for (size_t m = 0; m < out.real.size(); ++m) {
      std::vector<double> a(in[0]->real.begin() + static_cast<int64_t>(m * n * n),
                            in[0]->real.begin() + static_cast<int64_t>((m + 1) * n * n));
      double product = 1;
      for (size_t column = 0; column < n && product != 0; ++column) {
        size_t pivot = column;
        for (size_t row = column + 1; row < n; ++row)
          if (std::abs(a[row * n + column]) > std::abs(a[pivot * n + column])) pivot = row;
        if (pivot != column) {
          for (size_t k = 0; k < n; ++k) std::swap(a[pivot * n + k], a[column * n + k]);
          product = -product;
        }
        product *= a[column * n + column];
        for (size_t row = column + 1; row < n && product != 0; ++row) {
          const double factor = a[row * n + column] / a[column * n + column];
          for (size_t k = column; k < n; ++k) a[row * n + k] -= factor * a[column * n + k];
        }
      }
      out.real[m] = product;
    }
    return std::vector{std::move(out)};
  };
  if (!IsFloat(dtype)) return call.build.Invalid("it wants floats");
  return call.build.Host({"Det", {{dtype, shape}}, compute}, {call.In(0)});
}

}  // namespace

std::vector<Operator> IndexingOperators() {
  return {{"ArgMax", 1, ArgExtreme},
          {"ArgMin", 1, ArgExtreme},
          {"TopK", 1, TopK},
          {"CumSum", 2, CumSum},
          {"CumProd", 2, CumSum},
          {"Hardmax", 1, Hardmax},
          {"Scatter", 3, ScatterElements},
          {"ScatterElements", 3, ScatterElements},
          {"ScatterND", 3, ScatterND},
          {"GatherND", 2, GatherND},
          {"OneHot", 3, OneHot},
          {"ReverseSequence", 2, ReverseSequence},
          {"Det", 1, Determinant}};
}

}  // namespace hone
