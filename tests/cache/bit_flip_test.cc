// One flipped bit, anywhere in any file of a cache, that was closed or whose daemon was killed with -9: every record
// that was acknowledged is there afterwards, with its pin and its code, and nothing is said to be lost.
//
// FLIPS says how many positions of each kind of file are tried (a few, unless it does); 200 take some minutes.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "cache/schedule_cache.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone::bit_flip_test {
namespace {

namespace fs = std::filesystem;

constexpr int kClasses = 3;
constexpr int kInTables = 60;  // kernels, before the tables are written
constexpr int kKernels = 120;
constexpr size_t kArtifactBytes = 1500;
constexpr uint64_t kSeed = 20261123;

CacheOptions OptionsFor(const std::string& directory) {
  CacheOptions options;
  options.directory = directory;
  options.flush_interval = std::chrono::milliseconds(5);
  return options;
}

bool IsPinned(int kernel) { return kernel % 6 == 0; }

// False: something was refused.
bool Fill(ScheduleCache& cache) {
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    std::vector<std::byte> artifact = SampleArtifact(kernel, kArtifactBytes);
    NewRecord entry = SampleEntry(kernel, kernel % kClasses);
    entry.artifact = artifact;
    if (!cache.Put(entry, Durability::kSynced)) return false;
    if (IsPinned(kernel) && !cache.Pin(entry.record.key.fingerprint, true)) return false;
    if (kernel + 1 == kInTables && !cache.Flush()) return false;
  }
  return true;
}

// The process that is killed: this program again, running this alone (a mere fork would lack RocksDB's threads).
TEST(BitFlipChild, DISABLED_FillAndDie) {
  const char* directory = getenv("FLIP_DIRECTORY");
  if (!directory) GTEST_SKIP() << "[SKIP] runs as a child of the other tests";
  Result<std::unique_ptr<ScheduleCache>> cache = ScheduleCache::Open(OptionsFor(directory));
  if (!cache || !Fill(**cache)) _exit(101);
  kill(getpid(), SIGKILL);
}

void FillAndDie(const std::string& directory) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("FLIP_DIRECTORY", directory.c_str(), 1);
    execl("/proc/self/exe", "filler", "--gtest_filter=BitFlipChild.DISABLED_FillAndDie",
          "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
    _exit(104);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "exit " << WEXITSTATUS(status);
}

void FillAndClose(const std::string& directory) {
  Result<std::unique_ptr<ScheduleCache>> cache = ScheduleCache::Open(OptionsFor(directory));
  ASSERT_TRUE(cache.has_value()) << cache.error().Text();
  ASSERT_TRUE(Fill(**cache));
}

struct Census {
  int records = 0, pins = 0, artifacts = 0;
  bool operator==(const Census&) const = default;
};

Census Count(ScheduleCache& cache) {
  Census census;
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    Result<std::optional<CacheHit>> hit = cache.Lookup(SampleKey(kernel, kernel % kClasses));
    EXPECT_TRUE(hit.has_value());
    if (!hit || !*hit) continue;
    ++census.records;
    EXPECT_EQ((*hit)->record.schedule, SampleRecord(kernel, kernel % kClasses).schedule);
    census.pins += (*hit)->record.pinned ? 1 : 0;
    Result<std::optional<std::vector<std::byte>>> artifact = cache.Artifact((*hit)->record);
    if (!artifact || !*artifact || !(*hit)->artifact_current) continue;
    ++census.artifacts;
    EXPECT_EQ(**artifact, SampleArtifact(kernel, kArtifactBytes));
  }
  return census;
}

constexpr Census kAll{kKernels, kKernels / 6, kKernels};

std::string KindOf(const std::string& path) {
  const std::string name = fs::path(path).filename();
  if (name.ends_with(".log")) return "log";
  if (name.ends_with(".sst")) return "table";
  if (name.ends_with(".blob")) return "blob";
  return name.substr(0, name.find('-'));
}

// Every file in and beside a cache, by kind.
std::map<std::string, std::vector<std::string>> FilesByKind(const std::string& root) {
  std::map<std::string, std::vector<std::string>> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root))
    if (entry.is_regular_file() && entry.file_size() > 0)
      files[KindOf(entry.path())].push_back(fs::relative(entry.path(), root));
  for (auto& [kind, paths] : files) std::sort(paths.begin(), paths.end());
  return files;
}

// Of all bits of these files, one.
std::string FlipOneBit(const std::string& root, const std::vector<std::string>& paths, Rng& rng) {
  uint64_t bytes = 0;
  for (const std::string& path : paths) bytes += fs::file_size(root + "/" + path);
  uint64_t at = rng.Below(bytes);
  for (const std::string& path : paths) {
    const uint64_t size = fs::file_size(root + "/" + path);
    if (at >= size) {
      at -= size;
      continue;
    }
    const int bit = static_cast<int>(rng.Below(8));
    std::string contents = ReadFile(root + "/" + path, 1 << 30).value();
    contents[at] = static_cast<char>(contents[at] ^ 1 << bit);
    EXPECT_TRUE(WriteFileAtomically(root + "/" + path, contents).has_value());
    return fmt::format("{} byte {} of {} bit {}", path, at, size, bit);
  }
  return "";
}

class BitFlip : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogFd(-1);  // it complains, as it should
  }
  void TearDown() override { SetLogFd(STDERR_FILENO); }

  std::string Root() const { return directory_ / "root"; }
  std::string Cache() const { return Root() + "/cache"; }

  void FlipEverywhere(const std::function<void(const std::string&)>& fill, bool marked_damaged) {
    fs::create_directory(Root());
    fill(Cache());
    if (marked_damaged) { ASSERT_TRUE(WriteFileAtomically(Cache() + "/DAMAGED", "salvage at the next opening\n")); }
    const std::string pristine = directory_ / "pristine";
    fs::copy(Root(), pristine, fs::copy_options::recursive);
    const char* wanted = getenv("FLIPS");
    const int flips = wanted ? std::atoi(wanted) : 6;
    for (const auto& [kind, paths] : FilesByKind(pristine)) {
      if (marked_damaged && kind != "DAMAGED") continue;
      int repaired = 0;
      Census least = kAll;
      bool lossless = true;
      for (int round = 0; round < flips && lossless; ++round) {
        Rng rng = Rng(kSeed).Fork(static_cast<uint64_t>(round));
        fs::remove_all(Root());
        fs::copy(pristine, Root(), fs::copy_options::recursive);
        SCOPED_TRACE(FlipOneBit(Root(), paths, rng));
        lossless = OneFlip(least, repaired);
      }
      std::printf(
          "  %-10s %3d flips, %3d met and set right; at first at least %d records, %d pins, %d artifacts of %d, %d, "
          "%d\n",
          kind.c_str(), flips, repaired, least.records, least.pins, least.artifacts, kAll.records, kAll.pins,
          kAll.artifacts);
    }
  }

 private:
  // False if something is lost. `least`: what there was at first, before anything was set right.
  bool OneFlip(Census& least, int& repaired) {
    Result<std::unique_ptr<ScheduleCache>> opened = ScheduleCache::Open(OptionsFor(Cache()));
    EXPECT_TRUE(opened.has_value()) << (opened ? "" : opened.error().Text());
    if (!opened) return false;
    ScheduleCache& cache = **opened;
    Census census = Count(cache);
    least.records = std::min(least.records, census.records);
    least.pins = std::min(least.pins, census.pins);
    least.artifacts = std::min(least.artifacts, census.artifacts);
    for (int i = 0; i < 200 && census != kAll; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      census = Count(cache);
    }
    EXPECT_EQ(census.records, kAll.records);
    EXPECT_EQ(census.pins, kAll.pins);
    EXPECT_EQ(census.artifacts, kAll.artifacts);
    CacheStats stats = cache.Stats();
    EXPECT_EQ(stats.problem, "");
    EXPECT_EQ(stats.losses, 0u);
    repaired += stats.repaired.empty() ? 0 : 1;
    return census == kAll && stats.losses == 0;
  }

  TemporaryDirectory directory_;
};

TEST_F(BitFlip, AfterKillLosesNothing) { FlipEverywhere(FillAndDie, false); }
TEST_F(BitFlip, AfterCleanEndLosesNothing) { FlipEverywhere(FillAndClose, false); }
TEST_F(BitFlip, InTheMarkOfDamageLosesNothing) { FlipEverywhere(FillAndDie, true); }

}  // namespace
}  // namespace hone::bit_flip_test
