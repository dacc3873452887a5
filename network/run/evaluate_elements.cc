#include "network/run/evaluate_elements.h"

#include <map>
#include <optional>

#include "network/graph/evaluate_in_place.h"

namespace hone {
namespace {

// In one of the two forms, or both.
class Value {
 public:
  Value(const TensorView& view, std::shared_ptr<const void> memory) : view_(view), memory_(std::move(memory)) {}
  explicit Value(Numbers numbers) : numbers_(std::move(numbers)) {}

  bool has_elements() const { return view_.has_value(); }

  const Numbers& AsNumbers() {
    if (!numbers_) numbers_ = ToNumbers(*view_);
    return *numbers_;
  }

  const TensorView& AsElements() {
    if (!view_) {
      auto tensor = std::make_shared<const HostTensor>(ToHost(*numbers_, numbers_->dtype));
      view_ = ViewOf(*tensor);
      memory_ = std::move(tensor);
    }
    return *view_;
  }

  const std::shared_ptr<const void>& memory() const { return memory_; }

 private:
  std::optional<TensorView> view_;
  std::shared_ptr<const void> memory_;  // that the view is of; null: somebody else's
  std::optional<Numbers> numbers_;
};

// nullopt: numbers are what it takes.
Result<std::optional<Value>> Moved(const Node& node, const std::vector<Value*>& arguments, const TensorType& type) {
  std::vector<TensorType> types;
  types.reserve(arguments.size());
  std::vector<ElementsView> elements;
  for (Value* argument : arguments) {
    if (!argument->has_elements()) return std::optional<Value>();
    const TensorView& view = argument->AsElements();
    elements.push_back({&types.emplace_back(TensorType{view.dtype, view.shape}), const_cast<void*>(view.data)});
  }
  if (node.kind == NodeKind::kReshape)
    return std::optional(Value({type.dtype, type.shape, elements[0].data}, arguments[0]->memory()));
  TensorView view{type.dtype, type.shape, nullptr};
  // Words, so that elements of any type are aligned.
  const std::shared_ptr<uint64_t[]> memory = std::make_shared_for_overwrite<uint64_t[]>(view.bytes() / 8 + 1);
  view.data = memory.get();
  if (!HONE_TRY(EvaluateInPlace(node, elements, {&type, memory.get()}))) return std::optional<Value>();
  return std::optional(Value(view, memory));
}

Result<Value> Computed(const Node& node, const std::vector<Value*>& arguments, const TensorType& type) {
  if (std::optional<Value> moved = HONE_TRY(Moved(node, arguments, type))) return *std::move(moved);
  std::vector<const Numbers*> numbers;
  for (Value* argument : arguments) numbers.push_back(&argument->AsNumbers());
  return Value(HONE_TRY(Evaluate(node, numbers, type)));
}

}  // namespace

Result<Evaluated> EvaluateElements(Graph& graph, const std::vector<TensorView>& inputs) {
  std::map<ValueId, Value> values;
  for (size_t i = 0; i < inputs.size(); ++i) values.emplace(graph.inputs[i], Value(inputs[i], nullptr));
  auto value_of = [&](ValueId id) -> Result<Value*> {
    if (auto found = values.find(id); found != values.end()) return &found->second;
    const std::shared_ptr<const HostTensor> constant = HONE_TRY(graph.Tensor(id));
    return &values.emplace(id, Value(ViewOf(*constant), constant)).first->second;
  };
  IdVector<ValueId, int> readers = CountReaders(graph);
  for (const Node& node : graph.nodes) {
    if (graph.is_constant(node.output) || readers[node.output] == 0) continue;
    std::vector<Value*> arguments;
    for (ValueId input : node.inputs) arguments.push_back(HONE_TRY(value_of(input)));
    Result<Value> value = Computed(node, arguments, graph.values[node.output].type);
    if (!value) {
      value.error().where = node.origin;
      return std::move(value).error();
    }
    values.emplace(node.output, *std::move(value));
    for (ValueId input : node.inputs)
      if (--readers[input] == 0) values.erase(input);
  }
  Evaluated evaluated;
  for (ValueId output : graph.outputs) {
    Value& value = *HONE_TRY(value_of(output));
    evaluated.outputs.push_back(value.AsElements());
    evaluated.memory.push_back(value.memory());
  }
  return evaluated;
}

}  // namespace hone
