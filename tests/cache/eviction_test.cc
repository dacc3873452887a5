// Eviction: artifacts first, the longest unused first, pinned ones never, and the disk really gets its space back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "base/rng.h"
#include "cache/schedule_cache.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone::eviction_test {
namespace {

constexpr size_t kArtifactBytes = 30'000;

class EvictionTest : public ::testing::Test {
 protected:
  CacheOptions Options() {
    CacheOptions options;
    options.directory = directory_ / "cache";
    options.clock = &clock_;
    options.size_cap = 0;
    options.flush_interval = std::chrono::milliseconds(20);
    return options;
  }
  void Open(const CacheOptions& options) {
    cache_.reset();
    cache_ = *ScheduleCache::Open(options);
  }
  void Fill(int kernels) {
    for (int kernel = 0; kernel < kernels; ++kernel) {
      clock_.Advance(std::chrono::seconds(1));
      std::vector<std::byte> artifact = SampleArtifact(kernel, kArtifactBytes);
      NewRecord entry = SampleEntry(kernel, kernel % 3);
      entry.artifact = artifact;
      ASSERT_TRUE(cache_->Put(entry, Durability::kSoon).has_value());
    }
    ASSERT_TRUE(cache_->Flush().has_value());
  }
  bool HasRecord(int kernel) { return !cache_->RecordsOf(SampleKey(kernel, kernel % 3).fingerprint)->empty(); }
  bool HasArtifact(int kernel) {
    std::vector<Record> records = *cache_->RecordsOf(SampleKey(kernel, kernel % 3).fingerprint);
    if (records.empty() || !records[0].artifact_digest) return false;
    EXPECT_TRUE(cache_->Artifact(records[0])->has_value()) << "kernel " << kernel << ": promised and not there";
    return true;
  }
  uint64_t Usage() { return DiskUsage(Options().directory); }

  TemporaryDirectory directory_;
  FakeClock clock_;
  std::unique_ptr<ScheduleCache> cache_;
};

TEST_F(EvictionTest, RemovesTheLongestUnusedArtifactsAndKeepsSchedules) {
  Open(Options());
  Fill(200);
  ASSERT_TRUE(cache_->Pin(SampleKey(0, 0).fingerprint, true).has_value());
  // Kernels 1 to 20 are the oldest, and used again.
  clock_.Advance(std::chrono::hours(1));
  for (int kernel = 1; kernel <= 20; ++kernel) ASSERT_TRUE(cache_->Lookup(SampleKey(kernel, kernel % 3))->has_value());
  ASSERT_TRUE(cache_->Flush().has_value());
  uint64_t before = Usage();
  ASSERT_GT(before, 200 * kArtifactBytes / 2);
  Result<EvictionReport> report = cache_->EvictTo(before / 2, {});
  ASSERT_TRUE(report.has_value()) << report.error().Text();
  EXPECT_EQ(report->bytes_before, before);
  EXPECT_EQ(report->bytes_after, Usage());
  EXPECT_LE(Usage(), before / 2);
  EXPECT_GT(report->artifacts, 80u);
  EXPECT_LT(report->artifacts, 130u);
  EXPECT_EQ(report->records, 0u);
  int kept = 0;
  bool ended = false;
  for (int kernel = 0; kernel < 200; ++kernel) {
    EXPECT_TRUE(HasRecord(kernel));
    bool has = HasArtifact(kernel);
    kept += has ? 1 : 0;
    if (kernel <= 20) {
      EXPECT_TRUE(has) << "kernel " << kernel << " is pinned or was just used";
    } else {
      // Oldest first: once one is kept, all later ones are.
      EXPECT_TRUE(!ended || has) << "kernel " << kernel;
      ended |= has;
    }
  }
  EXPECT_EQ(static_cast<uint64_t>(kept), 200 - report->artifacts);
  CacheStats stats = cache_->Stats();
  EXPECT_EQ(stats.evicted_artifacts, report->artifacts);
  // An evicted artifact is a hit without code, and can be put back.
  std::optional<CacheHit> hit = *cache_->Lookup(SampleKey(21, 0));
  ASSERT_TRUE(hit.has_value());
  EXPECT_FALSE(hit->artifact_current);
}

// As libhone does, by default.
TEST_F(EvictionTest, WhatProgramsKeepInTheDirectoryIsNotTheCaches) {
  Open(Options());
  Fill(50);
  const uint64_t own = Usage();
  const std::string copies = Options().directory + "/client";
  std::filesystem::create_directory(copies);
  ASSERT_TRUE(WriteFileAtomically(copies + "/a.code", std::string(4 * own, 'x')).has_value());
  EXPECT_EQ(cache_->Stats().disk_bytes, own);
  Result<EvictionReport> report = cache_->EvictTo(own, {});
  ASSERT_TRUE(report.has_value()) << report.error().Text();
  EXPECT_EQ(report->artifacts + report->records, 0u);
  report = cache_->EvictTo(own / 2, {});
  ASSERT_TRUE(report.has_value()) << report.error().Text();
  EXPECT_GT(report->artifacts, 0u);
  EXPECT_EQ(report->records, 0u);
}

TEST_F(EvictionTest, AFloodOfKernelsDoesNotPushOutWhatIsUsedOften) {
  Open(Options());
  Fill(20);
  for (int kernel = 0; kernel < 10; ++kernel)
    for (int use = 0; use < 8; ++use) ASSERT_TRUE(cache_->Lookup(SampleKey(kernel, kernel % 3))->has_value());
  clock_.Advance(std::chrono::hours(24));
  for (int kernel = 20; kernel < 300; ++kernel) {
    clock_.Advance(std::chrono::seconds(1));
    std::vector<std::byte> artifact = SampleArtifact(kernel, kArtifactBytes);
    NewRecord entry = SampleEntry(kernel, kernel % 3);
    entry.artifact = artifact;
    ASSERT_TRUE(cache_->Put(entry, Durability::kSoon).has_value());
  }
  ASSERT_TRUE(cache_->Flush().has_value());
  ASSERT_TRUE(cache_->EvictTo(Usage() / 2, {}).has_value());
  for (int kernel = 0; kernel < 10; ++kernel) EXPECT_TRUE(HasArtifact(kernel)) << kernel;
  for (int kernel = 10; kernel < 20; ++kernel) EXPECT_FALSE(HasArtifact(kernel)) << kernel;
  // Not for ever: three doublings are three days.
  clock_.Advance(std::chrono::hours(72));
  ASSERT_TRUE(cache_->Lookup(SampleKey(299, 299 % 3))->has_value());
  ASSERT_TRUE(cache_->EvictTo(12 * kArtifactBytes, {}).has_value());
  EXPECT_TRUE(HasArtifact(299));
}

TEST_F(EvictionTest, RemovesRecordsWhenArtifactsDoNotSuffice) {
  Open(Options());
  Fill(300);
  ASSERT_TRUE(cache_->Pin(SampleKey(7, 1).fingerprint, true).has_value());
  for (int kernel : {7, 8})
    ASSERT_TRUE(cache_->PutNote(SampleKey(kernel, kernel % 3), "won", "1.5", Durability::kSoon).has_value());
  Result<EvictionReport> report = cache_->EvictTo(1, {});
  ASSERT_TRUE(report.has_value()) << report.error().Text();
  EXPECT_EQ(report->artifacts, 299u);
  EXPECT_EQ(report->records, 299u);
  for (int kernel = 0; kernel < 300; ++kernel) EXPECT_EQ(HasRecord(kernel), kernel == 7) << kernel;
  EXPECT_TRUE(HasArtifact(7));
  EXPECT_EQ(cache_->FindByPrefix(SampleKey(8, 2).fingerprint.Hex())->size(), 0u);
  EXPECT_TRUE(cache_->GetNote(SampleKey(7, 1), "won")->has_value());
  EXPECT_FALSE(cache_->GetNote(SampleKey(8, 2), "won")->has_value());
  EXPECT_LT(Usage(), 400'000u);
}

TEST_F(EvictionTest, NothingToDoBelowTheLimit) {
  Open(Options());
  Fill(10);
  Result<EvictionReport> report = cache_->EvictTo(1 << 30, {});
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->artifacts, 0u);
  EXPECT_EQ(report->records, 0u);
}

TEST_F(EvictionTest, DatabasesSetAsideGoFirst) {
  Open(Options());
  Fill(50);
  std::filesystem::create_directory(Options().directory + "/damaged-1");
  std::ofstream(Options().directory + "/damaged-1/000001.sst") << std::string(3 << 20, 'x');
  uint64_t before = Usage();
  Result<EvictionReport> report = cache_->EvictTo(before - (1 << 20), {});
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->artifacts, 0u);
  EXPECT_FALSE(std::filesystem::exists(Options().directory + "/damaged-1"));
}

TEST_F(EvictionTest, HappensByItselfAboveTheCap) {
  CacheOptions options = Options();
  options.size_cap = 2 << 20;
  Open(options);
  Fill(300);
  // In several rounds, while more is still being written.
  auto done = [&] { return Usage() <= options.size_cap && cache_->Stats().evicted_artifacts > 100; };
  for (int i = 0; i < 500 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE(Usage(), options.size_cap);
  EXPECT_GT(cache_->Stats().evicted_artifacts, 100u);
  EXPECT_EQ(cache_->Stats().evicted_records, 0u);
  EXPECT_TRUE(HasArtifact(299));
}

// What is being written meanwhile lies in a log, then in a table, for a moment in both: no more is removed for that.
TEST_F(EvictionTest, NoMoreGoesThanIsTooMuchWhileMoreIsWritten) {
  constexpr uint64_t kCap = 2 << 20;
  Open(Options());
  Fill(60);
  std::jthread writer([&] {
    for (int kernel = 60; kernel < 300; ++kernel) {
      std::vector<std::byte> artifact = SampleArtifact(kernel, kArtifactBytes);
      NewRecord entry = SampleEntry(kernel, kernel % 3);
      entry.artifact = artifact;
      EXPECT_TRUE(cache_->Put(entry, Durability::kSoon).has_value());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int round = 0; round < 10; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Result<EvictionReport> report = cache_->EvictTo(kCap, {});
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->records, 0u);
    if (report->artifacts > 0) {
      EXPECT_GT(report->bytes_after, kCap / 2) << report->artifacts << " artifacts are gone";
    }
  }
  EXPECT_TRUE(cache_->Flush().has_value());
}

// What was learnt on the way is worth less than what is served.
TEST_F(EvictionTest, LogsOfTrialsGoBeforeCodeAndSchedules) {
  Open(Options());
  Fill(20);
  Rng rng(1);
  std::vector<TrialRecord> trials(1000);
  for (int kernel = 0; kernel < 20; ++kernel) {
    for (TrialRecord& trial : trials) {
      trial.choices.resize(40);
      for (char& letter : trial.choices) letter = static_cast<char>('a' + rng.Below(26));
      trial.program = rng.Next();
    }
    ASSERT_TRUE(cache_->AppendTrials(SampleKey(kernel, kernel % 3), trials).has_value());
  }
  ASSERT_TRUE(cache_->Flush().has_value());
  const uint64_t cap = uint64_t{20} * kArtifactBytes * 3 / 2;
  ASSERT_GT(Usage(), cap);
  Result<EvictionReport> report = cache_->EvictTo(cap, {});
  ASSERT_TRUE(report.has_value());
  EXPECT_GT(report->trials, 0u);
  EXPECT_EQ(report->artifacts, 0u);
  EXPECT_EQ(report->records, 0u);
  EXPECT_LE(Usage(), cap);
  size_t left = 0;
  auto count = [&](const TrialRecord&) { return ++left > 0; };
  ASSERT_TRUE(cache_->ForEachTrial(SampleKey(0, 0), count).has_value());
  EXPECT_EQ(left, 0u);  // of what was used longest ago
  ASSERT_TRUE(cache_->ForEachTrial(SampleKey(19, 19 % 3), count).has_value());
  EXPECT_EQ(left, 1000u);
  // A kernel that is removed takes its log with it.
  ASSERT_TRUE(cache_->Remove(SampleKey(19, 19 % 3).fingerprint).has_value());
  left = 0;
  ASSERT_TRUE(cache_->ForEachTrial(SampleKey(19, 19 % 3), count).has_value());
  EXPECT_EQ(left, 0u);
}

TEST_F(EvictionTest, StopsWhenTold) {
  Open(Options());
  Fill(100);
  std::stop_source stop;
  stop.request_stop();
  Result<EvictionReport> report = cache_->EvictTo(1, stop.get_token());
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->artifacts, 0u);
}

TEST_F(EvictionTest, InspectorsDoNotEvict) {
  Open(Options());
  Fill(10);
  CacheOptions options = Options();
  options.inspect = true;
  std::unique_ptr<ScheduleCache> inspector = *ScheduleCache::Open(options);
  EXPECT_EQ(inspector->EvictTo(1, {}).error().kind, ErrorKind::kUnsupported);
}

// Pins without a bound would make the cap none: at most half of it may be pinned, whatever is asked for.
TEST_F(EvictionTest, PinnedKernelsTakeAtMostHalfOfTheCap) {
  constexpr int kKernels = 200;
  CacheOptions options = Options();
  options.size_cap = 4 << 20;
  Open(options);
  std::vector<int> pinned, refused;
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    clock_.Advance(std::chrono::seconds(1));
    std::vector<std::byte> artifact = SampleArtifact(kernel, kArtifactBytes);
    NewRecord entry = SampleEntry(kernel, kernel % 3);
    entry.artifact = artifact;
    ASSERT_TRUE(cache_->Put(entry, Durability::kSoon).has_value());
    Result<void> pin = cache_->Pin(entry.record.key.fingerprint, true);
    (pin ? pinned : refused).push_back(kernel);
    if (pin) continue;
    EXPECT_EQ(pin.error().kind, ErrorKind::kLimit);
    EXPECT_THAT(pin.error().message, ::testing::HasSubstr("2.0 MiB already"));
    EXPECT_THAT(pin.error().message, ::testing::HasSubstr("hone unpin"));
  }
  ASSERT_GT(refused.size(), 2u);
  EXPECT_GT(pinned.size(), (2u << 20) / (kArtifactBytes + 2000));
  EXPECT_LE(pinned.size(), (2u << 20) / kArtifactBytes);
  ASSERT_TRUE(cache_->EvictTo(options.size_cap, {}).has_value());
  EXPECT_LE(Usage(), options.size_cap);
  for (int kernel : pinned) EXPECT_TRUE(HasArtifact(kernel));

  // The same after a restart, which has to count again; unpinning and removing make room.
  Open(options);
  const Fingerprint last = SampleKey(refused.back(), refused.back() % 3).fingerprint;
  EXPECT_FALSE(cache_->Pin(last, true).has_value());
  ASSERT_TRUE(cache_->Pin(SampleKey(pinned[0], pinned[0] % 3).fingerprint, false).has_value());
  EXPECT_TRUE(cache_->Pin(last, true).has_value());
  const int kernel = refused[refused.size() - 2];
  const Fingerprint another = SampleKey(kernel, kernel % 3).fingerprint;
  EXPECT_FALSE(cache_->Pin(another, true).has_value());
  ASSERT_TRUE(cache_->Remove(SampleKey(pinned[1], pinned[1] % 3).fingerprint).has_value());
  EXPECT_TRUE(cache_->Pin(another, true).has_value());
}

// A pinned record whose code grows: refused, and it stays as it was.
TEST_F(EvictionTest, APinnedRecordDoesNotGrowBeyondTheBound) {
  CacheOptions options = Options();
  options.size_cap = 200'000;
  Open(options);
  ASSERT_TRUE(cache_->Put(SampleEntry(1), Durability::kSynced).has_value());
  ASSERT_TRUE(cache_->Pin(SampleKey(1).fingerprint, true).has_value());
  NewRecord grown = SampleEntry(1);
  std::vector<std::byte> small = SampleArtifact(1, 90'000), large = SampleArtifact(2, 110'000);
  grown.artifact = large;
  EXPECT_EQ(cache_->Put(grown, Durability::kSoon).error().kind, ErrorKind::kLimit);
  EXPECT_FALSE((*cache_->Lookup(SampleKey(1)))->record.artifact_digest.has_value());
  grown.artifact = small;
  EXPECT_TRUE(cache_->Put(grown, Durability::kSoon).has_value());
  EXPECT_TRUE((*cache_->Lookup(SampleKey(1)))->artifact_current);
}

}  // namespace
}  // namespace hone::eviction_test
