// Which values of straight code are written where they are used, and which get a name.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "codegen/gpu/straight.h"

namespace hone {

// Of one launch or function. Not thread-safe.
class InlineValues {
 public:
  // `code` outlives it. `result`: of a function, which is read behind its code, and has a name.
  InlineValues(const straight::Code& code, straight::ValueId result) : code_(code) {
    if (result) uses_[result] = 2;
    CountUses(code.nodes);
  }

  // Whether what list[at], a let, computes is not written there: nobody reads it, or it is written where it is used,
  // which is once, and nothing can come in between. Asked of each let, in their order.
  bool Take(const std::vector<straight::Node>& list, size_t at);

 private:
  struct Use {
    const std::vector<straight::Node>* list;
    size_t at;
  };
  void CountUses(const std::vector<straight::Node>& nodes);  // those by what is used itself
  bool ReadsMemory(straight::ValueId id) const;
  bool IsInlined(const std::vector<straight::Node>& list, size_t at) const;

  const straight::Code& code_;
  std::map<straight::ValueId, int> uses_;
  std::map<straight::ValueId, Use> use_;
  std::set<straight::ValueId> inlined_;
};

}  // namespace hone
