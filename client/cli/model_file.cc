#include "client/cli/model_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <map>

#include "base/unique_fd.h"
#include "client/cli/plain_text.h"

namespace hone::cli {
namespace {

constexpr char kFirstByteOfOnnx = 0x08;  // field 1 of a ModelProto, ir_version

std::vector<std::string> SplitAt(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// NAME=1x3x224x224
Result<void> ReadShape(const std::string& text, std::map<std::string, Shape>* shapes) {
  Error wrong{ErrorKind::kInvalid, "saw \"" + text + "\", wanted NAME=DIMENSIONS such as input=1x3x224x224", "--shape"};
  size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) return wrong;
  Shape shape;
  for (const std::string& part : SplitAt(text.substr(equals + 1), 'x')) {
    int64_t value = 0;
    auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (code != std::errc() || end != part.data() + part.size() || value < 1) return wrong;
    shape.push_back(value);
  }
  (*shapes)[text.substr(0, equals)] = std::move(shape);
  return {};
}

}  // namespace

std::vector<NamedKernel> ModelFile::Kernels() const {
  std::vector<NamedKernel> kernels;
  std::map<std::string, size_t> seen;
  for (const KernelCall& call : plan.calls) {
    if (call.is_host()) continue;
    auto [found, is_new] = seen.emplace(call.kernel, kernels.size());
    if (!is_new) {
      ++kernels[found->second].count;
      continue;
    }
    NamedKernel kernel{call.kernel, 1, path + ": node " + call.nodes.front(), {}};
    if (!call.is_library) kernel.label = call.label + " " + ShapeText(network.graph.shape(call.output));
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

bool NamesModel(const std::string& argument) {
  if (argument.ends_with(".onnx")) return true;
  if (argument.ends_with(".kernels") || argument.ends_with(".hone")) return false;
  UniqueFd file(open(argument.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  char first = 0;
  return file && fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && read(file.get(), &first, 1) == 1 &&
         first == kFirstByteOfOnnx;
}

Result<ModelFile> ReadModel(const std::string& path, const ImportOptions& options) {
  ModelFile model;
  model.path = path;
  ImportOptions in_stages = options;
  in_stages.in_stages = true;  // of a model that runs in parts, the one that inputs decide
  model.network = HONE_TRY(ImportModel(path, in_stages));
  model.plan = Lower(model.network.graph);
  if (model.plan.calls.empty()) { return Error{ErrorKind::kUnsupported, "there is no kernel in this model", path}; }
  return model;
}

void PrintLeftOut(const ModelFile& model) {
  for (const LeftOut& left : model.network.left_out) {
    PrintError({ErrorKind::kUnsupported, "left out: " + left.reason,
                model.path + ": node " + left.node + " (" + left.op + ")"},
               false);
  }
  if (const size_t later = model.network.rest.nodes.size(); later > 0)
    fmt::print(stderr, "hone: {}: {} more when values decide their shapes; kernels for them are made when it runs\n",
               PlainLine(model.path), later == 1 ? "1 node runs" : fmt::format("{} nodes run", later));
}

std::vector<Json> LeftOutJson(const ModelFile& model) {
  std::vector<Json> all;
  for (const LeftOut& left : model.network.left_out) {
    all.push_back(Json().Set("node", left.node).Set("op", left.op).Set("reason", left.reason));
  }
  return all;
}

const Option kShapeOption{"--shape", "NAME=DIMS[,...]", "shapes of a model's inputs, such as input=1x3x224x224"};
const Option kDataOption{"--data", "NAME[,...]", "inputs of a model that are data although they look like weights"};

const Option kAccuracyOption{
    "--accuracy", "HOW",
    "of a model's convolutions and products of f32: strict (default), relaxed (Winograd, errors "
    "up to 1e-4 of the terms) or fast (factors of bf16, up to 1e-2)"};

Result<ImportOptions> ReadImportOptions(const Arguments& arguments) {
  ImportOptions options;
  if (arguments.Has("--shape")) {
    for (const std::string& part : SplitAt(arguments.Text("--shape"), ',')) HONE_TRY(ReadShape(part, &options.shapes));
  }
  if (arguments.Has("--data")) {
    for (const std::string& name : SplitAt(arguments.Text("--data"), ',')) options.data.insert(name);
  }
  if (arguments.Has("--accuracy")) {
    const std::optional<Accuracy> accuracy = ParseAccuracy(arguments.Text("--accuracy"));
    if (!accuracy) return Error{ErrorKind::kInvalid, "wanted strict, relaxed or fast", "--accuracy"};
    options.accuracy = *accuracy;
  }
  return options;
}

}  // namespace hone::cli
