#include "network/onnx/collect_lists.h"

#include <algorithm>

#include "network/onnx/captured.h"
#include "network/onnx/unroll_loop.h"

namespace hone {
namespace {

constexpr size_t kOwnInputs = 2;  // of a Loop and of its body before the states

size_t TimesRead(const OnnxBody& body, const std::string& name) {
  auto count = [&](const std::vector<std::string>& names) { return std::count(names.begin(), names.end(), name); };
  auto times = count(body.outputs);
  for (const OnnxNode& node : body.nodes) times += count(node.inputs) + count(node.captured);
  return static_cast<size_t>(times);
}

OnnxNode* MakerOf(OnnxBody& body, const std::string& name) {
  for (OnnxNode& node : body.nodes)
    if (node.domain.empty() && node.outputs.size() == 1 && node.outputs[0] == name) return &node;
  return nullptr;
}

bool IsAppended(const OnnxNode& node) {
  return node.op == "SequenceInsert" &&
         (node.inputs.size() == 2 || (node.inputs.size() == 3 && node.inputs[2].empty()));
}

// The node that appends to a list, whose result nothing reads but `output` of the body, by copies at most; nullptr:
// none.
OnnxNode* AppendedTo(OnnxBody& body, std::string output) {
  while (TimesRead(body, output) == 1) {
    OnnxNode* maker = MakerOf(body, output);
    if (maker == nullptr) return nullptr;
    if (IsAppended(*maker)) return maker;
    if (maker->op != "Identity" || maker->inputs.size() != 1) return nullptr;
    output = maker->inputs[0];
  }
  return nullptr;
}

// What was the longer list is the tensor.
void HandOnTensor(OnnxNode& insertion) {
  insertion.op = "Identity";
  insertion.inputs = {insertion.inputs[1]};
}

bool IsOwn(const OnnxBody& body, const std::string& name) {
  auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return has(body.inputs) ||
         std::any_of(body.nodes.begin(), body.nodes.end(), [&](const OnnxNode& node) { return has(node.outputs); });
}

OnnxAttribute* BodyNamed(OnnxNode& node, std::string_view name) {
  for (OnnxAttribute& attribute : node.attributes)
    if (attribute.name == name && attribute.body != nullptr) return &attribute;
  return nullptr;
}

}  // namespace

std::vector<CollectedList> TakeListsOut(OnnxNode& loop, const std::function<bool(const std::string&)>& is_list) {
  OnnxAttribute* attribute = BodyNamed(loop, "body");
  if (attribute == nullptr || !FitsLoop(loop, *attribute->body)) return {};
  auto body = std::make_shared<OnnxBody>(*attribute->body);
  const size_t states = loop.inputs.size() - kOwnInputs;
  std::vector<std::string> outputs = loop.outputs;
  outputs.resize(body->outputs.size() - 1);
  OnnxNode kept = loop;
  OnnxBody kept_body;
  kept.inputs.resize(kOwnInputs);
  kept.outputs.clear();
  kept_body.inputs.assign(body->inputs.begin(), body->inputs.begin() + kOwnInputs);
  kept_body.outputs = {body->outputs[0]};
  std::vector<CollectedList> lists;
  std::vector<std::string> rows;  // of the body, one a list that grows
  for (size_t i = 0; i < states; ++i) {
    const std::string& begin = loop.inputs[kOwnInputs + i];
    const std::string& state = body->inputs[kOwnInputs + i];
    const std::string& next = body->outputs[1 + i];
    if (is_list(begin) && TimesRead(*body, state) == 1) {
      if (next == state) {
        lists.push_back({outputs[i], begin, ""});
        continue;
      }
      OnnxNode* insertion = AppendedTo(*body, next);
      if (insertion != nullptr && insertion->inputs[0] == state) {
        HandOnTensor(*insertion);
        lists.push_back({outputs[i], begin, outputs[i].empty() ? "" : outputs[i] + ", stacked"});
        rows.push_back(next);
        continue;
      }
    }
    kept.inputs.push_back(begin);
    kept.outputs.push_back(outputs[i]);
    kept_body.inputs.push_back(state);
    kept_body.outputs.push_back(next);
  }
  if (lists.empty()) return {};
  kept.outputs.insert(kept.outputs.end(), outputs.begin() + static_cast<ptrdiff_t>(states), outputs.end());
  kept_body.outputs.insert(kept_body.outputs.end(), body->outputs.begin() + 1 + static_cast<ptrdiff_t>(states),
                           body->outputs.end());
  size_t row = 0;
  for (const CollectedList& list : lists) {
    if (list.collected.empty()) continue;
    kept.outputs.push_back(list.collected);
    kept_body.outputs.push_back(rows[row++]);
  }
  body->inputs = std::move(kept_body.inputs);
  body->outputs = std::move(kept_body.outputs);
  loop.inputs = std::move(kept.inputs);
  loop.outputs = std::move(kept.outputs);
  attribute->body = std::move(body);
  loop.captured = CapturedBy(loop);
  return lists;
}

std::vector<OnnxNode> AppendBehind(OnnxNode& branches) {
  OnnxAttribute* yes = BodyNamed(branches, "then_branch");
  OnnxAttribute* no = BodyNamed(branches, "else_branch");
  if (yes == nullptr || no == nullptr) return {};
  if (yes->body->outputs.size() != branches.outputs.size() || no->body->outputs.size() != branches.outputs.size())
    return {};
  auto then_body = std::make_shared<OnnxBody>(*yes->body), else_body = std::make_shared<OnnxBody>(*no->body);
  std::vector<OnnxNode> behind;
  for (size_t i = 0; i < branches.outputs.size(); ++i) {
    OnnxNode* first = AppendedTo(*then_body, then_body->outputs[i]);
    OnnxNode* second = AppendedTo(*else_body, else_body->outputs[i]);
    if (first == nullptr || second == nullptr || first->inputs[0] != second->inputs[0]) continue;
    const std::string list = first->inputs[0];
    if (IsOwn(*then_body, list) || IsOwn(*else_body, list)) continue;
    OnnxNode insertion = *first;
    insertion.outputs = {branches.outputs[i]};
    branches.outputs[i] += ", appended";
    insertion.inputs = {list, branches.outputs[i]};
    HandOnTensor(*first);
    HandOnTensor(*second);
    behind.push_back(std::move(insertion));
  }
  if (behind.empty()) return {};
  yes->body = std::move(then_body);
  no->body = std::move(else_body);
  branches.captured = CapturedBy(branches);
  return behind;
}

}  // namespace hone
