#include "network/run/constant_store.h"

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hone {
namespace {

// Tensors up to this size are known by their elements, larger ones by being the same object: an import makes small ones
// anew for each version, and large ones it takes from the file.
constexpr size_t kSmallBytes = 4096;

// Everything that decides the digest, one thing after the other, each with its length where that varies.
class Description {
 public:
  explicit Description(std::string_view what) { Text(what); }

  template <typename T>
  void Number(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    hasher_.Update(std::as_bytes(std::span(&value, 1)));
  }
  void Text(std::string_view text) {
    Number(text.size());
    hasher_.Update(text);
  }
  void Numbers(const std::vector<int64_t>& values) {
    Number(values.size());
    hasher_.Update(std::as_bytes(std::span(values)));
  }
  Digest128 Finish() { return hasher_.Finish(); }

 private:
  Hasher128 hasher_;
};

// All that decides what a node computes but its inputs and what the host does for it.
void DescribeFields(const Node& node, Description& description) {
  const auto& [kind, function, inputs, output, axes, starts, steps, extents, axis, fill, whole_fill, epsilon, flag,
               dtype, window, stride, dilation, pads, groups, ceil, host, origin] =
      node;  // every field, so that none is forgotten
  for (const std::vector<int64_t>* each : {&axes, &starts, &steps, &extents, &window, &stride, &dilation, &pads})
    description.Numbers(*each);
  description.Text(function);
  description.Number(kind);
  description.Number(axis);
  description.Number(fill);
  description.Number(whole_fill);
  description.Number(epsilon);
  description.Number(flag);
  description.Number(dtype);
  description.Number(groups);
  description.Number(ceil);
}

}  // namespace

uint64_t ConstantStore::NumberOf(const std::shared_ptr<const HostTensor>& tensor) {
  Tensor& known = tensors_[tensor.get()];
  if (known.tensor.lock() != tensor) known = {tensor, next_number_++};
  return known.number;
}

IdVector<ValueId, ConstantStore::Key> ConstantStore::KeysOf(const Graph& graph) {
  std::erase_if(tensors_, [](const auto& each) { return each.second.tensor.expired(); });
  IdVector<ValueId, Key> keys(graph.values.size());
  for (ValueId value : graph.values.ids()) {
    const GraphValue& constant = graph.values[value];
    if (!constant.is_constant || constant.data == nullptr) continue;
    const HostTensor& tensor = *constant.data;
    const bool is_small = tensor.data.size() <= kSmallBytes;
    Description description(is_small ? "elements" : "tensor");
    description.Number(tensor.dtype);
    description.Numbers(tensor.shape);
    if (is_small) {
      description.Text(tensor.data);
    } else {
      description.Number(NumberOf(constant.data));
    }
    keys[value] = description.Finish();
  }
  for (const Node& node : graph.nodes) {
    if (!graph.is_constant(node.output) || node.host != nullptr || keys[node.output]) continue;
    Description description("node");
    DescribeFields(node, description);
    description.Numbers(graph.shape(node.output));
    description.Number(graph.dtype(node.output));
    description.Number(node.inputs.size());
    bool is_known = true;
    for (ValueId input : node.inputs) {
      is_known = is_known && input && keys[input].has_value();
      if (is_known) description.Text(HexOf(*keys[input]));
    }
    if (is_known) keys[node.output] = description.Finish();
  }
  return keys;
}

Result<ConstantStore::Elements> ConstantStore::Take(const Key& key, int64_t bytes,
                                                    const std::function<Result<Elements>()>& make) {
  if (!key) return make();
  if (auto found = kept_.find(*key); found != kept_.end())
    if (Elements elements = found->second.elements.lock()) return elements;
  Elements made = HONE_TRY(make());
  std::erase_if(kept_, [](const auto& each) { return each.second.elements.expired(); });
  kept_[*key] = {made, bytes};
  return made;
}

int64_t ConstantStore::bytes() const {
  int64_t sum = 0;
  for (const auto& [_, kept] : kept_) sum += kept.elements.expired() ? 0 : kept.bytes;
  return sum;
}

}  // namespace hone
