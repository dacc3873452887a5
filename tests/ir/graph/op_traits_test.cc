// The table of operations against definitions of its own (tests/support/op_definitions.h).
#include "ir/graph/op_traits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "ir/graph/print.h"
#include "ir/graph/verify_kernel.h"
#include "ir/language/parse.h"
#include "ir/reference/interpret.h"
#include "tests/support/op_definitions.h"

namespace hone::op_traits_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Calls check(its traits, its definition) for each operation that has one.
template <typename Check>
void ForDefined(const Check& check) {
  for (const OpTraits& traits : OpTable()) {
    if (traits.name.empty()) continue;
    SCOPED_TRACE(traits.name);
    if (std::optional<OpDefinition> definition = DefinitionOf(traits.op)) check(traits, *definition);
  }
}

bool Takes(const OpDefinition& definition, DType type) {
  const char kind = type == DType::kBool ? 'b' : IsFloat(type) ? 'f' : 'i';
  return definition.types.find(kind) != std::string_view::npos;
}

std::string TypeText(DType type) { return std::string(Name(type)); }

Result<Kernel> Scalars(DType type, DType result, const std::string& value) {
  return ParseKernel("kernel k(x: " + TypeText(type) + "[], y: " + TypeText(type) + "[]) -> z: " + TypeText(result) +
                     "[] { z[] = " + value + " }");
}

struct Computed {
  double value = 0;
  double magnitude = 0;
};

// At one point, with the given magnitudes and tolerance.
Computed OnFloats(const OpTraits& traits, const double (&x)[2], const double (&magnitudes)[2], double tolerance) {
  Computed computed;
  FloatColumns columns{.lanes = 1, .tolerance = tolerance, .result = &computed.value};
  columns.result_magnitude = &computed.magnitude;
  for (int i : {0, 1}) columns.value[i] = &x[i], columns.magnitude[i] = &magnitudes[i];
  traits.on_floats(columns);
  return computed;
}

Computed OnIntegers(const OpTraits& traits, const int64_t (&x)[2], const double (&slack)[2], DType type = DType::kI64) {
  Computed computed;
  int64_t value = 0;
  IntegerColumns columns{.lanes = 1, .type = type, .result = &value, .result_slack = &computed.magnitude};
  for (int i : {0, 1}) columns.value[i] = &x[i], columns.slack[i] = &slack[i];
  traits.on_integers(columns);
  computed.value = static_cast<double>(value);
  return computed;
}

TEST(OpTraits, EveryOperationOfTheEnumerationHasARow) {
  std::ifstream file(HONE_SOURCE_DIR "/ir/graph/expr.h");
  std::stringstream header;
  header << file.rdbuf();
  std::string text = header.str();
  const size_t begin = text.find("enum class Op ");
  ASSERT_NE(begin, std::string::npos);
  text = text.substr(begin, text.find("};", begin) - begin);
  std::set<int> numbers;
  const std::regex enumerator(R"(\n  k\w+ = (\d+),)");
  for (std::sregex_iterator it(text.begin(), text.end(), enumerator), end; it != end; ++it)
    numbers.insert(std::stoi((*it)[1]));
  EXPECT_GE(numbers.size(), 32u);
  std::set<std::string_view> names;
  for (int number = 0; number < static_cast<int>(OpTable().size()); ++number) {
    const OpTraits& row = TraitsOf(static_cast<Op>(number));
    EXPECT_EQ(row.op, static_cast<Op>(number));
    EXPECT_EQ(!row.name.empty(), numbers.contains(number)) << number;
    EXPECT_TRUE(row.name.empty() || names.insert(row.name).second) << row.name;
  }
}

TEST(OpTraits, ParserVerifierPrinterAndInterpreterKnowEachOne) {
  ForDefined([](const OpTraits& traits, const OpDefinition& definition) {
    for (DType type : {DType::kF32, DType::kI32, DType::kBool}) {
      const DType result = IsComparison(traits.op) ? DType::kBool : type;
      Result<Kernel> kernel = Scalars(type, result, std::string(definition.text));
      const bool found = kernel && kernel->stages.front().body.op() == traits.op;  // x / 3 is another one for floats
      ASSERT_EQ(found, Takes(definition, type)) << Name(type) << " " << (kernel ? "" : kernel.error().Text());
      if (!found) continue;
      Result<Kernel> again = ParseKernel(PrintKernel(*kernel));
      ASSERT_TRUE(again) << PrintKernel(*kernel);
      EXPECT_TRUE(SameKernel(*kernel, *again)) << PrintKernel(*kernel);

      float reals[] = {0.75f, 2.5f};
      int32_t wholes[] = {-7, 3};
      uint8_t truths[] = {1, 0};
      double wanted = 0;
      std::vector<OperandView> views;
      auto bind = [&](const auto* values) {
        views = {{&values[0]}, {&values[1]}};
        const double y = definition.divisor > 0 ? definition.divisor : static_cast<double>(values[1]);
        wanted = definition.value(static_cast<double>(values[0]), y);
      };
      if (type == DType::kF32) bind(reals);
      if (type == DType::kI32) bind(wholes);
      if (type == DType::kBool) bind(truths);
      EXPECT_NEAR(Interpreter(*kernel, views).At(0, 0).value, wanted, 1e-12) << Name(type);
    }
  });
}

// A kernel whose only value is of these arguments, made without the parser.
bool Verifies(const OpTraits& traits, const OpDefinition& definition, DType type, DType result, int arity) {
  Result<Kernel> kernel = Scalars(type, result, result == DType::kBool ? "true" : "0");
  if (!kernel) return false;
  std::vector<Expr> args;
  for (int i = 0; i < arity; ++i) {
    const bool divides = i == 1 && definition.divisor > 0 && !IsFloat(type);
    args.push_back(divides ? Int(3, type) : LoadOf(TensorId(std::min(i, 1)), type, {}));
  }
  kernel->stages.front().body = Expr(traits.op, result, std::move(args));
  return VerifyKernel(*kernel).has_value();
}

TEST(OpTraits, OnlyItsTypesAndArityVerify) {
  ForDefined([](const OpTraits& traits, const OpDefinition& definition) {
    const int arity = definition.text.find("y") != std::string_view::npos || definition.divisor > 0 ? 2 : 1;
    EXPECT_EQ(traits.arity, arity);
    for (DType type : {DType::kF32, DType::kF64, DType::kI32, DType::kI8, DType::kBool}) {
      SCOPED_TRACE(Name(type));
      const DType result = IsComparison(traits.op) ? DType::kBool : type;
      EXPECT_EQ(Verifies(traits, definition, type, result, arity), Takes(definition, type));
      EXPECT_FALSE(Verifies(traits, definition, type, result, 3 - arity));
      EXPECT_FALSE(Verifies(traits, definition, type, type == DType::kF32 ? DType::kF64 : DType::kF32, arity));
    }
  });
}

constexpr double kPoints[] = {-300.5, -7, -1, -0.3, -1e-3, 0, 1e-3, 0.25, 1, 2, 2.5, 40};

TEST(OpTraits, FloatReferencesAreTheDefinitions) {
  ForDefined([](const OpTraits& traits, const OpDefinition& definition) {
    ASSERT_EQ(traits.on_floats != nullptr, Takes(definition, DType::kF64) && !IsComparison(traits.op));
    if (!traits.on_floats) return;
    for (double x : kPoints)
      for (double y : kPoints) {
        const double wanted = definition.value(x, y), value = ReferenceValue(traits.op, x, y);
        const bool same = value == wanted || (std::isnan(value) && std::isnan(wanted)) ||
                          std::abs(value - wanted) <= 1e-12 * std::max(1.0, std::abs(wanted));
        EXPECT_TRUE(same) << x << " " << y << ": " << value << ", wanted " << wanted;
      }
  });
}

TEST(OpTraits, IntegerReferencesAreTheDefinitionsAndWrapAround) {
  ForDefined([](const OpTraits& traits, const OpDefinition& definition) {
    const bool computes = Takes(definition, DType::kI64) || Takes(definition, DType::kBool);
    ASSERT_EQ(traits.on_integers != nullptr, computes && !IsComparison(traits.op));
    if (!traits.on_integers) return;
    const bool logic = traits.takes == TypeSet::kBools;
    for (int64_t x : {-7, -1, 0, 1, 2, 11})
      for (int64_t y : {-5, 0, 1, 3}) {
        if ((logic && (x >> 1 != 0 || y >> 1 != 0)) || (definition.divisor > 0 && y <= 0)) continue;
        EXPECT_EQ(OnIntegers(traits, {x, y}, {0, 0}).value,
                  definition.value(static_cast<double>(x), static_cast<double>(y)))
            << x << " " << y;
      }
  });
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max(), kLeast = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(OnIntegers(TraitsOf(Op::kAdd), {kMost, 1}, {0, 0}, DType::kI32).value, static_cast<double>(kLeast));
  EXPECT_EQ(OnIntegers(TraitsOf(Op::kSub), {kLeast, 1}, {0, 0}, DType::kI32).value, static_cast<double>(kMost));
  EXPECT_EQ(OnIntegers(TraitsOf(Op::kMul), {1 << 20, 1 << 13}, {0, 0}, DType::kI32).value, 0);
  EXPECT_EQ(OnIntegers(TraitsOf(Op::kAbs), {kLeast, 0}, {0, 0}, DType::kI32).value, static_cast<double>(kLeast));
  EXPECT_EQ(OnIntegers(TraitsOf(Op::kAdd), {kMost, 1}, {0, 0}).value, 0x1p31);
}

// |f(x + d) − f(x)| ≤ tolerance · A for each argument moved by as much as it may be off; and of functions A is no more
// than that, or |f(x)|.
TEST(OpTraits, MagnitudesBoundWhatAnErrorOfAnArgumentDoes) {
  constexpr double kTolerance = 1e-6;
  ForDefined([&](const OpTraits& traits, const OpDefinition&) {
    if (!traits.on_floats) return;
    for (double x : kPoints)
      for (double y : kPoints)
        for (double larger : {0.0, 3.0}) {
          const double point[2] = {x, y}, magnitudes[2] = {std::abs(x) + larger, std::abs(y) + larger};
          const Computed at = OnFloats(traits, point, magnitudes, kTolerance);
          if (!std::isfinite(at.value)) {
            EXPECT_EQ(at.magnitude, 0) << x << " " << y;
            continue;
          }
          double most = 0;
          for (int moved = 0; moved < traits.arity; ++moved)
            for (double share : {-1.0, -0.5, 0.5, 1.0}) {
              double off[2] = {x, y};
              off[moved] += share * kTolerance * magnitudes[moved];
              const double value = ReferenceValue(traits.op, off[0], off[1]);
              if (!std::isfinite(value)) continue;  // beyond the function's domain
              most = std::max(most, std::abs(value - at.value) / kTolerance);
            }
          EXPECT_GE(at.magnitude * 1.01 + 1e-4, most) << x << " " << y << " +" << larger;
          const double enough = traits.arity == 1 ? 1.01 * std::max(std::abs(at.value), most) + 1e-4 : kInfinity;
          EXPECT_LE(at.magnitude, enough) << x << " +" << larger;
        }
  });
}

TEST(OpTraits, SlackBoundsWhatAnUncertainArgumentDoes) {
  ForDefined([](const OpTraits& traits, const OpDefinition& definition) {
    if (!traits.on_integers) return;
    const bool logic = traits.takes == TypeSet::kBools;
    for (int64_t x : {-7, 0, 1, 11})
      for (int64_t y : {-5, 0, 1, 3})
        for (int moved : {0, 1}) {
          if ((logic && (x >> 1 != 0 || y >> 1 != 0)) || (definition.divisor > 0 && (y <= 0 || moved == 1))) continue;
          if (moved >= traits.arity) continue;
          const int64_t slack = logic ? 1 : 2, point[2] = {x, y};
          double slacks[2] = {};
          slacks[moved] = static_cast<double>(slack);
          const Computed at = OnIntegers(traits, point, slacks);
          for (int64_t move = -slack; move <= slack; ++move) {
            int64_t off[2] = {x, y};
            off[moved] = logic ? (off[moved] + move) & 1 : off[moved] + move;
            EXPECT_LE(std::abs(OnIntegers(traits, off, {0, 0}).value - at.value), at.magnitude)
                << x << " " << y << " moved " << move;
          }
        }
  });
}

TEST(OpTraits, NanIsKeptWhereTheTableSaysSo) {
  ForDefined([](const OpTraits& traits, const OpDefinition&) {
    if (!traits.on_floats) {
      EXPECT_FALSE(traits.keeps_nan);
      return;
    }
    bool keeps = true;
    for (double other : {kNan, -kInfinity, -1.0, 0.0, 1.0, kInfinity}) {
      keeps &= std::isnan(ReferenceValue(traits.op, kNan, other));
      if (traits.arity == 2) keeps &= std::isnan(ReferenceValue(traits.op, other, kNan));
    }
    EXPECT_EQ(traits.keeps_nan, keeps);
  });
}

// What is said to be exact and plain (op_traits.h: ErrorFlow) is the magnitude that is computed.
TEST(OpTraits, KnownMagnitudesAreTheComputedOnes) {
  ForDefined([](const OpTraits& traits, const OpDefinition&) {
    if (!traits.on_floats) return;
    const bool plain_of_plain = traits.error_flow == ErrorFlow::kScales || traits.error_flow == ErrorFlow::kMirrors;
    const bool plain_of_exact = traits.error_flow == ErrorFlow::kSteps;
    for (double x : kPoints)
      for (double y : kPoints) {
        const double magnitudes[2] = {std::abs(x), std::abs(y)};
        double value = 0, magnitude = 0;
        FloatColumns columns{.lanes = 1, .tolerance = 1e-3, .value = {&x, &y}, .result = &value};
        columns.magnitude[0] = &magnitudes[0], columns.magnitude[1] = &magnitudes[1];
        columns.exact[0] = columns.exact[1] = plain_of_exact;
        columns.result_magnitude = &magnitude;
        traits.on_floats(columns);
        EXPECT_TRUE(!(plain_of_plain || plain_of_exact) || magnitude == std::abs(value)) << x << " " << y;
        EXPECT_TRUE(traits.error_flow != ErrorFlow::kChooses || value == x || value == y) << x << " " << y;
      }
  });
}

TEST(OpTraits, CostsSayWhatSchedulesCount) {
  std::set<std::string_view> costly, elementary, free;
  for (const OpTraits& traits : OpTable()) {
    if (traits.name.empty()) continue;
    if (IsCostly(traits.op)) costly.insert(traits.name);
    if (IsElementary(traits.op)) elementary.insert(traits.name);
    if (traits.cost == OpCost::kFree) free.insert(traits.name);
    EXPECT_EQ(traits.instructions > 1, IsElementary(traits.op)) << traits.name;
  }
  for (std::string_view name : {"exp", "log", "tanh", "erf", "pow"}) EXPECT_TRUE(elementary.contains(name)) << name;
  for (std::string_view name : {"sqrt", "rsqrt", "pow"}) EXPECT_TRUE(costly.contains(name)) << name;
  for (std::string_view name : {"add", "div", "max", "floor", "if"}) EXPECT_FALSE(costly.contains(name)) << name;
  EXPECT_EQ(free, (std::set<std::string_view>{"int", "float", "size", "axis", "load", "pad"}));
}

TEST(OpTraits, IndexArithmeticIsWhatExtentsAreMadeOf) {
  std::set<std::string_view> names;
  for (const OpTraits& traits : OpTable())
    if (!traits.name.empty() && IsIndexArithmetic(traits.op)) names.insert(traits.name);
  EXPECT_EQ(names, (std::set<std::string_view>{"add", "sub", "mul", "floordiv", "mod", "min", "max"}));
}

TEST(OpTraits, FunctionsAreFoundByTheirName) {
  ASSERT_NE(FunctionNamed("erf"), nullptr);
  EXPECT_EQ(FunctionNamed("erf")->op, Op::kErf);
  for (std::string_view name : {"", "add", "cast", "not", "nothing"}) EXPECT_EQ(FunctionNamed(name), nullptr) << name;
}

}  // namespace
}  // namespace hone::op_traits_test
