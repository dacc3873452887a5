// Gives equal expressions one node, so that results can be remembered by node.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ir/expr.h"

namespace hone {

// Keeps every node alive that it has seen. Thread-compatible.
class ExprTable {
 public:
  // The node for an expression whose arguments came from this table.
  Expr Intern(Expr expr);

 private:
  struct Key {
    Op op;
    DType type;
    int64_t int_value;
    uint64_t float_bits;
    std::vector<const ExprNode*> args;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  std::unordered_map<Key, Expr, KeyHash> interned_;
};

}  // namespace hone
