#include "network/graph/quantization.h"

#include "ir/graph/dtype_traits.h"

namespace hone {
namespace {

// The node that computes a value, at run time or as a constant.
const Node* Producer(const Graph& graph, ValueId value, NodeKind kind, std::string_view function = "") {
  const NodeId id = graph.values[value].producer;
  if (!id) return nullptr;
  const Node& node = graph.nodes[id];
  return node.kind == kind && node.function == function ? &node : nullptr;
}

// What a conversion to a type converts; the value itself where there is none.
ValueId Converted(const Graph& graph, ValueId value, DType to) {
  const Node* cast = Producer(graph, value, NodeKind::kCast);
  return cast != nullptr && cast->dtype == to ? cast->inputs[0] : value;
}

// Of the last two dimensions of what a node pads: where elements of the inner tensor are.
Numbers IsInside(const Node& pad, const Shape& inner) {
  const size_t h = inner.size() - 2, w = inner.size() - 1;
  Numbers inside = MakeNumbers(DType::kBool, {pad.extents[h], pad.extents[w]});
  for (int64_t row = 0; row < inner[h]; ++row)
    for (int64_t column = 0; column < inner[w]; ++column)
      inside.whole[static_cast<size_t>((row + pad.starts[h]) * pad.extents[w] + column + pad.starts[w])] = 1;
  return inside;
}

// Whether nothing is cut away, and only the last two dimensions grow.
bool OnlySurrounds(const Node& pad, const Shape& inner) {
  if (inner.size() < 2) return false;
  for (size_t d = 0; d < inner.size(); ++d) {
    const int64_t after = pad.extents[d] - pad.starts[d] - inner[d];
    if (pad.starts[d] < 0 || after < 0 || (d + 2 < inner.size() && pad.extents[d] != inner[d])) return false;
  }
  return true;
}

}  // namespace

Result<ValueId> Centre(Builder& build, ValueId q, ValueId zero) {
  const ValueId wide = HONE_TRY(build.Cast(q, DType::kI32));
  if (!zero) return wide;
  return build.Binary("sub", wide, HONE_TRY(build.Cast(zero, DType::kI32)));
}

Result<ValueId> Quantize(Builder& build, const Quantized& x) {
  ValueId y = HONE_TRY(build.Cast(x.value, DType::kF32));
  y = HONE_TRY(build.Unary("round", HONE_TRY(build.Binary("div", y, x.scale))));
  if (x.zero) y = HONE_TRY(build.Binary("add", y, HONE_TRY(build.Cast(x.zero, DType::kF32))));
  return build.Cast(y, x.type);
}

Result<ValueId> Dequantize(Builder& build, const Quantized& q, DType to) {
  const ValueId real = HONE_TRY(build.Cast(HONE_TRY(Centre(build, q.value, q.zero)), DType::kF32));
  return build.Cast(HONE_TRY(build.Binary("mul", real, q.scale)), to);
}

Result<ValueId> Surround(Builder& build, ValueId x, const std::vector<int64_t>& pads, ValueId zero) {
  const Shape inner = build.shape(x);
  const size_t h = inner.size() - 2, w = inner.size() - 1;
  Node pad;
  pad.kind = NodeKind::kPad;
  pad.inputs = {x};
  pad.starts.assign(inner.size(), 0);
  pad.starts[h] = pads[0];
  pad.starts[w] = pads[1];
  pad.extents = inner;
  pad.extents[h] += pads[0] + pads[2];
  pad.extents[w] += pads[1] + pads[3];
  const ValueId is_inside = build.Constant(IsInside(pad, inner));
  const ValueId padded = HONE_TRY(build.Add(std::move(pad)));
  return build.Select(is_inside, padded, HONE_TRY(build.Reshape(zero, {})));
}

std::optional<Node> FindSurrounded(const Graph& graph, ValueId value) {
  const Node* select = Producer(graph, value, NodeKind::kSelect);
  const Node* pad = select == nullptr ? nullptr : Producer(graph, select->inputs[1], NodeKind::kPad);
  if (pad == nullptr || !OnlySurrounds(*pad, graph.shape(pad->inputs[0]))) return std::nullopt;
  const ValueId inner = pad->inputs[0];
  const std::shared_ptr<const HostTensor> inside = graph.values[select->inputs[0]].data;
  const HostTensor wanted = ToHost(IsInside(*pad, graph.shape(inner)), DType::kBool);
  if (inside == nullptr || inside->shape != wanted.shape || inside->data != wanted.data) return std::nullopt;
  Node slice;
  slice.kind = NodeKind::kSlice;
  slice.inputs = {value};
  slice.output = inner;
  slice.starts = pad->starts;
  slice.extents = graph.shape(inner);
  slice.steps.assign(slice.extents.size(), 1);
  return slice;
}

std::optional<Quantized> FindCentred(const Graph& graph, ValueId value) {
  if (graph.dtype(value) != DType::kI32) return std::nullopt;
  Quantized found{value, {}, {}};
  if (const Node* less = Producer(graph, value, NodeKind::kBinary, "sub")) {
    found.value = less->inputs[0];
    found.zero = Converted(graph, less->inputs[1], DType::kI32);
  }
  found.value = Converted(graph, found.value, DType::kI32);
  found.type = graph.dtype(found.value);
  if (!IsByte(found.type)) return std::nullopt;
  return found;
}

std::optional<Quantized> FindDequantize(const Graph& graph, ValueId value) {
  if (graph.dtype(value) != DType::kF32) return std::nullopt;
  const Node* scaled = Producer(graph, value, NodeKind::kBinary, "mul");
  const Node* real = scaled == nullptr ? nullptr : Producer(graph, scaled->inputs[0], NodeKind::kCast);
  if (real == nullptr) return std::nullopt;
  std::optional<Quantized> found = FindCentred(graph, real->inputs[0]);
  if (!found && graph.dtype(real->inputs[0]) == DType::kI32) found = Quantized{real->inputs[0], {}, {}, DType::kI32};
  if (found) found->scale = scaled->inputs[1];
  return found;
}

std::optional<Quantized> FindQuantize(const Graph& graph, ValueId value) {
  const Node* cast = Producer(graph, value, NodeKind::kCast);
  if (cast == nullptr || !IsByte(cast->dtype)) return std::nullopt;
  Quantized found{cast->inputs[0], {}, {}, cast->dtype};
  if (const Node* sum = Producer(graph, found.value, NodeKind::kBinary, "add")) {
    found.value = sum->inputs[0];
    found.zero = Converted(graph, sum->inputs[1], DType::kF32);
  }
  const Node* round = Producer(graph, found.value, NodeKind::kUnary, "round");
  const Node* quotient = round == nullptr ? nullptr : Producer(graph, round->inputs[0], NodeKind::kBinary, "div");
  if (quotient == nullptr || graph.dtype(quotient->output) != DType::kF32) return std::nullopt;
  found.value = quotient->inputs[0];
  found.scale = quotient->inputs[1];
  return found;
}

}  // namespace hone
