// The table of element types, and elements in memory: f16 and bf16 over all of their 65,536 patterns.
#include "ir/graph/dtype_traits.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "base/rng.h"
#include "ir/graph/element.h"
#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "ir/reference/check_output.h"

namespace hone {
namespace {

constexpr DType kTypes[] = {DType::kBool, DType::kI8, DType::kI32, DType::kI64, DType::kF16, DType::kBF16, DType::kF32,
                            DType::kF64,  DType::kU8, DType::kU16, DType::kI16, DType::kU32, DType::kU64};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Format {
  DType type;
  int exponent_bits;
  int fraction_bits;
};
constexpr Format kSmall[] = {{DType::kF16, 5, 10}, {DType::kBF16, 8, 7}};

// By IEEE 754's definition, with ldexp in place of bits.
double DefinedValue(const Format& format, uint16_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = bits >> format.fraction_bits & ((1 << format.exponent_bits) - 1);
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << format.exponent_bits) - 1)
    return fraction == 0 ? sign * kInfinity : std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - format.fraction_bits);
  return sign * std::ldexp(fraction + (1 << format.fraction_bits), exponent - bias - format.fraction_bits);
}

double Loaded(DType type, uint16_t bits) { return LoadElement(type, &bits, 0); }

uint16_t Stored(DType type, double value) {
  uint16_t bits = 0;
  StoreElement(type, value, &bits, 0);
  return bits;
}

TEST(DTypeTraits, EveryTypeHasARow) {
  size_t rows = 0;
  for (const DTypeTraits& row : DTypeTable()) rows += row.bytes > 0 ? 1 : 0;
  EXPECT_EQ(rows, std::size(kTypes));
  std::set<std::string_view> names;
  for (DType type : kTypes) {
    const DTypeTraits& row = TraitsOf(type);
    SCOPED_TRACE(row.name);
    EXPECT_EQ(row.type, type);
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_EQ(ParseDType(row.name), type);
    EXPECT_EQ(row.bytes, VisitElement(type, []<typename T>(std::type_identity<T>) { return int64_t{sizeof(T)}; }));
    EXPECT_EQ(row.is_float,
              VisitElement(type, []<typename T>(std::type_identity<T>) { return !std::is_integral_v<T>; }));
  }
  for (std::string_view name : {"", "?", "f8", "u9"}) EXPECT_EQ(ParseDType(name), std::nullopt) << name;
  EXPECT_EQ(Name(static_cast<DType>(200)), "?");
}

TEST(DTypeTraits, FloatsHaveTheLimitsOfTheirFormat) {
  auto check = [](DType type, double roundoff, double largest, double smallest) {
    const DTypeTraits& row = TraitsOf(type);
    EXPECT_EQ(row.unit_roundoff, roundoff) << row.name;
    EXPECT_EQ(row.largest, largest) << row.name;
    EXPECT_EQ(row.smallest, smallest) << row.name;
    EXPECT_EQ(RoundedTo(type, row.largest), largest) << row.name;
    EXPECT_EQ(RoundedTo(type, row.smallest), smallest) << row.name;
    EXPECT_EQ(RoundedTo(type, 1 + roundoff), 1) << row.name;
    EXPECT_EQ(RoundedTo(type, 1 + 2 * roundoff), 1 + 2 * roundoff) << row.name;
  };
  check(DType::kF16, std::ldexp(1, -11), 65504, std::ldexp(1, -14));
  check(DType::kBF16, std::ldexp(1, -8), std::ldexp(255, 120), std::ldexp(1, -126));
  check(DType::kF32, std::ldexp(1, -24), std::numeric_limits<float>::max(), std::numeric_limits<float>::min());
  check(DType::kF64, std::ldexp(1, -53), std::numeric_limits<double>::max(), std::numeric_limits<double>::min());
}

TEST(DTypeTraits, NarrowTypesAreAccumulatedInWiderOnes) {
  for (DType type : {DType::kF16, DType::kBF16, DType::kF32}) EXPECT_EQ(TraitsOf(type).accumulator, DType::kF32);
  for (DType type : {DType::kI8, DType::kI32}) EXPECT_EQ(TraitsOf(type).accumulator, DType::kI32);
  EXPECT_EQ(TraitsOf(DType::kF64).accumulator, DType::kF64);
  EXPECT_EQ(TraitsOf(DType::kI64).accumulator, DType::kI64);
}

TEST(Element, EveryPatternOfASmallFloatHasItsValueAndComesBack) {
  for (const Format& format : kSmall) {
    SCOPED_TRACE(Name(format.type));
    int wrong = 0;
    for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
      const auto bits = static_cast<uint16_t>(pattern);
      const double value = Loaded(format.type, bits), wanted = DefinedValue(format, bits);
      const uint16_t again = Stored(format.type, value);
      const bool same = std::isnan(wanted) ? std::isnan(value) && std::isnan(Loaded(format.type, again))
                                           : value == wanted && std::signbit(value) == std::signbit(wanted);
      const uint16_t quiet = std::isnan(wanted) ? static_cast<uint16_t>(1 << (format.fraction_bits - 1)) : 0;
      if (!same || again != (bits | quiet)) ++wrong;
    }
    EXPECT_EQ(wrong, 0);
  }
}

TEST(Element, BetweenTwoSmallFloatsTheNearestIsStoredAndOfTwoTheEvenOne) {
  for (const Format& format : kSmall) {
    SCOPED_TRACE(Name(format.type));
    const auto infinite = static_cast<uint16_t>(((1 << format.exponent_bits) - 1) << format.fraction_bits);
    int wrong = 0;
    for (uint16_t low = 0; low < infinite; ++low) {
      const auto high = static_cast<uint16_t>(low + 1);
      const double a = Loaded(format.type, low);
      // Beyond the largest number: as if there were another one.
      const double b =
          high == infinite ? a + (a - Loaded(format.type, static_cast<uint16_t>(low - 1))) : Loaded(format.type, high);
      const double middle = a + (b - a) / 2;
      const uint16_t even = (low & 1) == 0 ? low : high;
      for (uint16_t sign : {uint16_t{0}, uint16_t{0x8000}}) {
        auto stored = [&](double value) { return Stored(format.type, sign != 0 ? -value : value); };
        wrong += stored(middle) != (even | sign);
        wrong += stored(std::nextafter(middle, 0)) != (low | sign);
        wrong += stored(std::nextafter(middle, kInfinity)) != (high | sign);
      }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(Stored(format.type, 1e300), infinite);
    EXPECT_EQ(Stored(format.type, -kInfinity), infinite | 0x8000);
    EXPECT_EQ(Stored(format.type, 1e-300), 0);
    EXPECT_EQ(Stored(format.type, -5e-324), 0x8000);
  }
}

TEST(Element, OthersAreConvertedAsTheLanguageDoes) {
  for (double value : {0.1, -2.5e-40, 1e39}) {
    EXPECT_EQ(RoundedTo(DType::kF32, value), static_cast<double>(static_cast<float>(value)));
    EXPECT_EQ(RoundedTo(DType::kF64, value), value);
  }
  EXPECT_EQ(RoundedTo(DType::kI8, -200), -128);
  EXPECT_EQ(RoundedTo(DType::kI8, 127.9), 127);
  EXPECT_EQ(RoundedTo(DType::kI32, -2.9), -2);
  EXPECT_EQ(RoundedTo(DType::kI32, 1e10), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(RoundedTo(DType::kI64, -1e30), -0x1p63);
  EXPECT_EQ(RoundedTo(DType::kI64, kInfinity), 0x1p63);
  EXPECT_EQ(RoundedTo(DType::kI32, std::nan("")), 0);
  EXPECT_EQ(RoundedTo(DType::kBool, 0.5), 1);
  EXPECT_EQ(RoundedTo(DType::kBool, 0), 0);
}

TEST(Element, NeedsNoAlignment) {
  for (DType type : kTypes) {
    std::byte memory[32] = {};
    StoreElement(type, 1, memory + 1, 2);
    EXPECT_EQ(LoadElement(type, memory + 1, 2), 1) << Name(type);
    EXPECT_EQ(LoadElement(type, memory + 1, 1), 0) << Name(type);
  }
}

// What an element holds that was never written, or was computed from memory that was not, is no number.
TEST(DTypeTraits, UnwrittenAndScratchAreNoNumbers) {
  for (DType type : kTypes) {
    SCOPED_TRACE(Name(type));
    std::vector<std::byte> unwritten(48), scratch(48);
    FillUnwritten(type, unwritten);
    FillScratch(scratch);
    const size_t count = unwritten.size() / static_cast<size_t>(ByteSize(type));
    for (size_t i = 0; i < count; ++i) {
      const double value = LoadElement(type, unwritten.data(), i);
      if (IsFloat(type)) {
        EXPECT_TRUE(std::isnan(value));
        EXPECT_TRUE(std::isnan(LoadElement(type, scratch.data(), i)));
      } else {
        EXPECT_GT(std::abs(value), ByteSize(type) < 4 ? 1 : 1e6);
      }
    }
    // Not what arithmetic makes of numbers, and not each other.
    std::vector<std::byte> made(static_cast<size_t>(ByteSize(type)));
    StoreElement(type, std::numeric_limits<double>::quiet_NaN(), made.data(), 0);
    EXPECT_NE(std::memcmp(made.data(), unwritten.data(), made.size()), 0);
    EXPECT_NE(std::memcmp(scratch.data(), unwritten.data(), made.size()), 0);
  }
}

// No kernel can be compiled with tensors of these types yet, but what checks results is ready for them: a kernel made
// by hand.
Kernel Rewritten(std::string_view text, DType type) {
  Result<Kernel> kernel = ParseKernel(text);
  EXPECT_TRUE(kernel) << kernel.error().Text();
  for (Tensor& tensor : kernel->tensors) tensor.dtype = type;
  for (Stage& stage : kernel->stages)
    stage.body = Rewrite(stage.body, [&](const Expr& e) {
      return e.type() == DType::kF32 ? Expr(e.op(), type, e.args(), e.int_value(), e.float_value()) : e;
    });
  return *kernel;
}

TEST(SmallFloats, AreReadCheckedAndProjectedAsThemselves) {
  for (DType type : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    SCOPED_TRACE(Name(type));
    const Kernel kernel = Rewritten("matmul(M=70,N=90,K=17)", type);
    std::vector<std::vector<std::byte>> inputs;
    std::vector<OperandView> views;
    for (int operand : {0, 1}) {
      const Tensor& tensor = kernel.tensors[static_cast<size_t>(kernel.operands[static_cast<size_t>(operand)])];
      inputs.emplace_back(static_cast<size_t>(ElementCount(kernel, tensor) * ByteSize(type)));
      FillInput(kernel, operand, 1, inputs.back());
    }
    for (const auto& input : inputs) views.push_back({input.data()});
    double largest = 0;
    for (size_t i = 0; i < 70 * 17; ++i) largest = std::max(largest, std::abs(LoadElement(type, inputs[0].data(), i)));
    EXPECT_LE(largest, 1);
    EXPECT_GT(largest, 0.9);

    std::vector<std::byte> output(70 * 90 * static_cast<size_t>(ByteSize(type)));
    for (size_t m = 0; m < 70; ++m)
      for (size_t n = 0; n < 90; ++n) {
        double sum = 0;
        for (size_t k = 0; k < 17; ++k)
          sum += LoadElement(type, inputs[0].data(), m * 17 + k) * LoadElement(type, inputs[1].data(), k * 90 + n);
        StoreElement(type, sum, output.data(), m * 90 + n);
      }
    Interpreter interpreter(kernel, views);
    SampleOptions options{.samples = 60, .full_budget = 0};
    std::vector<Samples> samples = ComputeSamples(kernel, interpreter, options, 1, views);
    ASSERT_TRUE(samples[0].projection);
    std::span<const std::byte> buffers[] = {output};
    Comparison right = CompareOutputs(kernel, interpreter, samples, buffers);
    EXPECT_FALSE(right.failure) << right.failure->Text();

    const std::vector<std::byte> whole = output;
    auto failure = [&] {
      Comparison comparison = CompareOutputs(kernel, interpreter, samples, buffers);
      return comparison.failure ? comparison.failure->message : "";
    };
    FillUnwritten(type, std::span(output).last(whole.size() / 90));
    EXPECT_NE(failure().find("never written"), std::string::npos) << failure();
    output = whole;
    FillScratch(std::span(output).subspan(static_cast<size_t>(64 * ByteSize(type)), 16));
    EXPECT_NE(failure().find("workspace that was never written"), std::string::npos) << failure();
    output = whole;
    for (size_t i = 0; i < 70 * 90; ++i)
      StoreElement(type, LoadElement(type, output.data(), i) * 1.05, output.data(), i);
    EXPECT_NE(failure(), "");
  }
}

TEST(SmallFloats, ToleranceIsTheAccumulatorsAndOneRounding) {
  auto of = [](DType type, Accuracy accuracy) { return Tolerance(Rewritten("matmul(M=3,N=4,K=256)", type), accuracy); };
  EXPECT_DOUBLE_EQ(of(DType::kF16, Accuracy::kStrict), 20 * 0x1p-24 + 0x1p-11);
  EXPECT_DOUBLE_EQ(of(DType::kBF16, Accuracy::kStrict), 20 * 0x1p-24 + 0x1p-8);
  EXPECT_DOUBLE_EQ(of(DType::kBF16, Accuracy::kRelaxed), 1e-4 + 0x1p-8);
  const Reference large{7e4, 7e4};
  EXPECT_EQ(RelativeError(kInfinity, large, DType::kF16), 0);
  EXPECT_EQ(RelativeError(kInfinity, large, DType::kBF16), kInfinity);
}

TEST(SmallFloats, AreRefusedByNameWhereNothingComputesWithThem) {
  for (std::string_view name : {"f16", "bf16"}) {
    const std::string type(name);
    for (const std::string& text :
         {"matmul(M=3,N=4,K=5,dtype=" + type + ")", "kernel k(x: " + type + "[4]) -> y: f32[4] { y[n] = 0 }",
          "kernel k(x: f32[4]) -> y: f32[4] { y[n] = " + type + "(x[n]) }"}) {
      Result<Kernel> kernel = ParseKernel(text);
      ASSERT_FALSE(kernel) << text;
      EXPECT_EQ(kernel.error().kind, ErrorKind::kUnsupported) << text;
      EXPECT_NE(kernel.error().message.find(type), std::string::npos) << kernel.error().message;
    }
  }
}

}  // namespace
}  // namespace hone
