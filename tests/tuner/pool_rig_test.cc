// The rig on real runners, with artifacts written by hand: what is lost when they are.
#include "tuner/pool_rig.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "backends/host_target.h"
#include "tests/backends/hand_made.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using testing::Entry;
using testing::HandMade;
using ::testing::HasSubstr;
using testing::ManifestOf;

const char kRelu[] = "kernel relu(x: f32[N]) -> y: f32[N] where N=5003 { y[i] = max(x[i], 0.0) }";
const char kLoop[] =
    "const float *x = b[0]; float *y = b[1]; for (int i = 0; i < 5003; ++i) y[i] = x[i] > 0 ? x[i] : 0;";

class PoolRigTest : public ::testing::Test {
 protected:
  PoolRigTest() {
    // Nothing is built here: any program that waits for a message will do.
    BuilderPoolOptions builders;
    builders.executable = HONE_BIN_DIR "/hone-runner";
    builders_ = *BuilderPool::Start(builders);
    RunnerPoolOptions runners;
    runners.executable = HONE_BIN_DIR "/hone-runner";
    runners_ = *RunnerPool::Start(runners);
    rig_ = *MakePoolRig(*builders_, *runners_, 1, kRelu, *HostTarget());
  }

  void KillRunner() {
    for (const pid_t pid : Descendants(getpid())) kill(pid, SIGKILL);
  }

  // Children, their children …; the youngest last.
  static std::vector<pid_t> Descendants(pid_t parent) {
    std::vector<pid_t> found;
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(parent) + "/task")) {
      std::ifstream file(task.path() / "children");
      for (pid_t child; file >> child;) {
        found.push_back(child);
        for (pid_t other : Descendants(child)) found.push_back(other);
      }
    }
    return found;
  }

  std::unique_ptr<BuilderPool> builders_;
  std::unique_ptr<RunnerPool> runners_;
  std::unique_ptr<Rig> rig_;
  SealedMemfd right_ = HandMade(ManifestOf(kRelu), Entry(kLoop));
};

TEST_F(PoolRigTest, ARunnerThatDiesCostsNothing) {
  for (int i = 0; i < 3; ++i) {
    Result<CheckReport> report = rig_->Check(right_, {});
    ASSERT_TRUE(report) << report.error().Text();
    EXPECT_TRUE(report->verified());
    KillRunner();
    ASSERT_TRUE(rig_->Time(right_, {.samples = 5, .max_samples = 400})) << i;
    KillRunner();
  }
  EXPECT_GE(runners_->Stats().restarts, 5u);
}

TEST_F(PoolRigTest, ARunnerThatDiesInTheMiddleIsAskedAgain) {
  // Long enough to be met by a kill.
  SealedMemfd slow = HandMade(
      ManifestOf(kRelu), Entry("for (long i = 0; i < 300000000; ++i) __asm__ volatile(\"\");" + std::string(kLoop)));
  std::atomic<bool> is_over{false};
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(40));
    if (!is_over) KillRunner();
  });
  Result<CheckReport> report = rig_->Check(slow, {});
  is_over = true;
  killer.join();
  ASSERT_TRUE(report) << report.error().Text();
  EXPECT_TRUE(report->verified()) << report->failure->message;
}

TEST_F(PoolRigTest, WhatCostsTwoRunnersIsACrashAndTheNextOneGoesOn) {
  SealedMemfd endless = HandMade(ManifestOf(kRelu), Entry("while (1) __asm__ volatile(\"\");"));
  std::atomic<bool> is_over{false};
  std::thread killer([&] {
    while (!is_over) {
      std::this_thread::sleep_for(milliseconds(150));
      if (!is_over) KillRunner();
    }
  });
  Result<CheckReport> report = rig_->Check(endless, {});
  is_over = true;
  killer.join();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::kRunFailed);
  EXPECT_THAT(report.error().Text(), HasSubstr("two runners"));
  Result<CheckReport> next = rig_->Check(right_, {});
  ASSERT_TRUE(next) << next.error().Text();
  EXPECT_TRUE(next->verified());
}

TEST_F(PoolRigTest, ShutDownItEnds) {
  runners_->Shutdown();
  Result<CheckReport> report = rig_->Check(right_, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::kUnavailable);
}

}  // namespace
}  // namespace hone
