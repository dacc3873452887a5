#include "ir/graph/bounds.h"

#include "ir/graph/dtype_traits.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace hone {
namespace {

using Form = BoundsProver::Form;
using Range = BoundsProver::Range;

// Values beyond this are refused, so that sums of a few of them still fit.
constexpr int64_t kLargest = int64_t{1} << 60;
constexpr int64_t kProofWork = 100'000;  // of one proof; ordinary ones take a few hundred
constexpr int kProofDepth = 300;         // replacements one after the other
constexpr int kProductDepth = 16;        // bounds of products that are made of bounds of products
constexpr int kAssumptionsUsed = 3;

// What work costs, in terms looked at: making a form, keeping one, keeping an atom with its bounds.
constexpr size_t kFormWork = 8;
constexpr size_t kKeepWork = 4;  // times the form's terms
constexpr size_t kAtomWork = 64;

bool Fits(const Range& range) { return range.lo >= -kLargest && range.hi <= kLargest; }

int64_t Clamped(__int128 value) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  return value > kMax ? kMax : value < -kMax ? -kMax : static_cast<int64_t>(value);
}

Range Corners(Range a, Range b, __int128 (*f)(__int128, __int128)) {
  __int128 v[] = {f(a.lo, b.lo), f(a.lo, b.hi), f(a.hi, b.lo), f(a.hi, b.hi)};
  return {Clamped(*std::min_element(v, v + 4)), Clamped(*std::max_element(v, v + 4))};
}

Range Both(Range a, Range b) { return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)}; }

__int128 Times(__int128 a, __int128 b) { return a * b; }
__int128 Quotient(__int128 a, __int128 b) { return FloorDiv(static_cast<int64_t>(a), static_cast<int64_t>(b)); }

Form Constant(int64_t value) { return Form{{}, value}; }

Range RangeOfType(DType type) {
  const DTypeTraits& traits = TraitsOf(type);
  const bool is_narrow = !traits.is_float && traits.bytes < ByteSize(DType::kI64);
  return is_narrow ? Range{traits.lowest, traits.highest} : Range{-kLargest, kLargest};
}

}  // namespace

BoundsProver::BoundsProver(const Kernel& kernel, const Stage& stage, const std::vector<int>& ranges, int64_t* work)
    : kernel_(kernel), work_(*work) {
  for (int index : ranges) {
    const Size& size = kernel_.sizes[static_cast<size_t>(index)];
    if (std::optional<Form> atom = MakeAtom(nullptr, Atom{{size.lo, size.hi}, {}, {}, {}})) ranges_[index] = *atom;
  }
  for (const std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
    for (const Axis& axis : *axes) {
      Atom atom{{0, kLargest}, {}, {}, {}};
      if (std::optional<Form> extent = FormOf(axis.extent)) {
        Form last = *extent;
        last.constant -= 1;
        atom.range.hi = RangeOf(last).hi;
        atom.uppers.push_back({1, last});
      }
      // Without work left nothing is proven of the axis, whatever stands for it.
      axes_.Add(MakeAtom(nullptr, std::move(atom)).value_or(Constant(kLargest)));
    }
}

std::optional<Form> BoundsProver::MakeAtom(const Key* key, Atom atom) {
  if (atom.range.lo == atom.range.hi) return Constant(atom.range.lo);
  size_t terms = 0;
  for (const std::vector<Bound>* bounds : {&atom.uppers, &atom.lowers})
    for (const Bound& bound : *bounds) terms += bound.form.terms.size();
  for (const Form& value : atom.cases) terms += value.terms.size();
  if (key) terms += std::get<1>(*key).terms.size() + std::get<2>(*key).terms.size();
  Spend(kAtomWork + kKeepWork * terms);
  if (!Fits(atom.range) || work_ <= 0) return std::nullopt;
  const AtomId id = atoms_.Add(std::move(atom));
  if (key) known_.emplace(*key, id);
  return Form{{{id, 1}}, 0};
}

Range BoundsProver::RangeOf(const Form& form) const {
  Spend(1 + form.terms.size());
  __int128 lo = form.constant, hi = form.constant;
  for (auto [atom, coef] : form.terms) {
    const Range& range = atoms_[atom].range;
    lo += static_cast<__int128>(coef) * (coef > 0 ? range.lo : range.hi);
    hi += static_cast<__int128>(coef) * (coef > 0 ? range.hi : range.lo);
  }
  Range range{Clamped(lo), Clamped(hi)};
  if (narrower_.empty() || form.terms.size() < 2) return range;
  Spend(2 * form.terms.size());
  const auto shifted = [&](int64_t value) { return Clamped(static_cast<__int128>(value) + form.constant); };
  if (auto it = narrower_.find(form.terms); it != narrower_.end())
    range = Both(range, {shifted(it->second.lo), shifted(it->second.hi)});
  std::vector<std::pair<AtomId, int64_t>> negated = form.terms;
  for (auto& [atom, coef] : negated) coef = -coef;
  if (auto it = narrower_.find(negated); it != narrower_.end())
    range = Both(range, {shifted(-it->second.hi), shifted(-it->second.lo)});
  return range;
}

std::optional<Form> BoundsProver::AddScaled(const Form& a, const Form& b, int64_t factor) const {
  Spend(kFormWork + a.terms.size() + b.terms.size());
  Form sum;
  auto add = [](int64_t x, int64_t y, int64_t scale, int64_t* out) {
    int64_t scaled = 0;
    return !__builtin_mul_overflow(y, scale, &scaled) && !__builtin_add_overflow(x, scaled, out) &&
           std::abs(*out) <= 4 * kLargest - 1;
  };
  if (!add(a.constant, b.constant, factor, &sum.constant)) return std::nullopt;
  auto x = a.terms.begin(), y = b.terms.begin();
  while (x != a.terms.end() || y != b.terms.end()) {
    AtomId atom = y == b.terms.end() || (x != a.terms.end() && x->first < y->first) ? x->first : y->first;
    int64_t coef = 0;
    int64_t mine = x != a.terms.end() && x->first == atom ? (x++)->second : 0;
    int64_t other = y != b.terms.end() && y->first == atom ? (y++)->second : 0;
    if (!add(mine, other, factor, &coef)) return std::nullopt;
    if (coef != 0) sum.terms.emplace_back(atom, coef);
  }
  return sum;
}

std::optional<Form> BoundsProver::Difference(const Form& a, const Form& b) const { return AddScaled(a, b, -1); }

// p·q with p ≤ u gives p·q ≤ u·q where q is not negative: flattened indices over dynamic sizes need it.
std::optional<Form> BoundsProver::ProductAtom(AtomId a, AtomId b) {
  if (b < a) std::swap(a, b);
  Form x{{{a, 1}}, 0}, y{{{b, 1}}, 0};
  Key key{AtomKind::kProduct, x, y, 0};
  if (auto it = known_.find(key); it != known_.end()) return Form{{{it->second, 1}}, 0};
  Atom atom;
  atom.range = Corners(RangeOf(x), RangeOf(y), Times);
  auto bound = [&](AtomId bounded, const Form& other) {
    if (RangeOf(other).lo < 0 || work_ <= 0) return;
    // Copies: multiplying may add atoms.
    std::vector<Bound> uppers = atoms_[bounded].uppers;
    for (const Bound& upper : uppers)
      if (std::optional<Form> product = Multiply(upper.form, other)) atom.uppers.push_back({upper.scale, *product});
  };
  if (product_depth_ < kProductDepth) {
    ++product_depth_;
    bound(b, x);
    bound(a, y);
    --product_depth_;
  }
  return MakeAtom(&key, std::move(atom));
}

std::optional<Form> BoundsProver::Multiply(const Form& a, const Form& b) {
  if (a.IsConstant()) return AddScaled(Constant(0), b, a.constant);
  if (b.IsConstant()) return AddScaled(Constant(0), a, b.constant);
  if (a.terms.size() * b.terms.size() > 64) return std::nullopt;
  std::optional<Form> sum = AddScaled(Constant(0), a, b.constant);
  Form varying = b;
  varying.constant = 0;
  if (sum) sum = AddScaled(*sum, varying, a.constant);
  for (auto [x, x_coef] : a.terms)
    for (auto [y, y_coef] : b.terms) {
      int64_t coef = 0;
      std::optional<Form> product = ProductAtom(x, y);
      if (!sum || !product || __builtin_mul_overflow(x_coef, y_coef, &coef)) return std::nullopt;
      sum = AddScaled(*sum, *product, coef);
    }
  return sum;
}

// Multiples of the divisor leave the quotient; the rest becomes an atom q with d·q ≤ rest ≤ d·q + d − 1.
std::optional<Form> BoundsProver::FloorDivide(const Form& a, int64_t divisor) {
  if (divisor == 1) return a;
  Form quotient, rest;
  quotient.constant = FloorDiv(a.constant, divisor);
  rest.constant = FloorMod(a.constant, divisor);
  for (auto [atom, coef] : a.terms) {
    if (coef % divisor == 0)
      quotient.terms.emplace_back(atom, coef / divisor);
    else
      rest.terms.emplace_back(atom, coef);
  }
  Range range = RangeOf(rest);
  if (!Fits(range)) return std::nullopt;
  range = {FloorDiv(range.lo, divisor), FloorDiv(range.hi, divisor)};
  if (range.lo == range.hi) {
    quotient.constant += range.lo;
    return quotient;
  }
  Key key{AtomKind::kFloorDiv, rest, {}, divisor};
  auto it = known_.find(key);
  std::optional<Form> atom;
  if (it != known_.end()) {
    atom = Form{{{it->second, 1}}, 0};
  } else {
    Form least = rest;
    least.constant -= divisor - 1;
    atom = MakeAtom(&key, Atom{range, {{divisor, rest}}, {{divisor, least}}, {}});
  }
  return atom ? AddScaled(quotient, *atom, 1) : std::nullopt;
}

// Division by a dynamic size: known by range, and a remainder is below its divisor.
std::optional<Form> BoundsProver::DivideByForm(Op op, const Form& a, const Form& b) {
  Range x = RangeOf(a), y = RangeOf(b);
  if (y.lo < 1 || !Fits(x) || !Fits(y)) return std::nullopt;
  Key key{op == Op::kMod ? AtomKind::kMod : AtomKind::kFloorDiv, a, b, 0};
  if (auto it = known_.find(key); it != known_.end()) return Form{{{it->second, 1}}, 0};
  if (op == Op::kMod) {
    Form last = b;
    last.constant -= 1;
    return MakeAtom(&key, Atom{{0, y.hi - 1}, {{1, last}}, {}, {}});
  }
  return MakeAtom(&key, Atom{Corners(x, y, Quotient), {}, {}, {}});
}

std::optional<Form> BoundsProver::Extreme(Op op, const Form& a, const Form& b) {
  std::optional<Form> difference = Difference(a, b);
  if (!difference) return std::nullopt;
  Range apart = RangeOf(*difference);
  if (apart.lo >= 0) return op == Op::kMin ? b : a;
  if (apart.hi <= 0) return op == Op::kMin ? a : b;
  Key key{op == Op::kMin ? AtomKind::kMin : AtomKind::kMax, a, b, 0};
  if (auto it = known_.find(key); it != known_.end()) return Form{{{it->second, 1}}, 0};
  Range x = RangeOf(a), y = RangeOf(b);
  Atom atom;
  atom.cases = {a, b};
  if (op == Op::kMin) {
    atom.range = {std::min(x.lo, y.lo), std::min(x.hi, y.hi)};
    atom.uppers = {{1, a}, {1, b}};
  } else {
    atom.range = {std::max(x.lo, y.lo), std::max(x.hi, y.hi)};
    atom.lowers = {{1, a}, {1, b}};
  }
  // Of two that add up to a constant, as in |a| = max(a, -a), the larger is at least half of it.
  if (std::optional<Form> sum = AddScaled(a, b, 1); sum && sum->IsConstant()) {
    if (op == Op::kMin)
      atom.range.hi = std::min(atom.range.hi, FloorDiv(sum->constant, 2));
    else
      atom.range.lo = std::max(atom.range.lo, -FloorDiv(-sum->constant, 2));
  }
  return MakeAtom(&key, std::move(atom));
}

std::optional<Form> BoundsProver::FormOf(const Expr& index) {
  if (auto it = forms_.find(index.id()); it != forms_.end()) return it->second;
  std::optional<Form> form = Compute(index);
  if (form && form->terms.size() >= 2) {
    const Range known = RangeByOperands(index), parts = RangeOf(*form);
    if (known.lo > parts.lo || known.hi < parts.hi) {
      const Range range = Both(known, parts);
      Spend(kKeepWork * form->terms.size());
      narrower_[form->terms] = {range.lo - form->constant, range.hi - form->constant};
    }
  }
  if (form && (!Fits(RangeOf(*form)) || work_ <= 0)) form = std::nullopt;
  Spend(kFormWork + (form ? kKeepWork * form->terms.size() : 0));
  forms_.emplace(index.id(), form);
  return form;
}

Range BoundsProver::RangeByOperands(const Expr& e) {
  constexpr Range kAny{-kLargest, kLargest};
  if (e.args().size() != 2) return kAny;
  std::optional<Form> a = FormOf(e.arg(0)), b = FormOf(e.arg(1));
  if (!a || !b) return kAny;
  const Range x = RangeOf(*a), y = RangeOf(*b);
  switch (e.op()) {
    case Op::kAdd: return {x.lo + y.lo, x.hi + y.hi};
    case Op::kSub: return {x.lo - y.hi, x.hi - y.lo};
    case Op::kMul: return Corners(x, y, Times);
    case Op::kMin: return {std::min(x.lo, y.lo), std::min(x.hi, y.hi)};
    case Op::kMax: return {std::max(x.lo, y.lo), std::max(x.hi, y.hi)};
    case Op::kFloorDiv: return y.lo >= 1 ? Corners(x, y, Quotient) : kAny;
    case Op::kMod: return y.lo >= 1 ? Range{0, x.lo >= 0 ? std::min(x.hi, y.hi - 1) : y.hi - 1} : kAny;
    default: return kAny;
  }
}

std::optional<Form> BoundsProver::Compute(const Expr& e) {
  auto opaque = [&](Range range) { return MakeAtom(nullptr, Atom{range, {}, {}, {}}); };
  switch (e.op()) {
    case Op::kInt: return Constant(e.int_value());
    case Op::kSize: {
      const Size& size = kernel_.sizes[static_cast<size_t>(e.int_value())];
      if (size.is_constant()) return Constant(size.lo);
      auto it = ranges_.find(e.int_value());
      return it == ranges_.end() ? std::nullopt : std::optional(it->second);
    }
    case Op::kAxis: return axes_[e.axis()];
    case Op::kCast: return opaque(RangeOfType(IsFloat(e.arg(0).type()) ? DType::kI64 : e.arg(0).type()));
    case Op::kSelect: {
      std::optional<Form> a = FormOf(e.arg(1)), b = FormOf(e.arg(2));
      if (!a || !b) return std::nullopt;
      Range x = RangeOf(*a), y = RangeOf(*b);
      return opaque({std::min(x.lo, y.lo), std::max(x.hi, y.hi)});
    }
    case Op::kAbs: {
      std::optional<Form> a = FormOf(e.arg(0));
      std::optional<Form> negated = a ? AddScaled(Constant(0), *a, -1) : std::nullopt;
      return negated ? Extreme(Op::kMax, *a, *negated) : std::nullopt;
    }
    default: break;
  }
  if (e.args().size() != 2) return opaque({-kLargest, kLargest});
  std::optional<Form> a = FormOf(e.arg(0)), b = FormOf(e.arg(1));
  if (!a || !b) return std::nullopt;
  switch (e.op()) {
    case Op::kAdd: return AddScaled(*a, *b, 1);
    case Op::kSub: return AddScaled(*a, *b, -1);
    case Op::kMul: return Multiply(*a, *b);
    case Op::kMin:
    case Op::kMax: return Extreme(e.op(), *a, *b);
    case Op::kFloorDiv:
    case Op::kMod: {
      if (!b->IsConstant()) return DivideByForm(e.op(), *a, *b);
      if (b->constant < 1) return std::nullopt;
      std::optional<Form> quotient = FloorDivide(*a, b->constant);
      if (!quotient || e.op() == Op::kFloorDiv) return quotient;
      return AddScaled(*a, *quotient, -b->constant);
    }
    default: return opaque({-kLargest, kLargest});
  }
}

bool BoundsProver::NonNegative(const Form& form) {
  // Where an assumption cannot hold, nothing is computed.
  for (const Form& assumption : assumptions_)
    if (RangeOf(assumption).hi < 0) return true;
  const int64_t allowed = std::min(work_, kProofWork), saved = work_;
  work_ = allowed;
  const bool proven = Prove(form, kAssumptionsUsed, kProofDepth);
  work_ = saved - (allowed - work_);
  return proven;
}

// Replaces atoms, latest first (a bound mentions earlier atoms only), by each of their bounds in turn until what
// remains is at least 0 by its range. Assumptions are subtracted so that an atom cancels.
bool BoundsProver::Prove(const Form& form, int assumptions, int depth) {
  if (RangeOf(form).lo >= 0) return true;
  if (form.terms.empty() || work_ <= 0 || depth == 0) return false;
  if (assumptions > 0) {
    for (const Form& assumption : assumptions_) {
      Spend(1 + assumption.terms.size());
      for (auto [atom, coef] : assumption.terms) {
        auto it = std::lower_bound(form.terms.begin(), form.terms.end(), atom,
                                   [](const auto& term, AtomId id) { return term.first < id; });
        if (it == form.terms.end() || it->first != atom || it->second % coef != 0 || it->second / coef <= 0) continue;
        std::optional<Form> rest = AddScaled(form, assumption, -(it->second / coef));
        if (rest && Prove(*rest, assumptions - 1, depth - 1)) return true;
        break;
      }
      if (work_ <= 0) return false;
    }
  }
  auto [id, coef] = form.terms.back();
  Form without = form;
  without.terms.pop_back();
  const Atom& atom = atoms_[id];  // proofs add no atoms
  const std::vector<Bound>& bounds = coef < 0 ? atom.uppers : atom.lowers;
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (coef % bounds[i].scale != 0) continue;
    std::optional<Form> rest = AddScaled(without, bounds[i].form, coef / bounds[i].scale);
    if (rest && Prove(*rest, assumptions, depth - 1)) return true;
  }
  if (!atom.cases.empty()) {
    bool all = std::all_of(atom.cases.begin(), atom.cases.end(), [&](const Form& value) {
      std::optional<Form> rest = AddScaled(without, value, coef);
      return rest && Prove(*rest, assumptions, depth - 1);
    });
    if (all) return true;
  }
  int64_t extreme = coef < 0 ? atom.range.hi : atom.range.lo;
  std::optional<Form> rest = AddScaled(without, Constant(extreme), coef);
  return rest && Prove(*rest, 0, depth - 1);
}

void BoundsProver::AssumeNonNegative(const std::optional<Form>& form) {
  if (form && (!form->IsConstant() || form->constant < 0)) assumptions_.push_back(*form);
}

void BoundsProver::AssumeComparison(Op op, const Expr& a, const Expr& b, bool holds) {
  if (a.type() != DType::kI64) return;
  std::optional<Form> x = FormOf(a), y = FormOf(b);
  if (!x || !y) return;
  auto plus = [](std::optional<Form> form, int64_t constant) {
    if (form) form->constant += constant;
    return form;
  };
  if (op == Op::kLt || op == Op::kLe) {
    bool strict = (op == Op::kLt) == holds;  // a < b, or not a <= b
    std::optional<Form> apart = holds ? Difference(*y, *x) : Difference(*x, *y);
    AssumeNonNegative(plus(apart, strict ? -1 : 0));
    return;
  }
  std::optional<Form> above = Difference(*x, *y), below = Difference(*y, *x);
  if ((op == Op::kEq) == holds) {
    AssumeNonNegative(above);
    AssumeNonNegative(below);
    return;
  }
  // Unequal and on one side: at least 1 apart.
  if (above && NonNegative(*above))
    AssumeNonNegative(plus(above, -1));
  else if (below && NonNegative(*below))
    AssumeNonNegative(plus(below, -1));
}

void BoundsProver::Assume(const Expr& condition, bool holds) {
  scopes_.push_back(assumptions_.size());
  auto assume = [&](const Expr& e, bool wanted, const auto& self) -> void {
    switch (e.op()) {
      case Op::kNot: return self(e.arg(0), !wanted, self);
      case Op::kAnd:
      case Op::kOr:
        // a and b both hold; of "not (a or b)" neither does. The other two cases say nothing of a part.
        if ((e.op() == Op::kAnd) == wanted) {
          self(e.arg(0), wanted, self);
          self(e.arg(1), wanted, self);
        }
        return;
      case Op::kEq:
      case Op::kNe:
      case Op::kLt:
      case Op::kLe: return AssumeComparison(e.op(), e.arg(0), e.arg(1), wanted);
      default: return;
    }
  };
  assume(condition, holds, assume);
}

void BoundsProver::Forget() {
  assumptions_.resize(scopes_.back());
  scopes_.pop_back();
}

}  // namespace hone
