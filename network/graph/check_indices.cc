#include "network/graph/check_indices.h"

#include <fmt/format.h>

#include <limits>

#include "base/check.h"

namespace hone {
namespace {

Error OutOfExtent(int64_t index, int64_t extent) {
  return {ErrorKind::kInvalid, fmt::format("index {} of {} elements", index, extent), ""};
}

// As below, where memory has them.
template <typename Index>
Result<void> CheckInMemory(std::span<const Index> indices, int64_t extent, int32_t* checked) {
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t index = indices[i];
    if (index < -extent || index >= extent) return OutOfExtent(index, extent);
    checked[i] = static_cast<int32_t>(index < 0 ? index + extent : index);
  }
  return {};
}

HostOperation CheckOperation(int64_t extent, DType dtype, const Shape& shape) {
  auto compute = [extent, shape](std::span<const Numbers* const> in) -> Result<std::vector<Numbers>> {
    Numbers out = MakeNumbers(DType::kI32, shape);
    for (size_t i = 0; i < out.whole.size(); ++i) {
      const int64_t index = in[0]->whole[i];
      if (index < -extent || index >= extent) return OutOfExtent(index, extent);
      out.whole[i] = index < 0 ? index + extent : index;
    }
    return std::vector{std::move(out)};
  };
  HostOperation check{"index", "w", {{DType::kI32, shape}}, compute};
  check.is_check = true;
  const auto count = static_cast<size_t>(CountOf(shape));
  if (dtype == DType::kI64 || dtype == DType::kI32) {
    check.run = [=](std::span<const void* const> in, std::span<void* const> out) -> Result<void> {
      auto* checked = static_cast<int32_t*>(out[0]);
      if (dtype == DType::kI64)
        return CheckInMemory<int64_t>({static_cast<const int64_t*>(in[0]), count}, extent, checked);
      return CheckInMemory<int32_t>({static_cast<const int32_t*>(in[0]), count}, extent, checked);
    };
  }
  return check;
}

// Constant indices as kernels take them; none: of a weight whose elements come later.
ValueId OfKernels(Graph& graph, ValueId indices, int64_t extent, const std::string& name) {
  const Numbers* known = graph.TryElements(indices);
  if (known == nullptr) return {};
  Numbers narrow = *known;
  narrow.dtype = DType::kI32;
  for (int64_t& index : narrow.whole) {
    if (index < -extent || index >= extent) return {};
    if (index < 0) index += extent;
  }
  return graph.AddConstant(name, std::make_shared<HostTensor>(ToHost(narrow, DType::kI32)));
}

}  // namespace

void CheckIndices(Graph& graph) {
  IdVector<NodeId, Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  for (Node& node : nodes) {
    const bool gathers = node.kind == NodeKind::kGather || node.kind == NodeKind::kGatherElements;
    const int64_t extent = gathers ? graph.shape(node.inputs[0])[static_cast<size_t>(node.axis)] : 0;
    const bool is_constant = gathers && graph.is_constant(node.inputs[1]);
    if (is_constant && !graph.is_constant(node.output) && graph.dtype(node.inputs[1]) == DType::kI64) {
      if (const ValueId narrow = OfKernels(graph, node.inputs[1], extent, node.origin)) node.inputs[1] = narrow;
    } else if (gathers && !is_constant) {
      const Node* producer = graph.ProducerOf(node.inputs[1]);
      const bool is_checked = producer != nullptr && producer->host != nullptr && producer->host->is_check;
      if (!is_checked && extent <= std::numeric_limits<int32_t>::max()) {
        Node check;
        check.kind = NodeKind::kHost;
        check.inputs = {node.inputs[1]};
        check.origin = node.origin;
        check.host = std::make_shared<const HostOperation>(
            CheckOperation(extent, graph.dtype(node.inputs[1]), graph.shape(node.inputs[1])));
        Result<ValueId> checked = graph.Add(std::move(check));
        HONE_CHECK(checked);
        node.inputs[1] = *checked;
      }
    }
    const ValueId output = node.output;
    graph.values[output].producer = graph.nodes.Add(std::move(node));
  }
}

}  // namespace hone
