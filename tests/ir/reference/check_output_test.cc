#include "ir/reference/check_output.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>

#include "ir/language/parse.h"

namespace hone::check_output_test {
namespace {

using ::testing::HasSubstr;

Kernel Parse(const std::string& text) {
  Result<Kernel> kernel = ParseKernel(text);
  if (!kernel) throw std::runtime_error(text + ": " + kernel.error().Text());
  return *kernel;
}

// A kernel with test data, and its output computed in float from the reference.
struct Case {
  explicit Case(const std::string& text, const SampleOptions& options = {}) : kernel(Parse(text)) {
    for (size_t i = 0; i < kernel.operands.size(); ++i) {
      const Tensor& tensor = kernel.tensors[kernel.operands[i]];
      buffers.emplace_back(static_cast<size_t>(ElementCount(kernel, tensor) * ByteSize(tensor.dtype)));
      if (tensor.kind == TensorKind::kOutput) {
        FillUnwritten(tensor.dtype, buffers.back());
        output_type = tensor.dtype;
        continue;
      }
      FillInput(kernel, static_cast<int>(i), InputSeed(kernel), buffers.back());
      views.push_back({buffers.back().data()});
    }
    interpreter = std::make_unique<Interpreter>(kernel, views);
    samples = ComputeSamples(kernel, *interpreter, options, InputSeed(kernel), views);
  }

  size_t elements() const { return buffers.back().size() / static_cast<size_t>(ByteSize(output_type)); }

  void ComputeRight() {
    std::vector<int64_t> indices(elements());
    std::iota(indices.begin(), indices.end(), 0);
    std::vector<Reference> references(indices.size());
    interpreter->Evaluate(0, indices, references);
    for (size_t i = 0; i < indices.size(); ++i) Set(i, references[i].value);
  }

  void Set(size_t i, double value) {
    auto store = [&](auto v) { std::memcpy(buffers.back().data() + i * sizeof v, &v, sizeof v); };
    switch (output_type) {
      case DType::kF32: return store(static_cast<float>(value));
      case DType::kI32: return store(static_cast<int32_t>(value));
      case DType::kI8: return store(static_cast<int8_t>(value));
      default: return store(static_cast<uint8_t>(value));
    }
  }

  Comparison Compare() {
    std::vector<std::span<const std::byte>> outputs = {buffers.back()};
    return CompareOutputs(kernel, *interpreter, samples, outputs);
  }

  std::string Failure() {
    Comparison comparison = Compare();
    return comparison.failure ? comparison.failure->message : "";
  }

  Kernel kernel;
  std::vector<std::vector<std::byte>> buffers;
  std::vector<OperandView> views;
  DType output_type = DType::kF32;
  std::unique_ptr<Interpreter> interpreter;
  std::vector<Samples> samples;
};

std::vector<float> Floats(const std::vector<std::byte>& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

TEST(TestInputs, AreSpreadReproducibleAndDifferentPerOperand) {
  Case a("add(M=64,N=1000)"), b("add(M=64,N=1000)");
  EXPECT_EQ(a.buffers[0], b.buffers[0]);
  EXPECT_NE(a.buffers[0], a.buffers[1]);
  int zeros = 0, ones = 0, small = 0, negative = 0;
  for (float x : Floats(a.buffers[0])) {
    ASSERT_LE(std::abs(x), 1);
    zeros += x == 0, ones += std::abs(x) == 1, small += std::abs(x) < 1e-3f, negative += x < 0;
  }
  EXPECT_NEAR(zeros, 2000, 300);
  EXPECT_NEAR(ones, 2000, 300);
  EXPECT_GT(small, 5000);
  EXPECT_NEAR(negative, 31'000, 1500);
}

TEST(TestInputs, LargeOnesRepeatAfterThePeriod) {
  Kernel kernel = *ParseKernel("transpose(M=1500,N=1024)");
  std::vector<std::byte> whole(1500 * 1024 * 4), period(static_cast<size_t>(kInputPeriod));
  FillInput(kernel, 0, 3, whole);
  FillInput(kernel, 0, 3, period);
  EXPECT_EQ(std::memcmp(whole.data(), period.data(), period.size()), 0);
  size_t rest = std::min(whole.size() - period.size(), period.size());
  EXPECT_EQ(std::memcmp(whole.data() + period.size(), period.data(), rest), 0);
  EXPECT_NE(std::memcmp(whole.data(), whole.data() + period.size() / 2, 4096), 0);
}

TEST(TestInputs, ProductsDoNotVanish) {
  Case c("kernel p(x: f32[M, K]) -> y: f32[M] where M=8, K=2000 { y[m] = prod(k) x[m, k] }");
  for (const Reference& reference : c.samples[0].references) {
    EXPECT_GT(std::abs(reference.value), 1e-8);
    EXPECT_LT(std::abs(reference.value), 1e8);
  }
}

// Where nearly everything is the largest or the smallest byte, sums may be wrong and nothing shows it.
TEST(TestInputs, BytesMadeOfFloatsAreSeldomTheLargestOrTheSmallest) {
  for (const char* text :
       {"kernel q(x: u8[M, K], const w: i8[K, N], b: i32[N], s: f32[1], z: f32[1]) -> y: i8[M, N] where M=16, N=4, "
        "K=16 "
        "{ a: i32[M, N] a[m, n] = sum(k) i32(x[m, k]) * i32(w[k, n]) y[m, n] = i8(round(f32(a[m, n] + b[n]) * s[0]) + "
        "z[0]) }",
        "kernel q(x: i8[M, K], w: i8[K], s: f32[M], t: f32[1]) -> y: u8[M] where M=64, K=1000 "
        "{ a: i32[M] a[m] = sum(k) i32(x[m, k]) * i32(w[k]) y[m] = u8(round(f32(a[m]) * (s[m] * t[0])) + 128.0) }",
        "kernel q(x: f32[M, K], w: f32[K]) -> y: i8[M] where M=64, K=4000 { a: f32[M] a[m] = sum(k) x[m, k] * w[k] "
        "y[m] = "
        "i8(a[m] * 100) }"}) {
    Case c(text, {.full = true});
    std::set<double> values;
    int ends = 0;
    for (const Reference& reference : c.samples[0].references) {
      values.insert(reference.value);
      ends +=
          c.output_type == DType::kI8 ? std::abs(reference.value + 0.5) > 127 : std::abs(reference.value - 127.5) > 127;
    }
    EXPECT_LT(ends, 16) << text;
    EXPECT_GT(values.size(), 20u) << text;
  }
}

std::set<int32_t> NumbersIn(const std::vector<std::byte>& bytes) {
  std::vector<int32_t> numbers(bytes.size() / sizeof(int32_t));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return {numbers.begin(), numbers.end()};
}

TEST(TestInputs, IndicesReachTheirBounds) {
  Case c("kernel g(x: f32[N], i: i32[M]) -> y: f32[M] where N=50, M=4000 { y[m] = x[clamp(i[m], 0, 49)] }");
  std::set<int32_t> seen = NumbersIn(c.buffers[1]);
  for (int32_t wanted : {-4, -1, 0, 1, 25, 48, 49, 50, 53}) EXPECT_TRUE(seen.contains(wanted)) << wanted;
  // Beyond them lie the ends of the type alone.
  EXPECT_EQ(seen.erase(std::numeric_limits<int32_t>::min()), 1u);
  EXPECT_EQ(seen.erase(std::numeric_limits<int32_t>::max()), 1u);
  EXPECT_GE(*seen.begin(), -4);
  EXPECT_LE(*seen.rbegin(), 53);
}

TEST(TestInputs, IndicesReachTheirBoundsThroughStages) {
  Case c(
      "kernel g(x: f32[N], i: i32[M], j: i32[M]) -> y: f32[M], z: i32[M] where N=500, M=4000 { a: i32[M] "
      "a[m] = i[m] b: i32[M] b[m] = max(r < 1) a[m] y[m] = x[clamp(b[m], 0, 499)] z[m] = j[m] }");
  std::set<int32_t> seen = NumbersIn(c.buffers[1]), others = NumbersIn(c.buffers[2]);
  for (int32_t wanted :
       {std::numeric_limits<int32_t>::min(), -4, 0, 250, 499, 503, std::numeric_limits<int32_t>::max()})
    EXPECT_TRUE(seen.contains(wanted)) << wanted;
  EXPECT_GE(*others.begin(), -100);
  EXPECT_LE(*others.rbegin(), 100);
}

TEST(Samples, SmallOutputsAreComparedWhole) {
  Case small("matmul(M=64,N=64,K=64)"), large("matmul(M=512,N=512,K=512)");
  EXPECT_TRUE(small.samples[0].full);
  EXPECT_EQ(small.samples[0].indices.size(), 64u * 64);
  EXPECT_FALSE(large.samples[0].full);
  EXPECT_GT(large.samples[0].indices.size(), 200u);
  EXPECT_LE(large.samples[0].indices.size(), 320u);
  EXPECT_TRUE(large.samples[0].projection.has_value());
  EXPECT_TRUE(std::is_sorted(large.samples[0].indices.begin(), large.samples[0].indices.end()));
}

TEST(Samples, MeetCornersTilesAndTails) {
  Case c("matmul(M=500,N=700,K=300)");
  const std::vector<int64_t>& indices = c.samples[0].indices;
  std::set<int64_t> elements(indices.begin(), indices.end()), rows, columns;
  for (int64_t corner : {0, 699, 499 * 700, 500 * 700 - 1}) EXPECT_TRUE(elements.contains(corner));
  for (int64_t index : indices) rows.insert(index / 700), columns.insert(index % 700);
  auto within = [](const std::set<int64_t>& set, int64_t from, int64_t to) {
    return std::any_of(set.begin(), set.end(), [&](int64_t v) { return v >= from && v < to; });
  };
  EXPECT_TRUE(within(rows, 496, 499));     // the tail after tiles of 16
  EXPECT_TRUE(within(columns, 688, 699));  // and of 48
  EXPECT_TRUE(within(rows, 300, 400));     // and somewhere inside
}

TEST(Samples, AnExpensiveReferenceIsSampledLess) {
  Case c("dense(M=1,N=5000,K=50000)");
  EXPECT_LT(c.samples[0].indices.size(), 150u);
  EXPECT_GE(c.samples[0].indices.size(), 40u);
}

TEST(CompareOutputs, AcceptsTheRoundedReference) {
  for (const char* text :
       {"matmul(M=33,N=17,K=9)", "softmax(M=100,N=257)", "conv2d(C=8,H=14,W=14,O=8,R=3,S=3,pad=1)+bias+relu",
        "kernel c(x: i8[M, K], w: i8[K]) -> y: i32[M] where M=50, K=40 { y[m] = sum(k) i32(x[m, k]) * i32(w[k]) }"}) {
    SCOPED_TRACE(text);
    Case c(text);
    c.ComputeRight();
    Comparison comparison = c.Compare();
    EXPECT_FALSE(comparison.failure) << comparison.failure->message;
    EXPECT_GT(comparison.samples, 0);
    EXPECT_LT(comparison.max_rel_err, 1e-7);
  }
}

TEST(CompareOutputs, EveryElementOfASmallOutputCounts) {
  Case c("matmul(M=13,N=11,K=30)");
  c.ComputeRight();
  for (size_t i = 0; i < c.elements(); ++i) {
    std::vector<std::byte> right = c.buffers.back();
    float value = Floats(right)[i];
    c.Set(i, value + 1e-4f);
    EXPECT_THAT(c.Failure(), HasSubstr("1 of 143 compared elements are wrong")) << i;
    c.buffers.back() = right;
  }
}

TEST(CompareOutputs, TheToleranceIsTheKernels) {
  Case strict("matmul(M=8,N=8,K=100)"), relaxed("matmul(M=8,N=8,K=100,accuracy=relaxed)");
  for (Case* c : {&strict, &relaxed}) {
    c->ComputeRight();
    c->Set(5, c->samples[0].references[5].value + 2e-5 * c->samples[0].references[5].magnitude);
  }
  EXPECT_NE(strict.Failure(), "");
  EXPECT_EQ(relaxed.Failure(), "");
  EXPECT_NEAR(relaxed.Compare().max_rel_err, 2e-5, 1e-6);
}

TEST(CompareOutputs, FindsTheUnwrittenElementOfALargeOutput) {
  Case c("gelu(M=700,N=900)");
  ASSERT_FALSE(c.samples[0].full);
  c.ComputeRight();
  std::vector<std::byte> right = c.buffers.back(), unwritten(4);
  FillUnwritten(DType::kF32, unwritten);
  for (size_t i : {size_t{0}, size_t{123'456}, c.elements() - 1}) {
    std::memcpy(c.buffers.back().data() + 4 * i, unwritten.data(), 4);
    EXPECT_THAT(c.Failure(), HasSubstr("of 630000 elements were never written"));
    c.buffers.back() = right;
  }
  // A NaN, an infinity, and a value made from the scratch pattern, where no sample is.
  c.Set(123'456, std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(c.Failure(), HasSubstr("y[137,156] = nan"));
  c.Set(123'456, std::numeric_limits<double>::infinity());
  EXPECT_THAT(c.Failure(), HasSubstr("y[137,156] = inf"));
  FillScratch(unwritten);
  std::memcpy(c.buffers.back().data() + 4 * 123'456, unwritten.data(), 4);
  EXPECT_THAT(c.Failure(), HasSubstr("workspace that was never written"));
}

TEST(CompareOutputs, NaNAndInfinityPassWhereTheKernelMeansThem) {
  Case c("kernel l(x: f32[M, N]) -> y: f32[M, N] where M=600, N=700 { y[i, j] = log(x[i, j]) }");
  ASSERT_FALSE(c.samples[0].full);
  c.ComputeRight();
  EXPECT_EQ(c.Failure(), "");
}

TEST(CompareOutputs, IntegersAndBoolsThatWereNotWritten) {
  Case ints("kernel t(x: i32[N]) -> y: i32[N] where N=3000 { y[i] = x[i] * 3 }");
  ints.ComputeRight();
  FillUnwritten(DType::kI32, std::span(ints.buffers.back()).subspan(4 * 2000, 4));
  EXPECT_THAT(ints.Failure(), HasSubstr("y[2000]"));
  Case bools("kernel t(x: f32[N]) -> y: bool[N] where N=3000 { y[i] = x[i] < 0.5 }");
  bools.ComputeRight();
  EXPECT_EQ(bools.Failure(), "");
  FillUnwritten(DType::kBool, std::span(bools.buffers.back()).subspan(777, 1));
  EXPECT_THAT(bools.Failure(), HasSubstr("y[777] of 3000 elements were never written"));
}

TEST(CompareOutputs, OneWrongElementAnywhereShiftsTheSignedSum) {
  Case c("matmul(M=256,N=256,K=256)");
  ASSERT_FALSE(c.samples[0].full);
  c.ComputeRight();
  EXPECT_EQ(c.Failure(), "");
  std::set<int64_t> sampled(c.samples[0].indices.begin(), c.samples[0].indices.end());
  std::vector<std::byte> right = c.buffers.back();
  for (int64_t i = 77; i < 65536; i += 7001) {
    if (sampled.contains(i)) continue;
    c.Set(static_cast<size_t>(i), Floats(right)[static_cast<size_t>(i)] + 2);
    EXPECT_THAT(c.Failure(), HasSubstr("under random signs")) << i;
    c.buffers.back() = right;
  }
}

}  // namespace
}  // namespace hone::check_output_test
