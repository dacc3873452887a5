// What is known about each operation, in one table. Whoever spells, checks, computes, bounds or prices operations asks
// it. A new function is an enumerator of Op (ir/graph/expr.h), its row in op_traits.cc and its code in
// codegen/llvm/math.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ir/graph/expr.h"

namespace hone {

// How the kernel language writes it.
enum class Notation : uint8_t {
  kOwn,       // literals, names, loads and casts: ir/language/parse and ir/graph/print know
  kInfix,     // a symbol b
  kPrefix,    // symbol a
  kFunction,  // name(a, b)
};

// How tightly an operator binds, in the order of the grammar.
namespace precedence {
enum Level : uint8_t { kOr = 1, kAnd, kNot, kComparison, kSum, kProduct, kUnary, kPrimary };
}

// Element types that an operation takes.
enum class TypeSet : uint8_t { kNone, kBools, kIntegers, kFloats, kNumbers, kAll };
bool Contains(TypeSet set, DType type);

// What the arguments' types and the result's have to do with each other.
enum class Typing : uint8_t {
  kOwn,      // ir/graph/verify_kernel knows
  kAlike,    // all have one type
  kCompares  // arguments of one type, the result is bool
};

// What a vector of results keeps busy, from nothing to much.
enum class OpCost : uint8_t {
  kFree,  // literals, sizes, axes; loads are counted by themselves
  kAdd,   // one instruction each, up to kIntegerDivide
  kMultiply,
  kCompare,  // and choices, signs and logic
  kConvert,
  kIntegerDivide,
  kDivide,      // the divider
  kRoot,        // the divider or an estimate, and what follows it
  kElementary,  // a polynomial: OpTraits::instructions of code
};

// What is known of a float result before its value is: is its magnitude (ir/reference/interpret_columns.h) the absolute
// value (plain), and does it carry no rounding error (exact)?
enum class ErrorFlow : uint8_t {
  kRounds,   // neither
  kScales,   // plain where all arguments are: products
  kChooses,  // exact where all arguments are: one of them is the result
  kMirrors,  // both of these: only a sign changes
  kSteps,    // plain and exact where all arguments are exact: constant in between, so that only its jumps count
};

// Lanes of float arguments in columns, and where the results go.
struct FloatColumns {
  size_t lanes = 0;
  double tolerance = 0;  // what magnitudes are multiples of
  const double* value[2] = {};
  const double* magnitude[2] = {};  // not read unless magnitudes are wanted
  bool exact[2] = {};
  double* result = nullptr;
  double* result_magnitude = nullptr;  // nullptr: not wanted
};

// The same for integers and bools. Slack: how far a value may be off because a float decided it.
struct IntegerColumns {
  size_t lanes = 0;
  DType type = DType::kI64;  // of the result, which wraps around in it
  const int64_t* value[2] = {};
  const double* slack[2] = {};  // not read unless slack is wanted
  int64_t* result = nullptr;
  double* result_slack = nullptr;  // nullptr: not wanted
};

struct OpTraits {
  Op op = Op::kInt;
  std::string_view name =
      {};  // "add": in messages, canonical texts and symbols; a function's name. Empty: no operation
  std::string_view symbol = {};  // "+": of kInfix and kPrefix
  Notation notation = Notation::kOwn;
  precedence::Level precedence = precedence::kPrimary;
  int arity = 0;  // -1: as many as a tensor has dimensions
  Typing typing = Typing::kOwn;
  TypeSet takes = TypeSet::kNone;  // of kAlike and kCompares
  bool keeps_nan = false;          // NaN in any argument gives NaN
  OpCost cost = OpCost::kFree;
  int instructions = 1;  // of generated code, for one vector
  ErrorFlow error_flow = ErrorFlow::kRounds;
  // The reference: value and magnitude of whole columns. nullptr: not of these types, or ir/reference/interpret
  // computes it.
  void (*on_floats)(const FloatColumns& columns) = nullptr;
  void (*on_integers)(const IntegerColumns& columns) = nullptr;
};

// The row of an operation; one without a name for a number that none has.
const OpTraits& TraitsOf(Op op);

// Rows by number; those without a name are no operations.
std::span<const OpTraits> OpTable();

// The operation that the language calls name(…), except pad and casts; nullptr: none.
const OpTraits* FunctionNamed(std::string_view name);

inline bool IsComparison(Op op) { return TraitsOf(op).typing == Typing::kCompares; }
// Arithmetic on two integers: what extents and indices are made of.
bool IsIndexArithmetic(Op op);
// Takes as long as a dozen additions: what schedules count as work.
inline bool IsCostly(Op op) { return TraitsOf(op).cost >= OpCost::kRoot; }
// Long enough that many copies of its code are a function.
inline bool IsElementary(Op op) { return TraitsOf(op).cost == OpCost::kElementary; }
// Instructions of an elementary function (OpTraits::instructions), where only the number of functions is known.
inline constexpr double kMeanInstructions = 20;

// The reference's value at one point. REQUIRES: TraitsOf(op).on_floats, and b if the operation has two arguments.
double ReferenceValue(Op op, double a, double b = 0);

}  // namespace hone
