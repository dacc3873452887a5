#include "network/graph/graph.h"

#include <algorithm>

#include "base/check.h"

namespace hone {
namespace {

constexpr int64_t kLargestScalar = 1;  // elements

}  // namespace

std::string_view Name(NodeKind kind) {
  switch (kind) {
    case NodeKind::kConv: return "conv";
    case NodeKind::kMatMul: return "matmul";
    case NodeKind::kDense: return "dense";
    case NodeKind::kMaxPool: return "maxpool";
    case NodeKind::kAveragePool: return "avgpool";
    case NodeKind::kReduce: return "reduce";
    case NodeKind::kSoftmax: return "softmax";
    case NodeKind::kLayerNorm: return "layer_norm";
    case NodeKind::kUnary: return "unary";
    case NodeKind::kBinary: return "binary";
    case NodeKind::kSelect: return "select";
    case NodeKind::kCast: return "cast";
    case NodeKind::kTranspose: return "transpose";
    case NodeKind::kSlice: return "slice";
    case NodeKind::kPad: return "pad";
    case NodeKind::kConcat: return "concat";
    case NodeKind::kGather: return "gather";
    case NodeKind::kGatherElements: return "gather_elements";
    case NodeKind::kExpand: return "expand";
    case NodeKind::kReshape: return "reshape";
    case NodeKind::kHost: return "host";
  }
  return "?";
}

ValueId Graph::AddInput(std::string name, TensorType type) {
  GraphValue value;
  value.name = std::move(name);
  value.type = std::move(type);
  inputs.push_back(values.Add(std::move(value)));
  return inputs.back();
}

ValueId Graph::AddConstant(std::string name, std::shared_ptr<const HostTensor> data) {
  GraphValue value;
  value.name = std::move(name);
  value.type = {data->dtype, data->shape};
  value.is_constant = true;
  value.data = std::move(data);
  return values.Add(std::move(value));
}

ValueId Graph::AddWeight(std::string name, TensorType type) {
  GraphValue value;
  value.name = std::move(name);
  value.type = std::move(type);
  value.is_constant = value.is_weight = true;
  return values.Add(std::move(value));
}

Result<ValueId> Graph::Add(Node node) {
  std::vector<TensorType> types;
  bool all_constant = node.host == nullptr || !node.host->is_random;
  for (ValueId input : node.inputs) {
    types.push_back(values[input].type);
    all_constant = all_constant && is_constant(input);
  }
  Result<TensorType> type = InferType(node, types);
  if (type) {
    if (Result<void> fits = CheckShape(type->shape); !fits) type = fits.error();
  }
  if (!type) {
    type.error().where = node.origin;
    return std::move(type).error();
  }
  GraphValue value;
  value.name = node.origin;
  value.type = *std::move(type);
  value.is_constant = all_constant;
  const ValueId output = node.output = values.Add(std::move(value));
  values[output].producer = nodes.Add(std::move(node));
  return output;
}

void Graph::SetData(ValueId weight, std::shared_ptr<const HostTensor> data) {
  GraphValue& value = values[weight];
  HONE_CHECK(value.is_weight && data->dtype == value.type.dtype && data->shape == value.type.shape);
  value.data = std::move(data);
}

// Goes down to what is known without recursion: chains of constants may be as long as the network.
Result<const Numbers*> Graph::Elements(ValueId constant) {
  HONE_CHECK(is_constant(constant));
  std::vector<ValueId> open = {constant};
  while (!open.empty()) {
    ValueId id = open.back();
    if (elements_.count(id) != 0) {
      open.pop_back();
      continue;
    }
    const GraphValue& value = values[id];
    if (CountOf(value.type.shape) > folding_limit) {
      return Error{ErrorKind::kLimit,
                   "a constant of " + ShapeText(value.type.shape) + " elements; hone computes constants of up to " +
                       std::to_string(folding_limit),
                   value.name};
    }
    if (value.data != nullptr) {
      elements_.emplace(id, ToNumbers(*value.data));
      continue;
    }
    if (!value.producer) {
      return Error{ErrorKind::kNotFound, "it depends on the elements of \"" + value.name + "\", which the file lacks",
                   values[constant].name};
    }
    const Node& node = nodes[value.producer];
    if (node.host != nullptr && node.host->steps > 64 * static_cast<double>(folding_limit)) {
      return Error{ErrorKind::kLimit, "a constant that takes too many steps to compute", value.name};
    }
    std::vector<const Numbers*> arguments;
    for (ValueId input : node.inputs) {
      auto found = elements_.find(input);
      if (found == elements_.end()) {
        open.push_back(input);
      } else {
        arguments.push_back(&found->second);
      }
    }
    if (arguments.size() != node.inputs.size()) continue;
    Result<Numbers> result = Evaluate(node, arguments, value.type);
    if (!result) {
      result.error().where = node.origin;
      return std::move(result).error();
    }
    // As memory would hold it: where a constant jumps (the bucket of a distance), all others see the rounded operand
    // too.
    if (value.type.dtype == DType::kF32)
      for (double& element : result->real) element = static_cast<float>(element);
    elements_.emplace(id, *std::move(result));
  }
  return &elements_.at(constant);
}

Result<std::shared_ptr<const HostTensor>> Graph::Tensor(ValueId constant) {
  const GraphValue& value = values[constant];
  if (value.data != nullptr) return value.data;
  auto tensor = std::make_shared<const HostTensor>(ToHost(*HONE_TRY(Elements(constant)), value.type.dtype));
  ForgetElements();  // doubles of large weights
  return std::shared_ptr<const HostTensor>(tensor);
}

const Numbers* Graph::TryElements(ValueId constant) {
  if (!is_constant(constant)) return nullptr;
  Result<const Numbers*> elements = Elements(constant);
  return elements ? *elements : nullptr;
}

std::optional<double> Graph::ScalarOf(ValueId value) {
  if (!is_constant(value) || CountOf(shape(value)) != kLargestScalar) return std::nullopt;
  const Numbers* elements = TryElements(value);
  if (elements == nullptr) return std::nullopt;
  return elements->RealAt(0);
}

const Node* Graph::ProducerOf(ValueId value) const {
  const GraphValue& found = values[value];
  return found.is_constant || !found.producer ? nullptr : &nodes[found.producer];
}

IdVector<ValueId, int> CountReaders(const Graph& graph) {
  IdVector<ValueId, int> readers(graph.values.size());
  for (const Node& node : graph.nodes) {
    if (graph.is_constant(node.output)) continue;
    for (ValueId input : node.inputs) ++readers[input];
  }
  for (ValueId output : graph.outputs) ++readers[output];
  return readers;
}

}  // namespace hone
