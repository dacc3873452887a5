// Conversions of f16 and bf16 in generated code against ir/graph/element.h, which is exact: every pattern read, every
// number written that is near one of them or half-way between two, in vectors of several lengths and for every way that
// a target converts.
#include "codegen/llvm/narrow_floats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <vector>

#include "base/cpu_features.h"
#include "ir/graph/element.h"
#include "tests/codegen/llvm/harness.h"

namespace hone {
namespace {

using test::Body;
using test::Builder;

const std::vector<DType> kTypes = [] {
  std::vector<DType> types;
  for (const DTypeTraits& row : DTypeTable())
    if (IsNarrowFloat(row.type)) types.push_back(row.type);
  return types;
}();
constexpr int kLanes[] = {0, 3, 16, 32};
constexpr int64_t kUnit = 96;  // a multiple of each

// With and without the instruction that rounds to bf16.
std::vector<CpuTarget> Targets() {
  std::vector<CpuTarget> targets = test::HostTargets();
  CpuTarget with = test::Avx512Target();
  with.features = {"avx512bf16"};
  if (test::CanRun(with) && CpuHasFeature("avx512bf16"))
    targets.push_back(with);
  else
    std::printf("[SKIP] no AVX512-BF16 here: its conversion was not run\n");
  return targets;
}

// out[i] = emit(in[i]) for arrays of a multiple of kUnit elements.
template <typename In, typename Out, typename Emit>
std::vector<Out> Converted(Builder& builder, int lanes, const std::vector<In>& in, const Emit& emit) {
  const int64_t width = std::max(lanes, 1);
  auto code = test::Load(builder, 2, [&](Body& body) {
    auto& b = body.builder;
    llvm::Type* from = std::is_integral_v<In> ? b.getInt16Ty() : sizeof(In) == 8 ? b.getDoubleTy() : b.getFloatTy();
    llvm::Type* to = std::is_integral_v<Out> ? b.getInt16Ty() : b.getFloatTy();
    llvm::Type* type = lanes == 0 ? from : llvm::FixedVectorType::get(from, static_cast<unsigned>(lanes));
    test::EmitLoop(b, body.Size(0), [&](llvm::Value* i) {
      llvm::Value* at = b.CreateMul(i, b.getInt64(static_cast<uint64_t>(width)));
      llvm::Value* x = b.CreateAlignedLoad(type, b.CreateGEP(from, body.buffers[0], at), llvm::Align(sizeof(In)));
      b.CreateAlignedStore(emit(b, x), b.CreateGEP(to, body.buffers[1], at), llvm::Align(sizeof(Out)));
    });
  });
  std::vector<Out> out(in.size());
  EXPECT_EQ(code->Call({in.data(), out.data()}, {static_cast<int64_t>(in.size()) / width}), 0);
  return out;
}

uint32_t Patterns(DType type) { return uint32_t{1} << (8 * ByteSize(type)); }

// Integers, or vectors of them, of `bits` bits each.
llvm::Value* Resized(llvm::IRBuilderBase& b, llvm::Value* x, int64_t bits) {
  return b.CreateZExtOrTrunc(x, x->getType()->getWithNewBitWidth(static_cast<unsigned>(bits)));
}

std::vector<uint16_t> AllPatterns(DType type) {
  std::vector<uint16_t> bits;
  for (uint32_t pattern = 0; pattern < Patterns(type); ++pattern) bits.push_back(static_cast<uint16_t>(pattern));
  bits.resize((bits.size() + kUnit - 1) / kUnit * kUnit);
  return bits;
}

// Each number of the type, the middle between it and the next, and what lies on both sides of that.
template <typename T>
std::vector<T> NumbersAround(DType type) {
  std::vector<T> numbers;
  for (uint32_t pattern = 0; pattern < Patterns(type); ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern), next = static_cast<uint16_t>(pattern + 1);
    const T low = static_cast<T>(LoadElement(type, &bits, 0)), high = static_cast<T>(LoadElement(type, &next, 0));
    const T middle =
        std::isinf(high) ? low * (1 + static_cast<T>(TraitsOf(type).unit_roundoff)) : low + (high - low) / 2;
    const T far = std::numeric_limits<T>::infinity();
    for (T x : {low, middle, std::nextafter(middle, -far), std::nextafter(middle, far)}) numbers.push_back(x);
  }
  for (T x : {T{1e30}, T{-1e30}, T{1e-30}, std::numeric_limits<T>::max(), std::numeric_limits<T>::denorm_min()})
    numbers.push_back(x);
  numbers.resize((numbers.size() + kUnit - 1) / kUnit * kUnit);
  return numbers;
}

TEST(NarrowFloats, EveryPatternIsReadAsItsNumber) {
  for (const CpuTarget& target : Targets()) {
    Builder builder(target);
    for (DType type : kTypes) {
      const std::vector<uint16_t> bits = AllPatterns(type);
      for (int lanes : kLanes) {
        SCOPED_TRACE(testing::Message() << PrintTarget(target) << " " << Name(type) << " lanes " << lanes);
        const auto read = Converted<uint16_t, float>(builder, lanes, bits, [&](llvm::IRBuilderBase& b, llvm::Value* x) {
          return EmitFromBits(b, type, Resized(b, x, 8 * ByteSize(type)));
        });
        int wrong = 0;
        for (size_t i = 0; i < bits.size(); ++i) {
          const auto wanted = static_cast<float>(LoadElement(type, &bits[i], 0));
          if (std::isnan(wanted))
            wrong += std::isnan(read[i]) ? 0 : 1;
          else
            wrong += std::bit_cast<uint32_t>(read[i]) != std::bit_cast<uint32_t>(wanted);
        }
        EXPECT_EQ(wrong, 0);
      }
    }
  }
}

template <typename T>
void ExpectNearest(std::initializer_list<int> all_lanes) {
  for (const CpuTarget& target : Targets()) {
    Builder builder(target);
    for (DType type : kTypes) {
      const std::vector<T> numbers = NumbersAround<T>(type);
      // The instruction makes zeros of what is below the least normal number.
      const double flushed = type == DType::kBF16 && !target.features.empty() ? TraitsOf(type).smallest : 0;
      for (int lanes : all_lanes) {
        SCOPED_TRACE(testing::Message() << PrintTarget(target) << " " << Name(type) << " lanes " << lanes);
        const auto written =
            Converted<T, uint16_t>(builder, lanes, numbers, [&](llvm::IRBuilderBase& b, llvm::Value* x) {
              return Resized(b, EmitToBits(b, type, EmitRoundTo(b, target, type, x)), 16);
            });
        int wrong = 0;
        T first = 0;
        for (size_t i = 0; i < numbers.size(); ++i) {
          uint16_t wanted = 0;
          StoreElement(type, static_cast<double>(numbers[i]), &wanted, 0);
          if (written[i] == wanted) continue;
          if (std::isnan(numbers[i]) && std::isnan(LoadElement(type, &written[i], 0))) continue;
          if (std::abs(static_cast<double>(numbers[i])) < flushed && (written[i] & 0x7fff) == 0) continue;
          const bool is_small =
              type == DType::kBF16 && std::abs(static_cast<double>(numbers[i])) < TraitsOf(type).smallest;
          if (sizeof(T) == 8 && is_small && std::abs(written[i] - wanted) <= 1) continue;
          if (wrong++ == 0) first = numbers[i];
        }
        EXPECT_EQ(wrong, 0) << first;
      }
    }
  }
}

TEST(NarrowFloats, F32RoundsToTheNearestAndOfTwoToTheEvenOne) { ExpectNearest<float>({0, 3, 16, 32}); }

// Rounded once: by way of an f32, a number just beside the middle would be on it, and go to the wrong side.
TEST(NarrowFloats, F64RoundsOnce) { ExpectNearest<double>({0, 8}); }

}  // namespace
}  // namespace hone
