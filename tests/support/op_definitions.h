// What each operation means, written down apart from the table that the product reads.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <optional>
#include <string_view>

#include "ir/graph/expr.h"

namespace hone {

struct OpDefinition {
  std::string_view text;   // in the kernel language, of x and y
  std::string_view types;  // that x and y may have: f(loats), i(ntegers), b(ools)
  double (*value)(double x, double y);
  double divisor = 0;  // y has to be this constant; 0: anything
};

// nullopt for leaves, accesses, choices and casts.
inline std::optional<OpDefinition> DefinitionOf(Op op) {
  switch (op) {
    case Op::kInt:
    case Op::kFloat:
    case Op::kSize:
    case Op::kAxis:
    case Op::kLoad:
    case Op::kPad:
    case Op::kSelect:
    case Op::kCast: return std::nullopt;
    case Op::kAdd: return OpDefinition{"x[] + y[]", "fi", [](double x, double y) { return x + y; }};
    case Op::kSub: return OpDefinition{"x[] - y[]", "fi", [](double x, double y) { return x - y; }};
    case Op::kMul: return OpDefinition{"x[] * y[]", "fi", [](double x, double y) { return x * y; }};
    case Op::kDiv: return OpDefinition{"x[] / y[]", "f", [](double x, double y) { return x / y; }};
    case Op::kFloorDiv: return OpDefinition{"x[] / 3", "i", [](double x, double y) { return std::floor(x / y); }, 3};
    case Op::kMod: return OpDefinition{"x[] % 3", "i", [](double x, double y) { return x - std::floor(x / y) * y; }, 3};
    case Op::kMin:
      return OpDefinition{"min(x[], y[])", "fi", [](double x, double y) {
                            return std::isnan(x) || std::isnan(y) ? NAN : x < y ? x : y;
                          }};
    case Op::kMax:
      return OpDefinition{"max(x[], y[])", "fi", [](double x, double y) {
                            return std::isnan(x) || std::isnan(y) ? NAN : x > y ? x : y;
                          }};
    case Op::kPow: return OpDefinition{"pow(x[], y[])", "f", [](double x, double y) { return std::pow(x, y); }};
    case Op::kEq: return OpDefinition{"x[] == y[]", "fib", [](double x, double y) { return x == y ? 1.0 : 0.0; }};
    case Op::kNe: return OpDefinition{"x[] != y[]", "fib", [](double x, double y) { return x == y ? 0.0 : 1.0; }};
    case Op::kLt: return OpDefinition{"x[] < y[]", "fi", [](double x, double y) { return x < y ? 1.0 : 0.0; }};
    case Op::kLe: return OpDefinition{"x[] <= y[]", "fi", [](double x, double y) { return x <= y ? 1.0 : 0.0; }};
    case Op::kAnd: return OpDefinition{"x[] and y[]", "b", [](double x, double y) { return x * y; }};
    case Op::kOr: return OpDefinition{"x[] or y[]", "b", [](double x, double y) { return std::max(x, y); }};
    case Op::kNot: return OpDefinition{"not x[]", "b", [](double x, double) { return 1 - x; }};
    case Op::kAbs: return OpDefinition{"abs(x[])", "fi", [](double x, double) { return std::copysign(x, 1.0); }};
    case Op::kExp: return OpDefinition{"exp(x[])", "f", [](double x, double) { return std::exp(x); }};
    case Op::kLog: return OpDefinition{"log(x[])", "f", [](double x, double) { return std::log2(x) * std::log(2.0); }};
    case Op::kSqrt: return OpDefinition{"sqrt(x[])", "f", [](double x, double) { return std::sqrt(x); }};
    case Op::kRsqrt: return OpDefinition{"rsqrt(x[])", "f", [](double x, double) { return std::sqrt(1 / x); }};
    case Op::kTanh:
      return OpDefinition{"tanh(x[])", "f", [](double x, double) { return 1 - 2 / (std::exp(2 * x) + 1); }};
    case Op::kErf: return OpDefinition{"erf(x[])", "f", [](double x, double) { return 1 - std::erfc(x); }};
    case Op::kSin: return OpDefinition{"sin(x[])", "f", [](double x, double) { return std::imag(std::polar(1.0, x)); }};
    case Op::kCos: return OpDefinition{"cos(x[])", "f", [](double x, double) { return std::real(std::polar(1.0, x)); }};
    case Op::kFloor: return OpDefinition{"floor(x[])", "f", [](double x, double) { return -std::ceil(-x); }};
    case Op::kRound:
      return OpDefinition{"round(x[])", "f", [](double x, double) {
                            const double below = std::floor(x), rest = x - below;
                            const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(below, 2) != 0);
                            return up ? below + 1 : below;
                          }};
  }
  return std::nullopt;
}

}  // namespace hone
