// Kernels with dynamic sizes, built once and called at many sizes: every element against the reference, nothing touched
// outside buffers of exactly that size, sizes out of range refused with nothing touched.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "backends/cpu/build_for_cpu.h"
#include "ir/graph/print.h"
#include "ir/language/parse.h"
#include "ir/schedule/schedule_cases.h"
#include "tests/support/run_cases.h"
#include "tests/support/run_kernel.h"

namespace hone::cases_test {
namespace {

constexpr uint64_t kSeed = 5;

struct Sample {
  const char* kernel;
  std::vector<std::vector<int64_t>> sizes;
  const char* schedule = "";
};

// The kernel's text with its ranges replaced.
std::string At(const std::string& text, const std::vector<int64_t>& sizes) {
  return PrintKernel(AtSizes(ParseKernel(text).value(), sizes).value());
}

void RunSamples(const std::vector<Sample>& samples) {
  const std::vector<Target> targets = TestTargets();
  CaseReport report = RunCases(static_cast<int>(samples.size() * targets.size()), [&](int index, CaseLog& log) {
    const Sample& sample = samples[static_cast<size_t>(index) / targets.size()];
    const Target& target = targets[static_cast<size_t>(index) % targets.size()];
    log.Note(fmt::format("{}\n{}", sample.kernel, PrintTarget(target)));
    Result<BuildOutput> built = BuildForCpu({sample.kernel, sample.schedule, target});
    if (!built) return log.Fail(built.error().Text());
    if (built->schedule.starts_with("# plain loops")) return log.Fail(built->schedule);
    // The text that came with it makes the same bytes.
    Result<BuildOutput> again = BuildForCpu({sample.kernel, built->schedule, target});
    if (!again || again->object != built->object) return log.Fail("its schedule makes other code\n" + built->schedule);
    for (const std::vector<int64_t>& sizes : sample.sizes) {
      log.Note(fmt::format("{} at {}...\n{}\n{}", sample.kernel, sizes[0], PrintTarget(target), built->schedule));
      KernelCase kernel(At(sample.kernel, sizes), kSeed);
      RunOutcome outcome = RunBuilt(*built, kernel, sizes);
      if (!outcome.failure.empty()) log.Fail(outcome.failure);
      log.Count("ran");
    }
  });
  EXPECT_TRUE(report.failures.empty()) << report.Text();
  EXPECT_GT(report.count("ran"), 0);
}

std::vector<std::vector<int64_t>> OneByOne(int64_t lo, int64_t hi, int64_t step = 1) {
  std::vector<std::vector<int64_t>> sizes;
  for (int64_t value = lo; value <= hi; value += step) sizes.push_back({value});
  return sizes;
}

TEST(Cases, DefaultSchedulesComputeTheReference) {
  RunSamples({
      {"dense(M=1..70,N=48,K=40,const=1)+bias+relu", OneByOne(1, 70)},
      {"dense(M=1..300,N=33,K=17)", OneByOne(1, 300, 23)},
      {"matmul(M=1..40,N=50,K=23)", OneByOne(1, 40, 3)},
      {"matmul(M=5..9,N=64,K=64,tb=1)+gelu", OneByOne(5, 9)},
      {"dense(M=1..64,N=1,K=30,const=1)", OneByOne(1, 64, 9)},
      {"dense(M=1..50,N=40,K=1024,const=1)", OneByOne(1, 50, 7)},
      {"batch_matmul(B=1..5,M=19,N=21,K=13)", OneByOne(1, 5)},
      {"conv2d(N=1..4,C=3,H=9,W=9,O=5,R=3,S=3,pad=1,const=1)+bias", OneByOne(1, 4)},
      {"conv2d(N=1..11,C=3,H=9,W=9,O=5,R=3,S=3,pad=1,const=1)+relu", OneByOne(1, 11, 5)},
      {"dense(M=5,N=3..9,K=20,const=1)+bias", OneByOne(3, 9)},
      {"matmul(M=4,N=10,K=1..6)", OneByOne(1, 6)},
      {"kernel rows(const x: f32[M, 12], const w: f32[9, 12]) -> y: f32[M, 9] where M=1..40 "
       "{ y[i, j] = sum(k) x[i, k] * w[j, k] }",
       OneByOne(1, 40, 13)},
      {"softmax(M=1..33,N=20)", OneByOne(1, 33, 4)},
      {"layer_norm(M=1..9,N=40)", OneByOne(1, 9, 2)},
      {"add(M=1..20,N=7)", OneByOne(1, 20, 3)},
      {"depthwise_conv2d(N=1..3,C=4,H=9,W=9,R=3,S=3,pad=1)", OneByOne(1, 3)},
  });
}

TEST(Cases, SeveralDynamicSizes) {
  RunSamples(
      {{"kernel two(a: f32[P, 24], const w: f32[16, 24], b: f32[Q, 24]) -> y: f32[P, 16], z: f32[Q, 24] "
        "where P=1..30, Q=2..11 { y[i, j] = sum(k) a[i, k] * w[j, k]\n z[i, j] = b[i, j] * 2.0 }",
        {{1, 2}, {30, 11}, {7, 3}, {16, 10}}}});
}

TEST(Cases, IndicesAreDividedBySizes) {
  RunSamples({
      {"kernel around(x: f32[M]) -> y: f32[M, 8] where M=1..64 { y[i, j] = x[(i + j) % M] }", OneByOne(1, 64, 7)},
      {"kernel back(x: f32[M]) -> y: f32[M, 8] where M=1..64 { y[i, j] = x[(i - j) % M] }", OneByOne(1, 64, 7)},
      {"kernel scaled(x: f32[64]) -> y: f32[M] where M=1..64 { y[i] = x[clamp((i - 9) * 7 / M, 0, 63)] }",
       OneByOne(1, 64, 7)},
      {"kernel number(x: f32[M]) -> y: f32[M] where M=1..64 { y[i] = x[i] + f32((7 - i) % M) }", OneByOne(1, 64, 7)},
      {"kernel of_a_stage(x: f32[M, 4]) -> y: f32[M, 8] where M=1..40 "
       "{ b: f32[M]\n b[i] = sum(r) x[i, r]\n y[i, j] = b[(i * 3 + j) % M] }",
       OneByOne(1, 40, 3)},
  });
}

// Pairs of outer loops become one, whose trips are a product of two sizes.
TEST(Cases, ParallelLoopsOverTwoDynamicSizes) {
  RunSamples({
      {"kernel r(x: f32[B, C, 5, 33]) -> y: f32[B, C, 5] where B=20..40, C=20..40 "
       "{ y[c, i, j] = sum(k) x[c, i, j, k] }",
       {{20, 20}, {40, 23}, {37, 40}}},
      {"kernel r(v: f32[33], x: f32[B, B, 5, 33]) -> y: f32[B, B, 5] where B=20..40 "
       "{ y[c, i, j] = sum(k) v[k] * x[c, i, j, k] }",
       {{20}, {40}, {31}}},
  });
}

// Two cases pack the weights differently and the third reads them where they lie: three copies.
constexpr char kThreeLayouts[] =
    "case M=1..4\n"
    "cache_read w -> p for y const [n/16, k, n%16]\n"
    "split p.n 16\nreorder p.n.0 p.k p.n.1\n"
    "split y.n 16\nreorder y.n.0 y.m y.k y.n.1\nvectorize y.n.1\n"
    "case M=5 9..12\n"
    "cache_read w -> p for y const [n/8, k, n%8]\n"
    "split p.n 8\nreorder p.n.0 p.k p.n.1\n"
    "split y.n 8\nreorder y.n.0 y.m y.k y.n.1\nvectorize y.n.1\n"
    "case M=6..8\n";
constexpr char kSmallDense[] = "dense(M=1..12,N=20,K=10,const=1)";

TEST(Cases, EachDistinctLayoutIsPackedOnce) {
  RunSamples({{kSmallDense, OneByOne(1, 12), kThreeLayouts}});
  const Target target = TestTargets()[0];
  BuildOutput built = BuildForCpu({kSmallDense, kThreeLayouts, target}).value();
  EXPECT_EQ(built.manifest.operands[1].packed_bytes, (2 * 10 * 16 + 3 * 10 * 8) * 4 + (20 * 10 * 4 + 63) / 64 * 64);
  EXPECT_EQ(built.manifest.operands[1].packed_layout,
            "f32[2,10,16] d0/16 d1 d0%16; f32[3,10,8] d0/8 d1 d0%8; f32 as it is");
}

TEST(Cases, ErrorsNameTheCase) {
  const Target target = TestTargets()[0];
  Result<BuildOutput> built = BuildForCpu({kSmallDense, "case M=1..4\ncase M=5..12\nsplit y.q 4\n", target});
  ASSERT_FALSE(built);
  EXPECT_NE(built.error().Text().find("case M=5: step 1"), std::string::npos) << built.error().Text();
  built = BuildForCpu({kSmallDense, "case M=1..4\ncase M=6..12\n", target});
  ASSERT_FALSE(built);
  EXPECT_NE(built.error().Text().find("M=5 is in no case"), std::string::npos) << built.error().Text();
}

TEST(Cases, SizesOutOfRangeAreRefusedWithNothingTouched) {
  for (const char* text : {kSmallDense, "softmax(M=1..12,N=20)"}) {
    BuildOutput built = BuildForCpu({text, "", TestTargets()[0]}).value();
    int fd = memfd_create("kernel", MFD_CLOEXEC);
    ASSERT_EQ(write(fd, built.object.data(), built.object.size()), static_cast<ssize_t>(built.object.size()));
    void* library = dlopen(fmt::format("/proc/self/fd/{}", fd).c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    auto entry = reinterpret_cast<hone_entry_fn>(dlsym(library, "hone_entry"));
    hone_env env{};
    std::array<void*, 4> nowhere{};  // any access would end the process
    for (int64_t size : {int64_t{0}, int64_t{13}, int64_t{-1}, INT64_MAX, INT64_MIN})
      EXPECT_EQ(entry(&env, nowhere.data(), &size), HONE_SIZE_OUT_OF_RANGE) << text << " " << size;
    dlclose(library);
    close(fd);
  }
}

TEST(Cases, ADimensionComputedFromARangeIsRefused) {
  Result<BuildOutput> built = BuildForCpu(
      {"kernel k(x: f32[M*2, 4]) -> y: f32[M*2, 4] where M=1..9 { y[i, j] = x[i, j] + 1.0 }", "", TestTargets()[0]});
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().kind, ErrorKind::kUnsupported) << built.error().Text();
}

}  // namespace
}  // namespace hone::cases_test
