#include "ir/expr_table.h"

#include <bit>

namespace hone {

size_t ExprTable::KeyHash::operator()(const Key& key) const {
  uint64_t h = static_cast<uint64_t>(key.op) * 64 + static_cast<uint64_t>(key.type);
  auto mix = [&](uint64_t x) {
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
  };
  mix(static_cast<uint64_t>(key.int_value));
  mix(key.float_bits);
  for (const ExprNode* arg : key.args) mix(reinterpret_cast<uintptr_t>(arg));
  return h;
}

Expr ExprTable::Intern(Expr expr) {
  Key key{expr.op(), expr.type(), expr.int_value(), std::bit_cast<uint64_t>(expr.float_value()), {}};
  key.args.reserve(expr.args().size());
  for (const Expr& arg : expr.args()) key.args.push_back(arg.id());
  return interned_.try_emplace(std::move(key), expr).first->second;
}

}  // namespace hone
