#include "network/onnx/inline_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "network/onnx/captured.h"
#include "network/onnx/node_sizes.h"
#include "network/onnx/rename_values.h"

namespace hone {
namespace {

constexpr int kDeepestCalls = 64;               // functions within functions
constexpr size_t kMostOfFunctions = 1'000'000;  // nodes of all calls
constexpr size_t kPrefixBytes = 32;             // that a name of a function's value gets, and more

class Inliner {
 public:
  Inliner(const std::vector<OnnxFunction>& functions, const std::string& path) : path_(path) {
    for (const OnnxFunction& each : functions)
      functions_[{each.domain, each.name, each.overload}] = {&each, SizesOf(each.nodes),
                                                             BytesOfAttributes(each.defaults)};
  }

  Result<void> Expand(std::vector<OnnxNode>& nodes, int depth) {
    std::vector<OnnxNode> expanded;
    for (OnnxNode& node : nodes) {
      HONE_TRY(ExpandBodies(node, depth));
      const auto found = functions_.find({node.domain, node.op, node.overload});
      if (found == functions_.end()) {
        expanded.push_back(std::move(node));
        continue;
      }
      const std::string where = fmt::format("{}: node {} ({})", path_, node.name, OperatorName(node));
      if (depth == kDeepestCalls)
        return Error{ErrorKind::kInvalid,
                     fmt::format("functions call each other more than {} deep, or themselves", kDeepestCalls), where};
      Account(found->second, node);
      if (nodes_ > kMostOfFunctions || bytes_ > kMostCopiedBytes)
        return Error{ErrorKind::kLimit,
                     fmt::format("its functions have more than {} nodes or {} bytes in all calls, hone's limit",
                                 kMostOfFunctions, kMostCopiedBytes),
                     where};
      std::vector<OnnxNode> called = NodesOf(*found->second.function, node);
      HONE_TRY(Expand(called, depth + 1));
      std::move(called.begin(), called.end(), std::back_inserter(expanded));
    }
    nodes = std::move(expanded);
    return {};
  }

 private:
  struct Known {
    const OnnxFunction* function;
    NodeSizes sizes;
    size_t defaults;  // bytes
  };

  // At most what a call becomes, with each name in it as long as the longest of the call's.
  void Account(const Known& known, const OnnxNode& call) {
    size_t longest = kPrefixBytes;
    for (const std::string& name : call.inputs) longest = std::max(longest, name.size());
    const NodeSizes& sizes = known.sizes;
    nodes_ += sizes.nodes + call.outputs.size();
    bytes_ += sizes.bytes + (sizes.names + call.outputs.size()) * longest;
    bytes_ += sizes.nodes * call.name.size() + sizes.references * (BytesOfAttributes(call.attributes) + known.defaults);
  }

  Result<void> ExpandBodies(OnnxNode& node, int depth) {
    bool has_bodies = false;
    for (OnnxAttribute& attribute : node.attributes) {
      if (attribute.body == nullptr) continue;
      has_bodies = true;
      auto body = std::make_shared<OnnxBody>(*attribute.body);
      HONE_TRY(Expand(body->nodes, depth));
      attribute.body = std::move(body);
    }
    if (has_bodies) node.captured = CapturedBy(node);
    return {};
  }

  // What a call computes, under its names. Values of the function have names of their own in each call, those in
  // bodies, too: a body would take its own for the call's otherwise.
  std::vector<OnnxNode> NodesOf(const OnnxFunction& function, const OnnxNode& call) {
    if (std::ranges::all_of(call.outputs, [](const auto& name) { return name.empty(); }))
      return {};  // nothing reads it
    const std::string prefix = fmt::format("call {}: ", ++calls_);
    ValueNames renamed;
    for (const OnnxNode& node : function.nodes)
      for (const std::string& name : node.outputs)
        if (!name.empty()) renamed[name] = prefix + name;
    for (size_t i = 0; i < function.inputs.size(); ++i)
      renamed[function.inputs[i]] = i < call.inputs.size() ? call.inputs[i] : "";
    std::vector<OnnxNode> nodes = function.nodes;
    for (OnnxNode& node : nodes) {
      Adapt(node, function, call);
      PrefixInBodies(node, prefix);
      RenameValues(node.inputs, renamed);
      RenameValues(node.outputs, renamed);
      RenameInBodies(node, renamed);
    }
    for (size_t i = 0; i < std::min(function.outputs.size(), call.outputs.size()); ++i) {
      if (call.outputs[i].empty()) continue;
      OnnxNode result;
      result.name = call.name;
      result.op = "Identity";
      result.inputs = {function.outputs[i]};
      RenameValues(result.inputs, renamed);
      result.outputs = {call.outputs[i]};
      nodes.push_back(std::move(result));
    }
    return nodes;
  }

  // Attributes that are the call's, and the opset, in the node and in its bodies.
  static void Adapt(OnnxNode& node, const OnnxFunction& function, const OnnxNode& call) {
    node.name = call.name + "/" + node.name;
    node.opset = function.opset;
    std::vector<OnnxAttribute> attributes;
    for (OnnxAttribute& attribute : node.attributes) {
      if (!attribute.reference.empty()) {
        const OnnxAttribute* given = FindNamed(call.attributes, attribute.reference);
        if (given == nullptr) given = FindNamed(function.defaults, attribute.reference);
        if (given == nullptr) continue;  // left out
        const std::string name = attribute.name;
        attribute = *given;
        attribute.name = name;
      } else if (attribute.body != nullptr) {
        auto body = std::make_shared<OnnxBody>(*attribute.body);
        for (OnnxNode& inner : body->nodes) Adapt(inner, function, call);
        attribute.body = std::move(body);
      }
      attributes.push_back(std::move(attribute));
    }
    node.attributes = std::move(attributes);
  }

  static const OnnxAttribute* FindNamed(const std::vector<OnnxAttribute>& attributes, const std::string& name) {
    for (const OnnxAttribute& attribute : attributes)
      if (attribute.name == name) return &attribute;
    return nullptr;
  }

  const std::string& path_;
  std::map<std::tuple<std::string, std::string, std::string>, Known> functions_;
  size_t calls_ = 0, nodes_ = 0, bytes_ = 0;  // of all calls
};

}  // namespace

Result<void> InlineFunctions(std::vector<OnnxNode>& nodes, const std::vector<OnnxFunction>& functions,
                             const std::string& path) {
  return functions.empty() ? Result<void>() : Inliner(functions, path).Expand(nodes, 0);
}

}  // namespace hone
