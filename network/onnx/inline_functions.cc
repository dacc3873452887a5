#include "network/onnx/inline_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "network/onnx/captured.h"
#include "network/onnx/rename_values.h"

namespace hone {
namespace {

constexpr int kDeepestCalls = 64;               // functions within functions
constexpr size_t kMostOfFunctions = 1'000'000;  // nodes of all calls

// With those of bodies.
size_t NodesIn(const std::vector<OnnxNode>& nodes) {
  size_t count = nodes.size();
  for (const OnnxNode& node : nodes)
    for (const OnnxAttribute& attribute : node.attributes)
      if (attribute.body != nullptr) count += NodesIn(attribute.body->nodes);
  return count;
}

class Inliner {
 public:
  Inliner(const std::vector<OnnxFunction>& functions, const std::string& path) : path_(path) {
    for (const OnnxFunction& each : functions) functions_[{each.domain, each.name, each.overload}] = &each;
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
      std::vector<OnnxNode> called = NodesOf(*found->second, node);
      count_ += NodesIn(called);
      if (count_ > kMostOfFunctions)
        return Error{ErrorKind::kLimit,
                     fmt::format("its functions have more than {} nodes in all calls, hone's limit", kMostOfFunctions),
                     where};
      HONE_TRY(Expand(called, depth + 1));
      std::move(called.begin(), called.end(), std::back_inserter(expanded));
    }
    nodes = std::move(expanded);
    return {};
  }

 private:
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

  // What a call computes, under its names.
  static std::vector<OnnxNode> NodesOf(const OnnxFunction& function, const OnnxNode& call) {
    const auto made =
        std::find_if(call.outputs.begin(), call.outputs.end(), [](const auto& name) { return !name.empty(); });
    if (made == call.outputs.end()) return {};  // nothing reads it
    const std::string prefix = *made + "/";
    ValueNames renamed;
    for (const OnnxNode& node : function.nodes)
      for (const std::string& name : node.outputs)
        if (!name.empty()) renamed[name] = prefix + name;
    for (size_t i = 0; i < function.inputs.size(); ++i)
      renamed[function.inputs[i]] = i < call.inputs.size() ? call.inputs[i] : "";
    std::vector<OnnxNode> nodes = function.nodes;
    for (OnnxNode& node : nodes) {
      Adapt(node, function, call);
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
  std::map<std::tuple<std::string, std::string, std::string>, const OnnxFunction*> functions_;
  size_t count_ = 0;
};

}  // namespace

Result<void> InlineFunctions(std::vector<OnnxNode>& nodes, const std::vector<OnnxFunction>& functions,
                             const std::string& path) {
  return functions.empty() ? Result<void>() : Inliner(functions, path).Expand(nodes, 0);
}

}  // namespace hone
