// Disks that refuse: full, read-only, forbidden. Said once; serving goes on; nothing acknowledged is lost; it heals.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "cache/schedule_cache.h"
#include "tests/support/fault_env.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

using ::testing::HasSubstr;
using Fault = FaultFileSystem::Fault;

// The log's lines while it lives.
class LogCapture {
 public:
  explicit LogCapture(const std::string& path)
      : path_(path), fd_(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND, 0600)) {
    SetLogFd(fd_.get());
  }
  ~LogCapture() { SetLogFd(STDERR_FILENO); }
  size_t Count(std::string_view event) const {
    std::string text = ReadFile(path_, 64 << 20).value();
    size_t count = 0;
    for (size_t at = 0; (at = text.find(event, at)) != std::string::npos; ++at) ++count;
    return count;
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

class RefusalTest : public ::testing::Test {
 protected:
  CacheOptions Options() {
    CacheOptions options;
    options.directory = directory_ / "cache";
    options.flush_interval = std::chrono::milliseconds(20);
    options.env = &fault_;
    return options;
  }
  std::unique_ptr<ScheduleCache> Open(const CacheOptions& options) {
    Result<std::unique_ptr<ScheduleCache>> cache = ScheduleCache::Open(options);
    EXPECT_TRUE(cache.has_value()) << (cache ? "" : cache.error().Text());
    return cache ? *std::move(cache) : nullptr;
  }
  Result<void> Put(ScheduleCache& cache, int kernel, Durability durability) {
    std::vector<std::byte> artifact = SampleArtifact(kernel, 4000);
    NewRecord entry = SampleEntry(kernel);
    entry.artifact = artifact;
    return cache.Put(entry, durability);
  }
  void ExpectServed(ScheduleCache& cache, int kernel) {
    Result<std::optional<CacheHit>> hit = cache.Lookup(SampleKey(kernel));
    ASSERT_TRUE(hit.has_value() && hit->has_value()) << "kernel " << kernel;
    EXPECT_EQ(**cache.Artifact((*hit)->record), SampleArtifact(kernel, 4000));
  }
  static bool WaitFor(const std::function<bool()>& condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return condition();
  }

  TemporaryDirectory directory_;
  FaultEnv fault_;
};

TEST_F(RefusalTest, FullDiskIsSaidOnceServedAroundAndHeals) {
  LogCapture log(directory_ / "log");
  {
    std::unique_ptr<ScheduleCache> cache = Open(Options());
    ASSERT_TRUE(Put(*cache, 1, Durability::kSynced).has_value());
    fault_.files().Set(Fault::kNoSpace);
    for (int kernel = 2; kernel < 50; ++kernel) ASSERT_TRUE(Put(*cache, kernel, Durability::kSoon).has_value());
    Result<void> refused = Put(*cache, 50, Durability::kSynced);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().Text(), HasSubstr("No space left"));
    EXPECT_FALSE(cache->Pin(SampleKey(1).fingerprint, true).has_value());
    for (int kernel = 1; kernel <= 50; ++kernel) ExpectServed(*cache, kernel);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CacheStats stats = cache->Stats();
    EXPECT_THAT(stats.not_persisting, HasSubstr("No space left"));
    EXPECT_EQ(stats.pending_records, 50u);  // 2 … 50, and 1 with its pin
    EXPECT_EQ(log.Count("cache_not_persisting"), 1u);

    fault_.files().Set(Fault::kNone);
    EXPECT_TRUE(WaitFor([&] { return cache->Stats().not_persisting.empty(); }));
    EXPECT_EQ(cache->Stats().pending_records, 0u);
    EXPECT_EQ(log.Count("cache_persisting"), 1u);
    ASSERT_TRUE(Put(*cache, 51, Durability::kSynced).has_value());
    for (int kernel = 1; kernel <= 51; ++kernel) ExpectServed(*cache, kernel);
  }
  std::unique_ptr<ScheduleCache> cache = Open(Options());
  for (int kernel = 1; kernel <= 51; ++kernel) ExpectServed(*cache, kernel);
}

TEST_F(RefusalTest, RequestsNeverWaitForARefusingDisk) {
  std::unique_ptr<ScheduleCache> cache = Open(Options());
  fault_.files().Set(Fault::kNoSpace);
  std::chrono::nanoseconds longest{0};
  for (int kernel = 0; kernel < 300; ++kernel) {
    auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(Put(*cache, kernel, Durability::kSoon).has_value());
    longest = std::max<std::chrono::nanoseconds>(longest, std::chrono::steady_clock::now() - start);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // over a few of the cache's own attempts
  }
  EXPECT_LT(longest, std::chrono::milliseconds(500));
  fault_.files().Set(Fault::kNone);
}

TEST_F(RefusalTest, WaitingRecordsAreBounded) {
  LogCapture log(directory_ / "log");
  CacheOptions options = Options();
  options.pending_bytes = 100'000;
  std::unique_ptr<ScheduleCache> cache = Open(options);
  fault_.files().Set(Fault::kNoSpace);
  for (int kernel = 0; kernel < 200; ++kernel) ASSERT_TRUE(Put(*cache, kernel, Durability::kSoon).has_value());
  EXPECT_GT(cache->Stats().pending_records, 5u);
  EXPECT_LT(cache->Stats().pending_records, 30u);
  EXPECT_EQ(log.Count("cache_dropping"), 1u);
  fault_.files().Set(Fault::kNone);
  EXPECT_TRUE(WaitFor([&] { return cache->Stats().pending_records == 0; }));
  ASSERT_TRUE(Put(*cache, 199, Durability::kSynced).has_value());
  ExpectServed(*cache, 199);
}

TEST_F(RefusalTest, DiskFullAtOpeningServesWhatIsThere) {
  { ASSERT_TRUE(Put(*Open(Options()), 1, Durability::kSynced).has_value()); }
  fault_.files().Set(Fault::kNoSpace);
  std::unique_ptr<ScheduleCache> cache = Open(Options());
  EXPECT_THAT(cache->Stats().not_persisting, HasSubstr("No space left"));
  ExpectServed(*cache, 1);
  ASSERT_TRUE(Put(*cache, 2, Durability::kSoon).has_value());
  ExpectServed(*cache, 2);
  fault_.files().Set(Fault::kNone);
  EXPECT_TRUE(WaitFor([&] { return cache->Stats().not_persisting.empty(); }));
  cache.reset();
  cache = Open(Options());
  ExpectServed(*cache, 1);
  ExpectServed(*cache, 2);
}

TEST_F(RefusalTest, ReadOnlyDatabaseServesWhatIsThere) {
  { ASSERT_TRUE(Put(*Open(Options()), 1, Durability::kSynced).has_value()); }
  fault_.files().Set(Fault::kReadOnly);
  std::unique_ptr<ScheduleCache> cache = Open(Options());
  EXPECT_THAT(cache->Stats().not_persisting, HasSubstr("Read-only"));
  ExpectServed(*cache, 1);
  ASSERT_TRUE(Put(*cache, 2, Durability::kSoon).has_value());
  ExpectServed(*cache, 2);
  Result<void> removed = cache->Remove(SampleKey(1).fingerprint);
  ASSERT_FALSE(removed.has_value());
  EXPECT_THAT(removed.error().Text(), HasSubstr("Read-only"));
}

TEST_F(RefusalTest, DirectoryThatCannotBeMadeLeavesMemory) {
  LogCapture log(directory_ / "log");
  CacheOptions options = Options();
  std::ofstream(directory_ / "file") << "in the way";
  options.directory = directory_ / "file/cache";
  std::unique_ptr<ScheduleCache> cache = Open(options);
  EXPECT_THAT(cache->Stats().not_persisting, HasSubstr("Not a directory"));
  ASSERT_TRUE(Put(*cache, 1, Durability::kSoon).has_value());
  ExpectServed(*cache, 1);
  EXPECT_EQ(log.Count("cache_not_persisting"), 1u);
}

// The same with file systems that really are small or read-only.
class MountedTest : public RefusalTest {
 protected:
  void SetUp() override {
    mount_ = directory_ / "mount";
    std::filesystem::create_directory(mount_);
    if (mount("none", mount_.c_str(), "tmpfs", 0, "size=6m") != 0)
      GTEST_SKIP() << "[SKIP] cannot mount a tmpfs here: " << std::strerror(errno);
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) umount2(mount_.c_str(), MNT_DETACH);
  }
  CacheOptions MountedOptions() {
    CacheOptions options = Options();
    options.directory = mount_ + "/cache";
    options.env = nullptr;
    return options;
  }

  std::string mount_;
  bool mounted_ = false;
};

TEST_F(MountedTest, SmallDiskFillsAndHeals) {
  int promised = 0;
  {
    std::unique_ptr<ScheduleCache> cache = Open(MountedOptions());
    std::ofstream ballast(mount_ + "/ballast");
    int kernel = 0;
    for (; kernel < 100; ++kernel)
      if (Put(*cache, kernel, Durability::kSynced)) promised = kernel + 1;
    ballast << std::string(16 << 20, 'x') << std::flush;  // takes all the room that is left
    bool refused = false;
    for (; kernel < 1000 && !refused; ++kernel) {
      refused = !Put(*cache, kernel, Durability::kSynced).has_value();
      if (!refused) promised = kernel + 1;
    }
    ASSERT_TRUE(refused);
    EXPECT_NE(cache->Stats().not_persisting, "");
    for (int other = 0; other < kernel; ++other) ExpectServed(*cache, other);
    ballast.close();
    std::filesystem::remove(mount_ + "/ballast");
    EXPECT_TRUE(WaitFor([&] { return cache->Stats().not_persisting.empty(); }));
    promised = kernel;
  }
  std::unique_ptr<ScheduleCache> cache = Open(MountedOptions());
  EXPECT_EQ(cache->Stats().repaired, "");
  for (int kernel = 0; kernel < promised; ++kernel) ExpectServed(*cache, kernel);
}

TEST_F(MountedTest, ReadOnlyFileSystemServesAsUsersAndAsSystemLayer) {
  { ASSERT_TRUE(Put(*Open(MountedOptions()), 1, Durability::kSynced).has_value()); }
  ASSERT_EQ(mount("none", mount_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr), 0) << std::strerror(errno);
  {
    std::unique_ptr<ScheduleCache> cache = Open(MountedOptions());
    EXPECT_THAT(cache->Stats().not_persisting, HasSubstr("Read-only file system"));
    ExpectServed(*cache, 1);
    ASSERT_TRUE(Put(*cache, 2, Durability::kSoon).has_value());
    ExpectServed(*cache, 2);
  }
  CacheOptions layered = Options();
  layered.system_directory = MountedOptions().directory;
  std::unique_ptr<ScheduleCache> cache = Open(layered);
  ExpectServed(*cache, 1);
  EXPECT_EQ(cache->Lookup(SampleKey(1)).value()->layer, CacheLayer::kSystem);
  EXPECT_FALSE(cache->Lookup(SampleKey(1)).value()->artifact_current);  // checked elsewhere: good for its schedule
  CacheOptions inspect = MountedOptions();
  inspect.inspect = true;
  ExpectServed(*Open(inspect), 1);
}

}  // namespace
}  // namespace hone
