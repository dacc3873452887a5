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

bool IsByte(DType type) { return type == DType::kI8 || type == DType::kU8; }

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
