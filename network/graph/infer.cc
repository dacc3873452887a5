// Shapes and element types, by rules of our own: one function a kind of node.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ir/graph/dtype_traits.h"
#include "network/graph/graph.h"

namespace hone {
namespace {

using Types = std::span<const TensorType>;

Error Wrong(std::string message) { return Error{ErrorKind::kInvalid, std::move(message), ""}; }

// Dimensions from the last: equal, or one of them 1.
Result<Shape> Broadcast(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) {
      return Wrong(fmt::format("shapes {} and {} do not go together: {} against {}", ShapeText(a), ShapeText(b), x, y));
    }
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

Result<void> WantRank(const TensorType& type, size_t rank, std::string_view what) {
  if (type.shape.size() == rank) return {};
  return Wrong(fmt::format("{} is {}, wanted {} dimensions", what, ShapeText(type.shape), rank));
}

Result<void> WantAxis(const TensorType& type, int64_t axis) {
  if (axis >= 0 && axis < static_cast<int64_t>(type.shape.size())) return {};
  return Wrong(fmt::format("saw {}, which has no dimension {}", ShapeText(type.shape), axis));
}

Result<void> WantFloats(const TensorType& type) {
  if (IsFloat(type.dtype)) return {};
  return Wrong(fmt::format("saw {}, wanted floats", Name(type.dtype)));
}

// One dimension under a window; padding may be all there is of it.
Result<int64_t> WindowExtent(int64_t size, int64_t window, int64_t stride, int64_t dilation, int64_t before,
                             int64_t after, bool ceil) {
  constexpr int64_t kMost = int64_t{1} << 40;
  for (int64_t value : {window, stride, dilation}) {
    if (value < 1 || value > kMost) return Wrong(fmt::format("saw a window, stride or dilation of {}", value));
  }
  if (before < 0 || after < 0 || before > kMost || after > kMost) {
    return Wrong(fmt::format("padding {} and {}, wanted 0 or more", before, after));
  }
  int64_t reach = 0;
  int64_t padded = size + before + after;
  if (__builtin_mul_overflow(window - 1, dilation, &reach) || reach >= padded) {
    return Wrong(fmt::format("a window of {} (dilation {}) does not fit {} padded elements", window, dilation, padded));
  }
  int64_t room = padded - reach - 1;
  if (!ceil) return room / stride + 1;
  int64_t count = (room + stride - 1) / stride + 1;
  // The last window begins inside the input or its left padding.
  return (count - 1) * stride >= size + before ? count - 1 : count;
}

bool IsContraction(const Node& node) { return node.kind == NodeKind::kConv || node.kind == NodeKind::kMatMul; }

DType SumType(const Node& node, Types inputs) {
  return IsContraction(node) && IsByte(inputs[0].dtype) ? DType::kI32 : inputs[0].dtype;
}

Result<TensorType> Window(const Node& node, Types inputs, int64_t channels) {
  const Shape& x = inputs[0].shape;
  TensorType type{SumType(node, inputs), {x[0], channels}};
  for (size_t d = 0; d < 2; ++d) {
    type.shape.push_back(HONE_TRY(WindowExtent(x[2 + d], node.window[d], node.stride[d], node.dilation[d], node.pads[d],
                                               node.pads[2 + d], node.ceil)));
  }
  return type;
}

Result<TensorType> InferConv(const Node& node, Types inputs) {
  const Shape &x = inputs[0].shape, &w = inputs[1].shape;
  HONE_TRY(WantRank(inputs[0], 4, "the input"));
  HONE_TRY(WantRank(inputs[1], 4, "the weight"));
  if (node.groups < 1 || x[1] % node.groups != 0 || w[0] % node.groups != 0) {
    return Wrong(fmt::format("{} groups do not divide {} channels into {}", node.groups, x[1], w[0]));
  }
  if (w[1] != x[1] / node.groups) {
    return Wrong(fmt::format("the weight {} has {} channels a group, the input {} has {}", ShapeText(w), w[1],
                             ShapeText(x), x[1] / node.groups));
  }
  if (w[2] != node.window[0] || w[3] != node.window[1]) {
    return Wrong(fmt::format("kernel_shape is {}x{}, the weight {}", node.window[0], node.window[1], ShapeText(w)));
  }
  if (inputs.size() > 2 && inputs[2].shape != Shape{w[0]}) {
    return Wrong(fmt::format("the bias is {}, wanted {}", ShapeText(inputs[2].shape), w[0]));
  }
  return Window(node, inputs, w[0]);
}

Result<TensorType> InferPool(const Node& node, Types inputs) {
  HONE_TRY(WantRank(inputs[0], 4, "the input"));
  for (size_t side = 0; side < 4; ++side) {
    if (node.pads[side] >= node.window[side % 2]) {
      return Wrong(fmt::format("padding {} is not below the window {}, so a window could be empty", node.pads[side],
                               node.window[side % 2]));
    }
  }
  return Window(node, inputs, inputs[0].shape[1]);
}

Result<TensorType> InferMatMul(const Node& node, Types inputs) {
  const Shape &a = inputs[0].shape, &b = inputs[1].shape;
  if (a.size() < 2 || b.size() < 2) {
    return Wrong(fmt::format("saw {} and {}, wanted matrices", ShapeText(a), ShapeText(b)));
  }
  int64_t k = a.back(), k_of_b = node.flag ? b.back() : b[b.size() - 2];
  if (k != k_of_b) {
    return Wrong(fmt::format("{} has {} columns, {} wants {}", ShapeText(a), k, ShapeText(b), k_of_b));
  }
  Shape batch = HONE_TRY(Broadcast(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2)));
  batch.push_back(a[a.size() - 2]);
  batch.push_back(node.flag ? b[b.size() - 2] : b.back());
  return TensorType{SumType(node, inputs), std::move(batch)};
}

Result<TensorType> InferDense(const Node& node, Types inputs) {
  const Shape& x = inputs[0].shape;
  const bool is_narrow = node.function != "same";
  const int64_t rows = node.groups * node.extents[0], columns = node.extents[1], bits = node.function == "u4" ? 4 : 8;
  const DType byte = node.function == "i8" ? DType::kI8 : DType::kU8, type = inputs[0].dtype;
  if (x.size() < 2 || x.back() != columns)
    return Wrong(fmt::format("saw {}, wanted rows of {}", ShapeText(x), columns));
  auto check = [&](size_t i, DType wanted, int64_t count) -> Result<void> {
    const TensorType& input = inputs[i];
    if (input.dtype == wanted && CountOf(input.shape) == count) return {};
    return Wrong(fmt::format("operand {} is {} of {}, wanted {} of {}", i, ShapeText(input.shape), Name(input.dtype),
                             count, Name(wanted)));
  };
  HONE_TRY(WantFloats(inputs[0]));
  HONE_TRY(check(1, is_narrow ? byte : type, rows * columns * (is_narrow ? bits : 8) / 8));
  const size_t parameters = inputs.size() - (node.flag ? 1 : 0);
  for (size_t i = 2; i < parameters; ++i)
    HONE_TRY(check(i, i == 2 ? type : byte, rows * (node.axis > 0 ? columns / node.axis : 1)));
  if (node.flag) HONE_TRY(check(parameters, DType::kI32, CountOf(x) / std::max<int64_t>(columns, 1)));
  TensorType result = inputs[0];
  result.shape.back() = node.extents[0];
  return result;
}

Result<TensorType> InferReduce(const Node& node, Types inputs) {
  TensorType type = inputs[0];
  for (int64_t axis : node.axes) HONE_TRY(WantAxis(type, axis));
  for (int64_t axis : node.axes) type.shape[static_cast<size_t>(axis)] = 1;
  return type;
}

Result<TensorType> InferSoftmax(const Node& node, Types inputs) {
  HONE_TRY(WantFloats(inputs[0]));
  HONE_TRY(WantAxis(inputs[0], node.axis));
  return inputs[0];
}

Result<TensorType> InferLayerNorm(const Node& node, Types inputs) {
  const Shape& x = inputs[0].shape;
  HONE_TRY(WantFloats(inputs[0]));
  if (node.axis != static_cast<int64_t>(x.size())) HONE_TRY(WantAxis(inputs[0], node.axis));  // rows of one element
  Shape row(x.begin() + node.axis, x.end());
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].shape != row) {
      return Wrong(fmt::format("{} is {}, wanted {}", i == 1 ? "the scale" : "the bias", ShapeText(inputs[i].shape),
                               ShapeText(row)));
    }
  }
  return inputs[0];
}

Result<TensorType> InferUnary(const Node& node, Types inputs) {
  if (node.function == "not" && IsFloat(inputs[0].dtype))
    return Wrong(fmt::format("not of {}, wanted truth values", Name(inputs[0].dtype)));
  return inputs[0];
}

bool IsComparison(std::string_view function) {
  for (std::string_view each : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    if (function == each) return true;
  }
  return false;
}

Result<TensorType> InferBinary(const Node& node, Types inputs) {
  if (inputs[0].dtype != inputs[1].dtype) {
    return Wrong(fmt::format("saw {} and {}, wanted one element type", Name(inputs[0].dtype), Name(inputs[1].dtype)));
  }
  bool is_logic = node.function == "and" || node.function == "or";
  if (is_logic != (inputs[0].dtype == DType::kBool) && !(node.function == "eq" || node.function == "ne")) {
    return Wrong(fmt::format("{} of {}", node.function, Name(inputs[0].dtype)));
  }
  DType dtype = IsComparison(node.function) ? DType::kBool : inputs[0].dtype;
  return TensorType{dtype, HONE_TRY(Broadcast(inputs[0].shape, inputs[1].shape))};
}

Result<TensorType> InferSelect(const Node&, Types inputs) {
  if (inputs[0].dtype != DType::kBool) return Wrong("the condition holds no truth values");
  if (inputs[1].dtype != inputs[2].dtype) {
    return Wrong(fmt::format("saw {} and {}, wanted one element type", Name(inputs[1].dtype), Name(inputs[2].dtype)));
  }
  Shape both = HONE_TRY(Broadcast(inputs[1].shape, inputs[2].shape));
  return TensorType{inputs[1].dtype, HONE_TRY(Broadcast(inputs[0].shape, both))};
}

Result<TensorType> InferTranspose(const Node& node, Types inputs) {
  const Shape& x = inputs[0].shape;
  std::vector<bool> seen(x.size(), false);
  TensorType type{inputs[0].dtype, {}};
  for (int64_t axis : node.axes) {
    if (axis < 0 || axis >= static_cast<int64_t>(x.size()) || seen[static_cast<size_t>(axis)]) {
      return Wrong(fmt::format("the permutation {} is none of {} dimensions", fmt::join(node.axes, ","), x.size()));
    }
    seen[static_cast<size_t>(axis)] = true;
    type.shape.push_back(x[static_cast<size_t>(axis)]);
  }
  if (type.shape.size() != x.size()) {
    return Wrong(fmt::format("the permutation {} is none of {} dimensions", fmt::join(node.axes, ","), x.size()));
  }
  return type;
}

Result<TensorType> InferConcat(const Node& node, Types inputs) {
  TensorType type = inputs[0];
  HONE_TRY(WantAxis(type, node.axis));
  auto axis = static_cast<size_t>(node.axis);
  for (const TensorType& other : inputs.subspan(1)) {
    Shape expected = type.shape;
    if (other.shape.size() == expected.size()) expected[axis] = other.shape[axis];
    if (other.shape != expected || other.dtype != type.dtype) {
      return Wrong(fmt::format("{} and {} do not go together along dimension {}", ShapeText(type.shape),
                               ShapeText(other.shape), axis));
    }
    type.shape[axis] += other.shape[axis];
  }
  return type;
}

Result<void> WantIndices(const TensorType& indices) {
  if (indices.dtype == DType::kI64 || indices.dtype == DType::kI32) return {};
  return Wrong(fmt::format("its indices are {}, wanted whole numbers", Name(indices.dtype)));
}

Result<TensorType> InferGather(const Node& node, Types inputs) {
  HONE_TRY(WantIndices(inputs[1]));
  HONE_TRY(WantAxis(inputs[0], node.axis));
  const Shape &x = inputs[0].shape, &indices = inputs[1].shape;
  if (x[static_cast<size_t>(node.axis)] == 0 && CountOf(indices) > 0) return Wrong("there is nothing to gather from");
  TensorType type{inputs[0].dtype, Shape(x.begin(), x.begin() + node.axis)};
  type.shape.insert(type.shape.end(), indices.begin(), indices.end());
  type.shape.insert(type.shape.end(), x.begin() + node.axis + 1, x.end());
  return type;
}

Result<TensorType> InferGatherElements(const Node& node, Types inputs) {
  HONE_TRY(WantIndices(inputs[1]));
  HONE_TRY(WantAxis(inputs[0], node.axis));
  const Shape &x = inputs[0].shape, &indices = inputs[1].shape;
  bool fits = x.size() == indices.size();
  for (size_t d = 0; fits && d < x.size(); ++d) fits = d == static_cast<size_t>(node.axis) || indices[d] <= x[d];
  if (!fits || (x[static_cast<size_t>(node.axis)] == 0 && CountOf(indices) > 0)) {
    return Wrong(fmt::format("indices of {} do not fit {}", ShapeText(indices), ShapeText(x)));
  }
  return TensorType{inputs[0].dtype, indices};
}

Result<TensorType> InferExpand(const Node& node, Types inputs) {
  Shape both = HONE_TRY(Broadcast(inputs[0].shape, node.extents));
  return TensorType{inputs[0].dtype, std::move(both)};
}

Result<TensorType> InferReshape(const Node& node, Types inputs) {
  HONE_TRY(CheckShape(node.extents));
  if (CountOf(node.extents) != CountOf(inputs[0].shape)) {
    return Wrong(fmt::format("{} cannot be read as {}", ShapeText(inputs[0].shape), ShapeText(node.extents)));
  }
  return TensorType{inputs[0].dtype, node.extents};
}

Result<TensorType> InferHost(const Node& node, Types inputs) {
  const std::string& letters = node.host->takes.letters();
  HONE_CHECK(inputs.size() <= letters.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DType dtype = inputs[i].dtype;
    const bool fits = letters[i] == 'r'   ? IsFloat(dtype)
                      : letters[i] == 'w' ? !IsFloat(dtype)
                      : letters[i] == '=' ? dtype == inputs[0].dtype
                                          : true;
    if (fits) continue;
    return Wrong(fmt::format("operand {} of {} holds {}, wanted {}", i + 1, node.host->name, Name(dtype),
                             letters[i] == 'r'   ? "floats"
                             : letters[i] == 'w' ? "whole numbers"
                                                 : Name(inputs[0].dtype)));
  }
  return node.host->types[static_cast<size_t>(node.axis)];
}

// Elements outside would be read from other memory.
Result<TensorType> InferSlice(const Node& node, Types inputs) {
  const Shape& x = inputs[0].shape;
  if (node.extents.size() != x.size() || node.starts.size() != x.size() || node.steps.size() != x.size())
    return Wrong(fmt::format("a slice of {} dimensions of {}", node.extents.size(), ShapeText(x)));
  for (size_t d = 0; d < x.size(); ++d) {
    const int64_t count = node.extents[d];
    if (count == 0) continue;
    const __int128 first = node.starts[d], last = first + static_cast<__int128>(node.steps[d]) * (count - 1);
    if (count < 0 || std::min(first, last) < 0 || std::max(first, last) >= x[d])
      return Wrong(fmt::format("a slice of {} elements from {} on, {} apart, of {}", count, node.starts[d],
                               node.steps[d], x[d]));
  }
  return TensorType{inputs[0].dtype, node.extents};
}

}  // namespace

Result<TensorType> InferType(const Node& node, Types inputs) {
  bool wants_numbers = node.kind == NodeKind::kConv || node.kind == NodeKind::kMatMul ||
                       node.kind == NodeKind::kMaxPool || node.kind == NodeKind::kAveragePool ||
                       node.kind == NodeKind::kReduce || node.kind == NodeKind::kSoftmax ||
                       node.kind == NodeKind::kLayerNorm;
  for (const TensorType& input : inputs) {
    const bool is_extreme = node.kind == NodeKind::kReduce && (node.function == "max" || node.function == "min");
    if (wants_numbers && input.dtype == DType::kBool && !is_extreme)
      return Wrong("it computes with truth values, wanted numbers");
    const bool is_bias = node.kind == NodeKind::kConv && &input - inputs.data() == 2;
    const bool is_of_bytes = IsContraction(node) && IsByte(inputs[0].dtype);
    const bool fits =
        is_of_bytes ? is_bias ? input.dtype == DType::kI32 : IsByte(input.dtype) : input.dtype == inputs[0].dtype;
    if (wants_numbers && !fits) {
      return Wrong(fmt::format("saw {} and {}, wanted one element type", Name(inputs[0].dtype), Name(input.dtype)));
    }
  }
  switch (node.kind) {
    case NodeKind::kConv: return InferConv(node, inputs);
    case NodeKind::kMatMul: return InferMatMul(node, inputs);
    case NodeKind::kDense: return InferDense(node, inputs);
    case NodeKind::kMaxPool:
    case NodeKind::kAveragePool: return InferPool(node, inputs);
    case NodeKind::kReduce: return InferReduce(node, inputs);
    case NodeKind::kSoftmax: return InferSoftmax(node, inputs);
    case NodeKind::kLayerNorm: return InferLayerNorm(node, inputs);
    case NodeKind::kUnary: return InferUnary(node, inputs);
    case NodeKind::kBinary: return InferBinary(node, inputs);
    case NodeKind::kSelect: return InferSelect(node, inputs);
    case NodeKind::kCast: return TensorType{node.dtype, inputs[0].shape};
    case NodeKind::kTranspose: return InferTranspose(node, inputs);
    case NodeKind::kSlice: return InferSlice(node, inputs);
    case NodeKind::kPad: return TensorType{inputs[0].dtype, node.extents};
    case NodeKind::kConcat: return InferConcat(node, inputs);
    case NodeKind::kGather: return InferGather(node, inputs);
    case NodeKind::kGatherElements: return InferGatherElements(node, inputs);
    case NodeKind::kExpand: return InferExpand(node, inputs);
    case NodeKind::kReshape: return InferReshape(node, inputs);
    case NodeKind::kHost: return InferHost(node, inputs);
  }
  return Error{};
}

}  // namespace hone
