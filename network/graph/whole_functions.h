// What functions of whole numbers of 64 bits compute, by their names in Node::function: for tables and for loops that
// have them inlined. Sums and products wrap around; a division by zero gives 0, as nothing else is defined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace hone::evaluating {

constexpr uint64_t BitsOf(int64_t x) { return static_cast<uint64_t>(x); }
constexpr int64_t Negated(int64_t x) { return static_cast<int64_t>(-BitsOf(x)); }

// By squaring; what is no whole number is cut off.
constexpr int64_t Power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  uint64_t result = 1, factor = BitsOf(base);
  for (uint64_t left = BitsOf(exponent); left > 0; left >>= 1) {
    if ((left & 1) != 0) result *= factor;
    factor *= factor;
  }
  return static_cast<int64_t>(result);
}

// Each calls visit(function) with the function of that name; false: there is none.
template <typename Visit>
bool WithUnaryWhole(std::string_view name, Visit&& visit) {
  if (name == "neg") return visit(Negated), true;
  if (name == "abs") return visit([](int64_t x) { return x < 0 ? Negated(x) : x; }), true;
  if (name == "relu") return visit([](int64_t x) { return std::max<int64_t>(x, 0); }), true;
  if (name == "not") return visit([](int64_t x) { return int64_t{x == 0}; }), true;
  if (name == "floor" || name == "round") return visit([](int64_t x) { return x; }), true;
  return false;
}

// Of numbers without a sign those that are not the same as with one.
template <typename Visit>
bool WithBinaryUnsigned(std::string_view name, Visit&& visit) {
  if (name == "div")
    return visit([](int64_t a, int64_t b) { return b == 0 ? 0 : static_cast<int64_t>(BitsOf(a) / BitsOf(b)); }), true;
  if (name == "mod" || name == "fmod")
    return visit([](int64_t a, int64_t b) { return b == 0 ? 0 : static_cast<int64_t>(BitsOf(a) % BitsOf(b)); }), true;
  if (name == "min") return visit([](int64_t a, int64_t b) { return BitsOf(a) < BitsOf(b) ? a : b; }), true;
  if (name == "max") return visit([](int64_t a, int64_t b) { return BitsOf(a) > BitsOf(b) ? a : b; }), true;
  return false;
}

template <typename Visit>
bool WithBinaryWhole(std::string_view name, bool is_unsigned, Visit&& visit) {
  if (is_unsigned && WithBinaryUnsigned(name, visit)) return true;
  if (name == "add")
    return visit([](int64_t a, int64_t b) { return static_cast<int64_t>(BitsOf(a) + BitsOf(b)); }), true;
  if (name == "sub")
    return visit([](int64_t a, int64_t b) { return static_cast<int64_t>(BitsOf(a) - BitsOf(b)); }), true;
  if (name == "mul")
    return visit([](int64_t a, int64_t b) { return static_cast<int64_t>(BitsOf(a) * BitsOf(b)); }), true;
  if (name == "div")  // towards zero
    return visit([](int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? Negated(a) : a / b; }), true;
  if (name == "mod")
    return visit([](int64_t a, int64_t b) {
             if (b == 0 || b == -1) return int64_t{0};
             const int64_t rest = a % b;
             return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
           }),
           true;
  if (name == "fmod") return visit([](int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }), true;
  if (name == "min") return visit([](int64_t a, int64_t b) { return std::min(a, b); }), true;
  if (name == "max") return visit([](int64_t a, int64_t b) { return std::max(a, b); }), true;
  if (name == "and") return visit([](int64_t a, int64_t b) { return int64_t{a != 0 && b != 0}; }), true;
  if (name == "or") return visit([](int64_t a, int64_t b) { return int64_t{a != 0 || b != 0}; }), true;
  if (name == "pow") return visit(Power), true;
  return false;
}

template <typename T, typename Visit>
bool WithComparison(std::string_view name, Visit&& visit) {
  if (name == "eq") return visit([](T a, T b) { return a == b; }), true;
  if (name == "ne") return visit([](T a, T b) { return a != b; }), true;
  if (name == "lt") return visit([](T a, T b) { return a < b; }), true;
  if (name == "le") return visit([](T a, T b) { return a <= b; }), true;
  if (name == "gt") return visit([](T a, T b) { return a > b; }), true;
  if (name == "ge") return visit([](T a, T b) { return a >= b; }), true;
  return false;
}

}  // namespace hone::evaluating
