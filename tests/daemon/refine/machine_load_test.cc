// What of the machine's work is others', and what is ours.
#include "daemon/refine/machine_load.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <string>
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

// Seconds of others' work between two samples with `work` between them.
template <typename Work>
double BusyDuring(Work work) {
  MachineLoad load;
  Result<LoadSample> before = load.Sample();
  EXPECT_TRUE(before) << before.error().Text();
  work(load);
  Result<LoadSample> after = load.Sample();
  EXPECT_TRUE(after);
  EXPECT_GT(after->at, before->at);
  return after->busy_s - before->busy_s;
}

TEST(MachineLoad, SeesWorkOfOthers) {
  if (IsNiced()) GTEST_SKIP() << "work of niced programs counts for nobody";
  const double busy_s = BusyDuring([](MachineLoad&) {
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
  EXPECT_GT(busy_s, kWork / 2);
}

// All the work that counts, ours too, since the machine started.
double WorkOfAllSeconds() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0;
  file >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq;
  EXPECT_EQ(cpu, "cpu");
  return (user + system + irq + softirq) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

TEST(MachineLoad, TakesOffOurOwn) {
  if (IsNiced()) GTEST_SKIP() << "work of niced programs counts for nobody";
  const double before = WorkOfAllSeconds();
  const double busy_s = BusyDuring([](MachineLoad&) { WorkFor(CLOCK_THREAD_CPUTIME_ID, kWork); });
  EXPECT_LT(busy_s, WorkOfAllSeconds() - before - kWork / 2);
}

// Thinking in idle time is niced, so nobody counts it as busy: taken off, it would hide as much work of others.
TEST(MachineLoad, DoesNotTakeOffWhatNeverCounted) {
  const double busy_s = BusyDuring([](MachineLoad& load) {
    std::jthread([&] {
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
      WorkFor(CLOCK_THREAD_CPUTIME_ID, kWork / 2);
      EXPECT_TRUE(load.Sample());
      WorkFor(CLOCK_THREAD_CPUTIME_ID, kWork / 2);
    }).join();
  });
  EXPECT_GT(busy_s, -kWork / 4);
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
