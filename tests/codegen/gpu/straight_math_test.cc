// How far functions of straight code are from what they should be. All of them are held to the reference elsewhere,
// whose bound for pow is wide where exponents are large.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"

namespace hone {
namespace straight_math_test {

constexpr size_t kCount = 1 << 13;

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

// x^y by the machine model.
template <typename T>
std::vector<T> PowOf(std::vector<T> x, std::vector<T> y) {
  const std::string text =
      fmt::format("kernel p(x: {0}[N], y: {0}[N]) -> z: {0}[N] where N={1} {{ z[i] = pow(x[i], y[i]) }}",
                  sizeof(T) == 4 ? "f32" : "f64", x.size());
  const Kernel kernel = Specialize(ParseKernel(text).value());
  const straight::Program program = StraightOf(text, DefaultSchedule(kernel, SomeGpu()).value()).value();
  std::vector<T> z(x.size());
  void* operands[] = {x.data(), y.data(), z.data()};
  EXPECT_TRUE(SimtRun(program, operands).value().findings.empty());
  return z;
}

// Any bits; results over the whole range; bases near one with large exponents; small whole powers.
template <typename T>
void Fill(std::vector<T>& x, std::vector<T>& y) {
  Rng rng(5);
  const double limit = sizeof(T) == 4 ? 104 : 745;
  const auto put = [&](double a, double b) {
    x.push_back(static_cast<T>(a));
    y.push_back(static_cast<T>(b));
  };
  const auto around_zero = [&] { return rng.Uniform() * 2 - 1; };
  while (x.size() < kCount) {
    x.push_back(std::bit_cast<T>(static_cast<Bits<T>>(rng.Next())));
    y.push_back(std::bit_cast<T>(static_cast<Bits<T>>(rng.Next())));
    const double log_base = around_zero() * std::pow(10, 3 * rng.Uniform() - 1);
    put(std::exp(log_base), limit * around_zero() / log_base);
    const double base = 1 + around_zero() * 0.25;
    put(base, limit * around_zero() / std::log(base));
    put(around_zero() * 100, static_cast<double>(rng.Between(-20, 20)));
  }
}

// In units of the last place, those of subnormal numbers too; beyond the range infinity is as good as the largest
// number.
template <typename T>
double Distance(T seen, long double wanted) {
  if (std::isnan(wanted) || std::isnan(seen)) return std::isnan(wanted) && std::isnan(seen) ? 0 : HUGE_VAL;
  const T largest = std::numeric_limits<T>::max();
  if (std::signbit(seen) != std::signbit(wanted)) return HUGE_VAL;
  if (std::isinf(seen) || std::abs(wanted) >= largest)
    return std::abs(seen) >= largest && std::abs(wanted) > largest / 2 ? 0 : HUGE_VAL;
  int exponent = 0;
  std::frexp(wanted, &exponent);
  const int last = std::max(exponent, std::numeric_limits<T>::min_exponent) - std::numeric_limits<T>::digits;
  return static_cast<double>(std::ldexp(std::abs(static_cast<long double>(seen) - wanted), -last));
}

template <typename T>
void ExpectWithin(double limit) {
  std::vector<T> x, y;
  Fill(x, y);
  const std::vector<T> z = PowOf(x, y);
  double worst = 0;
  for (size_t i = 0; i < z.size(); ++i) {
    const long double wanted = std::pow(static_cast<long double>(x[i]), static_cast<long double>(y[i]));
    const double distance = Distance(z[i], wanted);
    EXPECT_LE(distance, limit) << fmt::format("{} ^ {} is {}, wanted {}", x[i], y[i], z[i],
                                              static_cast<double>(wanted));
    worst = std::max(worst, distance);
  }
  std::printf("pow of f%zu: max %.3f ulp\n", sizeof(T) * 8, worst);
}

TEST(StraightMath, PowIsAccurate) {
  ExpectWithin<float>(1.5);
  ExpectWithin<double>(2.4);
}

TEST(StraightMath, PowIsSpecialAsInC) {
  std::vector<float> numbers = {0,    -0.0f, 1,     -1,     2,      -2,      3,           -3,
                                0.5f, -0.5f, 1e30f, -1e30f, 1e-40f, -1e-40f, 16777215.0f, 8388607.5f};
  numbers.insert(numbers.end(), {INFINITY, -INFINITY, NAN, 3.0e38f, -3.0e38f});
  std::vector<float> x, y;
  for (float a : numbers)
    for (float b : numbers) x.push_back(a), y.push_back(b);
  const std::vector<float> z = PowOf(x, y);
  for (size_t i = 0; i < z.size(); ++i) {
    const long double wanted = std::pow(static_cast<long double>(x[i]), static_cast<long double>(y[i]));
    EXPECT_LE(Distance(z[i], wanted), 1.5)
        << fmt::format("{} ^ {} is {}, wanted {}", x[i], y[i], z[i], static_cast<double>(wanted));
  }
}

}  // namespace straight_math_test
}  // namespace hone
