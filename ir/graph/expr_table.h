// Gives equal expressions one node, so that results can be remembered by node.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "ir/graph/expr.h"

namespace hone {

// Keeps every node alive that it has seen. Thread-compatible.
class ExprTable {
 public:
  ExprTable() = default;
  ExprTable(const ExprTable&) = delete;
  ExprTable& operator=(const ExprTable&) = delete;

  // The node for an expression whose arguments came from this table.
  Expr Intern(Expr expr) { return *interned_.insert(std::move(expr)).first; }

 private:
  // Begins with the table's address, which nobody outside can know: literals cannot be chosen to share a bucket.
  struct Hash {
    uint64_t seed;
    size_t operator()(const Expr& e) const;
  };
  struct Equal {
    bool operator()(const Expr& a, const Expr& b) const;
  };
  std::unordered_set<Expr, Hash, Equal> interned_{0, Hash{reinterpret_cast<uintptr_t>(this)}};
};

}  // namespace hone
