#include "network/run/seed_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/rng.h"
#include "ir/graph/element.h"

namespace hone {
namespace {

// How the elements of a weight enter what is computed from it.
struct Role {
  int64_t fan_in = 0;       // products that are summed into one output element; 0: not known
  bool multiplies = false;  // a factor, element by element, or under a root
  double centre = 1;        // of factors
};

// The nodes that read each value, shapes read through.
class Roles {
 public:
  explicit Roles(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes) {
      for (size_t i = 0; i < node.inputs.size(); ++i) readers_[node.inputs[i]].push_back({&node, i});
    }
  }

  Role Of(ValueId weight) {
    Role role;
    Follow(weight, 0, &role);
    return role;
  }

 private:
  struct Reader {
    const Node* node;
    size_t operand;
  };

  void Follow(ValueId value, int depth, Role* role) {
    if (depth > 8) return;
    const Shape& shape = graph_.shape(value);
    for (const Reader& reader : readers_[value]) {
      const Node& node = *reader.node;
      switch (node.kind) {
        case NodeKind::kConv:
          if (reader.operand == 1) role->fan_in = shape[1] * shape[2] * shape[3];
          break;
        case NodeKind::kMatMul:
          if (reader.operand == 1) role->fan_in = node.flag ? shape.back() : shape[shape.size() - 2];
          break;
        case NodeKind::kGather:
          if (reader.operand == 0) role->fan_in = 1;
          break;
        case NodeKind::kLayerNorm:
          if (reader.operand == 1) role->multiplies = true;
          break;
        case NodeKind::kBinary:
          if (node.function == "mul" || node.function == "div") role->multiplies = true;
          // A factor of what flows stands for a normalisation: of a residual sum, of two terms.
          if (node.function == "mul" && !graph_.is_constant(node.output)) role->centre = std::sqrt(0.5);
          if (node.function == "add" && graph_.is_constant(node.output)) Follow(node.output, depth + 1, role);
          break;
        case NodeKind::kUnary:
          if (node.function == "sqrt" || node.function == "rsqrt") role->multiplies = true;
          break;
        case NodeKind::kReshape:
        case NodeKind::kTranspose:
        case NodeKind::kCast:
        case NodeKind::kExpand: Follow(node.output, depth + 1, role); break;
        default: break;
      }
    }
  }

  const Graph& graph_;
  std::map<ValueId, std::vector<Reader>> readers_;
};

// The smallest dimension that a value indexes, itself or read in another shape; 0: it indexes nothing.
int64_t IndexBound(const Graph& graph, ValueId value) {
  int64_t bound = 0;
  for (const Node& node : graph.nodes) {
    int64_t other = 0;
    if ((node.kind == NodeKind::kGather || node.kind == NodeKind::kGatherElements) && node.inputs[1] == value) {
      other = graph.shape(node.inputs[0])[static_cast<size_t>(node.axis)];
    }
    bool hands_on = node.kind == NodeKind::kReshape || node.kind == NodeKind::kCast || node.kind == NodeKind::kExpand;
    if (hands_on && node.inputs[0] == value) other = IndexBound(graph, node.output);
    if (other > 0) bound = bound == 0 ? other : std::min(bound, other);
  }
  return bound;
}

}  // namespace

void SeedWeights(Network& network, uint64_t seed) {
  Roles roles(network.graph);
  Rng random(seed);
  for (size_t i = 0; i < network.weights.size(); ++i) {
    ValueId weight = network.weights[i];
    Shape shape = network.graph.shape(weight);
    Role role = roles.Of(weight);
    int64_t elements = CountOf(shape);
    int64_t fan_in = role.fan_in > 0 ? role.fan_in : elements;
    bool is_vector = std::any_of(shape.begin(), shape.end(), [&](int64_t d) { return d == elements; });
    bool is_factor = role.multiplies && role.fan_in == 0 && is_vector;
    double reach = is_factor ? 0.1 : std::sqrt(3.0 / static_cast<double>(std::max<int64_t>(fan_in, 1)));
    Rng own = random.Fork(i);
    auto tensor = std::make_shared<HostTensor>();
    tensor->dtype = network.graph.dtype(weight);
    tensor->shape = std::move(shape);
    std::string bytes(static_cast<size_t>(elements * ByteSize(tensor->dtype)), '\0');
    if (IsFloat(tensor->dtype)) {  // nothing computes with others, so nothing reads their values
      for (size_t at = 0; at < static_cast<size_t>(elements); ++at) {
        const double value = (is_factor ? role.centre : 0) + reach * (2 * own.Uniform() - 1);
        StoreElement(tensor->dtype, value, bytes.data(), at);
      }
    }
    tensor->data = std::move(bytes);
    network.graph.SetData(weight, std::move(tensor));
  }
}

std::vector<Numbers> RandomData(const Graph& graph, uint64_t seed) {
  std::vector<Numbers> data;
  Rng random(seed);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    ValueId input = graph.inputs[i];
    Rng own = random.Fork(i);
    Numbers numbers = MakeNumbers(graph.dtype(input), graph.shape(input));
    for (double& value : numbers.real) value = static_cast<float>(std::sqrt(3.0) * (2 * own.Uniform() - 1));
    int64_t bound =
        numbers.whole.empty() || numbers.dtype == DType::kBool ? 2 : std::max<int64_t>(IndexBound(graph, input), 2);
    for (int64_t& value : numbers.whole) value = static_cast<int64_t>(own.Below(static_cast<uint64_t>(bound)));
    data.push_back(std::move(numbers));
  }
  return data;
}

}  // namespace hone
