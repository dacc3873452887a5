// The table of element types, and elements in memory: f16 and bf16 over all of their 65,536 patterns.
#include "ir/graph/dtype_traits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ir/graph/element.h"
#include "ir/graph/verify_kernel.h"
#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "ir/reference/check_output.h"

namespace hone::dtype_traits_test {
namespace {

// Those of which memory may have elements.
const std::vector<DType> kTypes = [] {
  std::vector<DType> types;
  for (const DTypeTraits& row : DTypeTable())
    if (row.bytes > 0) types.push_back(row.type);
  return types;
}();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Format {
  DType type;
  int exponent_bits;
  int fraction_bits;
  int bytes() const { return (1 + exponent_bits + fraction_bits) / 8; }
  uint32_t patterns() const { return uint32_t{1} << (8 * bytes()); }
  uint16_t sign() const { return static_cast<uint16_t>(patterns() / 2); }
};

// A bias of 2^(e−1) − 1 makes 2^(1 − bias) the smallest normal number.
const std::vector<Format> kSmall = [] {
  std::vector<Format> formats;
  for (const DTypeTraits& row : DTypeTable())
    if (IsNarrowFloat(row.type))
      formats.push_back({row.type, 1 + std::ilogb(2 - std::ilogb(row.smallest)), -1 - std::ilogb(row.unit_roundoff)});
  return formats;
}();

// By IEEE 754's definition, with ldexp in place of bits.
double DefinedValue(const Format& format, uint16_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = bits >> format.fraction_bits & ((1 << format.exponent_bits) - 1);
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const double sign = (bits & format.sign()) != 0 ? -1 : 1;
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
  EXPECT_EQ(rows, kTypes.size());
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
  for (DType type : {DType::kI8, DType::kU8, DType::kI32}) EXPECT_EQ(TraitsOf(type).accumulator, DType::kI32);
  EXPECT_EQ(TraitsOf(DType::kF64).accumulator, DType::kF64);
  EXPECT_EQ(TraitsOf(DType::kI64).accumulator, DType::kI64);
}

TEST(Element, EveryPatternOfASmallFloatHasItsValueAndComesBack) {
  for (const Format& format : kSmall) {
    SCOPED_TRACE(Name(format.type));
    int wrong = 0;
    for (uint32_t pattern = 0; pattern < format.patterns(); ++pattern) {
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
      for (uint16_t sign : {uint16_t{0}, format.sign()}) {
        auto stored = [&](double value) { return Stored(format.type, sign != 0 ? -value : value); };
        wrong += stored(middle) != (even | sign);
        wrong += stored(std::nextafter(middle, 0)) != (low | sign);
        wrong += stored(std::nextafter(middle, kInfinity)) != (high | sign);
      }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(Stored(format.type, 1e300), infinite);
    EXPECT_EQ(Stored(format.type, -kInfinity), infinite | format.sign());
    EXPECT_EQ(Stored(format.type, 1e-300), 0);
    EXPECT_EQ(Stored(format.type, -5e-324), format.sign());
  }
}

TEST(Element, OthersAreConvertedAsTheLanguageDoes) {
  for (double value : {0.1, -2.5e-40, 1e39}) {
    EXPECT_EQ(RoundedTo(DType::kF32, value), static_cast<double>(static_cast<float>(value)));
    EXPECT_EQ(RoundedTo(DType::kF64, value), value);
  }
  EXPECT_EQ(RoundedTo(DType::kI8, -200), -128);
  EXPECT_EQ(RoundedTo(DType::kI8, 127.9), 127);
  EXPECT_EQ(RoundedTo(DType::kU8, -0.5), 0);
  EXPECT_EQ(RoundedTo(DType::kU8, 254.9), 254);
  EXPECT_EQ(RoundedTo(DType::kU8, 300), 255);
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

// A matrix product of one of the types that are new to arithmetic, its inputs, and what each element comes to.
struct Product {
  static constexpr size_t kM = 70, kN = 90, kK = 17;
  DType type, result;
  Kernel kernel;
  std::vector<std::vector<std::byte>> inputs;
  std::vector<OperandView> views;
  std::vector<double> sums;
  std::vector<std::byte> output;

  explicit Product(DType of)
      : type(of),
        result(IsFloat(of) ? of : DType::kI32),
        kernel(Parsed("matmul(M=70,N=90,K=17,dtype=" + std::string(Name(of)) + ")")) {
    for (int operand : {0, 1}) {
      const Tensor& tensor = kernel.tensors[kernel.operands[static_cast<size_t>(operand)]];
      EXPECT_EQ(tensor.dtype, type);
      inputs.emplace_back(static_cast<size_t>(ElementCount(kernel, tensor) * ByteSize(type)));
      FillInput(kernel, operand, 1, inputs.back());
    }
    for (const auto& input : inputs) views.push_back({input.data()});
    Fill([](double a, double b) { return a * b; }, [](double sum) { return sum; });
  }

  static Kernel Parsed(const std::string& text) {
    Result<Kernel> kernel = ParseKernel(text);
    EXPECT_TRUE(kernel) << kernel.error().Text();
    return *kernel;
  }

  template <typename Multiply, typename Add>
  void Fill(const Multiply& multiply, const Add& add) {
    sums.clear();
    output.assign(kM * kN * static_cast<size_t>(ByteSize(result)), std::byte{0});
    for (size_t m = 0; m < kM; ++m)
      for (size_t n = 0; n < kN; ++n) {
        double sum = 0;
        for (size_t k = 0; k < kK; ++k)
          sum = add(sum + multiply(LoadElement(type, inputs[0].data(), m * kK + k),
                                   LoadElement(type, inputs[1].data(), k * kN + n)));
        sums.push_back(sum);
        StoreElement(result, sum, output.data(), m * kN + n);
      }
  }

  // Why the output is not the kernel's; "" if it may be. Few elements are compared, so that the sum of all counts too.
  std::string Failure(int64_t samples = 60) const {
    Interpreter interpreter(kernel, views);
    const SampleOptions options{.samples = samples, .full_budget = 0};
    const std::vector<Samples> chosen = ComputeSamples(kernel, interpreter, options, 1, views);
    EXPECT_EQ(chosen[0].projection.has_value(), IsFloat(result));
    std::span<const std::byte> buffers[] = {output};
    Comparison comparison = CompareOutputs(kernel, interpreter, chosen, buffers);
    return comparison.failure ? comparison.failure->message : "";
  }
};

const std::vector<DType> kNarrow = [] {
  std::vector<DType> types = {DType::kU8, DType::kI8};
  for (const Format& format : kSmall) types.push_back(format.type);
  return types;
}();

TEST(NarrowTypes, InputsSpreadOverTheirRange) {
  for (DType type : kNarrow) {
    SCOPED_TRACE(Name(type));
    const Product product(type);
    double least = 0, most = 0;
    for (size_t i = 0; i < Product::kM * Product::kK; ++i) {
      const double value = LoadElement(type, product.inputs[0].data(), i);
      least = std::min(least, value), most = std::max(most, value);
    }
    const DTypeTraits& traits = TraitsOf(type);
    const double lowest = IsFloat(type) ? -1 : static_cast<double>(traits.lowest);
    const double highest = IsFloat(type) ? 1 : static_cast<double>(traits.highest);
    EXPECT_GE(least, lowest);
    EXPECT_LE(least, lowest * 0.9);
    EXPECT_LE(most, highest);
    EXPECT_GE(most, highest * 0.9);
  }
}

// Tests of the test: right results of each type pass, and each way to go wrong is seen.
TEST(NarrowTypes, RightResultsPassAndBrokenOnesAreSeen) {
  for (DType type : kNarrow) {
    SCOPED_TRACE(Name(type));
    Product product(type);
    EXPECT_EQ(product.Failure(), "");
    const std::vector<std::byte> right = product.output;
    const auto bytes = static_cast<size_t>(ByteSize(product.result));

    FillUnwritten(product.result, std::span(product.output).last(right.size() / 90));
    EXPECT_NE(product.Failure(), "") << "the last row was not written";
    product.output = right;
    FillScratch(std::span(product.output).subspan(64 * bytes, 16));
    if (IsFloat(product.result)) { EXPECT_NE(product.Failure(), "") << "computed from memory that was not written"; }
    product.output = right;
    for (size_t i = 0; i < product.sums.size(); ++i)
      StoreElement(product.result, product.sums[i] * 1.05, product.output.data(), i);
    EXPECT_NE(product.Failure(), "") << "5 per cent too large";
  }
}

TEST(NarrowTypes, TruncationForRoundingIsSeen) {
  for (const Format& format : kSmall) {
    SCOPED_TRACE(Name(format.type));
    Product product(format.type);
    const double unit = TraitsOf(format.type).unit_roundoff;
    for (size_t i = 0; i < product.sums.size(); ++i) {
      double stored = LoadElement(format.type, product.output.data(), i);
      // The next one towards zero where rounding went away from it.
      if (std::abs(stored) > std::abs(product.sums[i])) stored *= 1 - 1.5 * unit;
      StoreElement(format.type, stored, product.output.data(), i);
    }
    EXPECT_NE(product.Failure(), "");
  }
}

TEST(NarrowTypes, SumsInTheNarrowTypeAreSeen) {
  for (const Format& format : kSmall) {
    SCOPED_TRACE(Name(format.type));
    Product product(format.type);
    product.Fill([](double a, double b) { return a * b; }, [&](double sum) { return RoundedTo(format.type, sum); });
    EXPECT_NE(product.Failure(), "");
  }
}

TEST(NarrowTypes, WrongSignednessAndSaturationOfIntegersAreSeen) {
  for (DType type : {DType::kU8, DType::kI8}) {
    SCOPED_TRACE(Name(type));
    Product product(type);
    auto other = [&](double x) {  // the same byte read as the other type
      if (type == DType::kU8) return x > 127 ? x - 256 : x;
      return x < 0 ? x + 256 : x;
    };
    auto plain = [](double sum) { return sum; };
    product.Fill([&](double a, double b) { return other(a) * b; }, plain);
    EXPECT_NE(product.Failure(), "") << "the first operand";
    product.Fill([&](double a, double b) { return a * other(b); }, plain);
    EXPECT_NE(product.Failure(), "") << "the second operand";
    product.Fill([](double a, double b) { return a * b; },
                 [](double sum) { return std::clamp(sum, -32768.0, 32767.0); });
    EXPECT_NE(product.Failure(), "") << "sums that saturate at 16 bits";
  }
}

TEST(NarrowTypes, ABytesIntegerOffByOneIsSeenWhereverItIs) {
  for (std::string_view text : {"maxpool2d(C=2,H=9,W=9,R=3,S=3,dtype=u8)", "transpose(M=7,N=9,dtype=u8)"}) {
    const Kernel kernel = Product::Parsed(std::string(text));
    std::vector<std::byte> input(static_cast<size_t>(ElementCount(kernel, kernel.tensors[TensorId(0)])));
    FillInput(kernel, 0, 1, input);
    const std::vector<OperandView> views = {{input.data()}};
    Interpreter interpreter(kernel, views);
    std::vector<Samples> samples = ComputeSamples(kernel, interpreter, {}, 1, views);
    ASSERT_TRUE(samples[0].full);
    std::vector<std::byte> output(samples[0].references.size());
    for (size_t i = 0; i < output.size(); ++i)
      StoreElement(DType::kU8, samples[0].references[i].value, output.data(), i);
    std::span<const std::byte> buffers[] = {output};
    EXPECT_FALSE(CompareOutputs(kernel, interpreter, samples, buffers).failure);
    output[output.size() / 2] = static_cast<std::byte>(static_cast<uint8_t>(output[output.size() / 2]) ^ 1);
    EXPECT_TRUE(CompareOutputs(kernel, interpreter, samples, buffers).failure);
  }
}

TEST(SmallFloats, ToleranceIsTheAccumulatorsAndTheResultsOwnRounding) {
  auto tolerance = [](std::string_view text) { return Tolerance(*ParseKernel(text)); };
  for (std::string_view type : {"f16", "bf16", "f32"}) {
    const std::string name(type);
    EXPECT_DOUBLE_EQ(tolerance("matmul(M=3,N=4,K=256,dtype=" + name + ")"), 20 * 0x1p-24) << type;
    EXPECT_DOUBLE_EQ(tolerance("matmul(M=3,N=4,K=256,accuracy=relaxed,dtype=" + name + ")"), 1e-4) << type;
  }
  const Reference reference{0.5, 4};
  EXPECT_DOUBLE_EQ(Allowed(reference, DType::kF32, 1e-6), 1e-6);
  EXPECT_DOUBLE_EQ(Allowed(reference, DType::kF16, 1e-6), 1e-6 * (1 + 0x1p-11) + 0x1p-11 / 8);
  EXPECT_DOUBLE_EQ(Allowed(reference, DType::kBF16, 1e-6), 1e-6 * (1 + 0x1p-8) + 0x1p-8 / 8);
  EXPECT_EQ(Allowed(reference, DType::kU8, 1e-6), 0);
  const Reference large{7e4, 7e4};
  EXPECT_EQ(RelativeError(kInfinity, large, DType::kF16), 0);
  EXPECT_EQ(RelativeError(kInfinity, large, DType::kBF16), kInfinity);
  EXPECT_GT(RelativeError(65504, large, DType::kF16), Allowed(large, DType::kF16, 1e-6));
}

// Rounding in the middle is passed on like any error, each time; in the end, or under what chooses, it is the result's.
TEST(SmallFloats, RoundingsInTheMiddleAddToTheTolerance) {
  auto tolerance = [](const std::string& body) {
    Result<Kernel> kernel = ParseKernel("kernel k(x: f32[4]) -> y: f16[4] { " + body + " }");
    EXPECT_TRUE(kernel) << kernel.error().Text();
    return Tolerance(*kernel);
  };
  const double none = 5 * 0x1p-24;
  EXPECT_DOUBLE_EQ(tolerance("y[n] = f16(x[n] * x[n])"), none);
  EXPECT_DOUBLE_EQ(tolerance("y[n] = max(f16(x[n] * x[n]), 1)"), none);
  EXPECT_DOUBLE_EQ(tolerance("y[n] = f16(exp(f16(x[n])))"), none + 0x1p-11);
  EXPECT_DOUBLE_EQ(tolerance("y[n] = f16(bf16(x[n]) + f16(x[n]))"), none + 0x1p-8 + 0x1p-11);
  EXPECT_DOUBLE_EQ(tolerance("t: f16[4] t[n] = f16(x[n]) y[n] = f16(2 * t[n])"), none + 0x1p-11);
}

// Half of the least number, and not the least normal one: f16 is never flushed to zero.
TEST(SmallFloats, SubnormalResultsAreCompared) {
  const Reference small{0x1p-15, 0x1p-15};
  EXPECT_EQ(RelativeError(0x1p-15 + 0x1p-25, small, DType::kF16), 0);
  EXPECT_EQ(RelativeError(0, small, DType::kF16), 1);
  EXPECT_EQ(RelativeError(0, {0x1p-127, 0x1p-127}, DType::kBF16), 0);
}

TEST(SmallFloats, ConversionsOverflowInTheReferenceAsInMemory) {
  const Kernel kernel = Product::Parsed("kernel k(x: f32[4]) -> y: f32[4] { y[n] = 1 / f32(f16(x[n])) }");
  const float x[] = {65519, 65521, -1e6, 4};
  const OperandView view{x};
  Interpreter interpreter(kernel, std::span(&view, 1));
  const double wanted[] = {1 / 65519.0, 0, 0, 0.25};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(interpreter.At(0, i).value, wanted[i], 1e-12) << x[i];
}

TEST(SmallFloats, ArithmeticIsInF32AndTypesThatAreMadeByHandCannotSayOtherwise) {
  Kernel kernel = Product::Parsed("kernel k(x: f16[4], z: f16[4]) -> y: f16[4] { y[n] = max(x[n], z[n]) }");
  EXPECT_TRUE(VerifyKernel(kernel));
  const std::vector<Expr> args = kernel.stages.front().body.args();
  kernel.stages.front().body = Expr(Op::kAdd, DType::kF16, args);
  EXPECT_FALSE(VerifyKernel(kernel));

  kernel = Product::Parsed("kernel k(x: bf16[4, 5]) -> y: bf16[4] { y[n] = max(k) x[n, k] }");
  EXPECT_TRUE(VerifyKernel(kernel));
  kernel.stages.front().reduction = Reduction::kSum;
  EXPECT_FALSE(VerifyKernel(kernel));
}

TEST(SmallFloats, NumbersTakeTheNearestValueOfTheirType) {
  const Kernel kernel = Product::Parsed("kernel k(x: bf16[4]) -> y: bf16[4] { y[n] = max(x[n], 0.1) }");
  EXPECT_EQ(kernel.stages.front().body.arg(1).float_value(), RoundedTo(DType::kBF16, 0.1));
}

}  // namespace
}  // namespace hone::dtype_traits_test
