#include "network/onnx/import_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "network/graph/simplify.h"
#include "network/onnx/branch_names.h"
#include "network/onnx/data_shaped.h"
#include "network/onnx/find_weights.h"
#include "network/onnx/small_types.h"
#include "network/onnx/symbols.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

constexpr int64_t kFirstScan = 9;  // as it is since

// Why no operator of this domain is known.
std::string_view WhyUnknown(std::string_view domain) {
  if (domain == "com.microsoft.nchwc")
    return "onnxruntime made it for one processor; save the model with ORT_ENABLE_EXTENDED at most";
  if (domain == "ai.onnx.ml")
    return "hone runs networks of tensors, not the trees, linear models and encoders of ai.onnx.ml; cut it off from "
           "the network, and run it elsewhere";
  return "no operator that hone knows";
}

class NetworkBuilder {
 public:
  NetworkBuilder(const OnnxModel& model, const std::string& path, const ImportOptions& options)
      : model_(model), path_(path), options_(options), branches_(model) {}

  Result<Network> Run() {
    graph().folding_limit = options_.folding_limit;
    graph().accuracy = options_.accuracy;
    network_.producer = model_.producer;
    for (const OnnxTensor& tensor : model_.initializers)
      ids_[tensor.name] = graph().AddConstant(tensor.name, tensor.tensor);
    HONE_TRY(FindProducers());
    HONE_TRY(AddInputs());
    std::vector<size_t> order = HONE_TRY(Sort());
    for (const OnnxValue& value : model_.values) declared_.emplace(value.name, &value);
    for (const OnnxValue& value : model_.outputs) declared_.emplace(value.name, &value);
    for (size_t index : order) HONE_TRY(Translate(model_.nodes[index]));
    HONE_TRY(AddOutputs());
    HONE_TRY(EndStage());
    if (network_.left_out.size() == model_.nodes.size() && !model_.nodes.empty()) {
      const LeftOut& first = network_.left_out.front();
      return Error{
          ErrorKind::kUnsupported,
          fmt::format("no node of it could be taken; the first: {} ({}): {}", first.node, first.op, first.reason),
          path_};
    }
    graph().ForgetElements();
    return std::move(network_);
  }

 private:
  Graph& graph() { return network_.graph; }

  Error AtNode(Error error, const OnnxNode& node) const {
    error.where = fmt::format("{}: node {} ({})", path_, node.name, node.op);
    return error;
  }

  Result<void> FindProducers() {
    for (size_t i = 0; i < model_.nodes.size(); ++i) {
      for (const std::string& output : model_.nodes[i].outputs) {
        if (output.empty()) continue;
        if (!producer_.emplace(output, i).second || ids_.count(output) != 0) {
          return AtNode({ErrorKind::kInvalid, fmt::format("\"{}\" is computed twice", output), ""}, model_.nodes[i]);
        }
      }
    }
    return {};
  }

  Result<TensorType> TypeOf(const OnnxValue& value) const {
    std::string where = fmt::format("{}: input {}", path_, value.name);
    if (!value.type.is_tensor) return Error{ErrorKind::kUnsupported, "it is no tensor", where};
    if (!value.type.has_dtype) {
      return Error{ErrorKind::kUnsupported,
                   fmt::format("it holds {}, wanted floats, whole numbers or truth values", value.type.type_name),
                   where};
    }
    TensorType type{value.type.dtype, {}};
    if (auto given = options_.shapes.find(value.name); given != options_.shapes.end()) {
      type.shape = given->second;  // it was bound to what the file says
    } else {
      if (value.type.has_shape) type.shape = symbols_.ShapeOf(value);
      if (!value.type.has_shape ||
          std::any_of(type.shape.begin(), type.shape.end(), [](int64_t size) { return size < 0; })) {
        return Error{ErrorKind::kInvalid,
                     fmt::format("its shape is {}, and every dimension must be known: give it with --shape {}={}",
                                 ShapeText(value.type), value.name, Example(value)),
                     where};
      }
    }
    if (Result<void> fits = CheckShape(type.shape); !fits) {
      fits.error().where = where;
      return fits.error();
    }
    return type;
  }

  static std::string Example(const OnnxValue& value) {
    if (!value.type.has_shape) return "1x3x224x224";
    std::string text;
    for (const OnnxDimension& dimension : value.type.dimensions) {
      if (!text.empty()) text += "x";
      text += std::to_string(dimension.value >= 0 ? dimension.value : 1);
    }
    return text;
  }

  Result<void> AddInputs() {
    for (const auto& [name, shape] : options_.shapes) HONE_TRY(CheckIsInput(name, "--shape"));
    for (const std::string& name : options_.data) HONE_TRY(CheckIsInput(name, "--data"));
    for (const OnnxValue& input : model_.inputs) {
      auto given = options_.shapes.find(input.name);
      if (given == options_.shapes.end() || ids_.count(input.name) != 0) continue;
      if (Result<void> bound = symbols_.Bind(input, given->second); !bound) {
        bound.error().where = path_ + ": " + bound.error().where;
        return bound.error();
      }
    }
    const std::unordered_set<std::string> weights = FindWeights(model_, options_.data);
    std::unordered_set<std::string_view> names;
    for (const OnnxValue& input : model_.inputs) {
      if (!names.insert(input.name).second)
        return Error{ErrorKind::kInvalid, "another input has its name", fmt::format("{}: input {}", path_, input.name)};
      if (ids_.count(input.name) != 0) continue;  // an initialiser that is listed as an input, as before IR version 4
      if (producer_.count(input.name) != 0) {
        return Error{ErrorKind::kInvalid, "it is computed by a node as well",
                     fmt::format("{}: input {}", path_, input.name)};
      }
      if (auto known = options_.elements.find(input.name); known != options_.elements.end()) {
        ids_[input.name] = HONE_TRY(Rounded(input, graph().AddConstant(input.name, known->second)));
        continue;
      }
      TensorType type = HONE_TRY(TypeOf(input));
      bool is_weight = weights.count(input.name) != 0;
      ids_[input.name] = is_weight ? graph().AddWeight(input.name, type) : graph().AddInput(input.name, type);
      if (is_weight) network_.weights.push_back(ids_[input.name]);
      ids_[input.name] = HONE_TRY(Rounded(input, ids_[input.name]));
    }
    return {};
  }

  // What is given for numbers of a small type need not be such numbers.
  Result<ValueId> Rounded(const OnnxValue& input, ValueId given) {
    if (input.type.small == nullptr) return given;
    Builder build(graph(), fmt::format("{}: input {}", path_, input.name));
    return CastTo(build, *input.type.small, given);
  }

  Result<void> CheckIsInput(const std::string& name, std::string_view option) const {
    for (const OnnxValue& input : model_.inputs) {
      if (input.name == name) return {};
    }
    return Error{ErrorKind::kInvalid, fmt::format("{} names \"{}\", which is no input of the model", option, name),
                 path_};
  }

  // Kahn's algorithm; among ready nodes, the file's order.
  Result<std::vector<size_t>> Sort() const {
    std::vector<std::vector<size_t>> readers(model_.nodes.size());
    std::vector<size_t> missing(model_.nodes.size(), 0), order;
    std::set<size_t> ready;
    for (size_t i = 0; i < model_.nodes.size(); ++i) {
      std::vector<std::string> read = model_.nodes[i].inputs;
      read.insert(read.end(), model_.nodes[i].captured.begin(), model_.nodes[i].captured.end());
      for (const std::string& input : read) {
        if (input.empty() || ids_.count(input) != 0) continue;
        auto found = producer_.find(input);
        if (found == producer_.end()) {
          return AtNode({ErrorKind::kInvalid, fmt::format("it reads \"{}\", which nothing computes", input), ""},
                        model_.nodes[i]);
        }
        readers[found->second].push_back(i);
        ++missing[i];
      }
      if (missing[i] == 0) ready.insert(i);
    }
    while (!ready.empty()) {
      size_t next = *ready.begin();
      ready.erase(ready.begin());
      order.push_back(next);
      for (size_t reader : readers[next]) {
        if (--missing[reader] == 0) ready.insert(reader);
      }
    }
    if (order.size() == model_.nodes.size()) return order;
    // Whoever waits for what waits comes by a node of a cycle again.
    size_t at = 0;
    while (missing[at] == 0) ++at;
    std::vector<bool> seen(model_.nodes.size(), false);
    while (!seen[at]) {
      seen[at] = true;
      for (const std::string& input : model_.nodes[at].inputs) {
        auto found = producer_.find(input);
        if (found != producer_.end() && missing[found->second] > 0) {
          at = found->second;
          break;
        }
      }
    }
    return AtNode({ErrorKind::kInvalid, "it is part of a cycle: it waits for its own output", ""}, model_.nodes[at]);
  }

  // Its outputs come from elsewhere: with the type that the file declares, or not at all.
  void LeaveOut(const OnnxNode& node, std::string reason, bool follows = false) {
    network_.left_out.push_back({node.name, OperatorName(node), std::move(reason), follows});
    for (const std::string& output : node.outputs) {
      if (output.empty()) continue;
      auto declared = declared_.find(output);
      Result<TensorType> type = declared == declared_.end() ? Result<TensorType>(Error{}) : TypeOf(*declared->second);
      ids_[output] = type ? graph().AddInput(output, *type) : ValueId();
    }
  }

  Result<void> CheckOperands(const OnnxNode& node, size_t fewest) const {
    for (size_t i = 0; i < fewest; ++i) {
      if (i < node.inputs.size() && !node.inputs[i].empty()) continue;
      return AtNode({ErrorKind::kInvalid, fmt::format("operand {} is missing, wanted {}", i + 1, fewest), ""}, node);
    }
    return {};
  }

  bool IsWaiting(const std::vector<std::string>& names) const {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return waiting_.count(name) != 0; });
  }

  // A node for the next stage, which wants to know the elements of these of its inputs; without stages it is left out.
  void Defer(const OnnxNode& node, const std::vector<size_t>& deciding, std::string reason, bool follows = false) {
    if (!options_.in_stages) return LeaveOut(node, std::move(reason), follows);
    network_.rest.nodes.push_back(node);
    for (size_t i : deciding) network_.rest.deciding.insert(node.inputs[i]);
    for (const std::string& output : node.outputs) {
      if (output.empty()) continue;
      ids_[output] = {};
      waiting_.insert(output);
    }
  }

  void DropUnread(std::vector<OnnxNode>& nodes) const {
    std::unordered_set<std::string> read;
    for (const OnnxValue& output : model_.outputs) read.insert(output.name);
    std::vector<OnnxNode> kept;
    for (; !nodes.empty(); nodes.pop_back()) {
      OnnxNode& node = nodes.back();
      const bool is_read = std::any_of(node.outputs.begin(), node.outputs.end(),
                                       [&](const std::string& name) { return read.count(name) != 0; });
      if (!is_read) continue;
      read.insert(node.inputs.begin(), node.inputs.end());
      read.insert(node.captured.begin(), node.captured.end());
      kept.push_back(std::move(node));
    }
    nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  }

  // Whatever waits reads of this stage becomes an output of it, or a constant of the next one.
  Result<void> EndStage() {
    Rest& rest = network_.rest;
    DropUnread(rest.nodes);
    std::set<std::string> seen;
    auto read = [&](const std::string& name) -> Result<void> {
      if (name.empty() || waiting_.count(name) != 0 || !seen.insert(name).second) return {};
      const ValueId value = ids_.at(name);
      if (!value) return {};  // left out
      if (!graph().is_constant(value)) {
        rest.reads.push_back(name);
        graph().outputs.push_back(value);
        return {};
      }
      std::shared_ptr<const HostTensor> data = graph().values[value].data;
      if (data == nullptr) {
        const Result<const Numbers*> elements = graph().Elements(value);
        // Of a weight that the file lacks: whoever runs the next stage brings it before this one.
        if (!elements && elements.error().kind == ErrorKind::kNotFound) return {};
        data = std::make_shared<HostTensor>(ToHost(*HONE_TRY(elements), graph().dtype(value)));
      }
      rest.constants.push_back({name, std::move(data)});
      return {};
    };
    for (const OnnxNode& node : rest.nodes) {
      for (const std::string& name : node.inputs) HONE_TRY(read(name));
      for (const std::string& name : node.captured) HONE_TRY(read(name));
    }
    return {};
  }

  // Results whose number of elements depends on elements: known if those are.
  Result<void> TranslateDataShaped(const OnnxNode& node, const DataShapedOperator& op) {
    HONE_TRY(CheckOperands(node, op.fewest_inputs));
    std::vector<const Numbers*> inputs;
    bool is_known = !IsWaiting(node.inputs);
    for (const std::string& name : node.inputs) {
      const ValueId value = name.empty() ? ValueId() : ids_.at(name);
      is_known = is_known && (name.empty() || (value && graph().is_constant(value)));
      if (!is_known) break;
      inputs.push_back(name.empty() ? nullptr : HONE_TRY(graph().Elements(value)));
    }
    if (!is_known) {
      Defer(node, {}, "its input is computed when the network runs, and shapes must be known before");
      return {};
    }
    Result<std::vector<Numbers>> results = op.compute(node, inputs);
    if (!results) return AtNode(results.error(), node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      if (i >= results->size())
        return AtNode({ErrorKind::kInvalid,
                       fmt::format("it has {} outputs, wanted {}", node.outputs.size(), results->size()), ""},
                      node);
      auto tensor = std::make_shared<HostTensor>(ToHost((*results)[i], (*results)[i].dtype));
      ids_[node.outputs[i]] = graph().AddConstant(node.outputs[i], std::move(tensor));
    }
    return {};
  }

  // The branch of an If whose condition the file decides takes the node's place.
  Result<void> TranslateBranch(const OnnxNode& node) {
    HONE_TRY(CheckOperands(node, 1));
    if (node.inputs.size() != 1)
      return AtNode({ErrorKind::kInvalid, fmt::format("it has {} operands, wanted 1", node.inputs.size()), ""}, node);
    if (IsWaiting(node.inputs)) {
      Defer(node, {0}, "", true);
      return {};
    }
    const ValueId condition = ids_.at(node.inputs[0]);
    if (const int64_t count = condition ? CountOf(graph().shape(condition)) : 1; count != 1)
      return AtNode({ErrorKind::kInvalid, fmt::format("the condition has {} elements, wanted 1", count), ""}, node);
    const std::optional<double> truth = !condition ? std::nullopt : graph().ScalarOf(condition);
    if (!truth) {
      constexpr std::string_view kReason =
          "its condition is computed when the network runs, and shapes must be known before";
      if (!condition)
        LeaveOut(node, std::string(kReason), true);
      else
        Defer(node, {0}, std::string(kReason));
      return {};
    }
    const std::string_view branch = *truth != 0 ? "then_branch" : "else_branch";
    const OnnxAttribute* given = FindAttribute(node, branch);
    if (given == nullptr || given->body == nullptr || given->body->outputs.size() != node.outputs.size())
      return AtNode({ErrorKind::kInvalid, fmt::format("{} does not fit its outputs", branch), ""}, node);
    const OnnxBody body = branches_.Apart(*given->body);
    for (const OnnxTensor& tensor : body.initializers)
      ids_[tensor.name] = graph().AddConstant(tensor.name, tensor.tensor);
    for (const OnnxNode& inner : body.nodes) {
      for (const auto* names : {&inner.inputs, &inner.captured})
        for (const std::string& name : *names)
          if (!name.empty() && ids_.count(name) == 0)
            return AtNode({ErrorKind::kInvalid, fmt::format("it reads \"{}\" before it is computed", name), ""}, inner);
      HONE_TRY(Translate(inner));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      auto found = ids_.find(body.outputs[i]);
      if (found == ids_.end())
        return AtNode({ErrorKind::kInvalid, fmt::format("nothing computes \"{}\"", body.outputs[i]), ""}, node);
      ids_[node.outputs[i]] = found->second;
      if (waiting_.count(body.outputs[i]) == 0) continue;
      OnnxNode copy;
      copy.name = node.name;
      copy.op = "Identity";
      copy.inputs = {body.outputs[i]};
      copy.outputs = {node.outputs[i]};
      Defer(copy, {}, "", true);
    }
    return {};
  }

  Result<void> Translate(const OnnxNode& node) {
    if (node.op == "If" && node.domain.empty()) return TranslateBranch(node);
    if (IsLoop(node) && node.op == "Scan" && model_.opset < kFirstScan) {
      LeaveOut(node, fmt::format("it has a batch in opset {}; export the model with opset_version=18", model_.opset));
      return {};
    }
    if (const OnnxNode* unknown = FindUnknown(node)) {
      LeaveOut(node, fmt::format("its body has {}, no operator that hone knows (node {})", OperatorName(*unknown),
                                 unknown->name));
      return {};
    }
    if (IsLoop(node)) {
      Defer(node, {}, "its body runs as often as values say that are computed when the network runs");
      return {};
    }
    if (const DataShapedOperator* found = FindDataShaped(OperatorName(node))) return TranslateDataShaped(node, *found);
    const Operator* op = FindOperator(OperatorName(node));
    const int64_t opset = node.opset != 0 ? node.opset : model_.opset;
    if (op != nullptr && opset < kOldestWholeOpset && !IsAsOldAsOnnx(node.op)) {
      LeaveOut(node, fmt::format("it meant something else in opset {}; export the model with opset_version=18", opset));
      return {};
    }
    if (op == nullptr) {
      LeaveOut(node, std::string(WhyUnknown(node.domain)));
      return {};
    }
    if (IsWaiting(node.inputs)) {
      Defer(node, {}, "", true);
      return {};
    }
    std::vector<ValueId> inputs;
    for (const std::string& name : node.inputs) {
      inputs.push_back(name.empty() ? ValueId() : ids_.at(name));
      if (!name.empty() && !inputs.back()) {
        LeaveOut(node,
                 fmt::format("it reads \"{}\", whose node was left out and whose shape the file does not say", name),
                 true);
        return {};
      }
    }
    HONE_TRY(CheckOperands(node, op->fewest_inputs));
    OperatorCall call(graph(), node, std::move(inputs), opset);
    Result<Outputs> outputs = op->translate(call);
    if (!call.mistyped().empty()) return AtNode({ErrorKind::kInvalid, call.mistyped(), ""}, node);
    if (!outputs) {
      if (outputs.error().kind != ErrorKind::kUnsupported && outputs.error().kind != ErrorKind::kNotFound) {
        return AtNode(std::move(outputs).error(), node);
      }
      if (call.undecided().empty())
        LeaveOut(node, outputs.error().message);
      else
        Defer(node, call.undecided(), outputs.error().message);
      return {};
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      if (i >= outputs->size()) {
        return AtNode({ErrorKind::kInvalid,
                       fmt::format("it has {} outputs, wanted {}", node.outputs.size(), outputs->size()), ""},
                      node);
      }
      ids_[node.outputs[i]] = (*outputs)[i];
      GraphValue& value = graph().values[(*outputs)[i]];
      if (value.producer && value.name == node.name) value.name = node.outputs[i];
    }
    return {};
  }

  Result<void> AddOutputs() {
    if (model_.outputs.empty()) return Error{ErrorKind::kInvalid, "the graph has no outputs", path_};
    for (const OnnxValue& output : model_.outputs) {
      auto found = ids_.find(output.name);
      if (found == ids_.end()) {
        return Error{ErrorKind::kInvalid, "nothing computes it", fmt::format("{}: output {}", path_, output.name)};
      }
      if (!found->second) continue;
      graph().outputs.push_back(found->second);
      network_.outputs.push_back(output.name);
    }
    return {};
  }

  const OnnxModel& model_;
  const std::string& path_;
  const ImportOptions& options_;
  Network network_;
  std::unordered_map<std::string, ValueId> ids_;  // none: left out
  std::unordered_map<std::string, size_t> producer_;
  std::unordered_map<std::string, const OnnxValue*> declared_;
  std::unordered_set<std::string> waiting_;  // values of the next stage
  Symbols symbols_;
  BranchNames branches_;
};

}  // namespace

Result<Network> BuildNetwork(const OnnxModel& model, const std::string& path, const ImportOptions& options) {
  return NetworkBuilder(model, path, options).Run();
}

Result<Network> ImportModel(const std::string& path, const ImportOptions& options) {
  OnnxModel model = HONE_TRY(ReadOnnx(path));
  Network network = HONE_TRY(BuildNetwork(model, path, options));
  HONE_TRY(Simplify(network.graph));
  return network;
}

}  // namespace hone
