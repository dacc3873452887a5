#include "network/graph/graph_builder.h"

namespace hone {

Result<ValueId> Builder::Add(Node node) {
  node.origin = origin_;
  return graph_.Add(std::move(node));
}

Result<std::vector<ValueId>> Builder::Host(HostOperation operation, const std::vector<ValueId>& inputs) {
  auto shared = std::make_shared<const HostOperation>(std::move(operation));
  std::vector<ValueId> values;
  for (size_t i = 0; i < shared->types.size(); ++i) {
    Node node;
    node.kind = NodeKind::kHost;
    node.inputs = inputs;
    node.host = shared;
    node.axis = static_cast<int64_t>(i);
    values.push_back(HONE_TRY(Add(std::move(node))));
  }
  return values;
}

Result<ValueId> Builder::Unary(std::string_view function, ValueId x) {
  Node node;
  node.kind = NodeKind::kUnary;
  node.function = function;
  node.inputs = {x};
  return Add(std::move(node));
}

Result<ValueId> Builder::Binary(std::string_view function, ValueId a, ValueId b) {
  Node node;
  node.kind = NodeKind::kBinary;
  node.function = function;
  node.inputs = {a, b};
  return Add(std::move(node));
}

Result<ValueId> Builder::Select(ValueId condition, ValueId a, ValueId b) {
  Node node;
  node.kind = NodeKind::kSelect;
  node.inputs = {condition, a, b};
  return Add(std::move(node));
}

Result<ValueId> Builder::Cast(ValueId x, DType dtype) {
  if (this->dtype(x) == dtype) return x;
  Node node;
  node.kind = NodeKind::kCast;
  node.dtype = dtype;
  node.inputs = {x};
  return Add(std::move(node));
}

Result<ValueId> Builder::Reshape(ValueId x, Shape shape) {
  if (this->shape(x) == shape) return x;
  Node node;
  node.kind = NodeKind::kReshape;
  node.extents = std::move(shape);
  node.inputs = {x};
  return Add(std::move(node));
}

Result<ValueId> Builder::Transpose(ValueId x, std::vector<int64_t> axes) {
  // Moving dimensions of 1 about moves no element.
  bool moves = false;
  int64_t last = -1;
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= static_cast<int64_t>(shape(x).size())) continue;  // InferType says so
    if (shape(x)[static_cast<size_t>(axis)] == 1) continue;
    moves = moves || axis < last;
    last = axis;
  }
  Node node;
  node.kind = NodeKind::kTranspose;
  node.axes = std::move(axes);
  node.inputs = {x};
  if (!moves) {
    const TensorType type{dtype(x), shape(x)};
    TensorType result = HONE_TRY(InferType(node, std::span(&type, 1)));
    return Reshape(x, result.shape);
  }
  return Add(std::move(node));
}

Result<ValueId> Builder::Expand(ValueId x, Shape shape) {
  if (this->shape(x) == shape) return x;
  Node node;
  node.kind = NodeKind::kExpand;
  node.extents = std::move(shape);
  node.inputs = {x};
  return Add(std::move(node));
}

Result<ValueId> Builder::Concat(std::vector<ValueId> parts, int64_t axis) {
  if (parts.size() == 1) return parts[0];
  Node node;
  node.kind = NodeKind::kConcat;
  node.axis = axis;
  node.inputs = std::move(parts);
  return Add(std::move(node));
}

Result<ValueId> Builder::Slice(ValueId x, size_t axis, int64_t begin, int64_t count, int64_t step) {
  if (axis >= shape(x).size())
    return Invalid("saw " + ShapeText(shape(x)) + ", which has no dimension " + std::to_string(axis));
  Node node;
  node.kind = NodeKind::kSlice;
  node.inputs = {x};
  node.extents = shape(x);
  node.starts.assign(node.extents.size(), 0);
  node.steps.assign(node.extents.size(), 1);
  if (begin == 0 && node.extents[axis] == count) return x;
  node.starts[axis] = begin;
  node.steps[axis] = step;
  node.extents[axis] = count;
  return Add(std::move(node));
}

Result<ValueId> Builder::Gather(ValueId x, ValueId indices, int64_t axis) {
  Node node;
  node.kind = NodeKind::kGather;
  node.axis = axis;
  node.inputs = {x, indices};
  return Add(std::move(node));
}

Result<ValueId> Builder::MatMul(ValueId a, ValueId b, bool is_transposed) {
  Node node;
  node.kind = NodeKind::kMatMul;
  node.flag = is_transposed;
  node.inputs = {a, b};
  return Add(std::move(node));
}

Result<ValueId> Builder::Reduce(std::string_view function, ValueId x, std::vector<int64_t> axes) {
  if (axes.empty()) return x;
  Node node;
  node.kind = NodeKind::kReduce;
  node.function = function;
  node.axes = std::move(axes);
  node.inputs = {x};
  return Add(std::move(node));
}

ValueId Builder::Scalar(double value, DType dtype) {
  Numbers numbers = MakeNumbers(dtype, {});
  if (numbers.is_real()) {
    numbers.real[0] = value;
  } else {
    numbers.whole[0] = static_cast<int64_t>(value);
  }
  return Constant(numbers);
}

ValueId Builder::Constant(const Numbers& numbers) {
  return graph_.AddConstant(origin_, std::make_shared<HostTensor>(ToHost(numbers, numbers.dtype)));
}

}  // namespace hone
