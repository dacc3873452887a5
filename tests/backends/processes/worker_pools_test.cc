// The pools with the real programs, and what happens to their work when somebody kills them.
#include "backends/processes/worker_pools.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stop_token>
#include <string>
#include <thread>

#include "backends/sandbox/landlock.h"
#include "base/file.h"
#include "tests/backends/runner/hand_made.h"
#include "tests/backends/runner_fixture.h"
#include "tests/support/no_threads.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::In;
using testing::kRelu;

class RealWorkerPools : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* program : {"/hone-builder", "/hone-runner"})
      if (::access((HONE_BIN_DIR + std::string(program)).c_str(), X_OK) != 0)
        GTEST_SKIP() << "[SKIP] " << program << " is not built";
    options_.builders.executable = HONE_BIN_DIR "/hone-builder";
    options_.runners.executable = HONE_BIN_DIR "/hone-runner";
    Result<std::unique_ptr<WorkerPools>> pools = StartProcessPools(options_);
    ASSERT_TRUE(pools) << pools.error().Text();
    pools_ = std::move(*pools);
  }

  // Our children with that name.
  static std::vector<pid_t> Children(const std::string& name) {
    std::vector<pid_t> pids;
    for (const std::string& pid : ListDirectory("/proc").value_or(std::vector<std::string>())) {
      const std::string status = ReadFile("/proc/" + pid + "/status", 1 << 16).value_or("");
      if (status.find("Name:\t" + name + "\n") != std::string::npos &&
          status.find("\nPPid:\t" + std::to_string(::getpid()) + "\n") != std::string::npos)
        pids.push_back(std::stoi(pid));
    }
    return pids;
  }

  WorkerPoolsOptions options_;
  std::unique_ptr<WorkerPools> pools_;
};

TEST_F(RealWorkerPools, OneThatIsLentEndsWhenNobodyHasHadItForAWhile) {
  pools_.reset();
  std::unique_ptr<WorkerPools> lent =
      MakeLazyWorkerPools([this] { return StartProcessPools(options_); }, milliseconds(300));
  EXPECT_THAT(Children("hone-builder"), ::testing::IsEmpty());
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  for (int round = 0; round < 2; ++round) {
    Result<std::unique_ptr<WorkerPools::Reference>> reference = lent->Prepare(kRelu, *HostTarget(), deadline);
    ASSERT_TRUE(reference) << reference.error().Text();
    std::this_thread::sleep_for(milliseconds(600));
    EXPECT_THAT(Children("hone-runner"), ::testing::SizeIs(1)) << "somebody has it";
    reference->reset();
    bool ended = false;
    for (int tries = 0; !ended && tries < 1000; ++tries) {
      std::this_thread::sleep_for(milliseconds(10));
      ended = Children("hone-runner").empty() && Children("hone-builder").empty();
    }
    EXPECT_TRUE(ended) << round;
  }
  lent->Shutdown();
  EXPECT_EQ(lent->Prepare(kRelu, *HostTarget(), deadline).error().kind, ErrorKind::kUnavailable);
}

TEST_F(RealWorkerPools, EachKindSaysWhatHoldsIt) {
  std::vector<Confinement> found;
  for (int tries = 0; found.size() < 3 && tries < 1000; ++tries) {
    std::this_thread::sleep_for(milliseconds(10));
    found = pools_->Confinements();  // without anything having been asked of them
  }
  ASSERT_EQ(found.size(), 3u);
  for (const char* kind : {"builder", "runner", "launcher"})
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const Confinement& c) { return c.child == kind; })) << kind;
  for (const Confinement& confinement : found) EXPECT_EQ(confinement.complete(), LandlockAbi() > 0);
}

// As often as `kills` says, the runner is killed when it has begun to check code that takes a while.
Result<CheckReport> CheckAndKill(WorkerPools& pools, int kills, const std::function<std::vector<pid_t>()>& runners) {
  const std::string spin = "for (long i = 0; i < 300000000; ++i) __asm__ volatile(\"\");";
  SealedMemfd slow = testing::HandMade(testing::ManifestOf(kRelu), testing::Entry(spin + testing::kReluLoop));
  Result<std::unique_ptr<WorkerPools::Reference>> reference = pools.Prepare(kRelu, *HostTarget(), In(seconds(30)));
  if (!reference) return reference.error();
  std::atomic<bool> is_over{false};
  std::thread killer([&] {
    pid_t last = 0;
    for (int killed = 0; killed < kills && !is_over; std::this_thread::sleep_for(milliseconds(30)))
      for (pid_t pid : runners())
        if (pid != last) {
          last = pid, ++killed;
          std::this_thread::sleep_for(milliseconds(30));
          ::kill(pid, SIGKILL);
        }
  });
  Result<CheckReport> report = (*reference)->Check(slow, {}, In(seconds(60)));
  is_over = true;
  killer.join();
  return report;
}

TEST_F(RealWorkerPools, ARunnerThatIsKilledAtWorkIsReplacedAndItsWorkDoneAgain) {
  Result<CheckReport> report = CheckAndKill(*pools_, 1, [] { return Children("hone-runner"); });
  ASSERT_TRUE(report) << report.error().Text();
  EXPECT_TRUE(report->verified()) << report->failure->Text();
  EXPECT_EQ(pools_->RunnerStats().restarts, 1u);
}

TEST_F(RealWorkerPools, TwoThatAreKilledWithItAreTheArtifactsFault) {
  Result<CheckReport> report = CheckAndKill(*pools_, 2, [] { return Children("hone-runner"); });
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::kRunFailed);
  EXPECT_THAT(report.error().Text(), HasSubstr("two runners were lost with it: the runner died: killed by signal 9"));
}

// As where the system has a process for them, and none for those that they start.
TEST_F(RealWorkerPools, RunnersThatDoNotGetAsFarAsTheArtifactAreNotItsFault) {
  options_.runners.executable = "/bin/false";
  Result<std::unique_ptr<WorkerPools>> pools = StartProcessPools(options_);
  ASSERT_TRUE(pools) << pools.error().Text();
  for (int i = 0; i < 3; ++i) {
    Result<CheckReport> report = CheckAndKill(**pools, 0, [] { return std::vector<pid_t>(); });
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::kUnavailable) << report.error().Text();
    EXPECT_THAT(report.error().Text(), HasSubstr("exit status 1"));
  }
}

TEST_F(RealWorkerPools, ABuilderThatIsKilledAtWorkIsReplacedAndItsWorkDoneAgain) {
  ASSERT_TRUE(pools_->Build({kRelu, "", *HostTarget()}, In(seconds(60))));
  const std::vector<pid_t> builders = Children("hone-builder");
  ASSERT_EQ(builders.size(), 1u);
  ::kill(builders[0], SIGSTOP);  // so that it is at work for sure
  std::thread killer([&] {
    while (pools_->BuilderStats().busy == 0) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(100));
    ::kill(builders[0], SIGKILL);
  });
  Result<BuiltArtifact> built = pools_->Build({kRelu, "", *HostTarget()}, In(seconds(60)));
  killer.join();
  EXPECT_TRUE(built) << built.error().Text();
  EXPECT_EQ(pools_->BuilderStats().restarts, 1u);
}

TEST_F(RealWorkerPools, WhatIsGivenUpIsNobodysFaultAndNotTriedAgain) {
  SealedMemfd endless =
      testing::HandMade(testing::ManifestOf(kRelu), testing::Entry("while (1) __asm__ volatile(\"\");"));
  std::stop_source stop;
  Result<std::unique_ptr<WorkerPools::Reference>> reference =
      pools_->Prepare(kRelu, *HostTarget(), In(seconds(30)), stop.get_token());
  ASSERT_TRUE(reference) << reference.error().Text();
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(300));
    stop.request_stop();
  });
  Result<CheckReport> report = (*reference)->Check(endless, {.run_limit = milliseconds(60'000)}, In(seconds(60)));
  stopper.join();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::kUnavailable);
  EXPECT_EQ(report.error().Text(), "given up");
  EXPECT_EQ(pools_->RunnerStats().prepared, 1u);
  reference->reset();
  EXPECT_EQ(pools_->RunnerStats().restarts, 1u);
  EXPECT_FALSE(pools_->Build({kRelu, "", *HostTarget()}, In(seconds(60)), stop.get_token()));
  EXPECT_FALSE(pools_->Explain({kRelu, "", *HostTarget()}, In(seconds(60)), stop.get_token()));
  EXPECT_FALSE(pools_->MakeEvaluator(kRelu, *HostTarget(), stop.get_token()));
  EXPECT_EQ(pools_->BuilderStats().restarts, 0u);
}

TEST_F(RealWorkerPools, SaysHowManyDescriptorsItNeeds) {
  pid_t child = ::fork();
  if (child == 0) {
    // A soft limit is raised; a hard one is the end.
    const rlim_t open = ListDirectory("/proc/self/fd").value_or(std::vector<std::string>()).size();
    rlimit limit{open, 4096};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    if (Result<std::unique_ptr<WorkerPools>> started = StartProcessPools(options_); !started) ::_exit(1);
    limit = {open + 10, open + 10};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    Result<std::unique_ptr<WorkerPools>> started = StartProcessPools(options_);
    if (started || started.error().kind != ErrorKind::kLimit) ::_exit(2);
    std::fprintf(stderr, "%s\n", started.error().Text().c_str());
    ::_exit(started.error().Text().find("raise RLIMIT_NOFILE") != std::string::npos ? 0 : 3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(RealWorkerPools, OneThatIsLentIsRefusedWhileThereIsNoThreadThatTakesItDown) {
  std::unique_ptr<WorkerPools> lent;
  {
    testing::NoThreads none;
    lent = MakeLazyWorkerPools([this] { return StartProcessPools(options_); });
    EXPECT_EQ(lent->Build({kRelu, "", *HostTarget()}, In(seconds(60))).error().kind, ErrorKind::kBusy);
  }
  EXPECT_TRUE(lent->Build({kRelu, "", *HostTarget()}, In(seconds(60))));
}

TEST_F(RealWorkerPools, WorkWithoutTheThreadThatSaysWhatHoldsThem) {
  testing::NoThreads none;
  Result<std::unique_ptr<WorkerPools>> started = StartProcessPools(options_);
  ASSERT_TRUE(started) << started.error().Text();
  EXPECT_TRUE((*started)->Build({kRelu, "", *HostTarget()}, In(seconds(60))));
}

}  // namespace
}  // namespace hone
