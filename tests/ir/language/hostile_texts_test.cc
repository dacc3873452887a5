// No text costs much, whatever stands in it: families of texts up to the limit (tests/support/hostile_texts.h), read by
// a process of their own on a small stack, and the texts that once ended a daemon.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <optional>

#include "ir/graph/print.h"
#include "tests/support/hostile_texts.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HONE_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HONE_TEST_SANITIZED 1
#endif
#endif

namespace hone::hostile_texts_test {
namespace {

using ::testing::HasSubstr;

#ifdef HONE_TEST_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr size_t kTextLimit = size_t{1} << 20;
constexpr long kMemoryKib = 64 << 10;
// Threads have 8 MiB; sanitizers' frames are some times as large.
constexpr size_t kStackBytes = kSanitized ? size_t{6} << 20 : size_t{3} << 19;
constexpr rlim_t kHangSeconds = 60;  // no bound on speed: what hangs ends
constexpr size_t kMessageBytes = 4096;

long StatusKib(std::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return std::strtol(line.c_str() + key.size() + 1, nullptr, 10);
  return 0;
}

struct Outcome {
  long grown_kib = 0;
  size_t message_bytes = 0;
  char message[200] = {};
};

struct Errand {
  HostileReader reader;
  const std::string* text;
  Outcome outcome;
};

void* RunErrand(void* argument) {
  Errand& errand = *static_cast<Errand*>(argument);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins here
  const long before = StatusKib("VmRSS");
  const std::string message = LookUp(errand.reader, *errand.text);
  errand.outcome.grown_kib = StatusKib("VmHWM") - before;
  errand.outcome.message_bytes = message.size();
  message.copy(errand.outcome.message, sizeof errand.outcome.message - 1);
  return nullptr;
}

// Looks the text up in a process of its own, on a small stack; nullopt if that process did not live to tell.
std::optional<Outcome> LookUpApart(HostileReader reader, const std::string& text) {
  int ends[2];
  if (::pipe(ends) != 0) return std::nullopt;
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit cpu{kHangSeconds, kHangSeconds}, core{0, 0};
    ::setrlimit(RLIMIT_CPU, &cpu);
    ::setrlimit(RLIMIT_CORE, &core);
    Errand errand{reader, &text, {}};
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_t thread;
    if (::pthread_create(&thread, &attributes, RunErrand, &errand) != 0) ::_exit(1);
    ::pthread_join(thread, nullptr);
    ::_exit(::write(ends[1], &errand.outcome, sizeof errand.outcome) == sizeof errand.outcome ? 0 : 1);
  }
  ::close(ends[1]);
  Outcome outcome;
  const bool told = ::read(ends[0], &outcome, sizeof outcome) == sizeof outcome;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return told ? std::optional(outcome) : std::nullopt;
}

void ExpectCheap(HostileReader reader, const std::string& text) {
  std::optional<Outcome> outcome = LookUpApart(reader, text);
  ASSERT_TRUE(outcome) << "the process ended: " << text.substr(0, 100);
  EXPECT_LT(kSanitized ? 0 : outcome->grown_kib, kMemoryKib) << outcome->message;
  EXPECT_LT(outcome->message_bytes, kMessageBytes) << outcome->message;
}

TEST(HostileTexts, NoneCostsMuch) {
  for (const HostileFamily& family : HostileFamilies())
    for (size_t bytes : {size_t{2} << 10, size_t{24} << 10, size_t{250} << 10, kTextLimit}) {
      if (kSanitized && bytes > (size_t{24} << 10)) continue;
      SCOPED_TRACE(fmt::format("{}, {} bytes", family.name, bytes));
      std::string text = family.text(bytes);
      text.resize(std::min(text.size(), kTextLimit));
      ExpectCheap(family.reader, text);
      if (HasFatalFailure()) return;
    }
}

TEST(HostileTexts, TowersOfSumsAreRefused) {
  const std::string text = TowersOfSums();
  ExpectCheap(HostileReader::kKernel, text);
  EXPECT_THAT(LookUpKernel(text), HasSubstr("an expression of more than 1000 operators in a chain"));
}

TEST(HostileTexts, DoubledExtentsAreRefused) {
  for (size_t bytes : {size_t{4000}, size_t{13000}, size_t{29000}}) {
    ExpectCheap(HostileReader::kKernel, DoubledExtents(bytes));
    EXPECT_THAT(LookUpKernel(DoubledExtents(bytes)), HasSubstr("more than 20000 operands and operators"));
    ExpectCheap(HostileReader::kKernel, DoubledExtents(bytes, 9));
    EXPECT_THAT(LookUpKernel(DoubledExtents(bytes, 9)), HasSubstr("more than 20000 operands and operators"));
  }
}

// The cache reads canonical texts back: whatever the limits let in, they let in again.
TEST(HostileTexts, WhatIsAcceptedIsSmallAndReadsBack) {
  const ParseLimits limits;
  int accepted = 0;
  for (const HostileFamily& family : HostileFamilies()) {
    if (family.reader != HostileReader::kKernel) continue;
    for (size_t bytes : {700, 3000, 12000}) {
      Result<Kernel> kernel = ParseKernel(family.text(bytes));
      if (!kernel) continue;
      SCOPED_TRACE(fmt::format("{}, {} bytes", family.name, bytes));
      ++accepted;
      EXPECT_LE(NodesOf(*kernel), static_cast<size_t>(limits.nodes));
      const std::string text = Canonicalize(*kernel).text;
      ASSERT_LT(text.size(), limits.text_bytes);
      Result<Kernel> again = ParseKernel(text);
      ASSERT_TRUE(again) << again.error().Text();
      EXPECT_TRUE(SameKernel(*again, WithCanonicalNames(*kernel)));
    }
  }
  EXPECT_GT(accepted, 300);
}

std::string ErrorOf(std::string_view text) {
  Result<Kernel> kernel = ParseKernel(text);
  return kernel ? "parsed" : kernel.error().Text();
}

std::string Repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// A function that stands for two, and a name that stands for brackets, nest deeper in the canonical text than as
// written.
TEST(HostileTexts, NestingIsThatOfTheKernel) {
  auto towers = [](int height) {
    return "kernel k(x: f32[4]) -> y: f32[4] { y[i] = " + Repeated("relu6(", height) + "x[i]" + Repeated(")", height) +
           " }";
  };
  EXPECT_EQ(LookUpKernel(towers(95)), "");
  EXPECT_THAT(ErrorOf(towers(150)), HasSubstr("nested more than 200 deep"));
  auto names = [](int count) {
    std::string text = "kernel k(x: f32[4]) -> y: f32[4] where N=1..2, A0=N";
    for (int i = 1; i <= count; ++i) text += fmt::format(", A{}=(A{} + 1)/2", i, i - 1);
    return text + fmt::format(" {{ y[i] = x[i] * float(A{}) }}", count);
  };
  EXPECT_EQ(LookUpKernel(names(180)), "");
  EXPECT_THAT(ErrorOf(names(300)), HasSubstr("nested more than 200 deep"));
}

TEST(HostileTexts, ReductionsHaveAsManyVariablesAsTensorsHaveDimensions) {
  auto sum = [](int variables) {
    std::string text = "kernel k(x: f32[4]) -> y: f32[4] { y[i] = exp(sum(k0 < 2";
    for (int i = 1; i < variables; ++i) text += fmt::format(", k{} < 2", i);
    return text + ") x[i]) }";
  };
  EXPECT_EQ(LookUpKernel(sum(8)), "");
  EXPECT_THAT(ErrorOf(sum(9)), HasSubstr("more than 8 variables in one sum"));
  // A stage's tensor would have nine dimensions, which no text can declare.
  EXPECT_THAT(ErrorOf("kernel k(x: f32[2,2,2,2,2,2,2,2]) -> y: f32[2,2,2,2,2,2,2,2] { y[a,b,c,d,e,f,g,h] = sum(m < 2) "
                      "exp(sum(k < 2) (x[a,b,c,d,e,f,g,h]*float(m + k))) }"),
              HasSubstr("uses more than 8 variables from outside"));
}

TEST(HostileTexts, MessagesQuoteLittle) {
  const std::string digits(100'000, '0');
  EXPECT_LT(ErrorOf("matmul(M=" + digits + "x,N=4,K=4)").size(), 300u);
  EXPECT_LT(ErrorOf("matmul(M=4,N=4,K=4,threads=" + digits + "99999)").size(), 300u);
  EXPECT_LT(ErrorOf("kernel k(x: f32[4]) -> y: f32[4] with threads=" + digits + "99999 { y[i] = x[i] }").size(), 300u);
  EXPECT_THAT(ErrorOf("kernel \"" + digits + "\"(x: f32[4]) -> y: f32[4] { y[i] = x[i] }"),
              HasSubstr("saw a string of 100000 bytes, wanted at most 1024"));
  EXPECT_LT(ErrorOf("kernel k(x: f32[4]) -> y: f32[4] { y[i] = x[i" + Repeated(" + i*3", 900) + "] }").size(), 600u);
  EXPECT_THAT(ParseTarget("avx2 features=" + Repeated("a,", 3000)).error().Text(), HasSubstr("hone's limit is 4096"));
  EXPECT_LT(ParseTarget("avx2 " + Repeated("a", 4000)).error().Text().size(), 200u);
}

TEST(HostileTexts, AsManyRangesAsTheLimitSays) {
  auto kernel = [](int ranges) {
    std::string where = "N0=1..2", value = "float(N0)";
    for (int i = 1; i < ranges; ++i) where += fmt::format(", N{}=1..2", i), value += fmt::format(" + float(N{})", i);
    return "kernel k(x: f32[4]) -> y: f32[4] where " + where + " { y[i] = x[i]*(" + value + ") }";
  };
  EXPECT_EQ(LookUpKernel(kernel(64)), "");
  EXPECT_THAT(ErrorOf(kernel(65)), HasSubstr("more than 64 sizes that are ranges"));
}

// Each stage reads the one before it twice: a walk over all ways would take 2^60 steps.
TEST(HostileTexts, OneInputIsFoundThroughManyStages) {
  std::string text = "kernel k(x: f32[4]) -> y: f32[4] { t0: f32[4] t0[i] = x[i] + x[i]\n";
  for (int i = 1; i < 60; ++i) text += fmt::format("t{0}: f32[4] t{0}[i] = t{1}[i] + t{1}[i]\n", i, i - 1);
  Kernel kernel = ParseKernel(text + "y[i] = t59[i] }").value();
  EXPECT_EQ(OnlyInputOf(kernel, kernel.stages.back()), kernel.operands[0]);
}

TEST(ExprCounts, AreThoseOfTheTree) {
  Expr e = AxisRef(AxisId(3));
  EXPECT_EQ(e.nodes(), 1u);
  EXPECT_EQ(e.height(), 1);
  for (int i = 0; i < 10; ++i) e = Expr(Op::kMul, DType::kI64, {e, e});
  EXPECT_EQ(e.nodes(), 2047u);
  EXPECT_EQ(e.height(), 11);
  EXPECT_EQ(e.ops(), OpBit(Op::kAxis) | OpBit(Op::kMul));
  for (int i = 0; i < 60; ++i) e = Expr(Op::kMul, DType::kI64, {e, e});
  EXPECT_EQ(e.nodes(), std::numeric_limits<uint32_t>::max());
  EXPECT_EQ(AxesOf(e), std::vector<AxisId>{AxisId(3)});
}

TEST(ExprCounts, DifferentTreesAreToldApartAtTheRoot) {
  // Equal but for their last leaf; comparing them from the left would take 2^40 steps.
  Expr a = AxisRef(AxisId(0)), b = AxisRef(AxisId(0));
  for (int i = 0; i < 40; ++i) {
    a = Expr(Op::kAdd, DType::kI64, {a, a});
    b = Expr(Op::kAdd, DType::kI64, {b, b});
  }
  EXPECT_FALSE(SameExpr(Expr(Op::kAdd, DType::kI64, {a, Int(1)}), Expr(Op::kAdd, DType::kI64, {b, Int(2)})));
}

}  // namespace
}  // namespace hone::hostile_texts_test
