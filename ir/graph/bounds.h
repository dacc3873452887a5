// Proves that index arithmetic stays within bounds: linear forms over axes, dynamic sizes and what does not come apart
// (quotients, remainders, minima, products), each with the inequalities that are known of it. Everything is checked for
// overflow, because what is proven here comes from outside. (ir/graph/linear.h folds index arithmetic of kernels that
// passed.)
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "ir/graph/kernel.h"

namespace hone {

// Of one stage. Not thread-safe.
class BoundsProver {
 public:
  using AtomId = Id<struct AtomTag>;

  // Σ coef · atom + constant; sorted by atom, no zero coefficients.
  struct Form {
    std::vector<std::pair<AtomId, int64_t>> terms;
    int64_t constant = 0;
    bool IsConstant() const { return terms.empty(); }
    auto operator<=>(const Form&) const = default;
  };
  struct Range {
    int64_t lo = 0;
    int64_t hi = 0;
  };

  // `work` is how much forms and proofs may take, in terms that are looked at or kept; it counts down, and at 0 nothing
  // more is proven. `ranges`: DynamicSizes(kernel).
  // REQUIRES: sizes with lo ≤ hi; axes of the stage have extents over sizes. All of them outlive the prover.
  BoundsProver(const Kernel& kernel, const Stage& stage, const std::vector<int>& ranges, int64_t* work);

  // nullopt if the value may not fit into 62 bits, a divisor may not be positive, or there is no work left.
  std::optional<Form> FormOf(const Expr& index);
  // What the form's parts allow when taken one by one, or what is known of all of it.
  Range RangeOf(const Form& form) const;
  // True only if the form is at least 0 for all axes and sizes that fulfil the assumptions.
  bool NonNegative(const Form& form);
  std::optional<Form> Difference(const Form& a, const Form& b) const;  // a − b; nullopt if it overflows

  // Assumes that a condition holds (or does not) until the matching Forget. Parts that say nothing about indices are
  // passed over.
  void Assume(const Expr& condition, bool holds);
  void Forget();

 private:
  // scale · atom ≤ form, or scale · atom ≥ form.
  struct Bound {
    int64_t scale;
    Form form;
  };
  enum class AtomKind : uint8_t { kAxis, kSize, kFloorDiv, kMod, kMin, kMax, kProduct, kOpaque };
  struct Atom {
    Range range;
    std::vector<Bound> uppers;
    std::vector<Bound> lowers;
    std::vector<Form> cases;  // it always equals one of these (min, max)
  };
  using Key = std::tuple<AtomKind, Form, Form, int64_t>;

  std::optional<Form> Compute(const Expr& index);
  // What the operands' ranges allow: of a % c, 0..c-1, which the form a − c·⌊a / c⌋ does not show.
  Range RangeByOperands(const Expr& index);
  std::optional<Form> AddScaled(const Form& a, const Form& b, int64_t factor) const;
  std::optional<Form> Multiply(const Form& a, const Form& b);
  std::optional<Form> FloorDivide(const Form& a, int64_t divisor);
  std::optional<Form> DivideByForm(Op op, const Form& a, const Form& b);
  std::optional<Form> ProductAtom(AtomId a, AtomId b);
  std::optional<Form> Extreme(Op op, const Form& a, const Form& b);
  std::optional<Form> MakeAtom(const Key* key, Atom atom);
  bool Prove(const Form& form, int assumptions, int depth);
  void Spend(size_t work) const { work_ -= static_cast<int64_t>(work); }
  void AssumeNonNegative(const std::optional<Form>& form);
  void AssumeComparison(Op op, const Expr& a, const Expr& b, bool holds);

  const Kernel& kernel_;
  int64_t& work_;
  int product_depth_ = 0;
  IdVector<AxisId, Form> axes_;
  std::unordered_map<int64_t, Form> ranges_;  // of sizes that are ranges
  IdVector<AtomId, Atom> atoms_;
  std::map<Key, AtomId> known_;
  std::map<std::vector<std::pair<AtomId, int64_t>>, Range> narrower_;  // of sums of terms: than their parts allow
  std::unordered_map<const ExprNode*, std::optional<Form>> forms_;
  std::vector<Form> assumptions_;  // each at least 0
  std::vector<size_t> scopes_;
};

}  // namespace hone
