#include "ir/graph/expr.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_set>

#include "base/check.h"
#include "ir/graph/op_traits.h"

namespace hone {

namespace {

uint64_t Mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

}  // namespace

Expr::Expr(Op op, DType type, std::vector<Expr> args, int64_t int_value, double float_value) {
  uint64_t nodes = 1, ops = OpBit(op);
  uint64_t hash = Mixed(static_cast<uint64_t>(op) * 64 + static_cast<uint64_t>(type), static_cast<uint64_t>(int_value));
  hash = Mixed(hash, std::bit_cast<uint64_t>(float_value));
  int height = 0;
  for (const Expr& arg : args) {
    if (!arg) continue;  // ir/graph/verify_kernel refuses it
    nodes += arg.node_->nodes;
    ops |= arg.node_->ops;
    hash = Mixed(hash, arg.node_->hash);
    height = std::max<int>(height, arg.node_->height);
  }
  node_ = std::make_shared<const ExprNode>(
      ExprNode{op, type, static_cast<uint16_t>(std::min<int>(height + 1, std::numeric_limits<uint16_t>::max())),
               static_cast<uint32_t>(std::min<uint64_t>(nodes, std::numeric_limits<uint32_t>::max())), ops, hash,
               int_value, float_value, std::move(args)});
}

int64_t FloorDiv(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q * b > a ? q - 1 : q;
}

int64_t FloorMod(int64_t a, int64_t b) { return a - FloorDiv(a, b) * b; }

Expr Int(int64_t value, DType type) { return Expr(Op::kInt, type, {}, value); }
Expr Float(double value, DType type) { return Expr(Op::kFloat, type, {}, 0, value); }
Expr SizeRef(int index) { return Expr(Op::kSize, DType::kI64, {}, index); }
Expr AxisRef(AxisId axis) { return Expr(Op::kAxis, DType::kI64, {}, axis.value); }
std::vector<Expr> AxisRefs(IdRange<AxisId> axes) {
  std::vector<Expr> refs;
  for (AxisId axis : axes) refs.push_back(AxisRef(axis));
  return refs;
}
Expr LoadOf(TensorId tensor, DType type, std::vector<Expr> indices) {
  return Expr(Op::kLoad, type, std::move(indices), tensor.value);
}

Expr PadOf(Expr load, Expr fill) {
  HONE_CHECK(load.op() == Op::kLoad);
  DType type = load.type();
  return Expr(Op::kPad, type, {std::move(load), std::move(fill)});
}

Expr Unary(Op op, Expr a) {
  DType type = a.type();
  return Expr(op, type, {std::move(a)});
}

namespace {

bool IsInt(const Expr& e) { return e.op() == Op::kInt; }
bool IsInt(const Expr& e, int64_t value) { return IsInt(e) && e.int_value() == value; }

// Folds i64 index arithmetic; nullopt where nothing folds (also on overflow: the checks of verify see it then).
std::optional<Expr> FoldIndex(Op op, const Expr& a, const Expr& b) {
  if (IsInt(a) && IsInt(b)) {
    int64_t x = a.int_value(), y = b.int_value(), r = 0;
    switch (op) {
      case Op::kAdd:
        if (__builtin_add_overflow(x, y, &r)) return std::nullopt;
        return Int(r);
      case Op::kSub:
        if (__builtin_sub_overflow(x, y, &r)) return std::nullopt;
        return Int(r);
      case Op::kMul:
        if (__builtin_mul_overflow(x, y, &r)) return std::nullopt;
        return Int(r);
      case Op::kFloorDiv: return y > 0 ? std::optional(Int(FloorDiv(x, y))) : std::nullopt;
      case Op::kMod: return y > 0 ? std::optional(Int(FloorMod(x, y))) : std::nullopt;
      case Op::kMin: return Int(std::min(x, y));
      case Op::kMax: return Int(std::max(x, y));
      default: return std::nullopt;
    }
  }
  switch (op) {
    case Op::kAdd:
      if (IsInt(a, 0)) return b;
      if (IsInt(b, 0)) return a;
      break;
    case Op::kSub:
      if (IsInt(b, 0)) return a;
      break;
    case Op::kMul:
      if (IsInt(a, 1)) return b;
      if (IsInt(b, 1)) return a;
      break;
    case Op::kFloorDiv:
      if (IsInt(b, 1)) return a;
      break;
    default: break;
  }
  return std::nullopt;
}

}  // namespace

Expr Binary(Op op, Expr a, Expr b) {
  DType type = a.type();
  if (type == DType::kI64)
    if (std::optional<Expr> folded = FoldIndex(op, a, b)) return *folded;
  return Expr(op, IsComparison(op) ? DType::kBool : type, {std::move(a), std::move(b)});
}

Expr SelectOf(Expr condition, Expr a, Expr b) {
  DType type = a.type();
  return Expr(Op::kSelect, type, {std::move(condition), std::move(a), std::move(b)});
}

Expr CastTo(DType type, Expr a) { return a.type() == type ? a : Expr(Op::kCast, type, {std::move(a)}); }

bool SameExpr(const Expr& a, const Expr& b) {
  if (a.id() == b.id()) return true;
  if (!a || !b) return false;
  if (a.id()->hash != b.id()->hash || a.op() != b.op() || a.type() != b.type() || a.int_value() != b.int_value() ||
      std::bit_cast<uint64_t>(a.float_value()) != std::bit_cast<uint64_t>(b.float_value()) ||
      a.args().size() != b.args().size())
    return false;
  for (size_t i = 0; i < a.args().size(); ++i)
    if (!SameExpr(a.arg(i), b.arg(i))) return false;
  return true;
}

std::vector<AxisId> AxesOf(const Expr& expr) {
  std::vector<AxisId> axes;
  std::unordered_set<const ExprNode*> seen;
  auto visit = [&](const Expr& e, const auto& self) -> void {
    if (!e.Has(Op::kAxis) || !seen.insert(e.id()).second) return;
    if (e.op() == Op::kAxis) axes.push_back(e.axis());
    for (const Expr& arg : e.args()) self(arg, self);
  };
  visit(expr, visit);
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

bool IsCommutative(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kMul:
    case Op::kMin:
    case Op::kMax:
    case Op::kEq:
    case Op::kNe:
    case Op::kAnd:
    case Op::kOr: return true;
    default: return false;
  }
}

}  // namespace hone
