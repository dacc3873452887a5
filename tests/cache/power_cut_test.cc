// Acknowledged means synced: whatever the moment of a power cut, what Put, Pin and Remove acknowledged with kSynced is
// there afterwards, and nothing wrong is served. What was written with kSoon may be lost within its second, whole.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "base/log.h"
#include "cache/schedule_cache.h"
#include "tests/support/fault_env.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone::power_cut_test {
namespace {

constexpr int kKernels = 60;

// What was acknowledged of one kernel.
struct Promise {
  int version = -1;  // of the schedule; newer ones may be there, older ones not
  bool removed = false;
  bool pinned = false;
};

std::string ScheduleVersion(int version) { return fmt::format("split t2.i {}\n", version); }
int VersionOf(const Record& record) { return std::atoi(record.schedule.c_str() + std::string("split t2.i ").size()); }

CacheOptions OptionsFor(const std::string& directory, rocksdb::Env* env) {
  CacheOptions options;
  options.directory = directory;
  options.flush_interval = std::chrono::milliseconds(5);
  options.memory_bytes = 2 << 20;  // small buffers: tables are written and compacted while power is cut
  options.env = env;
  return options;
}

// Writes until told to stop; keeps `promises` of what was acknowledged. `attempted`: the newest version handed to Put.
void Write(ScheduleCache& cache, Rng rng, std::atomic<bool>& stop, std::vector<Promise>& promises,
           std::vector<int>& attempted) {
  while (!stop) {
    int kernel = static_cast<int>(rng.Below(kKernels));
    Promise& promise = promises[static_cast<size_t>(kernel)];
    bool synced = rng.Chance(0.5);
    if (rng.Chance(0.1) && promise.version >= 0) {
      // From here on either state is allowed, until the call is acknowledged.
      Promise before = promise;
      promise = Promise{};
      if (cache.Remove(SampleKey(kernel).fingerprint))
        promise.removed = true;
      else
        promise = before.removed ? before : Promise{};
      continue;
    }
    if (rng.Chance(0.1) && promise.version >= 0) {
      if (cache.Pin(SampleKey(kernel).fingerprint, true)) promise.pinned = true;
      continue;
    }
    std::vector<std::byte> artifact = SampleArtifact(++attempted[static_cast<size_t>(kernel)], 500 + rng.Below(20'000));
    NewRecord entry = SampleEntry(kernel);
    entry.record.schedule = ScheduleVersion(attempted[static_cast<size_t>(kernel)]);
    entry.artifact = artifact;
    bool was_removed = std::exchange(promise.removed, false);
    if (!cache.Put(entry, synced ? Durability::kSynced : Durability::kSoon)) continue;
    if (synced)
      promise.version = attempted[static_cast<size_t>(kernel)];
    else if (was_removed)
      promise = Promise{};
  }
}

void Check(ScheduleCache& cache, const std::vector<Promise>& promises, const std::vector<int>& attempted) {
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    const Promise& promise = promises[static_cast<size_t>(kernel)];
    Result<std::optional<CacheHit>> hit = cache.Lookup(SampleKey(kernel));
    ASSERT_TRUE(hit.has_value());
    EXPECT_FALSE(promise.removed && hit->has_value()) << "kernel " << kernel << " came back";
    EXPECT_TRUE(promise.version < 0 || hit->has_value()) << "kernel " << kernel << " is lost";
    if (!*hit) continue;
    const Record& record = (*hit)->record;
    EXPECT_GE(VersionOf(record), promise.version);
    EXPECT_LE(VersionOf(record), attempted[static_cast<size_t>(kernel)]);
    EXPECT_TRUE(!promise.pinned || record.pinned) << "kernel " << kernel << " lost its pin";
    // The artifact is that of this very version, or absent; it was written with the record as one.
    Result<std::optional<std::vector<std::byte>>> artifact = cache.Artifact(record);
    ASSERT_TRUE(artifact->has_value()) << "kernel " << kernel;
    EXPECT_EQ(**artifact, SampleArtifact(VersionOf(record), (**artifact).size()));
  }
}

TEST(PowerCut, EveryAcknowledgedRecordSurvivesAtAHundredRandomMoments) {
  LogLevel level = GetLogLevel();
  SetLogLevel(LogLevel::kError);
  SetLogFd(-1);  // dying caches complain; that is theirs to do
  const uint64_t seed = 42;
  TemporaryDirectory directory;
  std::vector<Promise> promises(kKernels);
  std::vector<int> attempted(kKernels, 0);
  int acknowledged = 0, survivors = 0;
  for (int round = 0; round < 100 && !::testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("seed {} round {}", seed, round));
    Rng rng = Rng(seed).Fork(static_cast<uint64_t>(round));
    FaultEnv fault;
    Result<std::unique_ptr<ScheduleCache>> cache = ScheduleCache::Open(OptionsFor(directory / "cache", &fault));
    ASSERT_TRUE(cache.has_value()) << cache.error().Text();
    ASSERT_EQ((*cache)->Stats().not_persisting, "");
    Check(**cache, promises, attempted);
    for (const Promise& promise : promises) survivors += promise.version >= 0 ? 1 : 0;
    std::atomic<bool> stop{false};
    {
      std::jthread writer([&] { Write(**cache, rng.Fork(1), stop, promises, attempted); });
      std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(30'000)));
      fault.files().CutPower();
      stop = true;
    }
    cache->reset();
    fault.files().LoseUnsynced(rng);
    for (const Promise& promise : promises) acknowledged += promise.version >= 0 ? 1 : 0;
  }
  SetLogFd(2);
  SetLogLevel(level);
  // The test would prove nothing if little had been written.
  EXPECT_GT(acknowledged, 1000);
  EXPECT_GT(survivors, 1000);
}

// What each call acknowledges is on disk when it returns, at worst: nothing else syncs in between, and the cut comes
// right after it. Without the sync in one of these calls its test fails.
class Acknowledged : public ::testing::Test {
 protected:
  Acknowledged() {
    Open();
    for (int kernel = 0; kernel < 3; ++kernel) EXPECT_TRUE(cache_->Put(SampleEntry(kernel), Durability::kSoon));
    EXPECT_TRUE(cache_->Flush().has_value());
  }
  ~Acknowledged() override { SetLogFd(2); }

  void Open() {
    CacheOptions options = OptionsFor(directory_ / "cache", &fault_.emplace());
    options.flush_interval = options.use_interval = std::chrono::hours(1);  // nothing but what is called syncs
    cache_ = *ScheduleCache::Open(options);
  }
  void CutAndOpen() {
    SetLogFd(-1);
    fault_->files().CutPower();
    cache_.reset();
    Rng rng(9);
    fault_->files().LoseUnsynced(rng, /*worst=*/true);
    SetLogFd(2);
    Open();
  }
  std::optional<CacheHit> Lookup(int kernel) { return *cache_->Lookup(SampleKey(kernel)); }

  TemporaryDirectory directory_;
  std::optional<FaultEnv> fault_;
  std::unique_ptr<ScheduleCache> cache_;
};

TEST_F(Acknowledged, WhatIsNotSyncedIsLost) {  // else the others would prove nothing
  ASSERT_TRUE(cache_->Put(SampleEntry(5), Durability::kSoon).has_value());
  CutAndOpen();
  EXPECT_FALSE(Lookup(5).has_value());
}

TEST_F(Acknowledged, WhatTuneStores) {
  NewRecord tuned = SampleEntry(1);
  tuned.record.schedule = "split t2.i 99\n";
  const std::vector<std::byte> artifact = SampleArtifact(1);
  tuned.artifact = artifact;
  ASSERT_TRUE(cache_->Put(tuned, Durability::kSynced).has_value());
  CutAndOpen();
  ASSERT_TRUE(Lookup(1).has_value());
  EXPECT_EQ(Lookup(1)->record.schedule, tuned.record.schedule);
  EXPECT_EQ(**cache_->Artifact(Lookup(1)->record), artifact);
}

TEST_F(Acknowledged, WhatPinAndUnpinSay) {
  ASSERT_TRUE(cache_->Pin(SampleKey(1).fingerprint, true).has_value());
  CutAndOpen();
  EXPECT_TRUE(Lookup(1)->record.pinned);
  ASSERT_TRUE(cache_->Pin(SampleKey(1).fingerprint, false).has_value());
  CutAndOpen();
  EXPECT_FALSE(Lookup(1)->record.pinned);
}

TEST_F(Acknowledged, WhatRemoveRemoved) {
  ASSERT_TRUE(cache_->Remove(SampleKey(1).fingerprint).has_value());
  CutAndOpen();
  EXPECT_FALSE(Lookup(1).has_value());
  EXPECT_TRUE(Lookup(2).has_value());
}

TEST_F(Acknowledged, WhatFlushWasAskedToKeep) {
  ASSERT_TRUE(cache_->Put(SampleEntry(6), Durability::kSoon).has_value());
  ASSERT_TRUE(cache_->PutNote(SampleKey(6), "won", "much", Durability::kSoon).has_value());
  ASSERT_TRUE(cache_->Flush().has_value());
  CutAndOpen();
  EXPECT_TRUE(Lookup(6).has_value());
  EXPECT_EQ(**cache_->GetNote(SampleKey(6), "won"), "much");
}

TEST(PowerCut, ServedMissesAreOnDiskWithinASecond) {
  TemporaryDirectory directory;
  FaultEnv fault;
  CacheOptions options = OptionsFor(directory / "cache", &fault);
  options.flush_interval = CacheOptions().flush_interval;
  std::unique_ptr<ScheduleCache> cache = *ScheduleCache::Open(options);
  ASSERT_TRUE(cache->Put(SampleEntry(1), Durability::kSoon).has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  ASSERT_TRUE(cache->Put(SampleEntry(2), Durability::kSoon).has_value());
  SetLogFd(-1);
  fault.files().CutPower();
  cache.reset();
  SetLogFd(2);
  Rng rng(7);
  fault.files().LoseUnsynced(rng, /*worst=*/true);
  cache = *ScheduleCache::Open(OptionsFor(directory / "cache", nullptr));
  EXPECT_TRUE(cache->Lookup(SampleKey(1))->has_value());
  EXPECT_FALSE(cache->Lookup(SampleKey(2))->has_value());  // written right before the cut: the model does forget
}

}  // namespace
}  // namespace hone::power_cut_test
