#include "ir/graph/affine.h"

namespace hone {

std::optional<Linear> AffineIndex(const Kernel& kernel, const Expr& e) {
  switch (e.op()) {
    case Op::kInt: return Linear(e.int_value());
    case Op::kSize: {
      const Size& size = kernel.sizes[static_cast<size_t>(e.int_value())];
      return Linear(size.hi);
    }
    case Op::kAxis: return Linear::Of(VarOf(e.axis()));
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul: {
      std::optional<Linear> a = AffineIndex(kernel, e.arg(0)), b = AffineIndex(kernel, e.arg(1));
      if (!a || !b) return std::nullopt;
      if (e.op() == Op::kAdd) return *a + *b;
      if (e.op() == Op::kSub) return *a - *b;
      if (a->IsConstant()) return *b * a->constant();
      if (b->IsConstant()) return *a * b->constant();
      return std::nullopt;
    }
    case Op::kFloorDiv:
    case Op::kMod: {
      std::optional<Linear> a = AffineIndex(kernel, e.arg(0)), b = AffineIndex(kernel, e.arg(1));
      if (!a || !b || !a->IsConstant() || !b->IsConstant() || b->constant() <= 0) return std::nullopt;
      return Linear(e.op() == Op::kMod ? FloorMod(a->constant(), b->constant())
                                       : FloorDiv(a->constant(), b->constant()));
    }
    default: return std::nullopt;
  }
}

}  // namespace hone
