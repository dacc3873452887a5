#include "ir/graph/op_traits.h"

#include <array>
#include <cmath>
#include <numbers>
#include <type_traits>

#include "base/check.h"
#include "ir/graph/op_reference.h"

namespace hone {
namespace {

using reference::Point;

constexpr size_t kRows = 64;

// A row as it is written down below.
struct Row : OpTraits {
  constexpr Row KeepsNan() const {
    Row row = *this;
    row.keeps_nan = true;
    return row;
  }
  constexpr Row Is(ErrorFlow known) const {
    Row row = *this;
    row.error_flow = known;
    return row;
  }
  template <auto kValue, auto kMagnitude>
  constexpr Row OfFloats() const {
    Row row = *this;
    if constexpr (std::is_invocable_v<decltype(kValue), double>)
      row.on_floats = reference::OneFloat<kValue, kMagnitude>;
    else
      row.on_floats = reference::TwoFloats<kValue, kMagnitude>;
    return row;
  }
  template <auto kValue, auto kSlack>
  constexpr Row OfIntegers() const {
    Row row = *this;
    if constexpr (std::is_invocable_v<decltype(kValue), int64_t>)
      row.on_integers = reference::OneInteger<kValue, kSlack>;
    else
      row.on_integers = reference::TwoIntegers<kValue, kSlack>;
    return row;
  }
};

// What the parser, the verifier and the interpreter know by themselves.
constexpr Row Special(std::string_view name, int arity, OpCost cost = OpCost::kFree) {
  return {{.name = name, .arity = arity, .cost = cost}};
}

constexpr Row Infix(std::string_view name, std::string_view symbol, precedence::Level precedence, TypeSet takes,
                    OpCost cost) {
  return {{.name = name,
           .symbol = symbol,
           .notation = Notation::kInfix,
           .precedence = precedence,
           .arity = 2,
           .typing = Typing::kAlike,
           .takes = takes,
           .cost = cost}};
}

constexpr Row Comparison(std::string_view name, std::string_view symbol, TypeSet takes) {
  Row row = Infix(name, symbol, precedence::kComparison, takes, OpCost::kCompare);
  row.typing = Typing::kCompares;
  return row;
}

constexpr Row Function(std::string_view name, int arity, TypeSet takes, OpCost cost) {
  return {{.name = name,
           .notation = Notation::kFunction,
           .arity = arity,
           .typing = Typing::kAlike,
           .takes = takes,
           .cost = cost}};
}

// `instructions` of a polynomial, for one vector.
constexpr Row Elementary(std::string_view name, int arity, int instructions) {
  Row row = Function(name, arity, TypeSet::kFloats, OpCost::kElementary);
  row.instructions = instructions;
  return row;
}

constexpr uint64_t Bits(int64_t x) { return static_cast<uint64_t>(x); }
constexpr int64_t Signed(uint64_t x) { return static_cast<int64_t>(x); }

constexpr auto kSumOfSlack = [](int64_t, double sa, int64_t, double sb) { return sa + sb; };
constexpr auto kLargestSlack = [](int64_t, double sa, int64_t, double sb) { return std::max(sa, sb); };
constexpr auto kSameSlack = [](int64_t, double slack) { return slack; };
constexpr auto kSumOfMagnitudes = [](Point a, Point b, double, double) { return a.magnitude + b.magnitude; };

template <bool kIsMax>
constexpr auto kExtreme = [](double a, double b) { return reference::TakesSecond(kIsMax, a, b) ? b : a; };
template <bool kIsMax>
constexpr auto kExtremeMagnitude = [](Point a, Point b, double, double tolerance) {
  return reference::ExtremeMagnitude(reference::TakesSecond(kIsMax, a.value, b.value), a.value, a.magnitude, b.value,
                                     b.magnitude, tolerance);
};

double QuotientSlack(int64_t, double slack, int64_t divisor, double) {
  return slack > 0 ? slack / static_cast<double>(divisor) + 1 : 0;
}
double RemainderSlack(int64_t, double slack, int64_t divisor, double) {
  return slack > 0 ? static_cast<double>(divisor - 1) : 0;
}

// How much of itself x may be off by: at most nearly all of it. 0: so little that a slope says all.
double LargeError(Point x, double tolerance) {
  constexpr double kLarge = 0x1p-6, kAlmostAll = 1 - 0x1p-10;
  const double part = x.exact ? 0 : tolerance * x.magnitude / std::abs(x.value);
  return part > kLarge ? std::min(part, kAlmostAll) : 0;
}

double QuotientMagnitude(Point a, Point b, double v, double tolerance) {
  const double divisor = std::abs(b.value);
  if (!(divisor <= reference::kMaxDouble)) return 0;  // over an infinite divisor the quotient is exactly 0
  const double by_divisor = b.exact ? 0 : std::abs(v) * b.magnitude;
  return std::max(std::abs(v), (a.magnitude + by_divisor) / (divisor * (1 - LargeError(b, tolerance))));
}

double PowerMagnitude(Point a, Point b, double v, double) {
  const double by_base = b.value == 0 ? 0 : std::abs(b.value * std::pow(a.value, b.value - 1)) * a.magnitude;
  const double by_exponent = v == 0 || b.magnitude == 0 ? 0 : std::abs(v * std::log(std::abs(a.value))) * b.magnitude;
  return std::max(std::abs(v), by_base + by_exponent);
}

// √ is too steep near 0 for a derivative: the bound is the value at the end of the interval.
double RootMagnitude(Point x, double v, double tolerance) {
  const double m = x.magnitude;
  const double steep = v > 0 ? m / (2 * v) : std::numeric_limits<double>::infinity();
  const double whole = m > 0 && tolerance > 0 ? std::sqrt(std::max(x.value, 0.0) + tolerance * m) / tolerance : 0;
  return std::max(v, std::min(steep, whole));
}

double LogMagnitude(Point x, double v, double tolerance) {
  const double error = LargeError(x, tolerance), steep = error > 0 ? -std::log1p(-error) / tolerance : 0;
  return std::max({std::abs(v), x.magnitude / std::abs(x.value), steep});
}

double InverseRootMagnitude(Point x, double v, double tolerance) {
  const double error = LargeError(x, tolerance), steep = error > 0 ? (1 / std::sqrt(1 - error) - 1) / tolerance : 0;
  return std::max({v, 0.5 * v * x.magnitude / std::abs(x.value), v * steep});
}

// max(|f|, |f′|·A), and as far as f bends over a computed x's error: where f′ is 0 that is all there is. No two values
// are further apart than 2.
double WaveMagnitude(Point x, double v, double slope, double tolerance) {
  const double m = x.magnitude;
  const double bend = x.exact || m == 0 ? 0 : tolerance * m * m / 2;
  return std::max(std::abs(v), std::min(std::abs(slope) * m + bend, tolerance > 0 ? 2 / tolerance : HUGE_VAL));
}

double Floor(double x) { return std::floor(x); }
double RoundToEven(double x) { return std::nearbyint(x); }  // nobody changes the rounding mode

// Of a function that is constant between its jumps.
template <double (*kStep)(double)>
double StepMagnitude(Point x, double v, double tolerance) {
  const double error = x.exact ? 0 : tolerance * x.magnitude;
  const double jump = kStep(x.value + error) - kStep(x.value - error);
  return std::max(std::abs(v), jump > 0 ? jump / tolerance : 0);
}

// One case an operation: the compiler sees that none is missing. Magnitudes of functions are max(|f(x)|, |f′(x)|·A(x)).
constexpr Row RowOf(Op op) {
  using enum TypeSet;
  switch (op) {
    case Op::kInt: return Special("int", 0);
    case Op::kFloat: return Special("float", 0);
    case Op::kSize: return Special("size", 0);
    case Op::kAxis: return Special("axis", 0);
    case Op::kLoad: return Special("load", -1);
    case Op::kPad: return Special("pad", 2);
    case Op::kAdd:
      return Infix("add", "+", precedence::kSum, kNumbers, OpCost::kAdd)
          .KeepsNan()
          .OfFloats<[](double a, double b) { return a + b; }, kSumOfMagnitudes>()
          .OfIntegers<[](int64_t a, int64_t b) { return Signed(Bits(a) + Bits(b)); }, kSumOfSlack>();
    case Op::kSub:
      return Infix("sub", "-", precedence::kSum, kNumbers, OpCost::kAdd)
          .KeepsNan()
          .OfFloats<[](double a, double b) { return a - b; }, kSumOfMagnitudes>()
          .OfIntegers<[](int64_t a, int64_t b) { return Signed(Bits(a) - Bits(b)); }, kSumOfSlack>();
    case Op::kMul:
      return Infix("mul", "*", precedence::kProduct, kNumbers, OpCost::kMultiply)
          .KeepsNan()
          .Is(ErrorFlow::kScales)
          .OfFloats<[](double a, double b) { return a * b; },
                    [](Point a, Point b, double, double) { return a.magnitude * b.magnitude; }>()
          .OfIntegers<[](int64_t a, int64_t b) { return Signed(Bits(a) * Bits(b)); }, reference::ProductSlack>();
    case Op::kDiv:
      return Infix("div", "/", precedence::kProduct, kFloats, OpCost::kDivide)
          .KeepsNan()
          .OfFloats<[](double a, double b) { return a / b; }, QuotientMagnitude>();
    case Op::kFloorDiv:
      return Infix("floordiv", "/", precedence::kProduct, kIntegers, OpCost::kIntegerDivide)
          .OfIntegers<FloorDiv, QuotientSlack>();
    case Op::kMod:
      return Infix("mod", "%", precedence::kProduct, kIntegers, OpCost::kIntegerDivide)
          .OfIntegers<FloorMod, RemainderSlack>();
    case Op::kMin:
      return Function("min", 2, kNumbers, OpCost::kCompare)
          .KeepsNan()
          .Is(ErrorFlow::kChooses)
          .OfFloats<kExtreme<false>, kExtremeMagnitude<false>>()
          .OfIntegers<[](int64_t a, int64_t b) { return std::min(a, b); }, kLargestSlack>();
    case Op::kMax:
      return Function("max", 2, kNumbers, OpCost::kCompare)
          .KeepsNan()
          .Is(ErrorFlow::kChooses)
          .OfFloats<kExtreme<true>, kExtremeMagnitude<true>>()
          .OfIntegers<[](int64_t a, int64_t b) { return std::max(a, b); }, kLargestSlack>();
    case Op::kPow:  // pow(NaN, 0) and pow(1, NaN) are 1
      return Elementary("pow", 2, 60).OfFloats<[](double a, double b) { return std::pow(a, b); }, PowerMagnitude>();
    case Op::kEq: return Comparison("eq", "==", kAll);
    case Op::kNe: return Comparison("ne", "!=", kAll);
    case Op::kLt: return Comparison("lt", "<", kNumbers);
    case Op::kLe: return Comparison("le", "<=", kNumbers);
    case Op::kAnd:
      return Infix("and", "and", precedence::kAnd, kBools, OpCost::kCompare)
          .OfIntegers<[](int64_t a, int64_t b) { return int64_t{a && b}; }, kLargestSlack>();
    case Op::kOr:
      return Infix("or", "or", precedence::kOr, kBools, OpCost::kCompare)
          .OfIntegers<[](int64_t a, int64_t b) { return int64_t{a || b}; }, kLargestSlack>();
    case Op::kNot: {
      Row row = Function("not", 1, kBools, OpCost::kCompare);
      row.symbol = "not";
      row.notation = Notation::kPrefix;
      row.precedence = precedence::kNot;
      return row.OfIntegers<[](int64_t x) { return int64_t{x == 0}; }, kSameSlack>();
    }
    case Op::kSelect: {
      Row row = Special("if", 3, OpCost::kCompare);
      row.notation = Notation::kFunction;
      return row;
    }
    case Op::kAbs:
      return Function("abs", 1, kNumbers, OpCost::kCompare)
          .KeepsNan()
          .Is(ErrorFlow::kMirrors)
          .OfFloats<[](double x) { return std::abs(x); }, [](Point x, double, double) { return x.magnitude; }>()
          .OfIntegers<[](int64_t x) { return x < 0 ? Signed(0 - Bits(x)) : x; }, kSameSlack>();
    case Op::kExp:
      return Elementary("exp", 1, 16)
          .KeepsNan()
          .OfFloats<[](double x) { return std::exp(x); },
                    [](Point x, double f, double) { return std::max(f, f * x.magnitude); }>();
    case Op::kLog:
      return Elementary("log", 1, 20).KeepsNan().OfFloats<[](double x) { return std::log(x); }, LogMagnitude>();
    case Op::kSqrt:
      return Function("sqrt", 1, kFloats, OpCost::kRoot)
          .KeepsNan()
          .OfFloats<[](double x) { return std::sqrt(x); }, RootMagnitude>();
    case Op::kRsqrt:
      return Function("rsqrt", 1, kFloats, OpCost::kRoot)
          .KeepsNan()
          .OfFloats<[](double x) { return 1 / std::sqrt(x); }, InverseRootMagnitude>();
    case Op::kTanh:
      return Elementary("tanh", 1, 22)
          .KeepsNan()
          .OfFloats<[](double x) { return std::tanh(x); },
                    [](Point x, double f, double) { return std::max(std::abs(f), (1 - f * f) * x.magnitude); }>();
    case Op::kErf:
      return Elementary("erf", 1, 28)
          .KeepsNan()
          .OfFloats<[](double x) { return std::erf(x); },
                    [](Point x, double f, double) {
                      const double slope = 2 * std::numbers::inv_sqrtpi * std::exp(-x.value * x.value);
                      return std::max(std::abs(f), slope * x.magnitude);
                    }>();
    case Op::kSin:
      return Elementary("sin", 1, 200)
          .KeepsNan()
          .OfFloats<[](double x) { return std::sin(x); },
                    [](Point x, double f, double tolerance) {
                      return WaveMagnitude(x, f, std::cos(x.value), tolerance);
                    }>();
    case Op::kCos:
      return Elementary("cos", 1, 200)
          .KeepsNan()
          .OfFloats<[](double x) { return std::cos(x); },
                    [](Point x, double f, double tolerance) {
                      return WaveMagnitude(x, f, std::sin(x.value), tolerance);
                    }>();
    case Op::kFloor:
      return Function("floor", 1, kFloats, OpCost::kConvert)
          .KeepsNan()
          .Is(ErrorFlow::kSteps)
          .OfFloats<Floor, StepMagnitude<Floor>>();
    case Op::kRound:
      return Function("round", 1, kFloats, OpCost::kConvert)
          .KeepsNan()
          .Is(ErrorFlow::kSteps)
          .OfFloats<RoundToEven, StepMagnitude<RoundToEven>>();
    case Op::kCast: return Special("cast", 1, OpCost::kConvert);
  }
  return {};
}

constexpr std::array<OpTraits, kRows> kTable = [] {
  std::array<OpTraits, kRows> table;
  for (size_t i = 0; i < kRows; ++i) {
    table[i] = RowOf(static_cast<Op>(i));
    table[i].op = static_cast<Op>(i);
  }
  return table;
}();

}  // namespace

bool Contains(TypeSet set, DType type) {
  switch (set) {
    case TypeSet::kNone: return false;
    case TypeSet::kBools: return type == DType::kBool;
    case TypeSet::kIntegers: return type != DType::kBool && !IsFloat(type);
    case TypeSet::kFloats: return IsFloat(type);
    case TypeSet::kNumbers: return type != DType::kBool;
    case TypeSet::kAll: return true;
  }
  return false;
}

const OpTraits& TraitsOf(Op op) {
  HONE_CHECK(static_cast<size_t>(op) < kRows);
  return kTable[static_cast<size_t>(op)];
}

std::span<const OpTraits> OpTable() { return kTable; }

const OpTraits* FunctionNamed(std::string_view name) {
  for (const OpTraits& row : kTable)
    if (row.notation == Notation::kFunction && row.name == name) return &row;
  return nullptr;
}

std::string_view OpName(Op op) { return TraitsOf(op).name; }

bool IsIndexArithmetic(Op op) {
  const OpTraits& row = TraitsOf(op);
  return row.typing == Typing::kAlike && row.arity == 2 && Contains(row.takes, DType::kI64);
}

double ReferenceValue(Op op, double a, double b) {
  double value = 0;
  FloatColumns columns{.lanes = 1, .value = {&a, &b}, .result = &value};
  TraitsOf(op).on_floats(columns);
  return value;
}

}  // namespace hone
