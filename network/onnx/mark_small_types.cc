#include "network/onnx/mark_small_types.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "network/onnx/small_types.h"

namespace hone {
namespace {

// Operators that have to be told, and which of their inputs decides.
struct Taker {
  std::string_view op;
  size_t input;
  const char* attribute;
};
constexpr Taker kTakers[] = {
    {"QuantizeLinear", 2, "output_dtype"}, {"CastLike", 1, "hone_to"}, {"GatherBlockQuantized", 0, "hone_one_a_byte"}};

// Operators whose results are elements of their first input.
constexpr std::string_view kMovers[] = {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze",
                                        "Flatten",  "Slice",   "Split",     "Gather",  "GatherElements",
                                        "GatherND", "Concat",  "Expand",    "Tile"};

const Taker* TakerOf(const OnnxNode& node) {
  const auto* found =
      std::find_if(std::begin(kTakers), std::end(kTakers), [&](const Taker& each) { return each.op == node.op; });
  return found == std::end(kTakers) ? nullptr : found;
}

bool HasTakers(const std::vector<OnnxNode>& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [](const OnnxNode& node) {
    if (TakerOf(node) != nullptr) return true;
    return std::any_of(node.attributes.begin(), node.attributes.end(), [](const OnnxAttribute& attribute) {
      return attribute.body != nullptr && HasTakers(attribute.body->nodes);
    });
  });
}

const SmallType* TypeNamed(const OnnxNode& node, std::string_view attribute) {
  for (const OnnxAttribute& each : node.attributes)
    if (each.name == attribute) return SmallTypeOf(each.whole);
  return nullptr;
}

// The values of a graph or body; names that it does not have are those of the one around it.
class Scope {
 public:
  explicit Scope(Scope* outer) : outer_(outer) {}

  void Know(const std::string& name, const SmallType* type) { types_[name] = type; }

  void Mark(std::vector<OnnxNode>& nodes) {
    for (const OnnxNode& node : nodes)
      for (const std::string& output : node.outputs) producers_.emplace(output, &node);
    std::vector<std::pair<OnnxNode*, OnnxAttribute>> marks;  // set when nobody looks at the nodes any more
    for (OnnxNode& node : nodes) {
      const Taker* taker = TakerOf(node);
      if (taker != nullptr && taker->input < node.inputs.size())
        if (const SmallType* type = TypeOf(node.inputs[taker->input]); type != nullptr) {
          OnnxAttribute attribute;
          attribute.name = taker->attribute;
          attribute.kind = OnnxAttribute::Kind::kInt;
          attribute.whole = type->onnx;
          marks.emplace_back(&node, std::move(attribute));
        }
      for (OnnxAttribute& attribute : node.attributes)
        if (attribute.body != nullptr && HasTakers(attribute.body->nodes)) attribute.body = Marked(*attribute.body);
    }
    for (auto& [node, attribute] : marks) node->attributes.push_back(std::move(attribute));
  }

 private:
  std::shared_ptr<const OnnxBody> Marked(const OnnxBody& body) {
    auto marked = std::make_shared<OnnxBody>(body);
    Scope scope(this);
    for (const std::string& input : body.inputs) scope.Know(input, nullptr);
    for (const OnnxTensor& tensor : body.initializers) scope.Know(tensor.name, tensor.small);
    scope.Mark(marked->nodes);
    return marked;
  }

  // Goes from value to value that has the same type. Each is known afterwards, so that no way is gone twice.
  const SmallType* TypeOf(std::string name) {
    std::vector<std::pair<Scope*, std::string>> way;
    Scope* scope = this;
    const SmallType* type = nullptr;
    while (!name.empty()) {
      while (scope != nullptr && !scope->types_.contains(name) && !scope->producers_.contains(name))
        scope = scope->outer_;
      if (scope == nullptr) break;
      if (const auto known = scope->types_.find(name); known != scope->types_.end()) {
        type = known->second;
        break;
      }
      scope->types_[name] = nullptr;  // which a cycle comes by
      way.emplace_back(scope, name);
      const OnnxNode& node = *scope->producers_.at(name);
      type = TypeSaidBy(node);
      name = type != nullptr ? "" : Source(node);
    }
    for (const auto& [in, passed] : way) in->types_[passed] = type;
    return type;
  }

  static const SmallType* TypeSaidBy(const OnnxNode& node) {
    if (node.op == "Cast") return TypeNamed(node, "to");
    if (node.op == "QuantizeLinear") return TypeNamed(node, "output_dtype");
    if (node.op == "Constant")
      for (const OnnxAttribute& attribute : node.attributes)
        if (attribute.small != nullptr) return attribute.small;
    return nullptr;
  }

  // The value whose type the node's results have; "": none.
  static std::string Source(const OnnxNode& node) {
    const bool moves = std::find(std::begin(kMovers), std::end(kMovers), node.op) != std::end(kMovers);
    const size_t input = node.op == "QuantizeLinear" ? 2 : node.op == "CastLike" ? 1 : moves ? 0 : node.inputs.size();
    return input < node.inputs.size() ? node.inputs[input] : "";
  }

  Scope* outer_;
  std::unordered_map<std::string, const SmallType*> types_;  // nullptr: none of the small ones
  std::unordered_map<std::string, const OnnxNode*> producers_;
};

}  // namespace

void MarkSmallTypes(OnnxModel& model) {
  if (!HasTakers(model.nodes)) return;
  Scope scope(nullptr);
  for (const OnnxValue& input : model.inputs) scope.Know(input.name, input.type.small);
  for (const OnnxTensor& tensor : model.initializers) scope.Know(tensor.name, tensor.small);
  scope.Mark(model.nodes);
}

}  // namespace hone
