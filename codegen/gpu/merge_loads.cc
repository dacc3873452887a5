#include "codegen/gpu/merge_loads.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <utility>

#include "ir/graph/dtype_traits.h"

namespace hone::straight {
namespace {

constexpr int64_t kElementBytes = 4, kWidest = 4;

class LoadMerger {
 public:
  LoadMerger(Code& code, const Program& program) : code_(code), program_(program) {}

  void Merge(std::vector<Node>& nodes) {
    std::vector<Node> merged;
    std::map<Row, Loads> open;
    auto close = [&] {
      for (const auto& [row, loads] : open) MergeRow(loads);
      open.clear();
      for (Node& node : pending_) {
        if (const auto first = vectors_.find(node.value); node.kind == Node::Kind::kLet && first != vectors_.end())
          merged.push_back({.kind = Node::Kind::kLet, .value = first->second});
        merged.push_back(std::move(node));
      }
      pending_.clear();
      vectors_.clear();
    };
    for (Node& node : nodes) {
      if (node.body.empty() && IsStraight(node.kind)) {
        if (node.kind == Node::Kind::kLet) Note(node.value, open);
        pending_.push_back(std::move(node));
        continue;
      }
      close();
      Merge(node.body);
      merged.push_back(std::move(node));
    }
    close();
    nodes = std::move(merged);
  }

 private:
  using Row = std::pair<BufferId, ValueId>;  // what is loaded from, and from which place on
  struct Load {
    ValueId id;
    size_t at = 0;  // of pending_
  };
  using Loads = std::map<int64_t, Load>;  // by how far behind it

  // What neither writes to memory nor waits for others to.
  static bool IsStraight(Node::Kind kind) {
    return kind == Node::Kind::kLet || kind == Node::Kind::kDeclare || kind == Node::Kind::kAssign;
  }

  void Note(ValueId id, std::map<Row, Loads>& open) {
    const Value& value = code_.values[id];
    if (value.what != Do::kLoad || value.lanes != 1 || value.args.size() != 1 ||
        ByteSize(value.type) != kElementBytes || program_.buffers[value.buffer].scope != Scope::kBlock ||
        program_.buffers[value.buffer].dtype != value.type)
      return;
    open[{value.buffer, value.args[0]}].emplace(value.number, Load{id, pending_.size()});
  }

  void MergeRow(const Loads& loads) {
    for (auto at = loads.begin(); at != loads.end();) {
      const int64_t from = at->first;
      int64_t width = std::min(kWidest, MultipleOf(code_.values[at->second.id].args[0]));
      while (width > 1 && (from % width != 0 || !Follow(loads, at, width))) width /= 2;
      if (width > 1) MakeVector(at, width);
      std::advance(at, width);
    }
  }

  static bool Follow(const Loads& loads, Loads::const_iterator at, int64_t count) {
    for (int64_t number = at->first, end = number + count; number < end; ++number, ++at)
      if (at == loads.end() || at->first != number) return false;
    return true;
  }

  // Where the first of them is loaded.
  void MakeVector(Loads::const_iterator at, int64_t width) {
    Value vector = code_.values[at->second.id];
    vector.lanes = static_cast<int>(width);
    const ValueId whole = code_.values.Add(std::move(vector));
    Load first = at->second;
    for (int64_t lane = 0; lane < width; ++lane, ++at) {
      if (at->second.at < first.at) first = at->second;
      Value& value = code_.values[at->second.id];
      Value element{.what = Do::kLane, .type = value.type, .args = {whole}, .number = lane};
      element.varies = value.varies;
      value = std::move(element);
    }
    vectors_[first.id] = whole;
  }

  // A power of two that divides an index for certain, of the widest vector at most.
  int64_t MultipleOf(ValueId id) {
    if (!id) return kWidest;
    if (const auto known = multiples_.find(id); known != multiples_.end()) return known->second;
    const Value& value = code_.values[id];
    auto of = [&](size_t arg) { return MultipleOf(value.args[arg]); };
    int64_t multiple = 1;
    switch (value.what) {
      case Do::kConstant: multiple = value.number == 0 ? kWidest : value.number & -value.number; break;
      case Do::kAdd:
      case Do::kSub:
      case Do::kMin:
      case Do::kMax: multiple = std::min(of(0), of(1)); break;
      case Do::kMul: multiple = of(0) * of(1); break;
      case Do::kNeg: multiple = of(0); break;
      case Do::kSelect: multiple = std::min(of(1), of(2)); break;
      default: break;
    }
    multiple = std::min(multiple, kWidest);
    multiples_[id] = multiple;
    return multiple;
  }

  Code& code_;
  const Program& program_;
  std::vector<Node> pending_;           // since the last that is not straight
  std::map<ValueId, ValueId> vectors_;  // by the first load of each
  std::map<ValueId, int64_t> multiples_;
};

}  // namespace

void MergeLoads(Code& code, const Program& program) { LoadMerger(code, program).Merge(code.nodes); }

}  // namespace hone::straight
