#include "network/run/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "network/graph/simplify.h"
#include "network/onnx/onnx_model.h"
#include "network/run/missing_operators.h"

namespace hone {
namespace {

const OnnxValue* FindInput(const OnnxModel& model, const std::string& name) {
  auto found =
      std::find_if(model.inputs.begin(), model.inputs.end(), [&](const OnnxValue& v) { return v.name == name; });
  return found == model.inputs.end() ? nullptr : &*found;
}

Error NoInput(const OnnxModel& model, const std::string& name, const std::string& path) {
  std::string names;
  for (const OnnxValue& input : model.inputs) names += (names.empty() ? "" : ", ") + input.name;
  return {ErrorKind::kInvalid, fmt::format("the model has no input {}; it has {}", name, names), path};
}

Result<void> CheckConstant(const OnnxValue& input, const HostTensor& given, const std::string& path) {
  if (!input.type.has_dtype)
    return Error{ErrorKind::kUnsupported,
                 fmt::format("it holds {}, wanted floats, whole numbers or truth values", input.type.type_name),
                 path + ": input " + input.name};
  if (given.dtype != input.type.dtype)
    return Error{ErrorKind::kInvalid,
                 fmt::format("a constant of {}, the model wants {}", Name(given.dtype), Name(input.type.dtype)),
                 path + ": input " + input.name};
  if (!input.type.has_shape) return {};
  bool is_fit = given.shape.size() == input.type.dimensions.size();
  for (size_t d = 0; is_fit && d < given.shape.size(); ++d)
    is_fit = input.type.dimensions[d].value < 0 || input.type.dimensions[d].value == given.shape[d];
  if (is_fit) return {};
  Shape wanted;
  for (const OnnxDimension& dimension : input.type.dimensions) wanted.push_back(dimension.value);
  return Error{
      ErrorKind::kInvalid,
      fmt::format("a constant of shape {}, the model wants {} (-1: any)", ShapeText(given.shape), ShapeText(wanted)),
      path + ": input " + input.name};
}

// Constants become the file's own; every other input stays one, whatever it is used for.
Result<void> TakeConstants(OnnxModel& model, const SessionOptions& options, const std::string& path,
                           ImportOptions& import) {
  for (const auto& [name, tensor] : options.constants) {
    const OnnxValue* input = FindInput(model, name);
    if (input == nullptr) return NoInput(model, name, path);
    HONE_TRY(CheckConstant(*input, *tensor, path));
    model.initializers.push_back({name, std::make_shared<HostTensor>(*tensor)});
    model.inputs.erase(model.inputs.begin() + (input - model.inputs.data()));
  }
  for (const auto& [name, _] : options.shapes)
    if (FindInput(model, name) == nullptr) return NoInput(model, name, path);
  import.shapes = options.shapes;
  for (const OnnxValue& input : model.inputs) import.data.insert(input.name);
  return {};
}

}  // namespace

Result<std::unique_ptr<Session>> Session::Open(const std::string& path, ClientOptions client, SessionOptions options) {
  OnnxModel file = HONE_TRY(ReadOnnx(path));
  ImportOptions import;
  HONE_TRY(TakeConstants(file, options, path, import));
  std::unique_ptr<Session> session(new Session);
  session->network_ = HONE_TRY(BuildNetwork(file, path, import));
  file = {};
  Graph& graph = session->network_.graph;
  HONE_TRY(Simplify(graph));
  session->plan_ = Lower(graph);
  HONE_TRY(CheckComplete(session->network_, path));
  for (auto [from, to] : {std::pair(&graph.inputs, &session->inputs_), std::pair(&graph.outputs, &session->outputs_)})
    for (ValueId value : *from)
      to->push_back({graph.values[static_cast<size_t>(value)].name, graph.dtype(value), graph.shape(value)});
  session->client_ = HONE_TRY(Client::Create(std::move(client)));
  session->executor_ = HONE_TRY(Executor::Create(*session->client_, graph, session->plan_, {options.get}));
  return session;
}

Result<void> Session::Run(std::span<const void* const> inputs, std::span<void* const> outputs) {
  if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size())
    return Error{ErrorKind::kInvalid,
                 fmt::format("{} inputs and {} outputs, wanted {} and {}", inputs.size(), outputs.size(),
                             inputs_.size(), outputs_.size()),
                 ""};
  MutexLock lock(mutex_);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::span<std::byte> to = executor_->Input(i);
    std::memcpy(to.data(), inputs[i], to.size());
  }
  HONE_TRY(executor_->Run());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::span<const std::byte> from = executor_->Output(i);
    std::memcpy(outputs[i], from.data(), from.size());
  }
  return {};
}

}  // namespace hone
