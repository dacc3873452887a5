// Operators that look for elements, or count them. They run on the host.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "network/graph/on_elements.h"
#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using evaluating::Lines;
using evaluating::StridesOf;
using Computed = Result<std::vector<Numbers>>;

// What elements of type T are compared as.
template <typename T>
using Ordered = std::conditional_t<std::is_arithmetic_v<T>, T, double>;

// NaN is the largest number, as it is where maxima are looked for. Without a branch.
template <typename T>
bool IsLess(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return a < b;
  else
    return !(a >= b) & !std::isnan(a);
}

// The first of a line's greatest elements, which are `step` apart.
template <typename T>
int64_t FirstGreatest(const T* line, int64_t extent, int64_t step) {
  int64_t best = 0;
  auto greatest = static_cast<Ordered<T>>(line[0]);
  for (int64_t k = 1; k < extent && greatest == greatest; ++k) {  // nothing is beyond NaN
    const auto each = static_cast<Ordered<T>>(line[k * step]);
    if (each <= greatest) continue;
    best = k;
    greatest = each;
  }
  return best;
}

// Where the extremes of lines are that lie beside each other; `step` from an element of theirs to the next.
template <bool kIsMax, bool kIsLast, int kLines, typename T>
void ExtremesOfLines(const T* x, int64_t extent, int64_t step, int64_t* found) {
  std::conditional_t<kLines == 1, int64_t, int32_t> places[kLines] = {};
  Ordered<T> best[kLines];
  for (int i = 0; i < kLines; ++i) best[i] = static_cast<Ordered<T>>(x[i]);
  for (auto k = places[0] + 1; k < extent; ++k) {
    x += step;
    for (int i = 0; i < kLines; ++i) {
      const auto old = best[i], now = static_cast<Ordered<T>>(x[i]);
      const bool takes =
          kIsLast ? !(kIsMax ? IsLess(now, old) : IsLess(old, now)) : (kIsMax ? IsLess(old, now) : IsLess(now, old));
      best[i] = takes ? now : old;
      places[i] = takes ? k : places[i];
    }
  }
  std::copy_n(places, kLines, found);
}

template <bool kIsMax, bool kIsLast, typename T>
void ExtremesOfBlocks(const T* x, const Lines& lines, int64_t* found) {
  constexpr int kAtOnce = 16;  // whose best ones stay in registers
  const bool has_short_lines = lines.extent <= std::numeric_limits<int32_t>::max();
  for (int64_t block = 0; block < lines.outer; ++block, x += lines.extent * lines.inner, found += lines.inner) {
    int64_t i = 0;
    for (; has_short_lines && i + kAtOnce <= lines.inner; i += kAtOnce)
      ExtremesOfLines<kIsMax, kIsLast, kAtOnce>(x + i, lines.extent, lines.inner, found + i);
    for (; i < lines.inner; ++i) ExtremesOfLines<kIsMax, kIsLast, 1>(x + i, lines.extent, lines.inner, found + i);
  }
}

// Where each line's extreme is.
template <typename T>
void FindExtremes(const T* x, const Lines& lines, bool is_max, bool wants_last, int64_t* found) {
  if (lines.inner == 1 && is_max && !wants_last)
    for (int64_t i = 0; i < lines.outer; ++i) found[i] = FirstGreatest(x + i * lines.extent, lines.extent, 1);
  else if (is_max)
    wants_last ? ExtremesOfBlocks<true, true>(x, lines, found) : ExtremesOfBlocks<true, false>(x, lines, found);
  else
    wants_last ? ExtremesOfBlocks<false, true>(x, lines, found) : ExtremesOfBlocks<false, false>(x, lines, found);
}

Result<Outputs> ArgExtreme(OperatorCall& call) {
  const Shape x = call.shape(0);
  const int64_t axis = HONE_TRY(call.Axis(call.Whole("axis", 0), call.rank(0)));
  const bool wants_last = call.Whole("select_last_index", 0) != 0, is_max = call.node().op == "ArgMax";
  const Lines lines(x, axis);
  if (lines.extent == 0) return call.build.Invalid("it looks for an element where there is none");
  Shape shape = x;
  shape[static_cast<size_t>(axis)] = 1;
  HostOperation host{call.node().op, ".", {{DType::kI64, shape}}};
  ComputeOnElements(
      host, call.build.dtype(call.In(0)), [=]<typename T>(std::type_identity<T>, auto in, auto out) -> Result<void> {
        FindExtremes(static_cast<const T*>(in[0]), lines, is_max, wants_last, static_cast<int64_t*>(out[0]));
        return {};
      });
  ValueId y = HONE_TRY(call.build.Host(std::move(host), {call.In(0)}))[0];
  if (call.Whole("keepdims", 1) != 0) return Outputs{y};
  shape.erase(shape.begin() + axis);
  return Outputs{HONE_TRY(call.build.Reshape(y, shape))};
}

// The k largest or smallest of each line, in order; of equal ones the first. `values`, `indices`: nullptr if nobody
// reads them.
template <typename T>
void FindTop(const T* x, const Lines& lines, int64_t k, bool wants_largest, const Lines& found, T* values,
             int64_t* indices) {
  std::vector<Ordered<T>> line(static_cast<size_t>(lines.extent));
  std::vector<int64_t> order(line.size());
  for (int64_t i = 0; i < lines.count(); ++i) {
    for (size_t at = 0; at < line.size(); ++at)
      line[at] = static_cast<Ordered<T>>(x[lines.At(i, static_cast<int64_t>(at))]);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t a, int64_t b) {
      const auto left = line[static_cast<size_t>(a)], right = line[static_cast<size_t>(b)];
      if (wants_largest ? IsLess(right, left) : IsLess(left, right)) return true;
      if (wants_largest ? IsLess(left, right) : IsLess(right, left)) return false;
      return a < b;
    });
    for (int64_t rank = 0; rank < k; ++rank) {
      const int64_t from = order[static_cast<size_t>(rank)];
      if (values != nullptr) values[found.At(i, rank)] = x[lines.At(i, from)];
      if (indices != nullptr) indices[found.At(i, rank)] = from;
    }
  }
}

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
  HostOperation host{"TopK", ".", {{dtype, shape}, {DType::kI64, shape}}};
  ComputeOnElements(host, dtype, [=]<typename T>(std::type_identity<T>, auto in, auto out) -> Result<void> {
    FindTop(static_cast<const T*>(in[0]), lines, k, wants_largest, Lines(shape, axis), static_cast<T*>(out[0]),
            static_cast<int64_t*>(out[1]));
    return {};
  });
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
  HostOperation host{call.node().op, ".", {{dtype, x}}};
  ComputeOnElements(host, dtype, [=]<typename T>(std::type_identity<T>, auto in, auto out) -> Result<void> {
    for (int64_t i = 0; i < lines.count(); ++i) {
      const T* from = static_cast<const T*>(in[0]) + lines.Begin(i);
      T* to = static_cast<T*>(out[0]) + lines.Begin(i);
      WideElement<T> total = is_product ? 1 : 0;
      for (int64_t k = 0; k < lines.extent; ++k) {
        const int64_t at = (is_reverse ? lines.extent - 1 - k : k) * lines.inner;
        const auto before = total, each = static_cast<WideElement<T>>(from[at]);
        total = is_product ? total * each : total + each;
        to[at] = static_cast<T>(is_exclusive ? before : total);
      }
    }
    return {};
  });
  return call.build.Host(std::move(host), {call.In(0)});
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
  if (!IsFloat(dtype)) return call.build.Invalid("it wants floats");
  HostOperation host{"Hardmax", "r", {{dtype, x}}};
  ComputeOnElements(host, dtype, [=]<typename T>(std::type_identity<T>, auto in, auto out) -> Result<void> {
    const auto* elements = static_cast<const T*>(in[0]);
    auto* hot = static_cast<T*>(out[0]);
    std::fill_n(hot, CountOf(x), static_cast<T>(0.0));
    for (int64_t i = 0; i < lines.count() && lines.extent > 0; ++i)
      hot[lines.At(i, FirstGreatest(elements + lines.Begin(i), lines.extent, lines.inner))] = static_cast<T>(1.0);
    return {};
  });
  return call.build.Host(std::move(host), {call.In(0)});
}

Result<Outputs> OneHot(OperatorCall& call) {
  const double depth = HONE_TRY(call.OneNumber(1, "the depth"));
  if (!(depth >= 1 && depth < 1e9)) return call.build.Invalid(fmt::format("a depth of {}", depth));
  if (call.shape(2) != Shape{2}) return call.build.Invalid("it wants the values for off and on");
  const auto extent = static_cast<int64_t>(depth);
  Shape shape = call.shape(0);
  const int64_t axis = HONE_TRY(call.Axis(call.Whole("axis", -1), call.rank(0) + 1));
  shape.insert(shape.begin() + axis, extent);
  const Lines lines(shape, axis);
  const DType dtype = call.build.dtype(call.In(2));
  // Whole numbers as they are; those of u64 may be beyond i64, and none of them that is not exact is near a depth.
  const DType given = call.build.dtype(call.In(0)),
              of_index = IsFloat(given) || given == DType::kU64 ? DType::kF64 : DType::kI64;
  const ValueId indices = HONE_TRY(call.build.Cast(call.In(0), of_index));
  const auto hot = [of_index, extent](const void* all, int64_t i) -> std::optional<int64_t> {
    const auto place = [extent](auto index) -> std::optional<int64_t> {
      if (index < 0) index += static_cast<decltype(index)>(extent);
      if (!(index >= 0 && index < static_cast<decltype(index)>(extent))) return std::nullopt;
      const auto whole = static_cast<int64_t>(index);
      if (static_cast<decltype(index)>(whole) != index) return std::nullopt;
      return whole;
    };
    return of_index == DType::kF64 ? place(static_cast<const double*>(all)[i])
                                   : place(static_cast<const int64_t*>(all)[i]);
  };
  HostOperation host{"OneHot", "..", {{dtype, shape}}};
  ComputeOnElements(host, dtype, [=]<typename T>(std::type_identity<T>, auto in, auto out) -> Result<void> {
    const auto* values = static_cast<const T*>(in[1]);  // off, on
    auto* to = static_cast<T*>(out[0]);
    std::fill_n(to, CountOf(shape), values[0]);
    for (int64_t i = 0; i < lines.count(); ++i)
      if (const std::optional<int64_t> at = hot(in[0], i)) to[lines.At(i, *at)] = values[1];
    return {};
  });
  return call.build.Host(std::move(host), {indices, call.In(2)});
}

// The same on elements of `size` bytes where they lie, a row of those behind both dimensions at a time.
Result<void> ReverseElements(const Shape& x, int64_t time, int64_t batch, int64_t size, std::span<const void* const> in,
                             void* out) {
  const auto* lengths = static_cast<const int64_t*>(in[1]);
  const auto last = static_cast<size_t>(std::max(time, batch));
  const int64_t extent = x[static_cast<size_t>(time)];
  for (int64_t b = 0; b < x[static_cast<size_t>(batch)]; ++b)
    if (lengths[b] < 0 || lengths[b] > extent)
      return Error{ErrorKind::kInvalid, fmt::format("a length of {} of {} elements", lengths[b], extent), ""};
  const std::vector<int64_t> strides = evaluating::StridesOf(x);
  const Shape rows(x.begin(), x.begin() + static_cast<int64_t>(last) + 1);
  std::vector<int64_t> of_time(rows.size(), 0), of_batch(rows.size(), 0);
  of_time[static_cast<size_t>(time)] = of_batch[static_cast<size_t>(batch)] = 1;
  const int64_t row = strides[last] * size;
  evaluating::ForEach<2>(rows, {of_time, of_batch}, [&](size_t i, const auto& at) {
    const int64_t from = at[0] < lengths[at[1]] ? lengths[at[1]] - 1 - at[0] : at[0];
    const auto* begin = static_cast<const std::byte*>(in[0]) + static_cast<int64_t>(i) * row;
    std::memcpy(static_cast<std::byte*>(out) + static_cast<int64_t>(i) * row,
                begin + (from - at[0]) * strides[static_cast<size_t>(time)] * size, static_cast<size_t>(row));
  });
  return {};
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
      if (length < 0 || length > extent)
        return Error{ErrorKind::kInvalid, fmt::format("a length of {} of {} elements", length, extent), ""};
    evaluating::ForEach<2>(x, {only_time, only_batch}, [&](size_t i, const auto& at) {
      const int64_t length = in[1]->whole[static_cast<size_t>(at[1])];
      const int64_t from = at[0] < length ? length - 1 - at[0] : at[0];
      evaluating::CopyElement(*in[0], static_cast<int64_t>(i) + (from - at[0]) * strides[static_cast<size_t>(time)],
                              out, i);
    });
    return std::vector{std::move(out)};
  };
  HostOperation host{"ReverseSequence", ".w", {{dtype, x}}, compute};
  if (call.build.dtype(call.In(1)) == DType::kI64)
    host.run = [=](std::span<const void* const> in, std::span<void* const> out) {
      return ReverseElements(x, time, batch, ByteSize(dtype), in, out[0]);
    };
  return call.build.Host(std::move(host), {call.In(0), call.In(1)});
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
  return call.build.Host({"Det", "r", {{dtype, shape}}, compute}, {call.In(0)});
}

}  // namespace

std::vector<Operator> IndexingOperators() {
  return {{"ArgMax", 1, ArgExtreme}, {"ArgMin", 1, ArgExtreme},
          {"TopK", 1, TopK},         {"CumSum", 2, CumSum},
          {"CumProd", 2, CumSum},    {"Hardmax", 1, Hardmax},
          {"OneHot", 3, OneHot},     {"ReverseSequence", 2, ReverseSequence},
          {"Det", 1, Determinant}};
}

}  // namespace hone
