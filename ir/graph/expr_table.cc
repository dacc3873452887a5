#include "ir/graph/expr_table.h"

#include <algorithm>
#include <bit>

namespace hone {

size_t ExprTable::Hash::operator()(const Expr& e) const {
  uint64_t h = seed;
  auto mix = [&](uint64_t x) {
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
  };
  mix(static_cast<uint64_t>(e.op()) * 64 + static_cast<uint64_t>(e.type()));
  mix(static_cast<uint64_t>(e.int_value()));
  mix(std::bit_cast<uint64_t>(e.float_value()));
  for (const Expr& arg : e.args()) mix(reinterpret_cast<uintptr_t>(arg.id()));
  return h;
}

bool ExprTable::Equal::operator()(const Expr& a, const Expr& b) const {
  return a.op() == b.op() && a.type() == b.type() && a.int_value() == b.int_value() &&
         std::bit_cast<uint64_t>(a.float_value()) == std::bit_cast<uint64_t>(b.float_value()) &&
         std::equal(a.args().begin(), a.args().end(), b.args().begin(), b.args().end(),
                    [](const Expr& x, const Expr& y) { return x.id() == y.id(); });
}

}  // namespace hone
