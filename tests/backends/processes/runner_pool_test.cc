// The pool of runners: several at once, replaced when they die, ended with the daemon.
#include "backends/processes/runner_pool.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "tests/backends/runner/hand_made.h"
#include "tests/backends/runner_fixture.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Entry;
using testing::HandMade;
using ::testing::HasSubstr;
using testing::In;
using ::testing::IsEmpty;
using testing::kRelu;
using testing::kReluLoop;
using testing::ManifestOf;
using testing::StartPool;

// For tenths of a second.
constexpr char kSpin[] = "for (long i = 0; i < 300000000; ++i) __asm__ volatile(\"\");";

TEST(RunnerPool, RunnersWorkSideBySide) {
  std::unique_ptr<RunnerPool> pool = StartPool(2);
  SealedMemfd right = HandMade(ManifestOf(kRelu), Entry(kReluLoop));
  std::vector<std::thread> threads;
  std::atomic<int> verified{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(30)));
        if (!prepared) continue;
        Result<CheckReport> report = pool->Check(*prepared, right, {}, In(seconds(30)));
        verified += report && report->verified();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(verified, 40);
  EXPECT_EQ(pool->Stats().checked, 40u);
  EXPECT_EQ(pool->Stats().busy, 0);
}

TEST(RunnerPool, AbandonedPreparationsDoNotConfuseTheNext) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  SealedMemfd right = HandMade(ManifestOf(kRelu), Entry(kReluLoop));
  for (int i = 0; i < 3; ++i) {
    { Result<RunnerPool::Prepared> dropped = pool->Prepare("matmul(M=64,N=64,K=64)", In(seconds(10))); }
    Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)));
    Result<CheckReport> report = pool->Check(*prepared, right, {}, In(seconds(10)));
    ASSERT_TRUE(report) << report.error().Text();
    EXPECT_TRUE(report->verified());
  }
}

TEST(RunnerPool, ReplacesARunnerThatIsKilled) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  SealedMemfd slow = HandMade(ManifestOf(kRelu), Entry(std::string(kReluLoop) + "while (1) __asm__ volatile(\"\");"));
  Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)));
  // Our own deadline is shorter than the candidate's limit.
  Result<CheckReport> report = pool->Check(*prepared, slow, {.run_limit = milliseconds(60'000)}, In(milliseconds(300)));
  ASSERT_FALSE(report) << (report->failure ? report->failure->Text() : "verified");
  EXPECT_EQ(report.error().kind, ErrorKind::kTimeout);
  EXPECT_EQ(pool->Check(*prepared, slow, {}, In(seconds(1))).error().kind, ErrorKind::kUnavailable);
  { RunnerPool::Prepared gone = std::move(*prepared); }
  SealedMemfd right = HandMade(ManifestOf(kRelu), Entry(kReluLoop));
  prepared = pool->Prepare(kRelu, In(seconds(60)));
  ASSERT_TRUE(prepared) << prepared.error().Text();
  report = pool->Check(*prepared, right, {}, In(seconds(60)));  // an instrumented runner starts slowly beside others
  ASSERT_TRUE(report) << report.error().Text();
  EXPECT_TRUE(report->verified());
  EXPECT_EQ(pool->Stats().restarts, 1u);
}

// What /proc says of a process; "" if it is gone.
std::string ProcessFile(const std::string& pid, const std::string& name) {
  return ReadFile("/proc/" + pid + "/" + name, 1 << 16).value_or("");
}

// The state letter of a process; 'X' if it is gone.
char StateOf(pid_t pid) {
  std::string stat = ProcessFile(std::to_string(pid), "stat");
  return stat.empty() ? 'X' : stat[stat.rfind(')') + 2];
}

bool HasDied(pid_t pid) { return StateOf(pid) == 'X' || StateOf(pid) == 'Z'; }

// `program`: only one that has begun to run that.
pid_t ChildOf(pid_t parent, const std::string& program = "") {
  for (const std::string& name : ListDirectory("/proc").value_or(std::vector<std::string>())) {
    const std::string status = ProcessFile(name, "status");
    if (status.find("\nPPid:\t" + std::to_string(parent) + "\n") != std::string::npos &&
        (program.empty() || status.starts_with("Name:\t" + program + "\n")))
      return std::stoi(name);
  }
  return 0;
}

pid_t RunnerOf(pid_t parent) { return ChildOf(parent, "hone-runner"); }

// The text is longer than what the socket holds, and the runner reads none of it.
TEST(RunnerPool, ARunnerThatIsKilledWhileItIsSentAKernelIsReplacedThoughItIsTheOnlyOne) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  pid_t runner = 0;
  while ((runner = RunnerOf(getpid())) == 0) std::this_thread::sleep_for(milliseconds(1));
  kill(runner, SIGSTOP);
  std::thread killer([&] {
    while (pool->Stats().busy == 0) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(200));
    kill(runner, SIGKILL);
  });
  const std::string long_text = kRelu + std::string(600'000, ' ');
  Result<RunnerPool::Prepared> prepared = pool->Prepare(long_text, In(seconds(10)));
  killer.join();
  ASSERT_TRUE(prepared) << prepared.error().Text();
  Result<CheckReport> report =
      pool->Check(*prepared, HandMade(ManifestOf(kRelu), Entry(kReluLoop)), {}, In(seconds(60)));
  ASSERT_TRUE(report) << report.error().Text();
  EXPECT_TRUE(report->verified()) << report->failure->Text();
  EXPECT_EQ(pool->Stats().restarts, 1u);
}

// Candidates that compute for a part of their 0.6 s, while everything is stopped for 0.8 s: a machine that sleeps takes
// nothing from them. One that never ends is stopped all the same.
TEST(RunnerPool, APauseOfTheMachineIsNotTheCandidatesTime) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  SealedMemfd slow = HandMade(ManifestOf(kRelu), Entry(kSpin + std::string(kReluLoop)));
  SealedMemfd endless = HandMade(ManifestOf(kRelu), Entry("while (1) __asm__ volatile(\"\");"));
  Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)));
  ASSERT_TRUE(pool->Check(*prepared, HandMade(ManifestOf(kRelu), Entry(kReluLoop)), {}, In(seconds(20)))->verified());
  const pid_t runner = ChildOf(getpid()), launcher = ChildOf(runner);
  ASSERT_GT(launcher, 0);
  for (const SealedMemfd* code : {&slow, &slow, &endless}) {
    std::atomic<bool> is_over{false}, was_stopped{false};
    std::thread pause([&] {
      pid_t candidate = 0;
      while (!is_over && (candidate = ChildOf(launcher)) == 0) std::this_thread::sleep_for(milliseconds(1));
      if (candidate == 0) return;
      for (pid_t pid : {launcher, candidate, runner}) kill(pid, SIGSTOP);
      was_stopped = true;
      std::this_thread::sleep_for(milliseconds(800));
      for (pid_t pid : {candidate, launcher, runner}) kill(pid, SIGCONT);
    });
    Result<CheckReport> report = pool->Check(*prepared, *code, {.run_limit = milliseconds(600)}, In(seconds(30)));
    is_over = true;
    pause.join();
    ASSERT_TRUE(report) << report.error().Text();
    EXPECT_TRUE(was_stopped);
    if (code == &endless) {
      ASSERT_FALSE(report->verified());
      EXPECT_EQ(report->failure->kind, ErrorKind::kTimeout);
    } else {
      EXPECT_TRUE(report->verified()) << report->failure->message;
    }
  }
}

// As the system does for want of memory, or somebody by hand.
TEST(RunnerPool, ACandidateThatIsKilledIsRunAgainOnce) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  SealedMemfd slow = HandMade(ManifestOf(kRelu), Entry(kSpin + std::string(kReluLoop)));
  Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)));
  ASSERT_TRUE(pool->Check(*prepared, HandMade(ManifestOf(kRelu), Entry(kReluLoop)), {}, In(seconds(20)))->verified());
  const pid_t launcher = ChildOf(ChildOf(getpid()));
  for (int kills : {1, 2}) {
    std::atomic<bool> is_over{false};
    std::thread killer([&] {
      pid_t last = 0;
      for (int killed = 0; killed < kills && !is_over;) {
        const pid_t candidate = ChildOf(launcher);
        if (candidate == 0 || candidate == last || HasDied(candidate)) continue;
        kill(last = candidate, SIGKILL);
        ++killed;
      }
    });
    Result<CheckReport> report = pool->Check(*prepared, slow, {}, In(seconds(60)));
    is_over = true;
    killer.join();
    if (kills == 1) {
      ASSERT_TRUE(report) << report.error().Text();
      EXPECT_TRUE(report->verified()) << report->failure->Text();
    } else {
      ASSERT_FALSE(report) << "nothing is known of the code";
      EXPECT_EQ(report.error().kind, ErrorKind::kBusy);
    }
  }
  EXPECT_EQ(pool->Stats().restarts, 0u);
}

// Its launcher, which looks at the clock, does not run; the processor time that it may use is what ends it.
TEST(RunnerPool, ACandidateThatHasUsedUpItsProcessorTimeHasTimedOut) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  SealedMemfd endless = HandMade(ManifestOf(kRelu), Entry("while (1) __asm__ volatile(\"\");"));
  Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)));
  ASSERT_TRUE(pool->Check(*prepared, HandMade(ManifestOf(kRelu), Entry(kReluLoop)), {}, In(seconds(20)))->verified());
  const pid_t launcher = ChildOf(ChildOf(getpid()));
  std::thread stopper([&] {
    pid_t candidate = 0;
    while ((candidate = ChildOf(launcher)) == 0) std::this_thread::sleep_for(milliseconds(1));
    kill(launcher, SIGSTOP);
    while (!HasDied(candidate)) std::this_thread::sleep_for(milliseconds(10));
    kill(launcher, SIGCONT);
  });
  Result<CheckReport> report =
      pool->Check(*prepared, endless, {.workers = 1, .run_limit = milliseconds(500)}, In(seconds(60)));
  stopper.join();
  ASSERT_TRUE(report) << report.error().Text();
  ASSERT_TRUE(report->failure);
  EXPECT_EQ(report->failure->kind, ErrorKind::kTimeout) << report->failure->Text();
}

// Where the user that runs all this may have no more processes and threads than there are, or one more.
TEST(RunnerPool, WantOfAProcessOrAThreadIsNotTheCandidatesFault) {
  if (::geteuid() != 0) GTEST_SKIP() << "[SKIP] other processes of this user come and go; root can be another";
  const SealedMemfd right = HandMade(ManifestOf(kRelu), Entry(kReluLoop));
  constexpr uid_t kNobodyElses = 54'321;
  const pid_t daemon = ::fork();
  if (daemon == 0) {
    if (::setresgid(kNobodyElses, kNobodyElses, kNobodyElses) != 0 ||
        ::setresuid(kNobodyElses, kNobodyElses, kNobodyElses) != 0 || ::access(HONE_BIN_DIR "/hone-runner", X_OK) != 0)
      ::_exit(77);
    std::unique_ptr<RunnerPool> pool = StartPool();
    Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(30)));
    if (!prepared || !pool->Check(*prepared, right, {}, In(seconds(30)))) ::_exit(1);
    const pid_t launcher = ChildOf(ChildOf(::getpid()));
    for (rlim_t more : {0, 1}) {
      const rlimit all = {4 + more, 1000};  // this process, its thread that forks, the runner and the launcher
      if (::prlimit(launcher, RLIMIT_NPROC, &all, nullptr) != 0) ::_exit(2);
      Result<CheckReport> report = pool->Check(*prepared, right, {.workers = 2}, In(seconds(30)));
      if (report) std::fprintf(stderr, "%s\n", report->failure ? report->failure->Text().c_str() : "verified");
      if (report) ::_exit(3);
      std::fprintf(stderr, "%s\n", report.error().Text().c_str());
      if (report.error().kind != ErrorKind::kBusy) ::_exit(4);
    }
    const rlimit enough = {1000, 1000};
    if (::prlimit(launcher, RLIMIT_NPROC, &enough, nullptr) != 0) ::_exit(5);
    Result<CheckReport> report = pool->Check(*prepared, right, {.workers = 2}, In(seconds(30)));
    ::_exit(report && report->verified() ? 0 : 6);
  }
  int status = 0;
  ::waitpid(daemon, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "[SKIP] another user cannot run hone-runner here";
  EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
}

TEST(RunnerPool, PauseStopsRunnerLauncherAndCandidate) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  SealedMemfd slow = HandMade(ManifestOf(kRelu), Entry(kSpin + std::string(kReluLoop)));
  Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)));
  std::atomic<bool> is_over{false};
  std::thread check([&] {
    // Stopped for longer than it may run.
    Result<CheckReport> report = pool->Check(*prepared, slow, {.run_limit = milliseconds(600)}, In(seconds(30)));
    is_over = true;
    ASSERT_TRUE(report) << report.error().Text();
    EXPECT_TRUE(report->verified()) << report->failure->message;
  });
  std::vector<pid_t> chain = {getpid()};
  while (chain.size() < 4 && !is_over)
    if (pid_t child = ChildOf(chain.back())) chain.push_back(child);
  if (chain.size() < 4) {
    check.join();
    FAIL() << "the check was over before its candidate was seen";
  }
  pool->Pause();
  for (size_t i = 1; i < chain.size(); ++i)
    for (int tries = 0; StateOf(chain[i]) != 'T' && tries < 100; ++tries) std::this_thread::sleep_for(milliseconds(10));
  std::this_thread::sleep_for(milliseconds(800));
  for (size_t i = 1; i < chain.size(); ++i) EXPECT_EQ(StateOf(chain[i]), 'T') << i;
  EXPECT_FALSE(is_over);
  pool->Resume();
  check.join();
}

TEST(RunnerPool, ARunnerThatIsStartedInAPauseWaitsForItsEnd) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)));
  SealedMemfd right = HandMade(ManifestOf(kRelu), Entry(kReluLoop));
  ASSERT_TRUE(pool->Check(*prepared, right, {}, In(seconds(20)))->verified());
  pool->Pause();
  kill(ChildOf(getpid()), SIGKILL);
  EXPECT_EQ(pool->Check(*prepared, right, {}, In(seconds(20))).error().kind, ErrorKind::kUnavailable);
  { RunnerPool::Prepared gone = std::move(*prepared); }
  prepared = pool->Prepare(kRelu, In(seconds(10)));
  ASSERT_TRUE(prepared) << prepared.error().Text();
  const pid_t runner = ChildOf(getpid());
  for (int tries = 0; StateOf(runner) != 'T' && tries < 100; ++tries) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(StateOf(runner), 'T');
  std::thread resume([&] {
    std::this_thread::sleep_for(milliseconds(200));
    pool->Resume();
  });
  EXPECT_TRUE(pool->Check(*prepared, right, {}, In(seconds(20)))->verified());
  resume.join();
}

// For what an instrumented runner needs beside others. True at once in the usual case.
bool Eventually(const std::function<bool()>& condition) {
  const MonotonicTime give_up = In(seconds(60));
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

TEST(RunnerPool, RunnerLauncherAndCandidateDieWithTheDaemon) {
  SealedMemfd endless = HandMade(ManifestOf(kRelu), Entry("while (1) __asm__ volatile(\"\");"));
  pid_t daemon = ::fork();
  if (daemon == 0) {
    std::unique_ptr<RunnerPool> pool = StartPool();
    Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)));
    (void)pool->Check(*prepared, endless, {.run_limit = seconds(600)}, In(seconds(600)));
    ::_exit(0);
  }
  // daemon -> runner -> launcher -> candidate
  std::vector<pid_t> chain = {daemon};
  const bool all_run = Eventually([&] {
    if (pid_t child = ChildOf(chain.back())) chain.push_back(child);
    return chain.size() == 4;
  });
  if (!all_run) ::kill(daemon, SIGKILL), ::waitpid(daemon, nullptr, 0);
  ASSERT_TRUE(all_run) << chain.size() << " of 4 processes run";
  std::string status;
  EXPECT_TRUE(Eventually([&] {
    status = ProcessFile(std::to_string(chain[3]), "status");
    return status.find("Seccomp_filters:\t2") != std::string::npos;
  }));
  EXPECT_THAT(status, HasSubstr("Seccomp:\t2"));
  EXPECT_THAT(status, HasSubstr("Seccomp_filters:\t2"));  // the launcher's and its own
  // It has no file, no socket and no memfd open: of a process that shows itself to nobody, root alone sees that.
  if (Result<std::vector<std::string>> open = ListDirectory("/proc/" + std::to_string(chain[3]) + "/fd"); open)
    EXPECT_THAT(*open, IsEmpty());
  else
    EXPECT_NE(::geteuid(), 0u);
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
  ::kill(daemon, SIGKILL);
  ::waitpid(daemon, nullptr, 0);
  for (pid_t pid : chain) EXPECT_TRUE(Eventually([&] { return HasDied(pid); })) << pid;
}

TEST(RunnerPool, ShutdownEndsCallsUnderWay) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  SealedMemfd endless = HandMade(ManifestOf(kRelu), Entry("while (1) __asm__ volatile(\"\");"));
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(200));
    pool->Shutdown();
  });
  {
    Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)));
    Result<CheckReport> report = pool->Check(*prepared, endless, {.run_limit = milliseconds(60'000)}, In(seconds(60)));
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::kUnavailable);
  }
  killer.join();
  EXPECT_EQ(pool->Prepare(kRelu, In(seconds(1))).error().kind, ErrorKind::kUnavailable);
}

// What a stop ends: its own check, with all processes of it; nobody else's.
TEST(RunnerPool, AStopEndsTheCheckWithRunnerLauncherAndCandidate) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  SealedMemfd endless = HandMade(ManifestOf(kRelu), Entry("while (1) __asm__ volatile(\"\");"));
  SealedMemfd right = HandMade(ManifestOf(kRelu), Entry(kReluLoop));
  std::stop_source stop;
  std::vector<pid_t> chain = {getpid()};
  {
    Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)), stop.get_token());
    std::thread stopper([&] {
      for (int tries = 0; chain.size() < 4 && tries < 5'000; ++tries, std::this_thread::sleep_for(milliseconds(1)))
        if (pid_t child = ChildOf(chain.back())) chain.push_back(child);
      stop.request_stop();
    });
    Result<CheckReport> report = pool->Check(*prepared, endless, {.run_limit = milliseconds(60'000)}, In(seconds(60)));
    stopper.join();
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::kUnavailable);
    EXPECT_EQ(report.error().Text(), "given up");
    EXPECT_TRUE(prepared->lost());
  }
  ASSERT_EQ(chain.size(), 4u);
  for (size_t i = 1; i < chain.size(); ++i) EXPECT_TRUE(Eventually([&] { return HasDied(chain[i]); })) << i;
  EXPECT_EQ(pool->Prepare(kRelu, In(seconds(10)), stop.get_token()).error().Text(), "given up");
  Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)));
  EXPECT_TRUE(pool->Check(*prepared, right, {}, In(seconds(20)))->verified());
  EXPECT_EQ(pool->Stats().restarts, 1u);
}

// A reference of half a minute that nobody waits for any more.
TEST(RunnerPool, WhatIsPreparedInVainKeepsNobodyWaiting) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  SealedMemfd right = HandMade(ManifestOf(kRelu), Entry(kReluLoop));
  const char many[] =
      "kernel many(x: f32[N]) -> y: f32[N] where N=64 { y[i] = sum(k < 50000000) exp(x[i] * float(k)) }";
  { Result<RunnerPool::Prepared> dropped = pool->Prepare(many, In(seconds(10))); }
  Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)));
  Result<CheckReport> report = pool->Check(*prepared, right, {}, In(seconds(10)));
  ASSERT_TRUE(report) << report.error().Text();
  EXPECT_TRUE(report->verified());
}

TEST(RunnerPool, WaitsForAFreeRunnerUntilTheDeadline) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  Result<RunnerPool::Prepared> held = pool->Prepare(kRelu, In(seconds(10)));
  EXPECT_EQ(pool->Prepare(kRelu, In(milliseconds(50))).error().kind, ErrorKind::kBusy);
}

TEST(RunnerPool, RunnersAndLaunchersSayWhatHoldsThem) {
  std::unique_ptr<RunnerPool> pool = StartPool();
  SealedMemfd right = HandMade(ManifestOf(kRelu), Entry(kReluLoop));
  {
    Result<RunnerPool::Prepared> prepared = pool->Prepare(kRelu, In(seconds(10)));
    ASSERT_TRUE(pool->Check(*prepared, right, {}, In(seconds(20)))->verified());
  }
  const std::vector<Confinement> found = pool->Confinements();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].child, "runner");
  EXPECT_EQ(found[1].child, "launcher");
  for (pid_t pid : {RunnerOf(getpid()), RunnerOf(RunnerOf(getpid()))}) {
    const std::string status = ProcessFile(std::to_string(pid), "status");
    EXPECT_THAT(status, HasSubstr("Seccomp_filters:\t1\n"));
    EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1\n"));
  }
}

TEST(RunnerPool, SaysThatTheProgramIsMissing) {
  EXPECT_EQ(RunnerPool::Start({.executable = "/nonexistent/hone-runner"}).error().kind, ErrorKind::kIo);
}

}  // namespace
}  // namespace hone
