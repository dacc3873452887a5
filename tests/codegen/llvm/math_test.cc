// The elementary functions against libm in higher precision: a subset of all floats in every run; all 2^32 of them with
// HONE_EXHAUSTIVE=1 in the environment (about two minutes a function), which is where the errors in codegen/llvm/math.h
// come from.
#include "codegen/llvm/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ir/graph/op_traits.h"
#include "tests/codegen/llvm/harness.h"

namespace hone {
namespace {

using test::Body;
using test::Builder;

using Unary = llvm::Value* (*)(llvm::IRBuilderBase&, const CpuTarget&, llvm::Value*);

struct Function {
  const char* name;
  Unary emit;
  double (*reference)(double);
  long double (*reference_wide)(long double);
  double max_ulp_f32;  // as stated in llvm_math.h
  double max_ulp_f64;
};

double Rsqrt(double x) { return 1 / std::sqrt(x); }
long double RsqrtWide(long double x) { return 1 / std::sqrt(x); }
double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
long double SigmoidWide(long double x) { return 1 / (1 + std::exp(-x)); }

const Function kFunctions[] = {
    {"exp", EmitExp, std::exp, std::exp, 0.9, 0.9},
    {"log", EmitLog, std::log, std::log, 1.0, 1.0},
    {"tanh", EmitTanh, std::tanh, std::tanh, 2.6, 2.6},
    {"erf", EmitErf, std::erf, std::erf, 1.8, 1.8},
    {"sin", EmitSin, std::sin, std::sin, 2.1, 2.1},
    {"cos", EmitCos, std::cos, std::cos, 2.1, 2.1},
    {"sqrt", EmitSqrt, std::sqrt, std::sqrt, 0.5001, 0.5001},
    {"rsqrt", EmitRsqrt, Rsqrt, RsqrtWide, 1.5, 1.5},
    {"floor", EmitFloor, std::floor, std::floor, 0, 0},
    {"round", EmitRound, std::nearbyint, std::nearbyint, 0, 0},
    {"sigmoid", EmitSigmoid, Sigmoid, SigmoidWide, 2.5, 2.5},
};

// out[i] = f(in[i]) over sizes[0] vectors of `lanes`; lanes = 0: scalars.
template <typename Emit>
std::unique_ptr<test::LoadedObject> LoadElementwise(Builder& builder, bool f64, int lanes, int inputs,
                                                    const Emit& emit) {
  return test::Load(builder, inputs + 1, [&](Body& body) {
    auto& b = body.builder;
    llvm::Type* element = f64 ? b.getDoubleTy() : b.getFloatTy();
    llvm::Type* type = lanes == 0 ? element : llvm::FixedVectorType::get(element, lanes);
    test::EmitLoop(b, body.Size(0), [&](llvm::Value* i) {
      llvm::Value* index = b.CreateMul(i, b.getInt64(static_cast<uint64_t>(std::max(lanes, 1))));
      auto at = [&](int buffer) { return b.CreateGEP(element, body.buffers[buffer], index); };
      llvm::Align align(f64 ? 8 : 4);
      llvm::Value* x = b.CreateAlignedLoad(type, at(0), align);
      llvm::Value* y = inputs == 2 ? b.CreateAlignedLoad(type, at(1), align) : nullptr;
      b.CreateAlignedStore(emit(b, x, y), at(inputs), align);
    });
  });
}

std::unique_ptr<test::LoadedObject> LoadUnary(Builder& builder, bool f64, int lanes, Unary emit) {
  return LoadElementwise(builder, f64, lanes, 1, [&](llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value*) {
    return emit(b, builder.target(), x);
  });
}

// Distance from the wide result r in units of the last place of the result's type, denormals included. NaN equals NaN;
// infinity and a missed infinity are 2^30 apart, unless r rounds to it.
template <typename T, typename Wide>
double UlpError(T y, Wide r) {
  if (std::isnan(r) || std::isnan(y)) return std::isnan(r) && std::isnan(y) ? 0 : 0x1p30;
  T rounded = static_cast<T>(r);
  if (std::isinf(rounded) || std::isinf(y)) {
    if (rounded == y) return 0;
    // Overflow one step early or late.
    T largest = std::copysign(std::numeric_limits<T>::max(), rounded);
    return std::abs(y) >= std::abs(largest) && std::signbit(y) == std::signbit(rounded) ? 1 : 0x1p30;
  }
  int exponent;
  if constexpr (sizeof(Wide) == 8) {  // frexp, quickly: this runs 2^32 times
    exponent = static_cast<int>((std::bit_cast<uint64_t>(r) >> 52) & 0x7ff) - 1022;
  } else {
    std::frexp(r, &exponent);
  }
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
  Wide distance = std::abs(static_cast<Wide>(y) - r);
  if constexpr (sizeof(Wide) == 8) {
    constexpr int kDigits = std::numeric_limits<T>::digits;
    return distance * std::bit_cast<double>(static_cast<uint64_t>(1023 + kDigits - exponent) << 52);
  } else {
    return static_cast<double>(std::ldexp(distance, std::numeric_limits<T>::digits - exponent));
  }
}

const char* IsaName(const CpuTarget& target) {
  return target.isa == Isa::kAvx512 ? "avx512" : target.isa == Isa::kAvx2 ? "avx2  " : "neon  ";
}

bool Exhaustive() { return std::getenv("HONE_EXHAUSTIVE") != nullptr; }

template <typename T>
struct Worst {
  double ulp = -1;
  T x{}, y{};
  double relative = 0;  // in units of 2^-24 (2^-53), where the result is normal; ir/reference/accuracy.h allows 4

  template <typename Wide>
  void Note(T at, T value, Wide reference) {
    double error = UlpError(value, reference);
    if (error > ulp) {
      ulp = error;
      x = at;
      y = value;
    }
    Wide magnitude = std::abs(reference);
    if (magnitude >= std::numeric_limits<T>::min() && magnitude <= std::numeric_limits<T>::max() &&
        std::isfinite(value)) {
      double units = static_cast<double>(std::abs(static_cast<Wide>(value) - reference) / magnitude) /
                     (std::numeric_limits<T>::epsilon() / 2);
      relative = std::max(relative, units);
    }
  }
};

TEST(Math, F32IsAccurateOverItsWholeDomain) {
  constexpr int kBatch = 1 << 14;
  uint64_t step = Exhaustive() ? 1 : 4099;  // a prime: every exponent, mantissas spread
  std::vector<CpuTarget> targets = test::HostTargets();
  for (const Function& f : kFunctions) {
    std::vector<std::unique_ptr<test::LoadedObject>> kernels;
    for (const CpuTarget& target : targets) {
      Builder builder(target);
      kernels.push_back(LoadUnary(builder, false, target.Lanes(4), f.emit));
      ASSERT_NE(kernels.back(), nullptr);
    }
    std::vector<float> x(kBatch), y(kBatch);
    std::vector<double> reference(kBatch);
    std::vector<Worst<float>> worst(targets.size());
    for (uint64_t base = 0; base < (uint64_t{1} << 32); base += step * kBatch) {
      for (int i = 0; i < kBatch; ++i) {
        x[i] = std::bit_cast<float>(static_cast<uint32_t>(base + step * i));
        reference[i] = f.reference(x[i]);
      }
      for (size_t t = 0; t < targets.size(); ++t) {
        ASSERT_EQ(kernels[t]->Call({x.data(), y.data()}, {kBatch / targets[t].Lanes(4)}), 0);
        for (int i = 0; i < kBatch; ++i) worst[t].Note(x[i], y[i], reference[i]);
      }
    }
    for (size_t t = 0; t < targets.size(); ++t) {
      std::printf("f32 %-8s %s max %.3f ulp at %a (%a), relative %.2f\n", f.name, IsaName(targets[t]), worst[t].ulp,
                  worst[t].x, worst[t].y, worst[t].relative);
      std::fflush(stdout);
      EXPECT_LE(worst[t].relative, 4) << f.name;
      EXPECT_LE(worst[t].ulp, f.max_ulp_f32) << f.name << "(" << worst[t].x << ") = " << worst[t].y;
    }
  }
}

// Doubles of every magnitude, and many where the function does something.
std::vector<double> DoubleSamples(size_t count) {
  std::mt19937_64 random(20);
  std::uniform_real_distribution<double> near_zero(-1, 1), middle(-40, 40), wide(-750, 750), near_one(0.5, 2);
  std::vector<double> samples = {0.0,
                                 -0.0,
                                 INFINITY,
                                 -INFINITY,
                                 NAN,
                                 1,
                                 -1,
                                 0x1p-1074,
                                 -0x1p-1074,
                                 0x1p-1022,
                                 std::numeric_limits<double>::max(),
                                 std::numeric_limits<double>::lowest(),
                                 709.78,
                                 709.79,
                                 -745.13,
                                 -745.14,
                                 -708.5,
                                 5.9,
                                 6,
                                 19.06,
                                 20};
  while (samples.size() < count) {
    samples.push_back(std::bit_cast<double>(random()));
    samples.push_back(near_zero(random));
    samples.push_back(middle(random));
    samples.push_back(wide(random));
    samples.push_back(near_one(random));
  }
  samples.resize(count);
  return samples;
}

TEST(Math, F64IsAccurateOnSamples) {
  std::vector<double> x = DoubleSamples(Exhaustive() ? 1 << 24 : 1 << 16), y(x.size());
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    for (const Function& f : kFunctions) {
      SCOPED_TRACE(PrintTarget(target) + " " + f.name);
      int lanes = target.Lanes(8);
      auto kernel = LoadUnary(builder, true, lanes, f.emit);
      ASSERT_NE(kernel, nullptr);
      ASSERT_EQ(kernel->Call({x.data(), y.data()}, {static_cast<int64_t>(x.size()) / lanes}), 0);
      Worst<double> worst;
      for (size_t i = 0; i < x.size(); ++i) {
        worst.Note(x[i], y[i], f.reference_wide(static_cast<long double>(x[i])));
      }
      std::printf("f64 %-8s %s max %.3f ulp at %a (%a), relative %.2f\n", f.name, IsaName(target), worst.ulp, worst.x,
                  worst.y, worst.relative);
      EXPECT_LE(worst.relative, 4) << f.name;
      EXPECT_LE(worst.ulp, f.max_ulp_f64) << "at " << worst.x << ": " << worst.y;
    }
  }
}

TEST(Math, SignsOfZerosAndInfinitiesAreThoseOfC) {
  const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, -1, 0x1p-149, -0x1p-149};
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    for (const Function& f : kFunctions) {
      auto narrow = LoadUnary(builder, false, 8, f.emit);
      auto wide = LoadUnary(builder, true, 8, f.emit);
      ASSERT_TRUE(narrow && wide);
      float x32[8], y32[8];
      double y64[8];
      std::copy(std::begin(special), std::end(special), x32);
      ASSERT_EQ(narrow->Call({x32, y32}, {1}), 0);
      ASSERT_EQ(wide->Call({special, y64}, {1}), 0);
      for (int i = 0; i < 8; ++i) {
        SCOPED_TRACE(testing::Message() << PrintTarget(target) << " " << f.name << "(" << special[i] << ")");
        double want = f.reference(special[i]);
        if (f.emit == EmitRsqrt && special[i] == 0) want = std::copysign(INFINITY, special[i]);
        EXPECT_EQ(std::isnan(want), std::isnan(y32[i])) << y32[i];
        EXPECT_EQ(std::isnan(want), std::isnan(y64[i])) << y64[i];
        if (std::isnan(want)) continue;
        EXPECT_EQ(std::signbit(want), std::signbit(y32[i])) << y32[i];
        EXPECT_EQ(std::signbit(want), std::signbit(y64[i])) << y64[i];
        if (std::isinf(want) || want == 0) {
          EXPECT_EQ(want, y32[i]);
          EXPECT_EQ(want, y64[i]);
        }
      }
    }
  }
}

// One lane's result must not depend on how many lanes there are, or an output would change with the schedule's tails.
TEST(Math, EveryVectorLengthGivesTheSameBits) {
  std::mt19937 random(7);
  constexpr int kCount = 17 * 32 * 3 * 5;  // a multiple of every length below
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    for (const Function& f : kFunctions) {
      std::vector<float> x(kCount), base(kCount), y(kCount);
      for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
      std::vector<double> x64(x.begin(), x.end()), base64(kCount), y64(kCount);
      ASSERT_EQ(LoadUnary(builder, false, 16, f.emit)->Call({x.data(), base.data()}, {kCount / 16}), 0);
      ASSERT_EQ(LoadUnary(builder, true, 8, f.emit)->Call({x64.data(), base64.data()}, {kCount / 8}), 0);
      for (int lanes : {0, 1, 2, 3, 4, 5, 8, 17, 32}) {
        SCOPED_TRACE(testing::Message() << PrintTarget(target) << " " << f.name << " lanes " << lanes);
        int64_t count = kCount / std::max(lanes, 1);
        ASSERT_EQ(LoadUnary(builder, false, lanes, f.emit)->Call({x.data(), y.data()}, {count}), 0);
        EXPECT_EQ(std::memcmp(base.data(), y.data(), sizeof(float) * kCount), 0);
        ASSERT_EQ(LoadUnary(builder, true, lanes, f.emit)->Call({x64.data(), y64.data()}, {count}), 0);
        EXPECT_EQ(std::memcmp(base64.data(), y64.data(), sizeof(double) * kCount), 0);
      }
    }
  }
}

TEST(Math, TanhErfAndSigmoidStayWithinTheirRange) {
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    for (Unary emit : {EmitTanh, EmitErf, EmitSigmoid}) {
      auto kernel = LoadUnary(builder, false, 16, emit);
      std::vector<float> x, y;
      for (float v = -20; v < 20; v += 0.001f) x.push_back(v);
      x.resize(x.size() / 16 * 16);
      y.resize(x.size());
      ASSERT_EQ(kernel->Call({x.data(), y.data()}, {static_cast<int64_t>(x.size() / 16)}), 0);
      EXPECT_LE(*std::max_element(y.begin(), y.end()), 1.0f);
      EXPECT_GE(*std::min_element(y.begin(), y.end()), emit == EmitSigmoid ? 0.0f : -1.0f);
    }
  }
}

TEST(Math, ReciprocalIsAccurateOnItsRange) {
  std::mt19937_64 random(3);
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    auto narrow = LoadUnary(builder, false, 16, EmitReciprocal);
    auto wide = LoadUnary(builder, true, 8, EmitReciprocal);
    std::vector<float> x(1 << 16), y(1 << 16);
    std::vector<double> x64(1 << 16), y64(1 << 16);
    for (size_t i = 0; i < x.size(); ++i) {
      double mantissa = 1 + static_cast<double>(random() >> 11) * 0x1p-53;
      x[i] = static_cast<float>(std::ldexp(mantissa, static_cast<int>(random() % 251) - 126)) * (i % 2 ? -1 : 1);
      x64[i] = std::ldexp(mantissa, static_cast<int>(random() % 2043) - 1022);
    }
    ASSERT_EQ(narrow->Call({x.data(), y.data()}, {(1 << 16) / 16}), 0);
    ASSERT_EQ(wide->Call({x64.data(), y64.data()}, {(1 << 16) / 8}), 0);
    Worst<float> worst;
    Worst<double> worst64;
    for (size_t i = 0; i < x.size(); ++i) {
      worst.Note(x[i], y[i], 1 / static_cast<double>(x[i]));
      worst64.Note(x64[i], y64[i], 1 / static_cast<long double>(x64[i]));
    }
    EXPECT_LE(worst.ulp, 1) << worst.x;
    EXPECT_LE(worst64.ulp, 1) << worst64.x;
  }
}

template <typename T, typename Wide>
void TestPow(const CpuTarget& target, double max_ulp) {
  constexpr bool kF64 = sizeof(T) == 8;
  std::mt19937_64 random(11);
  std::vector<T> x, y;
  const double special[] = {0.0,         -0.0,   1,          -1,     INFINITY,    -INFINITY, NAN,   0.5,
                            -0.5,        2,      -2,         3,      -3,          2.5,       -2.5,  0x1p-149,
                            -0x1p-149,   0x1p24, 0x1p24 + 1, 0x1p53, -0x1p53 + 1, 1e30,      -1e30, 1 - 0x1p-24,
                            1 + 0x1p-23, 0.75,   1.5,        1e-300, 1e300};
  for (double a : special) {
    for (double b : special) {
      x.push_back(static_cast<T>(a));
      y.push_back(static_cast<T>(b));
    }
  }
  std::uniform_real_distribution<double> log_x(-1, 1), unit(0, 1);
  size_t count = Exhaustive() ? 1 << 24 : 1 << 17;
  while (x.size() < count) {
    // Any bits; results over the whole range; bases near one with large exponents; small integer powers.
    if constexpr (kF64) {
      x.push_back(std::bit_cast<double>(random()));
      y.push_back(std::bit_cast<double>(random()));
    } else {
      x.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
      y.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    }
    double limit = kF64 ? 745 : 104, log_base = log_x(random) * std::pow(10, 3 * unit(random) - 1);
    x.push_back(static_cast<T>(std::exp(log_base)));
    y.push_back(static_cast<T>(limit * log_x(random) / log_base));
    x.push_back(static_cast<T>(1 + log_x(random) * 0.25));
    y.push_back(static_cast<T>(limit * log_x(random) / std::log(static_cast<double>(x.back()))));
    x.push_back(static_cast<T>(log_x(random) * 100));
    y.push_back(static_cast<T>(static_cast<int>(random() % 41) - 20));
  }
  x.resize(x.size() / 16 * 16);
  y.resize(x.size());
  Builder builder(target);
  auto kernel =
      LoadElementwise(builder, kF64, kF64 ? 8 : 16, 2,
                      [&](llvm::IRBuilderBase& b, llvm::Value* a, llvm::Value* p) { return EmitPow(b, target, a, p); });
  ASSERT_NE(kernel, nullptr);
  std::vector<T> z(x.size());
  ASSERT_EQ(kernel->Call({x.data(), y.data(), z.data()}, {static_cast<int64_t>(x.size() / (kF64 ? 8 : 16))}), 0);
  Worst<T> worst;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    Wide want = std::pow(static_cast<Wide>(x[i]), static_cast<Wide>(y[i]));
    double error = UlpError(z[i], want);
    if (!std::isnan(want)) { EXPECT_EQ(std::signbit(want), std::signbit(z[i])) << x[i] << " ^ " << y[i]; }
    if (error > worst.ulp) at = i;
    worst.Note(x[i], z[i], want);
  }
  std::printf("%s pow      %s max %.3f ulp at %a ^ %a (%a)\n", kF64 ? "f64" : "f32", IsaName(target), worst.ulp,
              static_cast<double>(x[at]), static_cast<double>(y[at]), static_cast<double>(z[at]));
  EXPECT_LE(worst.ulp, max_ulp) << x[at] << " ^ " << y[at] << " = " << z[at];
}

TEST(Math, PowIsAccurateAndSpecialAsInC) {
  for (const CpuTarget& target : test::HostTargets()) {
    TestPow<float, double>(target, 1);
    TestPow<double, long double>(target, 2.4);
  }
}

TEST(Math, ConstantsAndFastMathFlagsOfTheCallerChangeNothing) {
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    std::vector<float> x = {-0.0f, -1e-30f, 3.5f, -88.5f, 88.7f, INFINITY, -INFINITY, NAN}, plain(8), fast(8);
    auto kernel = LoadUnary(builder, false, 8, EmitExp);
    auto flagged = LoadElementwise(builder, false, 8, 1, [&](llvm::IRBuilderBase& b, llvm::Value* v, llvm::Value*) {
      llvm::IRBuilderBase::FastMathFlagGuard guard(b);
      b.setFastMathFlags(llvm::FastMathFlags::getFast());
      llvm::Value* result = EmitExp(b, target, v);
      EXPECT_TRUE(b.getFastMathFlags().isFast());
      return result;
    });
    ASSERT_EQ(kernel->Call({x.data(), plain.data()}, {1}), 0);
    ASSERT_EQ(flagged->Call({x.data(), fast.data()}, {1}), 0);
    EXPECT_EQ(std::memcmp(plain.data(), fast.data(), 32), 0);
  }
}

TEST(Math, EmitMathKnowsEveryElementaryOperation) {
  Builder builder(test::HostTargets().front());
  builder.Emit(1, [&](Body& body) {
    llvm::Value* x = llvm::ConstantFP::get(body.builder.getFloatTy(), 2);
    llvm::Value* both[] = {x, x};
    for (const OpTraits& traits : OpTable()) {
      if (traits.notation != Notation::kFunction || traits.takes != TypeSet::kFloats) continue;
      EXPECT_NE(EmitMath(body.builder, builder.target(), traits.op, {both, static_cast<size_t>(traits.arity)}), nullptr)
          << traits.name;
    }
    EXPECT_EQ(EmitMath(body.builder, builder.target(), Op::kAdd, both), nullptr);
  });
}

// Code for NEON cannot run here (llvm_object_test runs some under an emulator); it must compile and call nothing.
TEST(Math, CompilesForEveryTarget) {
  for (const CpuTarget& target : {test::Avx2Target(), test::Avx512Target(), test::NeonTarget()}) {
    Builder builder(target);
    for (bool f64 : {false, true}) {
      for (int lanes : {0, 1, 3, 4, 16}) {
        auto module = builder.Emit(1, [&](Body& body) {
          auto& b = body.builder;
          llvm::Type* element = f64 ? b.getDoubleTy() : b.getFloatTy();
          llvm::Type* type = lanes == 0 ? element : llvm::FixedVectorType::get(element, lanes);
          llvm::Value* x = b.CreateAlignedLoad(type, body.buffers[0], llvm::Align(4));
          for (const Function& f : kFunctions) x = f.emit(b, target, x);
          x = EmitPow(b, target, EmitReciprocal(b, target, x), x);
          b.CreateAlignedStore(x, body.buffers[0], llvm::Align(4));
        });
        auto object = builder.compiler().Compile(std::move(module), {});
        EXPECT_TRUE(object) << PrintTarget(target) << ": " << object.error().Text();
      }
    }
  }
}

}  // namespace
}  // namespace hone
