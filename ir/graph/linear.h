// Index arithmetic: linear forms over variables whose ranges are known. Addition and multiplication by constants are
// exact; floor division and remainder fold where divisibility or ranges allow, and become variables of their own where
// not. Because a remainder is written as e − c·⌊e/c⌋, (f/W)·W + f%W is f again without any special rule.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/id.h"

namespace hone {

using VarId = Id<struct VarTag>;  // of a VarTable

struct Term {
  VarId var;
  int64_t coef;
  bool operator==(const Term&) const = default;
};

// Σ coef·var + constant; terms sorted by variable, no zero coefficients.
class Linear {
 public:
  Linear(int64_t constant = 0) : constant_(constant) {}  // NOLINT(google-explicit-constructor): a number is a form
  static Linear Of(VarId var, int64_t coef = 1);

  const std::vector<Term>& terms() const { return terms_; }
  int64_t constant() const { return constant_; }
  bool IsConstant() const { return terms_.empty(); }
  int64_t CoefOf(VarId var) const;
  Linear Without(VarId var) const;

  Linear& operator+=(const Linear& other) { return AddScaled(other, 1); }
  Linear& operator-=(const Linear& other) { return AddScaled(other, -1); }
  Linear& AddScaled(const Linear& other, int64_t factor);
  bool operator==(const Linear&) const = default;

 private:
  std::vector<Term> terms_;
  int64_t constant_ = 0;
};

inline Linear operator+(Linear a, const Linear& b) { return a += b; }
inline Linear operator-(Linear a, const Linear& b) { return a -= b; }
Linear operator*(const Linear& a, int64_t factor);

struct Interval {
  int64_t lo;
  int64_t hi;  // inclusive
};
// An end of an interval at ±kUnbounded, or beyond, says nothing.
constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max() / 4;

enum class VarKind : uint8_t {
  kLoop = 1,  // a loop's counter, from 0
  kSize,      // a dynamic size
  kAxis,      // a stage's axis: `a` over loop variables, with a tighter range than its terms show
  kFloorDiv,  // ⌊a / divisor⌋
  kMin,       // min(a, b)
  kMax,       // max(a, b)
  kProduct,   // a · b, both variable
  kOpaque,    // known by range only; `payload` says what it is to whoever made it
};

struct Var {
  VarKind kind;
  std::string name;
  Interval range;
  Linear a;
  Linear b;
  int64_t divisor = 1;
  int payload = -1;
};

// Owns variables. Equal definitions give the same variable. Thread-compatible.
class VarTable {
 public:
  const Var& operator[](VarId var) const { return vars_[var]; }
  size_t size() const { return vars_.size(); }

  VarId Add(Var var);
  VarId AddLoop(std::string name, int64_t extent_max) {
    return Add({VarKind::kLoop, std::move(name), {0, extent_max - 1}, {}, {}, 1, -1});
  }

  // `value` under a name, known to lie in `range` for reasons that its terms do not show.
  VarId AddAxis(std::string name, Linear value, Interval range) {
    return Add({VarKind::kAxis, std::move(name), range, std::move(value), 0, 1, -1});
  }

  // REQUIRES: divisor > 0.
  Linear DivFloor(const Linear& e, int64_t divisor);
  Linear Mod(const Linear& e, int64_t divisor);
  Linear DivCeil(const Linear& e, int64_t divisor) { return DivFloor(e + Linear(divisor - 1), divisor); }
  Linear Min(const Linear& a, const Linear& b);
  Linear Max(const Linear& a, const Linear& b);
  Linear Product(const Linear& a, const Linear& b);

  // Smallest interval that we can prove.
  Interval Range(const Linear& e) const;
  bool ProvenNonNegative(const Linear& e) const { return Range(e).lo >= 0; }

  // Replaces axis variables by their loops.
  Linear ExpandAxes(const Linear& e) const;
  // Replaces each variable for which `value` returns true by what it stored; derived variables are rebuilt.
  Linear Substitute(const Linear& e, const std::function<bool(VarId, Linear*)>& value);

  std::string Text(const Linear& e) const;  // "32*n.0 + n.1 + 7"

 private:
  Linear AsVar(VarKind kind, const Linear& a, const Linear& b, int64_t divisor, Interval range);
  Linear Named(const Linear& value, Interval range);
  Interval NaiveRange(const Linear& e) const;
  bool FollowsSize(const Linear& e) const;
  IdVector<VarId, Var> vars_;
};

}  // namespace hone
