#include "codegen/gpu/print_inline.h"

#include <algorithm>

namespace hone {

using straight::Do;
using straight::Node;
using straight::Value;
using straight::ValueId;

void InlineValues::CountUses(const std::vector<Node>& nodes) {
  for (size_t i = nodes.size(); i-- > 0;) {
    const auto count = [&](ValueId id) {
      if (!id) return;
      ++uses_[id];
      use_[id] = {&nodes, i};
    };
    CountUses(nodes[i].body);
    if (nodes[i].kind == Node::Kind::kLet && uses_.contains(nodes[i].value))
      for (ValueId arg : code_.values[nodes[i].value].args) count(arg);
    count(nodes[i].a);
    count(nodes[i].b);
    for (ValueId arg : nodes[i].args) count(arg);
  }
}

bool InlineValues::ReadsMemory(ValueId id) const {
  const Value& value = code_.values[id];
  if (value.what == Do::kLoad || value.what == Do::kRegister) return true;
  return std::any_of(value.args.begin(), value.args.end(), [&](ValueId arg) {
    return arg && (code_.values[arg].what == Do::kRegister || (inlined_.contains(arg) && ReadsMemory(arg)));
  });
}

bool InlineValues::IsInlined(const std::vector<Node>& list, size_t at) const {
  const ValueId id = list[at].value;
  const Do what = code_.values[id].what;
  if (what == Do::kWord || (what == Do::kLane && !ReadsMemory(id))) return true;
  const auto uses = uses_.find(id);
  if (uses == uses_.end()) return true;
  if (what == Do::kLoad || what == Do::kMatrices || uses->second != 1) return false;
  const Use& use = use_.at(id);
  if (use.list != &list || list[use.at].kind == Node::Kind::kFor) return false;
  return !ReadsMemory(id) || use.at == at + 1;
}

bool InlineValues::Take(const std::vector<Node>& list, size_t at) {
  const bool takes = IsInlined(list, at);
  if (takes) inlined_.insert(list[at].value);
  return takes;
}

}  // namespace hone
