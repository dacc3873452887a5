#include "ir/kernel.h"

#include <algorithm>

#include "base/check.h"

namespace hone {
namespace {

struct Interval {
  int64_t lo, hi;
};

// Interval of an expression over sizes. Products and quotients of non-negative sizes are monotonic; the four corner
// products cover the general case.
Interval SizeInterval(const Kernel& kernel, const Expr& e) {
  auto corner = [](Interval a, Interval b, auto f) {
    int64_t v[] = {f(a.lo, b.lo), f(a.lo, b.hi), f(a.hi, b.lo), f(a.hi, b.hi)};
    return Interval{*std::min_element(v, v + 4), *std::max_element(v, v + 4)};
  };
  switch (e.op()) {
    case Op::kInt: return {e.int_value(), e.int_value()};
    case Op::kSize: {
      const Size& size = kernel.sizes[static_cast<size_t>(e.int_value())];
      return {size.lo, size.hi};
    }
    default: break;
  }
  HONE_CHECK(e.args().size() == 2);
  Interval a = SizeInterval(kernel, e.arg(0)), b = SizeInterval(kernel, e.arg(1));
  switch (e.op()) {
    case Op::kAdd: return {a.lo + b.lo, a.hi + b.hi};
    case Op::kSub: return {a.lo - b.hi, a.hi - b.lo};
    case Op::kMul: return corner(a, b, [](int64_t x, int64_t y) { return x * y; });
    case Op::kMin: return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    case Op::kMax: return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    case Op::kFloorDiv:
      HONE_CHECK(b.lo > 0);
      return corner(a, b, FloorDiv);
    case Op::kMod:
      HONE_CHECK(b.lo > 0);
      if (a.lo == a.hi && b.lo == b.hi) return {FloorMod(a.lo, b.lo), FloorMod(a.lo, b.lo)};
      return {0, b.hi - 1};
    default: HONE_CHECK(!"expression over sizes");
  }
  return {0, 0};
}

}  // namespace

int64_t EvalExtent(const Kernel& kernel, const Expr& extent) {
  Interval i = SizeInterval(kernel, extent);
  HONE_CHECK(i.lo == i.hi);
  return i.lo;
}

int64_t UpperExtent(const Kernel& kernel, const Expr& extent) { return SizeInterval(kernel, extent).hi; }
int64_t LowerExtent(const Kernel& kernel, const Expr& extent) { return SizeInterval(kernel, extent).lo; }

bool IsStatic(const Kernel& kernel) {
  return std::all_of(kernel.sizes.begin(), kernel.sizes.end(), [](const Size& s) { return s.is_constant(); });
}

std::vector<int64_t> StaticShape(const Kernel& kernel, const Tensor& tensor) {
  std::vector<int64_t> shape;
  for (const Expr& extent : tensor.shape) shape.push_back(EvalExtent(kernel, extent));
  return shape;
}

int64_t ElementCount(const Kernel& kernel, const Tensor& tensor) {
  int64_t count = 1;
  for (const Expr& extent : tensor.shape) count *= EvalExtent(kernel, extent);
  return count;
}

const Stage* ProducerOf(const Kernel& kernel, TensorId tensor) {
  for (const Stage& stage : kernel.stages)
    if (stage.output == tensor) return &stage;
  return nullptr;
}

double FlopCount(const Kernel& kernel) {
  double total = 0;
  for (const Stage& stage : kernel.stages) {
    double points = 1, per_point = 0;
    for (const Axis& axis : stage.axes) points *= static_cast<double>(EvalExtent(kernel, axis.extent));
    for (const Axis& axis : stage.reduce_axes) points *= static_cast<double>(EvalExtent(kernel, axis.extent));
    if (stage.reduction != Reduction::kNone) per_point += 1;
    Walk(stage.body, [&](const Expr& e) {
      if (e.op() >= Op::kAdd && e.op() <= Op::kFloor && e.type() != DType::kI64 && e.op() != Op::kSelect) per_point += 1;
    });
    total += points * per_point;
  }
  return total;
}

}  // namespace hone
