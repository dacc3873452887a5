// Damaged caches: every kind of damage costs what it hit and nothing else, is said, and never serves a wrong kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/envelope.h"
#include "base/file.h"
#include "base/log.h"
#include "cache/keys.h"
#include "cache/rocks_store.h"
#include "cache/schedule_cache.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string ReadWhole(const fs::path& path) { return ReadFile(path.string(), 1 << 30).value(); }

void Overwrite(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::vector<fs::path> FilesOf(const std::string& directory, std::string_view suffix) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    if (entry.path().filename().string().ends_with(suffix)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

class DamageTest : public ::testing::Test {
 protected:
  static constexpr int kClasses = 3;

  std::string Directory() const { return directory_ / "cache"; }
  std::string Database() const { return Directory() + "/db"; }

  // Upkeep, and with it a repair, begins after `upkeep`.
  Result<std::unique_ptr<ScheduleCache>> TryOpen(std::chrono::milliseconds upkeep = std::chrono::milliseconds(20)) {
    CacheOptions options;
    options.directory = Directory();
    options.flush_interval = upkeep;
    return ScheduleCache::Open(options);
  }
  std::unique_ptr<ScheduleCache> Open(std::chrono::milliseconds upkeep = std::chrono::milliseconds(20)) {
    Result<std::unique_ptr<ScheduleCache>> cache = TryOpen(upkeep);
    EXPECT_TRUE(cache.has_value()) << (cache ? "" : cache.error().Text());
    return cache ? *std::move(cache) : nullptr;
  }

  void Fill(int kernels, size_t artifact_bytes = 2000) {
    std::unique_ptr<ScheduleCache> cache = Open();
    for (int kernel = 0; kernel < kernels; ++kernel) {
      std::vector<std::byte> artifact = SampleArtifact(kernel, artifact_bytes);
      NewRecord entry = SampleEntry(kernel, kernel % kClasses);
      entry.artifact = artifact;
      ASSERT_TRUE(cache->Put(entry, Durability::kSoon).has_value());
    }
  }

  struct Census {
    int records = 0, artifacts = 0;
  };
  // What can be served. Fails if any of it is wrong.
  Census Count(ScheduleCache& cache, int kernels, size_t artifact_bytes = 2000) {
    Census census;
    for (int kernel = 0; kernel < kernels; ++kernel) {
      Result<std::optional<CacheHit>> hit = cache.Lookup(SampleKey(kernel, kernel % kClasses));
      EXPECT_TRUE(hit.has_value());
      if (!hit || !*hit) continue;
      ++census.records;
      EXPECT_EQ((*hit)->record.schedule, SampleRecord(kernel, kernel % kClasses).schedule);
      Result<std::optional<std::vector<std::byte>>> artifact = cache.Artifact((*hit)->record);
      EXPECT_TRUE(artifact.has_value());
      if (!artifact || !*artifact) continue;
      ++census.artifacts;
      EXPECT_EQ(**artifact, SampleArtifact(kernel, artifact_bytes));
    }
    return census;
  }

  void WaitForRepair(ScheduleCache& cache) {
    for (int i = 0; i < 3000 && cache.Stats().repaired.empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_NE(cache.Stats().repaired, "");
  }

  // The table that holds most of a family: the largest whose raw bytes name it.
  fs::path TableOf(std::string_view family) {
    fs::path best;
    for (const fs::path& path : FilesOf(Database(), ".sst"))
      if (ReadWhole(path).find(family) != std::string::npos &&
          (best.empty() || fs::file_size(path) > fs::file_size(best)))
        best = path;
    EXPECT_FALSE(best.empty());
    return best;
  }

  void Flip(const fs::path& path, size_t at, size_t count = 1) {
    std::string bytes = ReadWhole(path);
    ASSERT_LT(at + count, bytes.size());
    for (size_t i = 0; i < count; ++i) bytes[at + i] = static_cast<char>(~bytes[at + i]);
    Overwrite(path, bytes);
  }

  // Writes into the closed cache's database behind the cache's back.
  void Edit(const std::function<void(Store&)>& edit) {
    RocksOptions options;
    options.path = Database();
    Result<std::unique_ptr<Store>> store = OpenRocksStore(options);
    ASSERT_TRUE(store.has_value());
    edit(**store);
  }

  TemporaryDirectory directory_;

  // An open database as a killed process leaves it. It is at work: a file may go while it is copied.
  void CopyAtWork(const std::string& live) {
    std::error_code error = std::make_error_code(std::errc::no_such_file_or_directory);
    for (int attempt = 0; attempt < 10 && error; ++attempt) {
      fs::remove_all(Directory());
      fs::copy(live, Directory(), fs::copy_options::recursive, error);
    }
    ASSERT_FALSE(error) << error.message();
  }
};

constexpr int kMany = 3000;

TEST_F(DamageTest, FlippedByteInATableCostsABlockAndIsRepairedWhileServing) {
  Fill(kMany);
  fs::path table = TableOf("records");
  Flip(table, fs::file_size(table) / 3);
  // In the moments in which the copy is put in the database's place reads miss: not before they were counted.
  std::unique_ptr<ScheduleCache> cache = Open(std::chrono::seconds(8));
  Census first = Count(*cache, kMany);
  EXPECT_EQ(cache->Stats().repaired, "");
  EXPECT_LT(first.records, kMany);
  EXPECT_GT(first.records, kMany - 40);  // a block holds a few records
  WaitForRepair(*cache);
  EXPECT_THAT(cache->Stats().repaired, HasSubstr("damaged stretches"));
  Census repaired = Count(*cache, kMany);
  EXPECT_EQ(repaired.records, first.records);
  EXPECT_EQ(repaired.artifacts, first.artifacts);
  // What was lost can be had again.
  for (int kernel = 0; kernel < kMany; kernel += 100)
    ASSERT_TRUE(cache->Put(SampleEntry(kernel, kernel % kClasses), Durability::kSynced).has_value());
  EXPECT_EQ(cache->Stats().not_persisting, "");
}

TEST_F(DamageTest, ListingPassesOverWhatCannotBeRead) {
  Fill(kMany);
  fs::path table = TableOf("records");
  for (int part = 1; part < 8; ++part) Flip(table, fs::file_size(table) / 9 * static_cast<size_t>(part), 16);
  std::unique_ptr<ScheduleCache> cache = Open();
  int listed = 0;
  ASSERT_TRUE(cache->ForEachRecord(std::nullopt, [&](const Record&) { return ++listed > 0; }));
  EXPECT_LT(listed, kMany);
  EXPECT_GT(listed, kMany - 7 * 40);
}

TEST_F(DamageTest, TruncatedTableCostsItsFamilyAtMost) {
  Fill(kMany);
  fs::path table = TableOf("records");
  fs::resize_file(table, fs::file_size(table) / 2);
  std::unique_ptr<ScheduleCache> cache = Open();
  EXPECT_THAT(cache->Stats().repaired, HasSubstr("could not be opened"));
  EXPECT_TRUE(cache->Put(SampleEntry(1, 1), Durability::kSynced).has_value());
  EXPECT_TRUE(cache->Lookup(SampleKey(1, 1))->has_value());
  // The damaged database is kept for whoever wants to look.
  EXPECT_FALSE(FilesOf(Directory(), "").empty());
  bool kept = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(Directory()))
    kept |= entry.path().filename().string().starts_with("damaged-");
  EXPECT_TRUE(kept);
}

TEST_F(DamageTest, DamagedFooterOfTheIndexTableLosesNoRecord) {
  Fill(kMany);
  fs::path table = TableOf("kernels");
  Flip(table, fs::file_size(table) - 20, 10);
  std::unique_ptr<ScheduleCache> cache = Open();
  Census census = Count(*cache, kMany);
  EXPECT_EQ(census.records, kMany);
  EXPECT_EQ(census.artifacts, kMany);
  // The index is made again from the records.
  for (int i = 0; i < 500 && cache->FindByPrefix(SampleKey(5, 2).fingerprint.Hex())->empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(cache->FindByPrefix(SampleKey(5, 2).fingerprint.Hex())->size(), 1u);
}

TEST_F(DamageTest, MissingTableLosesOnlyWhatItHeld) {
  Fill(kMany);
  fs::remove(TableOf("kernels"));
  std::unique_ptr<ScheduleCache> cache = Open();
  EXPECT_EQ(Count(*cache, kMany).records, kMany);
}

TEST_F(DamageTest, DamagedManifestKeepsEveryRecord) {
  Fill(kMany);
  for (const fs::directory_entry& entry : fs::directory_iterator(Database()))
    if (entry.path().filename().string().starts_with("MANIFEST")) Overwrite(entry.path(), "not a manifest at all");
  std::unique_ptr<ScheduleCache> cache = Open();
  EXPECT_EQ(Count(*cache, kMany).records, kMany);
  EXPECT_THAT(cache->Stats().repaired, HasSubstr("compiled again"));
  EXPECT_THAT(cache->Stats().problem, HasSubstr("compiled again"));
}

TEST_F(DamageTest, MissingCurrentKeepsEveryRecord) {
  Fill(kMany);
  fs::remove(Database() + "/CURRENT");
  std::unique_ptr<ScheduleCache> cache = Open();
  EXPECT_EQ(Count(*cache, kMany).records, kMany);
}

// Sixteen bytes of a log that was not yet written into tables: what they hit is gone, and that is said, once by Verify.
TEST_F(DamageTest, DamageInTheLogCostsWhatItHitsAndIsSaid) {
  constexpr int kInLog = 60;
  const std::string live = directory_ / "live";
  {
    CacheOptions options;
    options.directory = live;
    std::unique_ptr<ScheduleCache> cache = *ScheduleCache::Open(options);
    for (int kernel = 0; kernel < kInLog; ++kernel) {
      ASSERT_TRUE(cache->Put(SampleEntry(kernel, kernel % kClasses), Durability::kSynced).has_value());
      ASSERT_TRUE(cache->Pin(SampleKey(kernel, kernel % kClasses).fingerprint, true).has_value());
    }
    CopyAtWork(live);
  }
  std::vector<fs::path> logs = FilesOf(Database(), ".log");
  ASSERT_EQ(logs.size(), 1u);
  Flip(logs[0], fs::file_size(logs[0]) / 10, 16);
  {
    std::unique_ptr<ScheduleCache> cache = Open();
    EXPECT_GE(Count(*cache, kInLog).records, kInLog - 1);
    CacheStats stats = cache->Stats();
    EXPECT_EQ(stats.losses, 1u);
    EXPECT_THAT(stats.problem, HasSubstr("of the last writes"));
    EXPECT_THAT(stats.problem, HasSubstr("hone verify"));
  }
  std::unique_ptr<ScheduleCache> cache = Open();  // remembered
  EXPECT_THAT(cache->Stats().problem, HasSubstr("of the last writes"));
  Result<VerifyReport> report = cache->Verify({});
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->losses, 1u);
  EXPECT_THAT(report->findings.at(0), HasSubstr("of the last writes"));
  EXPECT_EQ(cache->Stats().problem, "");
  EXPECT_EQ(cache->Stats().losses, 1u);
  cache.reset();
  cache = Open();
  EXPECT_TRUE(cache->Verify({})->findings.empty());
  // The log as it was is kept for whoever wants to look.
  bool kept = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(Directory()))
    kept |= entry.path().filename().string().starts_with("damaged-") && fs::exists(entry.path() / logs[0].filename());
  EXPECT_TRUE(kept);
}

// The list of files is gone, or says nothing any more, and nothing was written into tables yet: all is in the log.
TEST_F(DamageTest, LostManifestAfterAKillKeepsWhatTheLogHolds) {
  const std::string live = directory_ / "live";
  for (bool remove : {false, true}) {
    fs::remove_all(live);
    fs::remove_all(Directory());
    {
      CacheOptions options;
      options.directory = live;
      std::unique_ptr<ScheduleCache> cache = *ScheduleCache::Open(options);
      for (int kernel = 0; kernel < 60; ++kernel)
        ASSERT_TRUE(cache->Put(SampleEntry(kernel, kernel % kClasses), Durability::kSynced).has_value());
      ASSERT_TRUE(cache->Remove(SampleKey(59, 59 % kClasses).fingerprint).has_value());
      CopyAtWork(live);
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(Database())) {
      if (!entry.path().filename().string().starts_with("MANIFEST")) continue;
      if (remove)
        fs::remove(entry.path());
      else
        Overwrite(entry.path(), "not a manifest at all");
    }
    EXPECT_EQ(Count(*Open(), 60).records, 59);
  }
}

TEST_F(DamageTest, FlippedByteInABlobCostsThatArtifact) {
  Fill(100);
  std::vector<fs::path> blobs = FilesOf(Database(), ".blob");
  ASSERT_FALSE(blobs.empty());
  Flip(blobs[0], fs::file_size(blobs[0]) / 2);
  std::unique_ptr<ScheduleCache> cache = Open();
  Census census = Count(*cache, 100);
  EXPECT_EQ(census.records, 100);
  EXPECT_EQ(census.artifacts, 99);
  ASSERT_TRUE(cache->Flush().has_value());
  EXPECT_EQ(cache->Stats().quarantined, 1u);
  EXPECT_EQ(cache->Stats().repaired, "");
}

// Also when giving it up does not wait for upkeep to have looked.
TEST_F(DamageTest, AFlippedBitInABlobIsSetRightBeforeItsArtifactIsGivenUp) {
  Fill(100);
  const fs::path blob = FilesOf(Database(), ".blob").at(0);
  std::string bytes = ReadWhole(blob);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 8);
  Overwrite(blob, bytes);
  CacheOptions options;
  options.directory = Directory();
  options.flush_interval = std::chrono::hours(1);
  std::unique_ptr<ScheduleCache> cache = *ScheduleCache::Open(options);
  EXPECT_EQ(Count(*cache, 100).artifacts, 99);
  ASSERT_TRUE(cache->Flush().has_value());
  EXPECT_EQ(Count(*cache, 100).artifacts, 100);
  EXPECT_EQ(cache->Stats().quarantined, 0u);
}

TEST_F(DamageTest, MissingBlobFileCostsItsArtifacts) {
  Fill(100);
  fs::remove(FilesOf(Database(), ".blob").at(0));
  std::unique_ptr<ScheduleCache> cache = Open();
  EXPECT_EQ(Count(*cache, 100).records, 100);
  EXPECT_TRUE(cache->Put(SampleEntry(1, 1), Durability::kSynced).has_value());
}

TEST_F(DamageTest, DamagedValueIsSetAsideOnceAndCounted) {
  Fill(10);
  std::string key = RecordKey(SampleKey(4, 1));
  Edit([&](Store& store) {
    std::string value = **store.Get(Family::kRecords, key);
    value[value.size() / 2] ^= 4;
    StoreBatch batch;
    batch.Put(Family::kRecords, key, value);
    ASSERT_TRUE(store.Write(batch, SyncMode::kSync).has_value());
  });
  {
    std::unique_ptr<ScheduleCache> cache = Open();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Count(*cache, 10).records, 9);
    ASSERT_TRUE(cache->Flush().has_value());
    EXPECT_EQ(cache->Stats().quarantined, 1u);
  }
  {
    std::unique_ptr<ScheduleCache> cache = Open();
    EXPECT_EQ(Count(*cache, 10).records, 9);
    EXPECT_EQ(cache->Stats().quarantined, 1u);  // remembered, and not counted again
  }
  Edit([&](Store& store) {
    EXPECT_FALSE(store.Get(Family::kRecords, key)->has_value());
    Result<std::optional<std::string>> kept = store.Get(Family::kMeta, QuarantineKey(Family::kRecords, key));
    ASSERT_TRUE(kept->has_value());
    EXPECT_TRUE(Unseal(ValueType::kQuarantined, 1, **kept).has_value());
  });
}

TEST_F(DamageTest, TruncatedArtifactIsAMissAndTheRecordStays) {
  Fill(10);
  std::string key = RecordKey(SampleKey(4, 1));
  Edit([&](Store& store) {
    std::string value = **store.Get(Family::kArtifacts, key);
    StoreBatch batch;
    batch.Put(Family::kArtifacts, key, value.substr(0, value.size() - 100));
    ASSERT_TRUE(store.Write(batch, SyncMode::kSync).has_value());
  });
  std::unique_ptr<ScheduleCache> cache = Open();
  Census census = Count(*cache, 10);
  EXPECT_EQ(census.records, 10);
  EXPECT_EQ(census.artifacts, 9);
  Result<VerifyReport> report = cache->Verify({});
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->records, 10u);
  EXPECT_EQ(report->artifacts, 9u);
  EXPECT_EQ(report->damaged, 1u);
  EXPECT_TRUE(report->findings.empty());  // its record tells of it: a line here would count it twice
}

TEST_F(DamageTest, ArtifactOfAnotherRecordIsNeverServed) {
  Fill(10);
  std::string one = RecordKey(SampleKey(4, 1)), other = RecordKey(SampleKey(7, 1));
  Edit([&](Store& store) {
    StoreBatch batch;
    batch.Put(Family::kArtifacts, one, **store.Get(Family::kArtifacts, other));
    batch.Put(Family::kRecords, other, **store.Get(Family::kRecords, one));  // sound, but under another key
    ASSERT_TRUE(store.Write(batch, SyncMode::kSync).has_value());
  });
  std::unique_ptr<ScheduleCache> cache = Open();
  Census census = Count(*cache, 10);
  EXPECT_EQ(census.records, 9);
  EXPECT_EQ(census.artifacts, 8);
  ASSERT_TRUE(cache->Flush().has_value());
  EXPECT_EQ(cache->Stats().quarantined, 1u);  // the record; the artifact is sound, and only not this record's
}

TEST_F(DamageTest, ValueOfANewerVersionIsAMissAndStays) {
  Fill(10);
  std::string key = RecordKey(SampleKey(4, 1)), newer;
  Edit([&](Store& store) {
    newer = Seal(ValueType::kRecord, kRecordVersion + 1, "what a later hone knows");
    StoreBatch batch;
    batch.Put(Family::kRecords, key, newer);
    ASSERT_TRUE(store.Write(batch, SyncMode::kSync).has_value());
  });
  {
    std::unique_ptr<ScheduleCache> cache = Open();
    EXPECT_EQ(Count(*cache, 10).records, 9);
    ASSERT_TRUE(cache->Flush().has_value());
    EXPECT_EQ(cache->Stats().quarantined, 0u);
  }
  Edit([&](Store& store) { EXPECT_EQ(**store.Get(Family::kRecords, key), newer); });
}

TEST_F(DamageTest, CacheOfANewerFormatIsRefusedAndLeftAlone) {
  Fill(10);
  Overwrite(Directory() + "/FORMAT", "hone cache\nformat 2\n");
  std::string before = ReadWhole(Database() + "/CURRENT");
  Result<std::unique_ptr<ScheduleCache>> cache = TryOpen();
  ASSERT_FALSE(cache.has_value());
  EXPECT_EQ(cache.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(cache.error().Text(), HasSubstr("format 2"));
  EXPECT_THAT(cache.error().Text(), HasSubstr(Directory()));
  EXPECT_EQ(ReadWhole(Database() + "/CURRENT"), before);
  Overwrite(Directory() + "/FORMAT", "hone cache\nformat 1\n");
  EXPECT_EQ(Count(*Open(), 10).records, 10);
}

TEST_F(DamageTest, UnreadableFormatFileIsAClearError) {
  Fill(10);
  Overwrite(Directory() + "/FORMAT", "\1\2\3");
  Result<std::unique_ptr<ScheduleCache>> cache = TryOpen();
  ASSERT_FALSE(cache.has_value());
  EXPECT_EQ(cache.error().kind, ErrorKind::kCorrupt);
  EXPECT_THAT(cache.error().Text(), HasSubstr("FORMAT"));
}

TEST_F(DamageTest, SalvageInterruptedAtAnyPointIsFinishedOrDoneAgain) {
  Fill(100);
  std::string database = Database();
  // Interrupted while copying: an unfinished db.rebuilt lies about.
  fs::create_directory(Directory() + "/db.rebuilt");
  Overwrite(Directory() + "/db.rebuilt/000007.sst", "half");
  EXPECT_EQ(Count(*Open(), 100).records, 100);
  EXPECT_FALSE(fs::exists(Directory() + "/db.rebuilt"));
  // Interrupted between the renames: the repaired one waits, with or without the old one in its place.
  fs::rename(database, Directory() + "/db.repaired");
  EXPECT_EQ(Count(*Open(), 100).records, 100);
  fs::rename(database, Directory() + "/db.repaired");
  fs::create_directory(database);
  Overwrite(database + "/000001.sst", "old and damaged");
  EXPECT_EQ(Count(*Open(), 100).records, 100);
}

// Any file, any damage: opening works, nothing wrong is served, writing works.
TEST_F(DamageTest, RandomDamageNeverServesWrongNorStopsServing) {
  LogLevel level = GetLogLevel();
  SetLogLevel(LogLevel::kError);
  Fill(200);
  fs::path pristine = directory_ / "pristine";
  fs::copy(Directory(), pristine, fs::copy_options::recursive);
  const uint64_t seed = 20250301;
  for (int round = 0; round < 80; ++round) {
    SCOPED_TRACE(fmt::format("seed {} round {}", seed, round));
    Rng rng = Rng(seed).Fork(static_cast<uint64_t>(round));
    fs::remove_all(Directory());
    fs::copy(pristine, Directory(), fs::copy_options::recursive);
    for (uint64_t hits = 1 + rng.Below(2); hits > 0; --hits) {
      std::vector<fs::path> files = FilesOf(Database(), "");
      fs::path victim = files[rng.Below(files.size())];
      uint64_t size = fs::file_size(victim);
      switch (size == 0 ? 3 : rng.Below(4)) {
        case 0: Flip(victim, rng.Below(std::max<uint64_t>(1, size - 1)), size > 1 ? 1 : 0); break;
        case 1: fs::resize_file(victim, rng.Below(size)); break;
        case 2: Overwrite(victim, std::string(size, '\0')); break;
        case 3: fs::remove(victim); break;
      }
    }
    std::unique_ptr<ScheduleCache> cache = Open();
    ASSERT_NE(cache, nullptr);
    Count(*cache, 200);
    EXPECT_TRUE(cache->Put(SampleEntry(1000), Durability::kSoon).has_value());
    EXPECT_TRUE(cache->Lookup(SampleKey(1000))->has_value());
    cache.reset();
    cache = Open();
    ASSERT_NE(cache, nullptr);
    EXPECT_TRUE(cache->Lookup(SampleKey(1000))->has_value());
  }
  SetLogLevel(level);
}

}  // namespace
}  // namespace hone
