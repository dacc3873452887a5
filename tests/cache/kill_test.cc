// kill -9 at a hundred random moments: what Put returned is there afterwards, synced or not, since the kernel still has
// it; the lock is free; the next opening repairs nothing. Whether what was acknowledged is synced cannot be seen like
// this: power_cut_test has a disk that forgets the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "cache/schedule_cache.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone::kill_test {
namespace {

CacheOptions OptionsFor(const std::string& directory) {
  CacheOptions options;
  options.directory = directory;
  options.memory_bytes = 8 << 20;  // small buffers: tables are written while the process dies
  return options;
}

// The writing process: this program again, running only this test. (A mere fork would lack the threads that RocksDB
// believes to have.) Puts kernels from the first one on, and reports each that Put accepted.
TEST(Kill, DISABLED_Writer) {
  const char *directory = getenv("KILL_DIRECTORY"), *first = getenv("KILL_FIRST"), *report = getenv("KILL_REPORT");
  if (!directory || !first || !report) GTEST_SKIP() << "[SKIP] runs as a child of the other tests";
  Result<std::unique_ptr<ScheduleCache>> cache = ScheduleCache::Open(OptionsFor(directory));
  if (!cache) _exit(101);
  for (int kernel = std::atoi(first);; ++kernel) {
    std::vector<std::byte> artifact = SampleArtifact(kernel, 3000);
    NewRecord entry = SampleEntry(kernel);
    entry.artifact = artifact;
    if (!(*cache)->Put(entry, kernel % 5 == 0 ? Durability::kSynced : Durability::kSoon)) _exit(102);
    if (write(std::atoi(report), &kernel, sizeof(kernel)) != sizeof(kernel)) _exit(103);
  }
}

pid_t StartWriter(const std::string& directory, int first, int report) {
  std::string first_text = std::to_string(first), report_text = std::to_string(report);
  pid_t child = fork();
  if (child != 0) return child;
  setenv("KILL_DIRECTORY", directory.c_str(), 1);
  setenv("KILL_FIRST", first_text.c_str(), 1);
  setenv("KILL_REPORT", report_text.c_str(), 1);
  execl("/proc/self/exe", "writer", "--gtest_filter=Kill.DISABLED_Writer", "--gtest_also_run_disabled_tests",
        "--gtest_brief=1", nullptr);
  _exit(104);
}

TEST(Kill, WhatPutReturnedIsThereAtAHundredRandomMoments) {
  TemporaryDirectory directory;
  Rng rng(4);
  int next = 0;
  for (int round = 0; round < 100; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    UniqueFd reading(ends[0]), writing(ends[1]);
    pid_t child = StartWriter(directory / "cache", next, writing.get());
    ASSERT_GE(child, 0);
    writing.Reset();
    int first = next, last = next - 1;
    // At least one record, then a random while longer.
    ASSERT_EQ(read(reading.get(), &last, sizeof(last)), static_cast<ssize_t>(sizeof(last))) << "the writer died";
    std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(5'000)));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit " << WEXITSTATUS(status);
    while (read(reading.get(), &last, sizeof(last)) == sizeof(last)) {}
    next = last + 2;  // the one after the last may be there, or not

    Result<std::unique_ptr<ScheduleCache>> cache = ScheduleCache::Open(OptionsFor(directory / "cache"));
    ASSERT_TRUE(cache.has_value()) << cache.error().Text();
    EXPECT_EQ((*cache)->Stats().repaired, "");
    for (int kernel = round % 10 == 0 ? 0 : first; kernel <= last; ++kernel) {
      Result<std::optional<CacheHit>> hit = (*cache)->Lookup(SampleKey(kernel));
      if (kernel < first && !hit->has_value()) continue;  // one of those that never were reported
      ASSERT_TRUE(hit->has_value()) << "round " << round << " kernel " << kernel;
      EXPECT_EQ(**(*cache)->Artifact((*hit)->record), SampleArtifact(kernel, 3000));
    }
  }
  EXPECT_GT(next, 300);
}

TEST(Kill, AnotherProcessHoldsTheLockUntilItDies) {
  TemporaryDirectory directory;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  UniqueFd reading(ends[0]), writing(ends[1]);
  pid_t child = StartWriter(directory / "cache", 0, writing.get());
  ASSERT_GE(child, 0);
  writing.Reset();
  int kernel = 0;
  ASSERT_EQ(read(reading.get(), &kernel, sizeof(kernel)), static_cast<ssize_t>(sizeof(kernel)));
  Result<std::unique_ptr<ScheduleCache>> busy = ScheduleCache::Open(OptionsFor(directory / "cache"));
  ASSERT_FALSE(busy.has_value());
  EXPECT_EQ(busy.error().kind, ErrorKind::kBusy);
  EXPECT_THAT(busy.error().Text(), ::testing::HasSubstr("process " + std::to_string(child)));
  CacheOptions inspect = OptionsFor(directory / "cache");
  inspect.inspect = true;
  Result<std::unique_ptr<ScheduleCache>> inspector = ScheduleCache::Open(inspect);
  ASSERT_TRUE(inspector.has_value());
  EXPECT_TRUE((*inspector)->Lookup(SampleKey(0))->has_value());
  inspector->reset();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(ScheduleCache::Open(OptionsFor(directory / "cache")).has_value());
}

}  // namespace
}  // namespace hone::kill_test
