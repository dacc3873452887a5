#include "ir/graph/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "ir/graph/expr.h"

namespace hone {
namespace {

using Wide = __int128;

Interval Saturated(Wide lo, Wide hi) {
  auto end = [](Wide value) { return static_cast<int64_t>(std::clamp<Wide>(value, -kUnbounded, kUnbounded)); };
  return {end(lo), end(hi)};
}

Interval ProductOf(Interval a, Interval b) {
  const auto [lo, hi] = std::minmax({Wide{a.lo} * b.lo, Wide{a.lo} * b.hi, Wide{a.hi} * b.lo, Wide{a.hi} * b.hi});
  return Saturated(lo, hi);
}

// Where an end of either says nothing, that of the sum does not.
Interval SumOf(Interval a, Interval b) {
  Interval sum = Saturated(Wide{a.lo} + b.lo, Wide{a.hi} + b.hi);
  if (a.lo <= -kUnbounded || b.lo <= -kUnbounded) sum.lo = -kUnbounded;
  if (a.hi >= kUnbounded || b.hi >= kUnbounded) sum.hi = kUnbounded;
  return sum;
}

Interval QuotientOf(Interval a, int64_t divisor) {
  return {a.lo <= -kUnbounded ? a.lo : FloorDiv(a.lo, divisor), a.hi >= kUnbounded ? a.hi : FloorDiv(a.hi, divisor)};
}

// In 64 bits that wrap around, as generated code computes.
int64_t WrappedSum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t WrappedProduct(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

}  // namespace

Linear Linear::Of(VarId var, int64_t coef) {
  Linear result;
  if (coef != 0) result.terms_.push_back({var, coef});
  return result;
}

int64_t Linear::CoefOf(VarId var) const {
  for (const Term& term : terms_)
    if (term.var == var) return term.coef;
  return 0;
}

Linear Linear::Without(VarId var) const {
  Linear result = *this;
  std::erase_if(result.terms_, [&](const Term& term) { return term.var == var; });
  return result;
}

Linear& Linear::AddScaled(const Linear& other, int64_t factor) {
  constant_ = WrappedSum(constant_, WrappedProduct(other.constant_, factor));
  if (factor == 0 || other.terms_.empty()) return *this;
  std::vector<Term> merged;
  merged.reserve(terms_.size() + other.terms_.size());
  auto a = terms_.begin();
  auto b = other.terms_.begin();
  while (a != terms_.end() || b != other.terms_.end()) {
    if (b == other.terms_.end() || (a != terms_.end() && a->var < b->var)) {
      merged.push_back(*a++);
    } else if (a == terms_.end() || b->var < a->var) {
      if (int64_t coef = WrappedProduct(b->coef, factor); coef != 0) merged.push_back({b->var, coef});
      ++b;
    } else {
      if (int64_t coef = WrappedSum(a->coef, WrappedProduct(b->coef, factor)); coef != 0)
        merged.push_back({a->var, coef});
      ++a, ++b;
    }
  }
  terms_ = std::move(merged);
  return *this;
}

Linear operator*(const Linear& a, int64_t factor) {
  Linear result;
  return result.AddScaled(a, factor);
}

VarId VarTable::Add(Var var) { return vars_.Add(std::move(var)); }

Linear VarTable::AsVar(VarKind kind, const Linear& a, const Linear& b, int64_t divisor, Interval range) {
  for (VarId id : vars_.ids()) {
    const Var& var = vars_[id];
    if (var.kind == kind && var.divisor == divisor && var.a == a && var.b == b) return Linear::Of(id);
  }
  std::string name = kind == VarKind::kFloorDiv ? fmt::format("({})/{}", Text(a), divisor)
                     : kind == VarKind::kMin    ? fmt::format("min({}, {})", Text(a), Text(b))
                     : kind == VarKind::kMax    ? fmt::format("max({}, {})", Text(a), Text(b))
                                                : fmt::format("({})*({})", Text(a), Text(b));
  return Linear::Of(Add({kind, std::move(name), range, a, b, divisor, -1}));
}

Linear VarTable::DivFloor(const Linear& e, int64_t divisor) {
  HONE_CHECK(divisor > 0);
  if (divisor == 1) return e;
  // e = divisor·quotient + rest; only the rest needs dividing.
  Linear quotient(FloorDiv(e.constant(), divisor));
  Linear rest(FloorMod(e.constant(), divisor));
  for (const Term& term : e.terms()) {
    if (term.coef % divisor == 0)
      quotient += Linear::Of(term.var, term.coef / divisor);
    else
      rest += Linear::Of(term.var, term.coef);
  }
  Interval range = Range(rest);
  const Interval bounds = QuotientOf(range, divisor);
  if (bounds.lo == bounds.hi) return quotient + Linear(bounds.lo);
  // ⌊(g·x + c) / (g·d)⌋ = ⌊(x + ⌊c/g⌋) / d⌋.
  int64_t common = divisor;
  for (const Term& term : rest.terms()) common = std::gcd(common, term.coef);
  if (common > 1) {
    Linear reduced(FloorDiv(rest.constant(), common));
    for (const Term& term : rest.terms()) reduced += Linear::Of(term.var, term.coef / common);
    return quotient + DivFloor(reduced, divisor / common);
  }
  // ⌊(g·x + y) / (g·d)⌋ = ⌊x / d⌋ where 0 ≤ y < g.
  for (const Term& term : rest.terms()) {
    const int64_t g = std::gcd(term.coef, divisor);
    if (g == 1) continue;
    Linear coarse, fine(FloorMod(rest.constant(), g));
    for (const Term& other : rest.terms()) (other.coef % g == 0 ? coarse : fine) += Linear::Of(other.var, other.coef);
    Interval small = Range(fine);
    if (small.lo < 0 || small.hi >= g) continue;
    Linear reduced(FloorDiv(rest.constant(), g));
    for (const Term& other : coarse.terms()) reduced += Linear::Of(other.var, other.coef / g);
    return quotient + DivFloor(reduced, divisor / g);
  }
  // What an axis is made of may divide where its name does not; its range, which is tighter, stays known.
  if (Linear expanded = ExpandAxes(rest); !(expanded == rest)) {
    Linear divided = DivFloor(expanded, divisor);
    bool is_simpler = std::all_of(divided.terms().begin(), divided.terms().end(), [&](const Term& t) {
      const Var& var = (*this)[t.var];
      return var.kind == VarKind::kLoop ||
             (var.kind == VarKind::kFloorDiv && var.a.terms().size() < expanded.terms().size());
    });
    if (is_simpler) return quotient + Named(divided, bounds);
  }
  return quotient + AsVar(VarKind::kFloorDiv, rest, 0, divisor, bounds);
}

// `value`, as an axis if its terms do not show that it lies in `range`.
Linear VarTable::Named(const Linear& value, Interval range) {
  Interval shown = NaiveRange(value);
  if (shown.lo >= range.lo && shown.hi <= range.hi) return value;
  for (VarId id : vars_.ids()) {
    const Var& var = vars_[id];
    if (var.kind == VarKind::kAxis && var.a == value && var.range.lo == range.lo && var.range.hi == range.hi)
      return Linear::Of(id);
  }
  return Linear::Of(AddAxis(fmt::format("({})", Text(value)), value, range));
}

Linear VarTable::Mod(const Linear& e, int64_t divisor) {
  Linear rest = e - DivFloor(e, divisor) * divisor, expanded = ExpandAxes(rest);
  Interval shown = Range(expanded);
  return shown.lo >= 0 && shown.hi < divisor ? expanded : rest;
}

Linear VarTable::Min(const Linear& a, const Linear& b) {
  if (ProvenNonNegative(b - a)) return a;
  if (ProvenNonNegative(a - b)) return b;
  Interval x = Range(a), y = Range(b);
  Interval range{std::min(x.lo, y.lo), std::min(x.hi, y.hi)};
  if (const Linear sum = a + b; sum.IsConstant()) range.hi = std::min(range.hi, FloorDiv(sum.constant(), 2));
  return AsVar(VarKind::kMin, a, b, 1, range);
}

Linear VarTable::Max(const Linear& a, const Linear& b) {
  if (ProvenNonNegative(a - b)) return a;
  if (ProvenNonNegative(b - a)) return b;
  Interval x = Range(a), y = Range(b);
  Interval range{std::max(x.lo, y.lo), std::max(x.hi, y.hi)};
  // Of two that add up to a constant, as in |a| = max(a, -a), the larger is at least half of it.
  if (const Linear sum = a + b; sum.IsConstant()) range.lo = std::max(range.lo, -FloorDiv(-sum.constant(), 2));
  return AsVar(VarKind::kMax, a, b, 1, range);
}

Linear VarTable::Product(const Linear& a, const Linear& b) {
  if (a.IsConstant()) return b * a.constant();
  if (b.IsConstant()) return a * b.constant();
  return AsVar(VarKind::kProduct, a, b, 1, ProductOf(Range(a), Range(b)));
}

Interval VarTable::NaiveRange(const Linear& e) const {
  Interval sum = Saturated(e.constant(), e.constant());
  for (const Term& term : e.terms()) sum = SumOf(sum, ProductOf((*this)[term.var].range, {term.coef, term.coef}));
  return sum;
}

Interval VarTable::Range(const Linear& e) const {
  Interval best = NaiveRange(e);
  // k·(r − c·⌊r/c⌋) lies in k·[0, c−1]: a remainder that the terms alone hide.
  for (const Term& term : e.terms()) {
    const Var& var = (*this)[term.var];
    if (var.kind != VarKind::kFloorDiv || term.coef % var.divisor != 0) continue;
    int64_t k = -term.coef / var.divisor;
    Linear rest = e.Without(term.var);
    rest.AddScaled(var.a, -k);
    if (rest.terms().size() >= e.terms().size()) continue;
    const Interval r = SumOf(NaiveRange(rest), ProductOf({0, var.divisor - 1}, {k, k}));
    best.lo = std::max(best.lo, r.lo);
    best.hi = std::min(best.hi, r.hi);
  }
  // The smaller or the larger of two of which one follows a dynamic size: what else the form says of that size counts.
  for (const Term& term : e.terms()) {
    const Var& var = (*this)[term.var];
    if ((var.kind != VarKind::kMin && var.kind != VarKind::kMax) || !(FollowsSize(var.a) || FollowsSize(var.b)))
      continue;
    const Linear rest = e.Without(term.var);
    const Interval a = Range(rest + var.a * term.coef), b = Range(rest + var.b * term.coef);
    // The value is one of the two, and not beyond either.
    const bool is_most = (var.kind == VarKind::kMin) == (term.coef < 0);
    best.lo = std::max(best.lo, is_most ? std::max(a.lo, b.lo) : std::min(a.lo, b.lo));
    best.hi = std::min(best.hi, is_most ? std::max(a.hi, b.hi) : std::min(a.hi, b.hi));
  }
  return best;
}

bool VarTable::FollowsSize(const Linear& e) const {
  return std::any_of(e.terms().begin(), e.terms().end(),
                     [&](const Term& term) { return (*this)[term.var].kind == VarKind::kSize; });
}

Linear VarTable::ExpandAxes(const Linear& e) const {
  bool any = std::any_of(e.terms().begin(), e.terms().end(),
                         [&](const Term& t) { return (*this)[t.var].kind == VarKind::kAxis; });
  if (!any) return e;
  Linear result(e.constant());
  for (const Term& term : e.terms()) {
    const Var& var = (*this)[term.var];
    if (var.kind == VarKind::kAxis)
      result.AddScaled(ExpandAxes(var.a), term.coef);
    else
      result += Linear::Of(term.var, term.coef);
  }
  return result;
}

Linear VarTable::Substitute(const Linear& e, const std::function<bool(VarId, Linear*)>& value) {
  Linear result(e.constant());
  for (const Term& term : e.terms()) {
    Linear replacement;
    if (value(term.var, &replacement)) {
      result.AddScaled(replacement, term.coef);
      continue;
    }
    Var var = (*this)[term.var];  // a copy: substitution may add variables
    switch (var.kind) {
      case VarKind::kFloorDiv: replacement = DivFloor(Substitute(var.a, value), var.divisor); break;
      case VarKind::kMin: replacement = Min(Substitute(var.a, value), Substitute(var.b, value)); break;
      case VarKind::kMax: replacement = Max(Substitute(var.a, value), Substitute(var.b, value)); break;
      case VarKind::kProduct: replacement = Product(Substitute(var.a, value), Substitute(var.b, value)); break;
      case VarKind::kAxis: {
        Linear inner = Substitute(var.a, value);
        replacement = inner == var.a ? Linear::Of(term.var) : inner;
        break;
      }
      case VarKind::kLoop:
      case VarKind::kSize:
      case VarKind::kOpaque: replacement = Linear::Of(term.var); break;
    }
    result.AddScaled(replacement, term.coef);
  }
  return result;
}

std::string VarTable::Text(const Linear& e) const {
  std::string text;
  for (const Term& term : e.terms()) {
    int64_t magnitude = term.coef < 0 ? -term.coef : term.coef;
    text += text.empty() ? (term.coef < 0 ? "-" : "") : (term.coef < 0 ? " - " : " + ");
    if (magnitude != 1) text += fmt::format("{}*", magnitude);
    text += (*this)[term.var].name;
  }
  if (text.empty()) return fmt::format("{}", e.constant());
  if (e.constant() != 0)
    text += fmt::format(" {} {}", e.constant() < 0 ? '-' : '+', e.constant() < 0 ? -e.constant() : e.constant());
  return text;
}

}  // namespace hone
