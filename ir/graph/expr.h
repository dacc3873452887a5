// Expressions: immutable trees over sizes, axes and tensor elements. A stage's body, an axis' extent and a tensor's
// shape are all written with them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "ir/graph/type.h"

namespace hone {

using TensorId = Id<struct TensorTag>;  // in Kernel::tensors
using AxisId = Id<struct AxisTag>;      // of a stage: its axes, then those that it reduces over

// Stored and sent: never reuse a number.
enum class Op : uint8_t {
  kInt = 1,    // int_value, of any integer type or bool
  kFloat = 2,  // float_value
  kSize = 3,   // int_value: index into Kernel::sizes; type i64
  kAxis = 4,   // axis; type i64
  kLoad = 5,   // tensor; args: one index per dimension. Out of bounds is a kernel error
  kPad = 6,    // args: a kLoad and a fill value; the fill where any index of the load is out of bounds
  // i32 wraps around. The index type i64 never overflows: ir/graph/verify_kernel proves it.
  kAdd = 10,
  kSub = 11,
  kMul = 12,
  kDiv = 13,       // floats, and i32/i8 by truncation never: integers use kFloorDiv
  kFloorDiv = 14,  // integers; rounds towards minus infinity; the divisor is a positive constant or size
  kMod = 15,       // a - floordiv(a, b) * b
  kMin = 16,       // of floats: NaN if either is
  kMax = 17,
  kPow = 18,
  kEq = 20,
  kNe = 21,
  kLt = 22,
  kLe = 23,
  kAnd = 24,
  kOr = 25,
  kNot = 26,
  kSelect = 27,  // condition, then, else: only the chosen side is evaluated, so a load under it may be out of reach
  kAbs = 30,
  kExp = 31,
  kLog = 32,
  kSqrt = 33,
  kRsqrt = 34,
  kTanh = 35,
  kErf = 36,
  kFloor = 37,
  kRound = 38,  // to the nearest integer, of two the even one
  // to `type`; float to integer truncates towards zero and saturates, NaN gives 0; integers wrap around; to a float
  // rounds to the nearest, of two to the even one
  kCast = 40,
  kSin = 41,  // of radians
  kCos = 42,
};

constexpr uint64_t OpBit(Op op) { return uint64_t{1} << static_cast<int>(op); }

class Expr;

struct ExprNode;

// A shared immutable node; copying is cheap. Default-constructed: no expression. Thread-compatible.
class Expr {
 public:
  Expr() = default;
  Expr(Op op, DType type, std::vector<Expr> args, int64_t int_value = 0, double float_value = 0);

  explicit operator bool() const { return node_ != nullptr; }
  inline Op op() const;
  inline DType type() const;
  inline int64_t int_value() const;
  inline double float_value() const;
  inline AxisId axis() const;      // REQUIRES: kAxis
  inline TensorId tensor() const;  // REQUIRES: kLoad
  inline const std::vector<Expr>& args() const;
  inline const Expr& arg(size_t i) const;
  // Of the whole tree, known without walking it: shared parts count each time, so these bound what a walk costs.
  inline uint32_t nodes() const;                      // at most 2^32 − 1
  inline uint16_t height() const;                     // a leaf has 1; at most 65,535
  inline uint64_t ops() const;                        // an OpBit for each operation in the tree
  bool Has(Op op) const;                              // one of them
  inline bool Loads(TensorId tensor) const;           // is itself an element of this tensor
  inline bool IsAxis(AxisId axis) const;              // is itself this axis
  const ExprNode* id() const { return node_.get(); }  // for memo tables that live no longer than the tree

 private:
  std::shared_ptr<const ExprNode> node_;
};

struct ExprNode {
  Op op;
  DType type;
  uint16_t height;
  uint32_t nodes;
  uint64_t ops;
  uint64_t hash;  // of the structure, for SameExpr; means nothing outside of this process
  int64_t int_value;
  double float_value;
  std::vector<Expr> args;
};

inline Op Expr::op() const { return node_->op; }
inline DType Expr::type() const { return node_->type; }
inline int64_t Expr::int_value() const { return node_->int_value; }
inline double Expr::float_value() const { return node_->float_value; }
inline AxisId Expr::axis() const { return AxisId(static_cast<int>(node_->int_value)); }
inline TensorId Expr::tensor() const { return TensorId(static_cast<int>(node_->int_value)); }
inline const std::vector<Expr>& Expr::args() const { return node_->args; }
inline const Expr& Expr::arg(size_t i) const { return node_->args[i]; }
inline uint32_t Expr::nodes() const { return node_->nodes; }
inline uint16_t Expr::height() const { return node_->height; }
inline uint64_t Expr::ops() const { return node_->ops; }
inline bool Expr::Loads(TensorId tensor) const { return op() == Op::kLoad && this->tensor() == tensor; }
inline bool Expr::IsAxis(AxisId axis) const { return op() == Op::kAxis && this->axis() == axis; }
inline bool Expr::Has(Op op) const { return (node_->ops & OpBit(op)) != 0; }

// Builders. Binary ones take the type of their first argument (comparisons: bool) and fold integer constants.
Expr Int(int64_t value, DType type = DType::kI64);
Expr Float(double value, DType type = DType::kF32);
Expr SizeRef(int index);
Expr AxisRef(AxisId axis);
std::vector<Expr> AxisRefs(IdRange<AxisId> axes);
Expr LoadOf(TensorId tensor, DType type, std::vector<Expr> indices);
Expr PadOf(Expr load, Expr fill);
Expr Unary(Op op, Expr a);
Expr Binary(Op op, Expr a, Expr b);
Expr SelectOf(Expr condition, Expr a, Expr b);
Expr CastTo(DType type, Expr a);
inline Expr operator+(Expr a, Expr b) { return Binary(Op::kAdd, std::move(a), std::move(b)); }
inline Expr operator-(Expr a, Expr b) { return Binary(Op::kSub, std::move(a), std::move(b)); }
inline Expr operator*(Expr a, Expr b) { return Binary(Op::kMul, std::move(a), std::move(b)); }

bool SameExpr(const Expr& a, const Expr& b);  // structural equality; NaN constants of equal bits are equal

// The axes that the expression names, each once, in increasing order. Shared parts are looked at once.
std::vector<AxisId> AxesOf(const Expr& expr);

bool IsCommutative(Op op);
std::string_view OpName(Op op);  // "add", "floordiv": for messages and canonical text

// Floor division and its remainder, for any sign of a and b > 0.
int64_t FloorDiv(int64_t a, int64_t b);
int64_t FloorMod(int64_t a, int64_t b);

// Rebuilds an expression bottom-up: `visit` gets a node whose arguments were rewritten, and returns what replaces it.
template <typename Visit>
Expr Rewrite(const Expr& expr, const Visit& visit) {
  std::vector<Expr> args;
  args.reserve(expr.args().size());
  bool changed = false;
  for (const Expr& arg : expr.args()) {
    args.push_back(Rewrite(arg, visit));
    changed |= args.back().id() != arg.id();
  }
  return visit(changed ? Expr(expr.op(), expr.type(), std::move(args), expr.int_value(), expr.float_value()) : expr);
}

// Calls `visit` on every node, parents first.
template <typename Visit>
void Walk(const Expr& expr, const Visit& visit) {
  visit(expr);
  for (const Expr& arg : expr.args()) Walk(arg, visit);
}

}  // namespace hone
