// The evaluator on real runners, with artifacts written by hand: what is lost when they are.
#include "backends/processes/process_evaluator.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "backends/cpu/host_target.h"
#include "backends/processes/held_runner.h"
#include "tests/backends/runner/hand_made.h"
#include "tests/backends/runner_fixture.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using testing::Entry;
using testing::HandMade;
using ::testing::HasSubstr;
using testing::kRelu;
using testing::kReluLoop;
using testing::ManifestOf;

class ProcessEvaluatorTest : public ::testing::Test {
 protected:
  ProcessEvaluatorTest() {
    // Nothing is built here: any program that waits for a message will do.
    BuilderPoolOptions builders;
    builders.executable = HONE_BIN_DIR "/hone-runner";
    builders_ = *BuilderPool::Start(builders);
    RunnerPoolOptions runners;
    runners.executable = HONE_BIN_DIR "/hone-runner";
    runners_ = *RunnerPool::Start(runners);
    evaluator_ = *MakeProcessEvaluator(*builders_, *runners_, 1, kRelu, *HostTarget());
  }

  void KillRunner() {
    for (const pid_t pid : Descendants(getpid())) kill(pid, SIGKILL);
  }

  // Children, their children …; the youngest last.
  static std::vector<pid_t> Descendants(pid_t parent) {
    std::vector<pid_t> found;
    const std::string tasks = "/proc/" + std::to_string(parent) + "/task/";
    for (const std::string& task : ListDirectory(tasks).value_or(std::vector<std::string>())) {
      std::istringstream children(testing::ReadFile(tasks + task + "/children"));
      for (pid_t child; children >> child;) {
        found.push_back(child);
        for (pid_t other : Descendants(child)) found.push_back(other);
      }
    }
    return found;
  }

  std::unique_ptr<BuilderPool> builders_;
  std::unique_ptr<RunnerPool> runners_;
  std::unique_ptr<Evaluator> evaluator_;
  SealedMemfd right_ = HandMade(ManifestOf(kRelu), Entry(kReluLoop));
};

TEST_F(ProcessEvaluatorTest, ARunnerThatDiesCostsNothing) {
  for (int i = 0; i < 3; ++i) {
    Result<CheckReport> report = evaluator_->Check(right_, {});
    ASSERT_TRUE(report) << report.error().Text();
    EXPECT_TRUE(report->verified());
    KillRunner();
    ASSERT_TRUE(evaluator_->Time(right_, {.samples = 5, .max_samples = 400})) << i;
    KillRunner();
  }
  EXPECT_GE(runners_->Stats().restarts, 5u);
}

TEST_F(ProcessEvaluatorTest, ARunnerThatDiesInTheMiddleIsAskedAgain) {
  // Long enough to be met by a kill.
  SealedMemfd slow = HandMade(ManifestOf(kRelu), Entry("for (long i = 0; i < 300000000; ++i) __asm__ volatile(\"\");" +
                                                       std::string(kReluLoop)));
  std::atomic<bool> is_over{false};
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(40));
    if (!is_over) KillRunner();
  });
  Result<CheckReport> report = evaluator_->Check(slow, {});
  is_over = true;
  killer.join();
  ASSERT_TRUE(report) << report.error().Text();
  EXPECT_TRUE(report->verified()) << report->failure->message;
}

TEST_F(ProcessEvaluatorTest, WhatCostsTwoRunnersIsACrashAndTheNextOneGoesOn) {
  SealedMemfd endless = HandMade(ManifestOf(kRelu), Entry("while (1) __asm__ volatile(\"\");"));
  std::atomic<bool> is_over{false};
  std::thread killer([&] {
    while (!is_over) {
      std::this_thread::sleep_for(milliseconds(150));
      if (!is_over) KillRunner();
    }
  });
  Result<CheckReport> report = evaluator_->Check(endless, {});
  is_over = true;
  killer.join();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::kRunFailed);
  EXPECT_THAT(report.error().Text(), HasSubstr("two runners"));
  Result<CheckReport> next = evaluator_->Check(right_, {});
  ASSERT_TRUE(next) << next.error().Text();
  EXPECT_TRUE(next->verified());
}

TEST_F(ProcessEvaluatorTest, RunnersThatDoNotGetAsFarAsTheCandidateAreNotItsFault) {
  RunnerPoolOptions options;
  options.executable = "/bin/false";
  std::unique_ptr<RunnerPool> runners = *RunnerPool::Start(options);
  Result<std::unique_ptr<HeldRunner>> held = HeldRunner::Hold(*runners, kRelu, std::chrono::seconds(20));
  Result<CheckReport> report = held ? (*held)->Check(right_, {}) : Result<CheckReport>(held.error());
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::kUnavailable) << report.error().Text();
}

TEST_F(ProcessEvaluatorTest, ShutDownItEnds) {
  runners_->Shutdown();
  Result<CheckReport> report = evaluator_->Check(right_, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::kUnavailable);
}

}  // namespace
}  // namespace hone
