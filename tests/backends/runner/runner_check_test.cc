// Checks and timings in a runner, with artifacts written by hand: right ones pass, and each way to go wrong has its own
// outcome, after which the runner goes on.
#include <gmock/gmock.h>
#include <sys/syscall.h>

#include <string>

#include "base/tiles.h"
#include "tests/backends/runner/hand_made.h"
#include "tests/backends/runner_fixture.h"

namespace hone::runner_check_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Entry;
using testing::HandMade;
using ::testing::HasSubstr;
using testing::In;
using testing::kRelu;
using testing::kReluLoop;
using testing::ManifestOf;
using testing::StartPool;

class RunnerTest : public ::testing::Test {
 protected:
  CheckReport Check(const std::string& kernel, const SealedMemfd& artifact, const CheckOptions& options = {}) {
    Result<RunnerPool::Prepared> prepared = pool_->Prepare(kernel, In(seconds(20)));
    EXPECT_TRUE(prepared) << prepared.error().Text();
    if (!prepared) return {};
    Result<CheckReport> report = pool_->Check(*prepared, artifact, options, In(seconds(60)));
    EXPECT_TRUE(report) << report.error().Text();
    return report ? *report : CheckReport{};
  }

  // Relu with `code` in place of, or before, the right loop.
  CheckReport CheckRelu(const std::string& code, const CheckOptions& options = {}, const std::string& flags = "") {
    return Check(kRelu, HandMade(ManifestOf(kRelu), code, flags), options);
  }

  // `code` must fail as said, and right after it the right code must pass, in the same runner.
  void ExpectFailure(const std::string& code, ErrorKind kind, const std::string& message,
                     const CheckOptions& options = {}, const std::string& flags = "") {
    SCOPED_TRACE(code);
    CheckReport report = CheckRelu(code, options, flags);
    ASSERT_TRUE(report.failure.has_value());
    EXPECT_EQ(report.failure->kind, kind) << report.failure->message;
    EXPECT_THAT(report.failure->message, HasSubstr(message));
    CheckReport after = CheckRelu(Entry(kReluLoop));
    EXPECT_TRUE(after.verified()) << after.failure->message;
    EXPECT_EQ(pool_->Stats().restarts, 0u);
  }

  // Asked again while the machine is not quiet enough, as whoever wants a time asks.
  Result<RunTiming> Time(RunnerPool::Prepared& prepared, const SealedMemfd& artifact, const TimeOptions& options) {
    for (int attempt = 1;; ++attempt) {
      Result<RunTiming> timing = pool_->Time(prepared, artifact, options, In(seconds(30)));
      if (timing || timing.error().kind != ErrorKind::kBusy || attempt == 50) return timing;
    }
  }

  std::unique_ptr<RunnerPool> pool_ = StartPool();
};

TEST_F(RunnerTest, PassesARightKernel) {
  CheckReport report = CheckRelu(Entry(kReluLoop), {.timed_runs = 3});
  EXPECT_TRUE(report.verified()) << report.failure->message;
  EXPECT_TRUE(report.full);
  EXPECT_EQ(report.samples, 5003);
  EXPECT_EQ(report.max_rel_err, 0);
  EXPECT_GT(report.first_run_us, 0);
  EXPECT_GT(report.time_us, 0);
}

// Packing, workspace, several workers, odd sizes.
const char kMatmul[] = "matmul(M=131,N=77,K=59,const=1)";
const char kMatmulCode[] =
    "EXPORT int hone_pack(const hone_env *e, int32_t operand, const void *src, void *dst) {\n"
    "  if (operand != 1) return 7;\n"
    "  const float *b = src; float *t = dst;\n"  // transposed, rows of 64
    "  for (int n = 0; n < 77; ++n) for (int k = 0; k < 64; ++k) t[n * 64 + k] = k < 59 ? b[k * 77 + n] : 0;\n"
    "  return 0; }\n"
    "struct job { const float *a, *t; float *y, *w; };\n"
    "static void rows(int64_t begin, int64_t end, int32_t worker, void *ctx) {\n"
    "  struct job *j = ctx; float *row = j->w + worker * 64;\n"
    "  for (int64_t m = begin; m < end; ++m) {\n"
    "    for (int k = 0; k < 64; ++k) row[k] = k < 59 ? j->a[m * 59 + k] : 0;\n"
    "    for (int n = 0; n < 77; ++n) { float s = 0;\n"
    "      for (int k = 0; k < 64; ++k) s += row[k] * j->t[n * 64 + k];\n"
    "      j->y[m * 77 + n] = s; } } }\n"
    "EXPORT int hone_entry(const hone_env *env, void *const *b, const int64_t *sizes) {\n"
    "  struct job j = {b[0], b[1], b[2], env->workspace};\n"
    "  return env->parallel_for(env->pool, 131, GRAIN, rows, &j); }\n";

Manifest MatmulManifest() {
  Manifest manifest = ManifestOf(kMatmul);
  manifest.operands[1].packed_bytes = (77 * 64 * 4 + 63) / 64 * 64;
  manifest.operands[1].packed_layout = "transposed";
  manifest.workspace_per_worker = 64 * 4;
  return manifest;
}

TEST_F(RunnerTest, PassesPackedOperandsAndAnyNumberOfWorkers) {
  for (int workers : {1, 2, 3, 8})
    for (const char* grain : {"-DGRAIN=1", "-DGRAIN=50", "-DGRAIN=1000"}) {
      CheckReport report = Check(kMatmul, HandMade(MatmulManifest(), kMatmulCode, grain), {.workers = workers});
      ASSERT_TRUE(report.verified()) << workers << " " << grain << ": " << report.failure->message;
      EXPECT_GT(report.max_rel_err, 0);
      EXPECT_LT(report.max_rel_err, 1e-6);
    }
}

TEST_F(RunnerTest, FindsAWrongElementAnywhere) {
  // Each of these tiles is 1 % of the output or less; the sampled ones are chosen to meet them.
  for (const char* wrong : {"if (m == 130 && n == 76) s *= 1.001f;", "if (m == 0 && n == 0) s += 1e-3f;",
                            "if (m >= 128 && n >= 64) s = 0;", "if (n == 76 && m == 127) s = -s;"}) {
    std::string code = kMatmulCode;
    code.replace(code.find("j->y[m * 77"), 0, wrong);
    CheckReport report = Check(kMatmul, HandMade(MatmulManifest(), code, "-DGRAIN=8"));
    ASSERT_FALSE(report.verified()) << wrong;
    EXPECT_EQ(report.failure->kind, ErrorKind::kWrongResult);
    EXPECT_GT(report.max_rel_err, 1e-6);
  }
}

TEST_F(RunnerTest, SaysWhichElementIsWrong) {
  ExpectFailure(Entry(std::string(kReluLoop) + "y[4711] = 3;"), ErrorKind::kWrongResult, "y[4711] = 3, wanted");
  ExpectFailure(Entry(std::string(kReluLoop) + "y[4711] = 0.0/0.0;"), ErrorKind::kWrongResult, "y[4711] = ");
}

TEST_F(RunnerTest, FindsElementsThatWereNotWritten) {
  ExpectFailure(Entry(""), ErrorKind::kWrongResult, "y[0] and 5002 more of 5003 elements were never written");
  ExpectFailure(Entry("const float *x = b[0]; float *y = b[1];"
                      "for (int i = 0; i < 5003; ++i) if (i != 3333) y[i] = x[i] > 0 ? x[i] : 0;"),
                ErrorKind::kWrongResult, "y[3333] of 5003 elements were never written");
}

TEST_F(RunnerTest, FindsWorkspaceThatWasReadBeforeItWasWritten) {
  Manifest manifest = MatmulManifest();
  std::string code = kMatmulCode;
  code.replace(code.find("k < 64; ++k) row[k]"), 6, "k < 59");  // the padding stays as it was
  CheckReport report = Check(kMatmul, HandMade(manifest, code, "-DGRAIN=8"));
  ASSERT_FALSE(report.verified());
  EXPECT_THAT(report.failure->message, HasSubstr("workspace that was never written"));
  code = kMatmulCode;
  code.replace(code.find("k < 64; ++k) t["), 6, "k < 59");  // and that of the packed form
  EXPECT_FALSE(Check(kMatmul, HandMade(manifest, code, "-DGRAIN=8")).verified());
}

TEST_F(RunnerTest, StopsAccessOutsideTheBuffers) {
  ExpectFailure(Entry(std::string(kReluLoop) + "y[5003] = 0;"), ErrorKind::kRunFailed, "0 bytes past the end of y");
  ExpectFailure(Entry(std::string(kReluLoop) + "y[0] = x[5003];"), ErrorKind::kRunFailed, "0 bytes past the end of x");
  ExpectFailure(Entry(std::string(kReluLoop) + "y[7003] = 0;"), ErrorKind::kRunFailed, "bytes past the end of y");
  ExpectFailure(Entry(std::string(kReluLoop) + "y[-2000] = 0;"), ErrorKind::kRunFailed, "bytes before the start of y");
  ExpectFailure(Entry(std::string(kReluLoop) + "y[-1] = 0;"), ErrorKind::kWrongResult, "4 bytes before the start of y");
  ExpectFailure(Entry(std::string(kReluLoop) + "((float *)x)[7] = 0;"), ErrorKind::kRunFailed, "x at byte 28");
  ExpectFailure(Entry(std::string(kReluLoop) + "*(volatile int *)0 = 0;"), ErrorKind::kRunFailed, "stray");
}

TEST_F(RunnerTest, StopsAccessOutsideWorkspaceAndPackedOperands) {
  std::string code = kMatmulCode;
  code.replace(code.find("return 0; }"), 0, "((volatile float *)t)[77 * 64] = 1; ");
  CheckReport report = Check(kMatmul, HandMade(MatmulManifest(), code, "-DGRAIN=8"));
  ASSERT_FALSE(report.verified());
  EXPECT_THAT(report.failure->message, HasSubstr("0 bytes past the end of packed b, in hone_pack of b"));
  code = kMatmulCode;
  code.replace(code.find("struct job j ="), 0, "((volatile float *)env->workspace)[64 * env->workers] = 1; ");
  report = Check(kMatmul, HandMade(MatmulManifest(), code, "-DGRAIN=8"), {.workers = 2});
  ASSERT_FALSE(report.verified());
  EXPECT_THAT(report.failure->message, HasSubstr("0 bytes past the end of the workspace, in hone_entry"));
}

#if defined(__x86_64__)
// A call of the kernel that the gate does not see, since no instruction begins there: in the bytes of a number, where a
// forged return leads. `gate` is the number: syscall or int 0x80, and ret.
std::string Syscall(int number, const char* arguments, const char* gate = "0x00c3050f") {
  return std::string("static long call(long n, long a, long b_, long c) { long r;\n") +
         "__asm__ volatile(\"leaq -128(%%rsp), %%rsp; call 2f; jmp 3f; 2: leaq 1f(%%rip), %%r10; addq $2, %%r10; \"\n"
         "\"pushq %%r10; ret; 1: movl $" +
         gate +
         ", %%r11d; 3: leaq 128(%%rsp), %%rsp\"\n"
         ": \"=a\"(r) : \"a\"(n), \"D\"(a), \"S\"(b_), \"d\"(c) : \"rcx\", \"r10\", \"r11\", \"memory\");\n"
         "return r; }\n" +
         Entry(std::string(kReluLoop) + "call(" + std::to_string(number) + ", " + arguments + ");");
}

TEST_F(RunnerTest, KillsAtSystemCalls) {
  struct Case {
    const char* name;
    int number;
    const char* arguments;
  };
  const Case cases[] = {
      {"openat", SYS_openat, "-100, (long)\"/etc/passwd\", 0"},
      {"socket", SYS_socket, "1, 1, 0"},
      {"kill", SYS_kill, "1, 0, 0"},
      {"clone", SYS_clone, "17, 0, 0"},
      {"execve", SYS_execve, "(long)\"/bin/sh\", 0, 0"},
      {"mmap", SYS_mmap, "0, 4096, 7"},
      {"mprotect", SYS_mprotect, "(long)b[0] & -4096, 4096, 7"},
      {"write", SYS_write, "1, (long)b[0], 4"},
      {"ptrace", SYS_ptrace, "16, 1, 0"},
      {"rt_sigaction", SYS_rt_sigaction, "11, 0, 0"},
      {"prctl", SYS_prctl, "1, 0, 0"},
      {"unlinkat", SYS_unlinkat, "-100, (long)\"/tmp/x\", 0"},
      {"nonexistent", 100000, "0, 0, 0"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ExpectFailure(Syscall(c.number, c.arguments), ErrorKind::kRunFailed, "it made a system call");
  }
  ExpectFailure(Syscall(SYS_fork, "0, 0, 0"), ErrorKind::kRunFailed, "it made a system call");
  ExpectFailure(Syscall(SYS_getpid | 0x40000000, "0, 0, 0"), ErrorKind::kRunFailed, "it made a system call");  // x32
  // The 32-bit gate has numbers of its own: 20 is getpid there and writev here.
  ExpectFailure(Syscall(20, "0, 0, 0", "0x00c380cd"), ErrorKind::kRunFailed, "");
}

// The caller goes on only when the helper has come that far: on a busy machine it would do all of the loop alone.
TEST_F(RunnerTest, KillsSystemCallsOnHelperThreadsToo) {
  std::string code = Syscall(SYS_getppid, "0, 0, 0");
  code = code.substr(0, code.find("EXPORT int hone_entry")) +
         "static void body(int64_t begin, int64_t end, int32_t worker, void *ctx) {\n"
         "  volatile int *has_called = ctx;\n"
         "  if (worker > 0) call(110, 0, 0, 0), *has_called = 1;\n"
         "  while (!*has_called) {} }\n" +
         Entry(std::string(kReluLoop) + "volatile int c = 0; env->parallel_for(env->pool, 64, 1, body, (void *)&c);");
  ExpectFailure(code, ErrorKind::kRunFailed, "it made a system call", {.workers = 2});
}

#endif

TEST_F(RunnerTest, RefusesSystemCallsThatNoRunWouldMake) {
#if defined(__x86_64__)
  const std::string call = "__asm__ volatile(\"syscall\");";
#else
  const std::string call = "__asm__ volatile(\"svc 0\");";
#endif
  ExpectFailure(Entry(std::string(kReluLoop) + "if (env->workers == 12345) " + call), ErrorKind::kCorrupt,
                "its code has a system call");
}

TEST_F(RunnerTest, EndsEndlessLoops) {
  CheckOptions options{.run_limit = milliseconds(100)};
  auto start = std::chrono::steady_clock::now();
  ExpectFailure(Entry("while (1) __asm__ volatile(\"\");"), ErrorKind::kTimeout,
                "still running after 100 ms, in hone_entry", options);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
  Manifest manifest = MatmulManifest();
  std::string code = kMatmulCode;
  code.replace(code.find("const float *b = src"), 0, "while (1) __asm__ volatile(\"\");");
  CheckReport report = Check(kMatmul, HandMade(manifest, code, "-DGRAIN=8"), options);
  ASSERT_FALSE(report.verified());
  EXPECT_THAT(report.failure->message, HasSubstr("in hone_pack of b"));
}

TEST_F(RunnerTest, ReportsCrashesOfOtherKinds) {
  ExpectFailure("static int deep(volatile char *p) { volatile char a[4096]; a[0] = *p; return deep(a) + a[1]; }\n" +
                    Entry("char c = 1; ((float *)b[1])[0] = deep(&c);"),
                ErrorKind::kRunFailed, "the stack overflowed");
  ExpectFailure(Entry("__builtin_trap();"), ErrorKind::kRunFailed, "instruction");
#if defined(__x86_64__)
  ExpectFailure(Entry("volatile int zero = 0; ((volatile int *)b[1])[0] = (int)env->workers / zero;"),
                ErrorKind::kRunFailed, "arithmetic trap");
  ExpectFailure(Syscall(SYS_exit_group, "0, 0, 0"), ErrorKind::kRunFailed, "ended the process");
  ExpectFailure(Entry(std::string(kReluLoop) + "unsigned m; __asm__ volatile(\"stmxcsr %0\" : \"=m\"(m)); m |= 0x8040;"
                                               "__asm__ volatile(\"ldmxcsr %0\" :: \"m\"(m));"),
                ErrorKind::kRunFailed, "mode bits changed: MXCSR 0x8040");
  ExpectFailure(Entry(std::string(kReluLoop) + "unsigned short m; __asm__ volatile(\"fnstcw %0\" : \"=m\"(m)); "
                                               "m ^= 0xc00; __asm__ volatile(\"fldcw %0\" :: \"m\"(m));"),
                ErrorKind::kRunFailed, "mode bits changed: x87 control word 0xc00");
  ExpectFailure(Entry(std::string(kReluLoop) + "__asm__ volatile(\"fld1\");"), ErrorKind::kRunFailed,
                "values on the x87 stack");
  ExpectFailure(Entry(std::string(kReluLoop) + "__asm__ volatile(\"std\");"), ErrorKind::kRunFailed,
                "the direction flag set");
  if (MayUseTiles()) {
    ExpectFailure(Entry(std::string(kReluLoop) + "unsigned char c[64] = {1}; c[16] = 64; c[48] = 16;"
                                                 "__asm__ volatile(\"ldtilecfg %0; tilezero %%tmm0\" :: \"m\"(c));"),
                  ErrorKind::kRunFailed, "AMX's tiles in use");
  } else {
    std::printf("[SKIP] no AMX: code that leaves its tiles in use was not run\n");
  }
  // In a call after the first.
  ExpectFailure(Entry("static int calls; if (++calls > 1) __asm__ volatile(\"std\");" + std::string(kReluLoop)),
                ErrorKind::kRunFailed, "the direction flag set", {.timed_runs = 2});
#endif
  ExpectFailure(Entry(std::string(kReluLoop) + "return 42;"), ErrorKind::kRunFailed, "returned 42, in hone_entry");
}

TEST_F(RunnerTest, RefusesWhatTheGateRefuses) {
  std::string good = Entry(kReluLoop);
  ExpectFailure(good + "__attribute__((constructor)) static void f(void) { while (1) __asm__ volatile(\"\"); }",
                ErrorKind::kCorrupt, "constructor");
  ExpectFailure(good, ErrorKind::kCorrupt, "another library", {}, "-Wl,--no-as-needed -lc");
  ExpectFailure(good + "static __thread int t = 3; EXPORT int *f(void) { return &t; }", ErrorKind::kCorrupt,
                "thread-local", {}, "-ftls-model=initial-exec");
  ExpectFailure(good +
                    "static int g(void) { return 1; } static void *pick(void) { return g; }\n"
                    "EXPORT int f(void) __attribute__((ifunc(\"pick\")));",
                ErrorKind::kCorrupt, "refused");
  ExpectFailure(good, ErrorKind::kCorrupt, "refused", {}, "-Wl,--omagic");
  ExpectFailure(good + "int getpid(void); EXPORT int f(void) { return getpid(); }", ErrorKind::kCorrupt, "refused");
  CheckReport report = Check(kRelu, *SealedMemfd::Create(AsBytes("garbage")));
  EXPECT_EQ(report.failure->kind, ErrorKind::kCorrupt);
}

TEST_F(RunnerTest, RefusesManifestsOfOtherKernels) {
  auto expect = [&](const Manifest& manifest, const std::string& message) {
    CheckReport report = Check(kMatmul, HandMade(manifest, kMatmulCode, "-DGRAIN=8"));
    ASSERT_FALSE(report.verified()) << message;
    EXPECT_THAT(report.failure->message, HasSubstr(message));
  };
  Manifest good = MatmulManifest();
  Manifest m = good;
  m.kernel = ManifestOf("matmul(M=131,N=77,K=58,const=1)").kernel;
  expect(m, "kernel is");
  m = good, m.operands[0].shape[0] = {132, 132, -1};
  expect(m, "operand 0");
  m = good, m.operands[1].packed_bytes = 65;
  expect(m, "packed size");
  m = good, std::swap(m.operands[1].packed_bytes, m.operands[0].packed_bytes);
  std::swap(m.operands[1].packed_layout, m.operands[0].packed_layout);
  expect(m, "packed size");
  m = good, m.operands.pop_back();
  expect(m, "number of operands");
  m = good, m.operands[0].alignment = 64;
  expect(m, "alignment");
  m = good, m.workspace_per_worker = 100;
  expect(m, "workspace");
  m = good, m.workspace_common = int64_t{1} << 39;
  expect(m, "MiB");
  m = good, m.accuracy = Accuracy::kFast;
  expect(m, "accuracy");
  m = good, m.operands[2].dtype = DType::kI32;
  expect(m, "operand 2");
  m = good, m.target = "avx2 cpu=haswell features=quantum l1=32768 l2=262144 l3=8388608 cores=4";
  expect(m, "needs quantum, which this CPU lacks");
}

TEST_F(RunnerTest, SaysWhyAKernelCannotBeChecked) {
  SealedMemfd artifact = HandMade(ManifestOf(kRelu), Entry(kReluLoop));
  for (auto [kernel, message] : {std::pair("nonsense(1)", "kernel:1"), std::pair("matmul(M=8,N=4)", "K")}) {
    Result<RunnerPool::Prepared> prepared = pool_->Prepare(kernel, In(seconds(10)));
    ASSERT_TRUE(prepared);
    Result<CheckReport> report = pool_->Check(*prepared, artifact, {}, In(seconds(10)));
    ASSERT_FALSE(report);
    EXPECT_THAT(report.error().Text(), HasSubstr(message));
  }
}

// 268 MB of weights that are 4 MB of memory.
TEST_F(RunnerTest, ChecksHugeInputsCheaply) {
  const char kernel[] =
      "kernel mv(w: f32[N, K], x: f32[K]) -> y: f32[N] where N=8192, K=8192 { y[n] = sum(k) w[n, k] * x[k] }";
  const char code[] =
      "const float *w = b[0], *x = b[1]; float *y = b[2];"
      "for (int n = 0; n < 8192; ++n) { float s = 0; for (int k = 0; k < 8192; ++k) s += w[n * 8192 + k] * x[k];"
      "y[n] = s WRONG; }";
  CheckReport report = Check(kernel, HandMade(ManifestOf(kernel), Entry(code), "-ffast-math -DWRONG="));
  EXPECT_TRUE(report.verified()) << report.failure->message;
  EXPECT_GE(report.samples, 48);
  report = Check(kernel, HandMade(ManifestOf(kernel), Entry(code), "-ffast-math '-DWRONG=+(n>8128?.05f:0)'"));
  EXPECT_FALSE(report.verified());
}

// One that no sample meets: the sum under random signs does.
TEST_F(RunnerTest, FindsOneWrongElementInALargeContraction) {
  const char kernel[] = "matmul(M=300,N=300,K=200)";
  const char code[] =
      "const float *x = b[0], *w = b[1]; float *y = b[2];"
      "for (int m = 0; m < 300; ++m) for (int n = 0; n < 300; ++n) { float s = 0;"
      "for (int k = 0; k < 200; ++k) s += x[m * 200 + k] * w[k * 300 + n]; y[m * 300 + n] = s; }"
      "WRONG;";
  CheckReport right = Check(kernel, HandMade(ManifestOf(kernel), Entry(code), "-ffast-math '-DWRONG='"));
  EXPECT_TRUE(right.verified()) << right.failure->message;
  EXPECT_FALSE(right.full);
  CheckReport wrong =
      Check(kernel, HandMade(ManifestOf(kernel), Entry(code), "-ffast-math '-DWRONG=y[142 * 300 + 203] += 1'"));
  ASSERT_FALSE(wrong.verified());
  EXPECT_THAT(wrong.failure->message, HasSubstr("under random signs"));
  CheckReport full = Check(kernel, HandMade(ManifestOf(kernel), Entry(code), "-ffast-math '-DWRONG='"), {.full = true});
  EXPECT_TRUE(full.verified() && full.full);
  EXPECT_EQ(full.samples, 90'000);
}

TEST_F(RunnerTest, OnePreparedKernelTakesManyArtifacts) {
  Result<RunnerPool::Prepared> prepared = pool_->Prepare(kRelu, In(seconds(10)));
  ASSERT_TRUE(prepared);
  SealedMemfd right = HandMade(ManifestOf(kRelu), Entry(kReluLoop)), empty = HandMade(ManifestOf(kRelu), Entry(""));
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(pool_->Check(*prepared, right, {}, In(seconds(10)))->verified());
    EXPECT_FALSE(pool_->Check(*prepared, empty, {}, In(seconds(10)))->verified());  // nothing is left of the last run
  }
}

TEST_F(RunnerTest, MeasuresAndThenStillChecks) {
  Result<RunnerPool::Prepared> prepared = pool_->Prepare(kRelu, In(seconds(10)));
  ASSERT_TRUE(prepared);
  SealedMemfd right = HandMade(ManifestOf(kRelu), Entry(kReluLoop));
  TimeOptions options{.samples = 7, .max_samples = 1000};
  Result<RunTiming> timing = Time(*prepared, right, options);
  ASSERT_TRUE(timing) << timing.error().Text();
  EXPECT_EQ(timing->samples, 7);
  EXPECT_GT(timing->calls_per_sample, 1);
  EXPECT_GT(timing->median_us, 0.05);
  EXPECT_LT(timing->median_us, 1000);
  EXPECT_LE(timing->min_us, timing->median_us);
  EXPECT_THAT(timing->protocol, HasSubstr("warm workers=1 samples=7"));
  EXPECT_TRUE(pool_->Check(*prepared, right, {}, In(seconds(10)))->verified());
}

TEST_F(RunnerTest, TakesNoMoreSamplesThanAreOfUse) {
  Result<RunnerPool::Prepared> prepared = pool_->Prepare(kRelu, In(seconds(10)));
  ASSERT_TRUE(prepared);
  SealedMemfd right = HandMade(ManifestOf(kRelu), Entry(kReluLoop));
  auto samples = [&](double contender_us, double narrow) {
    TimeOptions options{.samples = 50, .max_samples = 1000, .contender_us = contender_us, .narrow = narrow};
    Result<RunTiming> timing = Time(*prepared, right, options);
    return timing ? timing->samples : -1;
  };
  EXPECT_EQ(samples(0, 0), 50);
  EXPECT_EQ(samples(0, 1e-12), 50);  // no five samples are as equal as that
  EXPECT_EQ(samples(0, 1e6), 5);
  EXPECT_EQ(samples(1e6, 0), 50);  // a contender
  EXPECT_EQ(samples(1e-6, 0), 5);  // none
}

TEST_F(RunnerTest, GivesUpOnSlowAndEndlessCandidates) {
  Result<RunnerPool::Prepared> prepared = pool_->Prepare(kRelu, In(seconds(10)));
  SealedMemfd slow = HandMade(ManifestOf(kRelu), Entry("for (volatile long i = 0; i < 3000000; ++i) {}"));
  Result<RunTiming> timing = Time(*prepared, slow, {.give_up_us = 10});
  ASSERT_TRUE(timing) << timing.error().Text();
  EXPECT_EQ(timing->samples, 1);
  EXPECT_GT(timing->median_us, 100);
  SealedMemfd endless = HandMade(ManifestOf(kRelu), Entry("while (1) __asm__ volatile(\"\");"));
  timing = Time(*prepared, endless, {.limit = milliseconds(100)});
  ASSERT_FALSE(timing);
  EXPECT_EQ(timing.error().kind, ErrorKind::kTimeout);
}

const char kDynamicRelu[] = "kernel relu(x: f32[N]) -> y: f32[N] where N=1..5003 { y[i] = max(x[i], 0.0) }";

CheckOptions AtSize(int64_t size) {
  CheckOptions options;
  options.sizes = {size};
  return options;
}

TEST_F(RunnerTest, DynamicSizesAreCheckedAtAnyOfThem) {
  SealedMemfd right = HandMade(ManifestOf(kDynamicRelu), Entry("const float *x = b[0]; float *y = b[1]; for (int64_t i "
                                                               "= 0; i < sizes[0]; ++i) y[i] = x[i] > 0 ? x[i] : 0;"));
  Result<RunnerPool::Prepared> prepared = pool_->Prepare(kDynamicRelu, In(seconds(20)));
  ASSERT_TRUE(prepared);
  for (int64_t size : {int64_t{5003}, int64_t{1}, int64_t{1024}, int64_t{17}}) {
    Result<CheckReport> report = pool_->Check(*prepared, right, AtSize(size), In(seconds(20)));
    ASSERT_TRUE(report) << report.error().Text();
    EXPECT_TRUE(report->verified()) << report->failure->Text();
  }
  // The largest, where nobody says.
  EXPECT_TRUE(pool_->Check(*prepared, right, {}, In(seconds(20)))->verified());
  TimeOptions time;
  time.sizes = {100};
  Result<RunTiming> timing = Time(*prepared, right, time);
  EXPECT_TRUE(timing) << timing.error().Text();
  // A size that is none of the kernel's is a mistake of whoever asks; the kernel stays prepared.
  for (int64_t size : {int64_t{0}, int64_t{5004}})
    EXPECT_EQ(pool_->Check(*prepared, right, AtSize(size), In(seconds(20))).error().kind, ErrorKind::kInvalid);
  EXPECT_TRUE(pool_->Check(*prepared, right, AtSize(3), In(seconds(20)))->verified());
}

TEST_F(RunnerTest, ADynamicSizeTooFarIsFound) {
  // Right at the largest size only: it always computes all of it.
  SealedMemfd wrong = HandMade(ManifestOf(kDynamicRelu), Entry(kReluLoop));
  Result<RunnerPool::Prepared> prepared = pool_->Prepare(kDynamicRelu, In(seconds(20)));
  ASSERT_TRUE(prepared);
  EXPECT_TRUE(pool_->Check(*prepared, wrong, AtSize(5003), In(seconds(20)))->verified());
  Result<CheckReport> report = pool_->Check(*prepared, wrong, AtSize(1000), In(seconds(20)));
  ASSERT_TRUE(report) << report.error().Text();
  EXPECT_FALSE(report->verified());
}

TEST_F(RunnerTest, AManifestMustHaveTheKernelsRange) {
  Manifest manifest = ManifestOf(kDynamicRelu);
  manifest.operands[0].shape[0] = {5003, 5003, -1};
  CheckReport report = Check(kDynamicRelu, HandMade(manifest, Entry(kReluLoop)));
  ASSERT_FALSE(report.verified());
  EXPECT_THAT(report.failure->Text(), HasSubstr("operand 0 (x)'s dimension 0 is 5003..5003, the kernel wants 1..5003"));
}

}  // namespace
}  // namespace hone::runner_check_test
