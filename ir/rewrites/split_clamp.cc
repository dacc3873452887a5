// Border values without gathers: `x[clamp(j - 1, 0, W - 1)]` differs from lane to lane in a way that no vector load
// has, though all but the lanes at the borders read what lies side by side. The rewrite takes each such load of a stage
// apart: one element for what is beyond either end, and a load under a condition on the index for the rest.
#include "ir/rewrites/split_clamp.h"

#include <utility>
#include <vector>

#include "ir/language/parse.h"
#include "ir/rewrites/registry.h"

namespace hone {
namespace {

// lo ≤ index ≤ hi, as `clamp` was written.
struct Clamp {
  Expr index, lo, hi;
};

// max(min(i, hi), lo) or min(max(i, lo), hi); nothing else.
Clamp AsClamp(const Expr& e) {
  auto of = [](const Expr& outer, Op inner_op) -> Clamp {
    for (size_t inner = 0; inner < 2; ++inner) {
      const Expr& a = outer.arg(inner);
      if (a.op() != inner_op) continue;
      const Expr& outer_bound = outer.arg(1 - inner);
      for (size_t index = 0; index < 2; ++index) {
        const Expr &i = a.arg(index), &inner_bound = a.arg(1 - index);
        if (AxesOf(i).empty() || !AxesOf(inner_bound).empty() || !AxesOf(outer_bound).empty()) continue;
        return inner_op == Op::kMin ? Clamp{i, outer_bound, inner_bound} : Clamp{i, inner_bound, outer_bound};
      }
    }
    return {};
  };
  if (e.op() == Op::kMax) return of(e, Op::kMin);
  if (e.op() == Op::kMin) return of(e, Op::kMax);
  return {};
}

Expr Zero(DType type) { return IsFloat(type) ? Float(0, type) : Int(0, type); }

}  // namespace

Expr SplitClamp(const Kernel& kernel, const Expr& load) {
  if (load.op() != Op::kLoad || load.args().empty()) return load;
  const Clamp clamp = AsClamp(load.args().back());
  // What is read from data is looked up lane by lane all the same.
  if (!clamp.index || clamp.index.Has(Op::kLoad) || clamp.lo.Has(Op::kLoad) || clamp.hi.Has(Op::kLoad)) return load;
  if (UpperExtent(kernel, clamp.lo) > LowerExtent(kernel, clamp.hi)) return load;
  auto at = [&](const Expr& index) {
    std::vector<Expr> indices = load.args();
    indices.back() = index;
    return LoadOf(load.tensor(), load.type(), std::move(indices));
  };
  return SelectOf(
      Binary(Op::kLt, clamp.index, clamp.lo), at(clamp.lo),
      SelectOf(Binary(Op::kLt, clamp.hi, clamp.index), at(clamp.hi), PadOf(at(clamp.index), Zero(load.type()))));
}

namespace {

Result<Kernel> SplitClamps(Kernel kernel, StageId index, const RewriteStep&) {
  Stage& stage = kernel.stages[index];
  // Loads under a pad have a condition of their own.
  auto split = [&](auto&& self, const Expr& e) -> Expr {
    if (e.op() == Op::kPad) return e;
    std::vector<Expr> args;
    bool changed = false;
    for (const Expr& arg : e.args()) {
      args.push_back(self(self, arg));
      changed |= args.back().id() != arg.id();
    }
    return SplitClamp(kernel, changed ? Expr(e.op(), e.type(), std::move(args), e.int_value(), e.float_value()) : e);
  };
  Expr body = split(split, stage.body);
  constexpr ParseLimits kLimits;
  if (body.nodes() > kLimits.nodes || body.height() > kLimits.height)
    return Error{ErrorKind::kLimit, "the stage would become larger than a text may be", ""};
  if (SameExpr(body, stage.body))
    return Error{ErrorKind::kInvalid, "no last index of what it reads is a clamp between fixed bounds", ""};
  stage.body = std::move(body);
  return kernel;
}

}  // namespace

namespace rewrites {

extern constinit const GraphRewrite kSplitClamp = {
    .name = "split_clamp",
    .takes = "nothing",
    .apply = SplitClamps,
};

}  // namespace rewrites
}  // namespace hone
