// What of the machine's work is others', and what is ours.
#include "daemon/refine/machine_load.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "base/unique_fd.h"
#include "tests/support/passing_processes.h"

namespace hone {
namespace {

constexpr double kWork = 0.4;  // seconds of processor time

void WorkFor(clockid_t clock, double seconds) {
  auto now = [&] {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  };
  const double end = now() + seconds;
  volatile double sink = 1;
  while (now() < end)
    for (int i = 0; i < 10'000; ++i) sink = sink * 1.0000001;
}

bool IsNiced() { return getpriority(PRIO_PROCESS, 0) > 0; }

// What was busy between two samples with `work` between them.
struct Spent {
  double busy_s = 0, user_s = 0;
};
template <typename Work>
Spent During(Work work) {
  MachineLoad load;
  Result<LoadSample> before = load.Sample();
  EXPECT_TRUE(before) << before.error().Text();
  work(load);
  Result<LoadSample> after = load.Sample();
  EXPECT_TRUE(after);
  EXPECT_GT(after->at, before->at);
  return {after->busy_s - before->busy_s, after->user_s - before->user_s};
}

TEST(MachineLoad, SeesWorkOfOthers) {
  if (IsNiced()) GTEST_SKIP() << "work of niced programs counts for nobody";
  Spent spent = During([](MachineLoad&) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    UniqueFd reader(ends[0]), writer(ends[1]);
    const pid_t parent = fork();
    if (parent == 0) {
      if (fork() == 0) WorkFor(CLOCK_PROCESS_CPUTIME_ID, kWork);  // nobody's child soon
      _exit(0);
    }
    writer.Reset();
    waitpid(parent, nullptr, 0);
    char none;
    EXPECT_EQ(read(reader.get(), &none, 1), 0);  // it has ended
  });
  EXPECT_GT(spent.busy_s, kWork / 2);
}

TEST(MachineLoad, TakesOffOurOwn) {
  if (IsNiced()) GTEST_SKIP() << "work of niced programs counts for nobody";
  // Ours is in the user time of all; time in the kernel, of others, may make up for it once, but not ten times.
  Spent spent;
  for (int attempt = 0; attempt < 10; ++attempt) {
    spent = During([](MachineLoad&) { WorkFor(CLOCK_THREAD_CPUTIME_ID, kWork); });
    if (spent.busy_s < spent.user_s - kWork / 2) return;
  }
  ADD_FAILURE() << spent.busy_s << " s of " << spent.user_s;
}

// Thinking in idle time is niced, so nobody counts it as busy: taken off, it would hide as much work of others.
TEST(MachineLoad, DoesNotTakeOffWhatNeverCounted) {
  Spent spent = During([](MachineLoad& load) {
    std::jthread([&] {
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
      WorkFor(CLOCK_THREAD_CPUTIME_ID, kWork / 2);
      EXPECT_TRUE(load.Sample());
      WorkFor(CLOCK_THREAD_CPUTIME_ID, kWork / 2);
    }).join();
  });
  EXPECT_GT(spent.busy_s, -kWork / 4);
}

// What a thread that is gone has done was ours, all the same.
TEST(MachineLoad, NeverGivesBackWhatWasOurs) {
  MachineLoad load;
  ASSERT_TRUE(load.Sample());
  Result<LoadSample> before = Error{ErrorKind::kIo, "no sample", ""};
  std::jthread([&] {
    WorkFor(CLOCK_THREAD_CPUTIME_ID, kWork);
    before = load.Sample();
  }).join();
  Result<LoadSample> after = load.Sample();
  ASSERT_TRUE(before && after);
  EXPECT_LT(after->busy_s - before->busy_s, kWork / 2);
}

// Builders and candidates come and go while they are looked at.
TEST(MachineLoad, OutlivesProcessesThatItLooksAt) {
  MachineLoad load;
  PassingProcesses passing, others;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < end) {
    EXPECT_TRUE(load.Sample());
    EXPECT_TRUE(load.BusyUserSeconds());
  }
}

}  // namespace
}  // namespace hone
