#include "network/run/loops.h"

#include <fmt/format.h>

#include <cstring>

#include "network/onnx/data_shaped.h"

namespace hone {
namespace {

constexpr int64_t kMostTrips = int64_t{1} << 24;
constexpr size_t kMostCollected = size_t{1} << 34;  // bytes

Error Invalid(std::string message) { return Error{ErrorKind::kInvalid, std::move(message), ""}; }

HostTensor Whole(int64_t value) {
  return {DType::kI64, {}, std::string(reinterpret_cast<const char*>(&value), sizeof(value))};
}

HostTensor Truth(bool value) { return {DType::kBool, {}, std::string(1, value ? '\1' : '\0')}; }

Result<int64_t> OneNumber(const TensorView& view, std::string_view what) {
  if (CountOf(view.shape) != 1 || IsFloat(view.dtype)) return Invalid(fmt::format("{} is no single number", what));
  return ToNumbers(view).whole[0];
}

// A tensor as blocks along an axis: `outer` times `extent` of `bytes`.
struct Blocks {
  int64_t outer = 1, extent = 1;
  size_t bytes = 1;

  Blocks(const TensorView& view, size_t axis) : bytes(static_cast<size_t>(ByteSize(view.dtype))) {
    for (size_t d = 0; d < view.shape.size(); ++d) {
      if (d < axis) outer *= view.shape[d];
      if (d == axis) extent = view.shape[d];
      if (d > axis) bytes *= static_cast<size_t>(view.shape[d]);
    }
  }
};

// Without elements.
HostTensor TypeOfSlice(const TensorView& view, size_t axis) {
  Shape shape = view.shape;
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  return {view.dtype, std::move(shape), {}};
}

HostTensor SliceAt(const TensorView& view, size_t axis, int64_t at) {
  const Blocks blocks(view, axis);
  std::string bytes;
  for (int64_t i = 0; i < blocks.outer; ++i)
    bytes.append(static_cast<const char*>(view.data) + static_cast<size_t>(i * blocks.extent + at) * blocks.bytes,
                 blocks.bytes);
  HostTensor slice = TypeOfSlice(view, axis);
  slice.data = std::move(bytes);
  return slice;
}

// Slices of one shape as one tensor with a dimension more. `type`: of a slice, where there is none.
Result<HostTensor> Stacked(const std::vector<HostTensor>& slices, const std::optional<TensorType>& type, int64_t axis,
                           bool is_backward) {
  if (slices.empty() && !type)
    return Error{ErrorKind::kUnsupported, "it takes no step, and nothing says which shape its results have", ""};
  const TensorType of = slices.empty() ? *type : TensorType{slices[0].dtype, slices[0].shape};
  const auto rank = static_cast<int64_t>(of.shape.size()) + 1;
  if (axis < -rank || axis >= rank) return Invalid(fmt::format("axis {} of {} dimensions", axis, rank));
  const auto at = static_cast<size_t>(axis < 0 ? axis + rank : axis);
  const auto count = static_cast<int64_t>(slices.size());
  HostTensor all{of.dtype, of.shape, {}};
  all.shape.insert(all.shape.begin() + static_cast<std::ptrdiff_t>(at), count);
  HONE_TRY(CheckShape(all.shape));
  const Blocks blocks({all.dtype, all.shape, nullptr}, at);
  std::string bytes(static_cast<size_t>(blocks.outer * count) * blocks.bytes, '\0');
  for (size_t k = 0; k < slices.size(); ++k) {
    if (slices[k].shape != of.shape || slices[k].dtype != of.dtype)
      return Invalid(fmt::format("steps give {} and {}", ShapeText(of.shape), ShapeText(slices[k].shape)));
    const size_t place = is_backward ? slices.size() - 1 - k : k;
    for (int64_t i = 0; i < blocks.outer; ++i)
      std::memcpy(bytes.data() + (static_cast<size_t>(i * count) + place) * blocks.bytes,
                  slices[k].data.data() + static_cast<size_t>(i) * blocks.bytes, blocks.bytes);
  }
  all.data = std::move(bytes);
  return all;
}

// What goes through the steps of a body.
struct Steps {
  std::vector<HostTensor> state;
  std::vector<std::vector<HostTensor>> collected;  // of each result that is collected, a tensor a step

  // Outputs of the body, from the first that is a state on. kLimit: too much is collected.
  Result<void> Take(const std::vector<TensorView>& outputs, size_t first) {
    for (size_t i = 0; i < collected.size(); ++i) bytes_ += outputs[first + state.size() + i].bytes();
    if (bytes_ > kMostCollected)
      return Error{ErrorKind::kLimit, fmt::format("its steps give more than {} GiB", kMostCollected >> 30), ""};
    std::vector<HostTensor> next;
    for (size_t i = 0; i < state.size(); ++i) next.push_back(CopyOf(outputs[first + i]));
    for (size_t i = 0; i < collected.size(); ++i) collected[i].push_back(CopyOf(outputs[first + state.size() + i]));
    state = std::move(next);
    return {};
  }

 private:
  size_t bytes_ = 0;  // collected
};

// Whether nothing in the body can end the loop before the last step: the condition that it gives is the one that it
// took, or a constant.
bool NeverEnds(const OnnxModel& body) {
  std::string name = body.outputs[0].name;
  for (size_t i = body.nodes.size(); i-- > 0;)
    if (const OnnxNode& node = body.nodes[i];
        node.op == "Identity" && node.inputs.size() == 1 && node.outputs.size() == 1 && node.outputs[0] == name)
      name = node.inputs[0];
  if (name == body.inputs[1].name) return true;
  auto is_true = [](const HostTensor& tensor) { return tensor.data.size() == 1 && tensor.data.view()[0] != 0; };
  for (const OnnxTensor& tensor : body.initializers)
    if (tensor.name == name) return is_true(*tensor.tensor);
  for (const OnnxNode& node : body.nodes) {
    if (node.op != "Constant" || node.outputs.size() != 1 || node.outputs[0] != name) continue;
    const OnnxAttribute* value = FindAttribute(node, "value");
    return value != nullptr && value->tensor != nullptr && is_true(*value->tensor);
  }
  return false;
}

// nullopt: the file does not say it, or not with all dimensions.
std::optional<TensorType> DeclaredType(const OnnxType& type) {
  if (!type.is_tensor || !type.has_dtype || !type.has_shape) return std::nullopt;
  TensorType declared{type.dtype, {}};
  for (const OnnxDimension& dimension : type.dimensions) {
    if (dimension.value < 0) return std::nullopt;
    declared.shape.push_back(dimension.value);
  }
  return declared;
}

// Of the body's results, when no step gives any: as it computes them, or else as the file says.
Result<std::vector<std::optional<TensorType>>> TypesOf(Program& body, const std::vector<TensorView>& given) {
  std::vector<std::optional<TensorType>> types = HONE_TRY(body.Prepare(given));
  for (size_t i = 0; i < types.size(); ++i)
    if (!types[i]) types[i] = DeclaredType(body.model().outputs[i].type);
  return types;
}

Result<std::vector<HostTensor>> Loop(const OnnxNode& node, Program& body,
                                     const std::vector<std::optional<TensorView>>& inputs,
                                     const std::vector<TensorView>& captured) {
  constexpr size_t kOwn = 2;  // the number of steps, and whether there is a first one
  const size_t states = std::max(inputs.size(), kOwn) - kOwn;
  if (body.model().inputs.size() != kOwn + states + captured.size() || body.model().outputs.size() < 1 + states ||
      node.outputs.size() + 1 > body.model().outputs.size())
    return Invalid("its body does not fit its operands");
  int64_t most = INT64_MAX;
  if (!inputs.empty() && inputs[0]) most = HONE_TRY(OneNumber(*inputs[0], "the number of steps"));
  bool goes_on = true;
  if (inputs.size() > 1 && inputs[1]) goes_on = HONE_TRY(OneNumber(*inputs[1], "the condition")) != 0;
  const Error too_many{ErrorKind::kLimit, fmt::format("it does not end within {} steps", kMostTrips), ""};
  if (goes_on && most > kMostTrips && NeverEnds(body.model())) return too_many;
  Steps steps;
  for (size_t i = 0; i < states; ++i) {
    if (!inputs[kOwn + i]) return Invalid("a state is missing");
    steps.state.push_back(CopyOf(*inputs[kOwn + i]));
  }
  steps.collected.resize(body.model().outputs.size() - 1 - states);
  auto given = [&](const HostTensor& step, const HostTensor& condition) {
    std::vector<TensorView> all = {ViewOf(step), ViewOf(condition)};
    for (const HostTensor& state : steps.state) all.push_back(ViewOf(state));
    all.insert(all.end(), captured.begin(), captured.end());
    return all;
  };
  for (int64_t i = 0; goes_on && i < most; ++i) {
    if (i == kMostTrips) return too_many;
    const HostTensor step = Whole(i), condition = Truth(true);
    const std::vector<TensorView> outputs = HONE_TRY(body.Run(given(step, condition)));
    goes_on = HONE_TRY(OneNumber(outputs[0], "the condition")) != 0;
    HONE_TRY(steps.Take(outputs, 1));
  }
  std::vector<std::optional<TensorType>> types(body.model().outputs.size());
  if (!steps.collected.empty() && steps.collected[0].empty())
    types = HONE_TRY(TypesOf(body, given(Whole(0), Truth(true))));
  std::vector<HostTensor> results = std::move(steps.state);
  for (size_t i = 0; i < steps.collected.size(); ++i)
    results.push_back(HONE_TRY(Stacked(steps.collected[i], types[1 + states + i], 0, false)));
  return results;
}

std::vector<int64_t> WholesOf(const OnnxNode& node, std::string_view name, size_t count) {
  const OnnxAttribute* attribute = FindAttribute(node, name);
  std::vector<int64_t> wholes = attribute == nullptr ? std::vector<int64_t>() : attribute->wholes;
  wholes.resize(std::max(count, wholes.size()), 0);
  return wholes;
}

Result<std::vector<HostTensor>> Scan(const OnnxNode& node, Program& body,
                                     const std::vector<std::optional<TensorView>>& inputs,
                                     const std::vector<TensorView>& captured) {
  const OnnxAttribute* count = FindAttribute(node, "num_scan_inputs");
  if (count == nullptr || count->whole < 1 || count->whole > static_cast<int64_t>(inputs.size()))
    return Invalid("num_scan_inputs does not fit its operands");
  const auto scanned = static_cast<size_t>(count->whole), states = inputs.size() - scanned;
  const size_t outputs_of_body = body.model().outputs.size();
  if (body.model().inputs.size() != inputs.size() + captured.size() || outputs_of_body < states ||
      node.outputs.size() > outputs_of_body)
    return Invalid("its body does not fit its operands");
  for (const auto& input : inputs)
    if (!input) return Invalid("an operand is missing");
  const std::vector<int64_t> in_axes = WholesOf(node, "scan_input_axes", scanned),
                             in_back = WholesOf(node, "scan_input_directions", scanned);
  const size_t collected = outputs_of_body - states;
  const std::vector<int64_t> out_axes = WholesOf(node, "scan_output_axes", collected),
                             out_back = WholesOf(node, "scan_output_directions", collected);
  std::vector<size_t> axes;
  int64_t length = -1;
  for (size_t i = 0; i < scanned; ++i) {
    const Shape& shape = inputs[states + i]->shape;
    const auto rank = static_cast<int64_t>(shape.size());
    const int64_t axis = in_axes[i] < 0 ? in_axes[i] + rank : in_axes[i];
    if (axis < 0 || axis >= rank) return Invalid(fmt::format("axis {} of {} dimensions", in_axes[i], rank));
    axes.push_back(static_cast<size_t>(axis));
    if (length >= 0 && length != shape[axes[i]])
      return Invalid(fmt::format("it scans {} and {} steps", length, shape[axes[i]]));
    length = shape[axes[i]];
  }
  Steps steps;
  for (size_t i = 0; i < states; ++i) steps.state.push_back(CopyOf(*inputs[i]));
  steps.collected.resize(collected);
  auto given = [&](const std::vector<HostTensor>& slices) {
    std::vector<TensorView> all;
    for (const HostTensor& state : steps.state) all.push_back(ViewOf(state));
    for (const HostTensor& slice : slices) all.push_back(ViewOf(slice));
    all.insert(all.end(), captured.begin(), captured.end());
    return all;
  };
  for (int64_t k = 0; k < length; ++k) {
    std::vector<HostTensor> slices;
    for (size_t i = 0; i < scanned; ++i)
      slices.push_back(SliceAt(*inputs[states + i], axes[i], in_back[i] != 0 ? length - 1 - k : k));
    const std::vector<TensorView> outputs = HONE_TRY(body.Run(given(slices)));
    HONE_TRY(steps.Take(outputs, 0));
  }
  std::vector<std::optional<TensorType>> types(outputs_of_body);
  if (length == 0 && collected > 0) {
    std::vector<HostTensor> slices;
    for (size_t i = 0; i < scanned; ++i) slices.push_back(TypeOfSlice(*inputs[states + i], axes[i]));
    types = HONE_TRY(TypesOf(body, given(slices)));
  }
  std::vector<HostTensor> results = std::move(steps.state);
  for (size_t i = 0; i < collected; ++i)
    results.push_back(HONE_TRY(Stacked(steps.collected[i], types[states + i], out_axes[i], out_back[i] != 0)));
  return results;
}

}  // namespace

Result<std::vector<HostTensor>> RunLoop(const OnnxNode& node, Program& body,
                                        const std::vector<std::optional<TensorView>>& inputs,
                                        const std::vector<TensorView>& captured) {
  return node.op == "Loop" ? Loop(node, body, inputs, captured) : Scan(node, body, inputs, captured);
}

}  // namespace hone
