// What passes over a network's graph share: they look for patterns among its nodes and put others in their place.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "network/graph/graph.h"

namespace hone {

// A round looks at every node, last first, so that the largest pattern is seen before its parts; new nodes are appended
// and take over the readers of what they replace. After it nodes are sorted again, and the next round begins, as long
// as something changes. Not thread-safe.
class RewritePass {
 public:
  explicit RewritePass(Graph& graph) : graph_(graph) {}
  virtual ~RewritePass() = default;
  RewritePass(const RewritePass&) = delete;
  RewritePass& operator=(const RewritePass&) = delete;

  Result<void> Run();

 protected:
  // A node that is computed and read. It may add nodes, and replace the node's output.
  virtual Result<void> Visit(const Node& node) = 0;

  void Replace(ValueId old, ValueId with);
  bool IsOnlyRead(ValueId value) const { return readers_.contains(value) && readers_[value] == 1; }
  // The node that computes a value at run time, if it is of a kind; of values that are read once alone.
  const Node* Find(ValueId value, NodeKind kind, std::string_view function = "") const;
  const Node* FindInner(ValueId value, NodeKind kind, std::string_view function = "") const;

  Graph& graph_;

 private:
  static constexpr int kMostRounds = 8;

  ValueId Current(ValueId value) const;
  void Rebuild();

  IdVector<ValueId, int> readers_;
  std::map<ValueId, ValueId> replaced_;
  std::vector<NodeId> order_;
  bool changed_ = false;
};

}  // namespace hone
