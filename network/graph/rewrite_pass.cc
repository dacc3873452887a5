#include "network/graph/rewrite_pass.h"

namespace hone {

Result<void> RewritePass::Run() {
  for (int round = 0; round < kMostRounds; ++round) {
    readers_ = CountReaders(graph_);
    changed_ = false;
    const size_t count = graph_.nodes.size();
    for (NodeId id = graph_.nodes.last(); id; --id) {
      const Node node = graph_.nodes[id];
      if (graph_.is_constant(node.output) || replaced_.count(node.output) != 0 || readers_[node.output] == 0) continue;
      HONE_TRY(Visit(node));
    }
    // What was begun and left would be a reader of what it reads.
    if (changed_ || graph_.nodes.size() != count) Rebuild();
    if (!changed_) return {};
  }
  return {};
}

void RewritePass::Replace(ValueId old, ValueId with) {
  replaced_[old] = with;
  const ValueId original = graph_.values[old].replaces ? graph_.values[old].replaces : old;
  if (GraphValue& value = graph_.values[with]; with > old && !value.replaces) value.replaces = original;
  changed_ = true;
}

const Node* RewritePass::Find(ValueId value, NodeKind kind, std::string_view function) const {
  const Node* node = graph_.ProducerOf(value);
  return node != nullptr && node->kind == kind && (function.empty() || node->function == function) ? node : nullptr;
}

const Node* RewritePass::FindInner(ValueId value, NodeKind kind, std::string_view function) const {
  return IsOnlyRead(value) ? Find(value, kind, function) : nullptr;
}

ValueId RewritePass::Current(ValueId value) const {
  for (auto found = replaced_.find(value); found != replaced_.end(); found = replaced_.find(value))
    value = found->second;
  return value;
}

// Readers follow replacements, nodes that nothing needs go, the rest is sorted: a node's place is where it was, one
// that replaces another comes when the first reader wants it.
void RewritePass::Rebuild() {
  for (Node& node : graph_.nodes) {
    for (ValueId& input : node.inputs) input = Current(input);
  }
  for (ValueId& output : graph_.outputs) output = Current(output);
  IdVector<NodeId, Node> old = std::move(graph_.nodes), sorted;
  IdVector<NodeId, bool> done(old.size()), needed(old.size());
  auto producer = [&](ValueId value) { return graph_.values[value].producer; };
  std::vector<NodeId> open;
  for (ValueId output : graph_.outputs) open.push_back(producer(output));
  while (!open.empty()) {
    const NodeId at = open.back();
    open.pop_back();
    if (!at || needed[at]) continue;
    needed[at] = true;
    for (ValueId input : old[at].inputs) open.push_back(producer(input));
  }
  for (NodeId id : old.ids()) {
    if (needed[id]) open.push_back(id);
    while (!open.empty()) {
      const NodeId at = open.back();
      if (done[at]) {
        open.pop_back();
        continue;
      }
      bool ready = true;
      for (ValueId input : old[at].inputs) {
        const NodeId from = producer(input);
        if (from && !done[from]) {
          open.push_back(from);
          ready = false;
        }
      }
      if (!ready) continue;
      open.pop_back();
      done[at] = true;
      order_.push_back(at);
    }
  }
  for (NodeId at : order_) sorted.Add(std::move(old[at]));
  for (GraphValue& value : graph_.values) value.producer = {};
  for (NodeId id : sorted.ids()) graph_.values[sorted[id].output].producer = id;
  graph_.nodes = std::move(sorted);
  order_.clear();
  replaced_.clear();
  // A computed value whose node is gone is read by nobody.
  graph_.ForgetElements();
}

}  // namespace hone
