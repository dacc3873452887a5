#include "network/run/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "ir/target.h"
#include "network/onnx/model_in_place.h"
#include "network/onnx/onnx_model.h"
#include "network/onnx/symbols.h"

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

// Constants become the file's own. Dimensions of other inputs that are named like theirs have their sizes.
Result<void> TakeConstants(OnnxModel& model, const SessionOptions& options, const std::string& path) {
  Symbols sizes;
  for (const auto& [name, tensor] : options.constants) {
    const OnnxValue* input = FindInput(model, name);
    if (input == nullptr) return NoInput(model, name, path);
    HONE_TRY(CheckConstant(*input, *tensor, path));
    if (Result<void> bound = sizes.Bind(*input, tensor->shape); !bound) {
      bound.error().where = path + ": " + bound.error().where;
      return bound.error();
    }
    model.initializers.push_back({name, tensor});
    model.inputs.erase(model.inputs.begin() + (input - model.inputs.data()));
  }
  for (OnnxValue& input : model.inputs) {
    const Shape shape = sizes.ShapeOf(input);
    for (size_t d = 0; d < shape.size(); ++d) input.type.dimensions[d].value = shape[d];
  }
  for (const auto& [name, _] : options.shapes)
    if (FindInput(model, name) == nullptr) return NoInput(model, name, path);
  // Before IR version 4 initialisers are listed as inputs.
  std::set<std::string> known;
  for (const OnnxTensor& tensor : model.initializers) known.insert(tensor.name);
  model.inputs.erase(std::remove_if(model.inputs.begin(), model.inputs.end(),
                                    [&](const OnnxValue& input) { return known.count(input.name) != 0; }),
                     model.inputs.end());
  return {};
}

Result<SessionValue> DescribedInput(const OnnxValue& input, const SessionOptions& options, const Symbols& symbols) {
  const std::string where = "input " + input.name;
  if (!input.type.is_tensor) return Error{ErrorKind::kUnsupported, "it is no tensor", where};
  if (!input.type.has_dtype)
    return Error{ErrorKind::kUnsupported,
                 fmt::format("it holds {}, wanted floats, whole numbers or truth values", input.type.type_name), where};
  SessionValue value{input.name, input.type.dtype, {}};
  if (auto given = options.shapes.find(input.name); given != options.shapes.end()) {
    value.shape = given->second;
  } else {
    value.has_shape = input.type.has_shape;
    if (value.has_shape) value.shape = symbols.ShapeOf(input);
  }
  return value;
}

SessionValue DescribedOutput(const OnnxValue& output, const std::optional<TensorType>& known) {
  SessionValue value{output.name, output.type.dtype, {}};
  if (known) {
    value.dtype = known->dtype;
    value.shape = known->shape;
  } else {
    value.has_shape = output.type.has_shape;
    for (const OnnxDimension& dimension : output.type.dimensions) value.shape.push_back(dimension.value);
  }
  return value;
}

// Large tensors are copied, after which the file is not needed.
Result<void> CopyOutOf(ModelFile& file, TensorCopies& tensors) {
  Result<void> copied = tensors.Make();
  file.Unmap();
  return copied;
}

bool AreClosed(const std::vector<SessionValue>& values) {
  return std::none_of(values.begin(), values.end(), [](const SessionValue& value) { return value.is_open(); });
}

}  // namespace

bool SessionValue::is_open() const {
  return !has_shape || std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; });
}

bool Session::is_closed() const { return AreClosed(inputs_) && AreClosed(outputs_); }

Result<std::unique_ptr<Session>> Session::Open(const std::string& path, ClientOptions client, SessionOptions options) {
  ModelInPlace read = HONE_TRY(ReadOnnxInPlace(path));
  OnnxModel& model = read.model;
  HONE_TRY(TakeConstants(model, options, path));
  std::unique_ptr<Session> session(new Session);
  session->declared_ = model.inputs;
  auto fail = [&](Error error) {
    error.where = path + ": " + error.where;
    return error;
  };
  Symbols symbols;
  for (const OnnxValue& input : model.inputs) {
    auto given = options.shapes.find(input.name);
    if (given == options.shapes.end()) continue;
    if (Result<void> bound = symbols.Bind(input, given->second); !bound) return fail(bound.error());
  }
  std::vector<TensorView> types;
  for (const OnnxValue& input : model.inputs) {
    Result<SessionValue> value = DescribedInput(input, options, symbols);
    if (!value) return fail(value.error());
    types.push_back({value->dtype, value->shape});
    session->inputs_.push_back(*std::move(value));
  }
  // Every run is of the same shapes, unless computed values decide some: then it needs nothing of the file but what is
  // made of it now.
  const bool stays_in_file =
      AreClosed(session->inputs_) && (options.get.target.empty() || KindOfTarget(options.get.target) == kCpuKind);
  if (!stays_in_file) HONE_TRY(CopyOutOf(*read.file, read.tensors));
  const std::vector<OnnxValue> outputs = model.outputs;
  session->client_ = HONE_TRY(Client::Create(std::move(client)));
  auto context = std::make_shared<const ProgramContext>(
      ProgramContext{path, session->client_.get(), options.get, options.accuracy});
  session->shares_ = context->shares.get();
  auto program = std::make_unique<Program>(std::move(model), std::move(context));
  std::vector<std::optional<TensorType>> known(outputs.size());
  if (AreClosed(session->inputs_)) known = HONE_TRY(program->Prepare(types, stays_in_file ? read.file : nullptr));
  if (stays_in_file) {
    if (std::all_of(known.begin(), known.end(), [](const auto& type) { return type.has_value(); })) {
      read.tensors.Forget();
    } else {
      HONE_TRY(read.file->Map());
      HONE_TRY(CopyOutOf(*read.file, read.tensors));
    }
    read.file->KeepNoMemory();
  }
  for (size_t i = 0; i < outputs.size(); ++i) session->outputs_.push_back(DescribedOutput(outputs[i], known[i]));
  session->program_ = std::move(program);
  return session;
}

Result<void> Session::Run(std::span<const void* const> inputs, std::span<void* const> outputs) {
  if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size())
    return Error{ErrorKind::kInvalid,
                 fmt::format("{} inputs and {} outputs, wanted {} and {}", inputs.size(), outputs.size(),
                             inputs_.size(), outputs_.size()),
                 ""};
  if (!is_closed())
    return Error{ErrorKind::kInvalid, "shapes of its inputs or outputs are open, and a run must say them", ""};
  std::vector<TensorView> given;
  for (size_t i = 0; i < inputs.size(); ++i) given.push_back({inputs_[i].dtype, inputs_[i].shape, inputs[i]});
  MutexLock lock(mutex_);
  const std::vector<TensorView> results = HONE_TRY(program_->Run(given, outputs));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const SessionValue& said = outputs_[i];  // of what is decided by values, only by the file
    if (results[i].shape != said.shape || results[i].dtype != said.dtype)
      return Error{ErrorKind::kInvalid,
                   fmt::format("it is {} {}, and the file says {} {}", Name(results[i].dtype),
                               ShapeText(results[i].shape), Name(said.dtype), ShapeText(said.shape)),
                   "output " + said.name};
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    if (results[i].data != outputs[i]) std::memcpy(outputs[i], results[i].data, results[i].bytes());
  return {};
}

Result<std::vector<HostTensor>> Session::Compute(const std::vector<TensorView>& inputs) {
  if (inputs.size() != inputs_.size())
    return Error{ErrorKind::kInvalid, fmt::format("{} inputs, wanted {}", inputs.size(), inputs_.size()), ""};
  Symbols symbols;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const SessionValue& wanted = inputs_[i];
    const std::string where = "input " + wanted.name;
    if (inputs[i].dtype != wanted.dtype)
      return Error{ErrorKind::kInvalid,
                   fmt::format("{} elements, wanted {}", Name(inputs[i].dtype), Name(wanted.dtype)), where};
    if (Result<void> checked = CheckShape(inputs[i].shape); !checked) {
      checked.error().where = where;
      return checked.error();
    }
    if (!wanted.is_open() && wanted.shape != inputs[i].shape)
      return Error{ErrorKind::kInvalid,
                   fmt::format("shape {}, wanted {}", ShapeText(inputs[i].shape), ShapeText(wanted.shape)), where};
    HONE_TRY(symbols.Bind(declared_[i], inputs[i].shape));
  }
  MutexLock lock(mutex_);
  std::vector<HostTensor> results;
  for (const TensorView& result : HONE_TRY(program_->Run(inputs))) results.push_back(CopyOf(result));
  return results;
}

void Session::CountShares(bool is_on) {
  MutexLock lock(mutex_);
  shares_->Clear();
  shares_->is_on = is_on;
}

std::vector<WorkShare> Session::Shares() {
  MutexLock lock(mutex_);
  return shares_->Sorted();
}

}  // namespace hone
