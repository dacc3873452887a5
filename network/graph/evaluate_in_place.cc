#include "network/graph/evaluate_in_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/graph/element.h"
#include "network/graph/evaluate_internal.h"
#include "network/graph/line_walk.h"
#include "network/graph/whole_functions.h"

namespace hone {
namespace {

using evaluating::BroadcastStrides;
using evaluating::LineWalk;
using evaluating::StridesOf;

using Inputs = std::span<const ElementsView>;

// Elements of a type as unsigned numbers of its size: what moves them need not know more.
template <typename Visit>
void WithSize(DType dtype, const Visit& visit) {
  switch (ByteSize(dtype)) {
    case 1: return visit(uint8_t{});
    case 2: return visit(uint16_t{});
    case 4: return visit(uint32_t{});
    default: return visit(uint64_t{});
  }
}

// The result's element i is the one at `base` and Σ index·stride.
void CopyStrided(const ElementsView& x, int64_t base, std::vector<int64_t> strides, const ElementsView& out) {
  const LineWalk<1> lines(out.type->shape, {std::move(strides)});
  WithSize(x.type->dtype, [&]<typename T>(T) {
    const T* from = static_cast<const T*>(x.data) + base;
    T* to = static_cast<T*>(out.data);
    lines.Walk([&](int64_t first, int64_t count, const auto& at, const auto& stride) {
      const T* line = from + at[0];
      if (stride[0] == 1)
        std::copy_n(line, count, to + first);
      else if (stride[0] == 0)
        std::fill_n(to + first, count, *line);
      else
        for (int64_t i = 0; i < count; ++i) to[first + i] = line[i * stride[0]];
    });
  });
}

// Where each element of the result is read along each dimension; -1: nowhere, it is `fill`.
std::vector<std::vector<int64_t>> PlacesOf(const Node& node, const Shape& from, const Shape& to) {
  const std::vector<int64_t> strides = StridesOf(from);
  std::vector<std::vector<int64_t>> places(to.size());
  for (size_t d = 0; d < to.size(); ++d)
    for (int64_t i = 0; i < to[d]; ++i) {
      const int64_t at = i - node.starts[d];
      const bool is_inside = at >= 0 && at < from[d];
      places[d].push_back(!is_inside && node.function.empty()
                              ? -1
                              : (is_inside ? at : evaluating::GoesOn(node.function, at, from[d])) * strides[d]);
    }
  return places;
}

void PadElements(const Node& node, const ElementsView& x, const ElementsView& out) {
  Shape lines = out.type->shape;
  std::vector<std::vector<int64_t>> places = PlacesOf(node, x.type->shape, lines);
  const std::vector<int64_t> columns = places.back();
  lines.pop_back();
  alignas(8) std::byte fill[8] = {};
  Numbers one = MakeNumbers(out.type->dtype, {});
  std::ranges::fill(one.real, node.fill);
  std::ranges::fill(one.whole, node.whole_fill);
  StoreElements(one, out.type->dtype, fill);
  WithSize(out.type->dtype, [&]<typename T>(T filled) {
    std::memcpy(&filled, fill, sizeof(T));
    const T* from = static_cast<const T*>(x.data);
    T* to = static_cast<T*>(out.data);
    const int64_t count = CountOf(lines);
    for (int64_t line = 0; line < count; ++line, to += columns.size()) {
      int64_t rest = line, base = 0;
      for (size_t d = lines.size(); d-- > 0; rest /= lines[d]) {
        const int64_t place = places[d][static_cast<size_t>(rest % lines[d])];
        base = place < 0 || base < 0 ? -1 : base + place;
      }
      for (size_t i = 0; i < columns.size(); ++i) to[i] = base < 0 || columns[i] < 0 ? filled : from[base + columns[i]];
    }
  });
}

void Concatenate(const Node& node, Inputs in, const ElementsView& out) {
  const auto axis = static_cast<size_t>(node.axis);
  const int64_t size = ByteSize(out.type->dtype);
  const int64_t inner = StridesOf(out.type->shape)[axis], row = out.type->shape[axis] * inner * size;
  const int64_t rows = row == 0 ? 0 : CountOf(out.type->shape) * size / row;
  auto* to = static_cast<std::byte*>(out.data);
  for (const ElementsView& x : in) {
    const int64_t piece = x.type->shape[axis] * inner * size;
    if (piece == 0) continue;
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(to + r * row, static_cast<const std::byte*>(x.data) + r * piece, static_cast<size_t>(piece));
    to += piece;
  }
}

template <typename Index>
Result<void> GatherRows(const Node& node, Inputs in, const ElementsView& out) {
  const Shape& shape = in[0].type->shape;
  const auto axis = static_cast<size_t>(node.axis);
  const int64_t extent = shape[axis], row = StridesOf(shape)[axis] * ByteSize(out.type->dtype);
  const int64_t wanted = CountOf(in[1].type->shape);
  int64_t outer = 1;
  for (size_t d = 0; d < axis; ++d) outer *= shape[d];
  const auto* indices = static_cast<const Index*>(in[1].data);
  for (int64_t i = 0; i < wanted; ++i)
    if (const int64_t index = indices[i]; index < -extent || index >= extent)
      return Error{ErrorKind::kInvalid, fmt::format("index {} of {} elements", index, extent), ""};
  auto* to = static_cast<std::byte*>(out.data);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < wanted; ++i, to += row) {
      const int64_t index = indices[i] < 0 ? indices[i] + extent : indices[i];
      std::memcpy(to, static_cast<const std::byte*>(in[0].data) + (o * extent + index) * row, static_cast<size_t>(row));
    }
  return {};
}

template <typename From, typename To, typename Function>
void OfPairs(Inputs in, const ElementsView& out, const Function& function) {
  evaluating::ForPairs<From, To>(in[0].type->shape, in[0].data, in[1].type->shape, in[1].data, out.type->shape,
                                 out.data, function);
}

bool OfTwo(const Node& node, Inputs in, const ElementsView& out) {
  const bool is_unsigned = in[0].type->dtype == DType::kU64;
  if (is_unsigned
          ? evaluating::WithComparison<uint64_t>(node.function, [&](auto f) { OfPairs<uint64_t, uint8_t>(in, out, f); })
          : evaluating::WithComparison<int64_t>(node.function, [&](auto f) { OfPairs<int64_t, uint8_t>(in, out, f); }))
    return true;
  if (out.type->dtype != in[0].type->dtype) return false;
  return evaluating::WithBinaryWhole(node.function, is_unsigned,
                                     [&](auto f) { OfPairs<int64_t, int64_t>(in, out, f); });
}

// Sums and products wrap around, so that their order is nobody's matter.
bool ReduceWholes(const Node& node, const ElementsView& x, const ElementsView& out) {
  const bool is_unsigned = x.type->dtype == DType::kU64;
  const std::string_view name = node.function, function = name == "sum" ? "add" : name == "prod" ? "mul" : name;
  if (function != "add" && function != "mul" && function != "max" && function != "min") return false;
  if (CountOf(x.type->shape) == 0) return false;  // Evaluate knows what is left of no elements
  const LineWalk<1> lines(x.type->shape, {BroadcastStrides(out.type->shape, x.type->shape)});
  const auto* from = static_cast<const int64_t*>(x.data);
  auto* to = static_cast<int64_t*>(out.data);
  // The first line of each result begins it.
  std::vector<bool> has_begun(static_cast<size_t>(CountOf(out.type->shape)), false);
  return evaluating::WithBinaryWhole(function, is_unsigned, [&](auto combine) {
    lines.Walk([&](int64_t first, int64_t count, const auto& at, const auto& stride) {
      const int64_t* line = from + first;
      int64_t* result = to + at[0];
      const bool is_first = !has_begun[static_cast<size_t>(at[0])];
      has_begun[static_cast<size_t>(at[0])] = true;
      if (stride[0] == 0) {
        int64_t reduced = is_first ? line[0] : combine(*result, line[0]);
        for (int64_t i = 1; i < count; ++i) reduced = combine(reduced, line[i]);
        *result = reduced;
      } else if (is_first) {
        for (int64_t i = 0; i < count; ++i) result[i * stride[0]] = line[i];
      } else {
        for (int64_t i = 0; i < count; ++i) result[i * stride[0]] = combine(result[i * stride[0]], line[i]);
      }
    });
  });
}

void SelectElements(Inputs in, const ElementsView& out) {
  const Shape& shape = out.type->shape;
  std::array<std::vector<int64_t>, 3> strides;
  for (size_t i = 0; i < 3; ++i) strides[i] = BroadcastStrides(in[i].type->shape, shape);
  const LineWalk<3> lines(shape, std::move(strides));
  WithSize(out.type->dtype, [&]<typename T>(T) {
    lines.Walk([&](int64_t first, int64_t count, const auto& at, const auto& stride) {
      const uint8_t* holds = static_cast<const uint8_t*>(in[0].data) + at[0];
      const T *a = static_cast<const T*>(in[1].data) + at[1], *b = static_cast<const T*>(in[2].data) + at[2];
      T* to = static_cast<T*>(out.data) + first;
      for (int64_t i = 0; i < count; ++i) to[i] = holds[i * stride[0]] != 0 ? a[i * stride[1]] : b[i * stride[2]];
    });
  });
}

// As evaluating::Truncated, without a look at what other types hold.
int64_t TruncatedTo64Bits(double x) {
  if (!(std::abs(x) < 0x1p63))
    return std::isnan(x) ? 0 : x < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(x);
}

template <typename From, typename To>
To Converted(From x, DType to) {
  if constexpr (!std::is_integral_v<To>)
    return static_cast<To>(static_cast<double>(x));
  else if constexpr (!std::is_integral_v<From> && std::is_same_v<To, int64_t>)
    return TruncatedTo64Bits(static_cast<double>(x));
  else if constexpr (std::is_integral_v<From>)
    return to == DType::kBool ? static_cast<To>(x != 0) : static_cast<To>(x);
  else
    return to == DType::kBool ? static_cast<To>(static_cast<double>(x) != 0)
                              : static_cast<To>(evaluating::Truncated(static_cast<double>(x), to));
}

// From or to whole numbers of 64 bits; kernels convert others.
bool CastElements(const ElementsView& x, const ElementsView& out) {
  const DType from = x.type->dtype, to = out.type->dtype;
  const int64_t count = CountOf(out.type->shape);
  const auto all = [&]<typename From, typename To>(std::type_identity<From>, std::type_identity<To>) {
    std::transform(static_cast<const From*>(x.data), static_cast<const From*>(x.data) + count,
                   static_cast<To*>(out.data), [to](From each) { return Converted<From, To>(each, to); });
  };
  if (from == DType::kI64)
    VisitElement(to, [&](auto type) { all(std::type_identity<int64_t>(), type); });
  else if (to == DType::kI64)
    VisitElement(from, [&](auto type) { all(type, std::type_identity<int64_t>()); });
  else
    return false;
  return true;
}

bool IsAligned(const ElementsView& elements) {
  return reinterpret_cast<uintptr_t>(elements.data) % static_cast<uintptr_t>(ByteSize(elements.type->dtype)) == 0;
}

bool IsOf64Bits(const ElementsView& elements) {
  return elements.type->dtype == DType::kI64 || elements.type->dtype == DType::kU64;
}

}  // namespace

Result<bool> EvaluateInPlace(const Node& node, Inputs in, const ElementsView& out) {
  if (CountOf(out.type->shape) == 0 || !IsAligned(out) || !std::ranges::all_of(in, IsAligned)) return false;
  switch (node.kind) {
    case NodeKind::kReshape:
      std::memcpy(out.data, in[0].data, static_cast<size_t>(CountOf(out.type->shape) * ByteSize(out.type->dtype)));
      return true;
    case NodeKind::kTranspose: {
      const std::vector<int64_t> own = StridesOf(in[0].type->shape);
      std::vector<int64_t> strides;
      for (int64_t axis : node.axes) strides.push_back(own[static_cast<size_t>(axis)]);
      CopyStrided(in[0], 0, std::move(strides), out);
      return true;
    }
    case NodeKind::kSlice: {
      std::vector<int64_t> strides = StridesOf(in[0].type->shape);
      int64_t base = 0;
      for (size_t d = 0; d < strides.size(); ++d) {
        base += node.starts[d] * strides[d];
        strides[d] *= node.steps[d];
      }
      CopyStrided(in[0], base, std::move(strides), out);
      return true;
    }
    case NodeKind::kExpand:
      CopyStrided(in[0], 0, BroadcastStrides(in[0].type->shape, out.type->shape), out);
      return true;
    case NodeKind::kPad:
      if (out.type->shape.empty()) return false;
      PadElements(node, in[0], out);
      return true;
    case NodeKind::kConcat: Concatenate(node, in, out); return true;
    case NodeKind::kGather:
      if (in[1].type->dtype == DType::kI64)
        HONE_TRY(GatherRows<int64_t>(node, in, out));
      else if (in[1].type->dtype == DType::kI32)
        HONE_TRY(GatherRows<int32_t>(node, in, out));
      else
        return false;
      return true;
    case NodeKind::kUnary:
      if (!IsOf64Bits(in[0]) || out.type->dtype != in[0].type->dtype) return false;
      return evaluating::WithUnaryWhole(node.function, [&](auto function) {
        const auto* x = static_cast<const int64_t*>(in[0].data);
        std::transform(x, x + CountOf(out.type->shape), static_cast<int64_t*>(out.data), function);
      });
    case NodeKind::kReduce:
      return IsOf64Bits(in[0]) && in[0].type->dtype == out.type->dtype &&
             in[0].type->shape.size() == out.type->shape.size() && ReduceWholes(node, in[0], out);
    case NodeKind::kBinary: return IsOf64Bits(in[0]) && IsOf64Bits(in[1]) && OfTwo(node, in, out);
    case NodeKind::kSelect:
      if (in[0].type->dtype != DType::kBool) return false;
      SelectElements(in, out);
      return true;
    case NodeKind::kCast: return CastElements(in[0], out);
    default: return false;
  }
}

}  // namespace hone
