// Code is served without another run only if this user checked it on this machine: whoever can write a cache's files
// cannot make anybody run anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>

#include "base/envelope.h"
#include "base/file.h"
#include "base/secret.h"
#include "cache/keys.h"
#include "cache/rocks_store.h"
#include "cache/schedule_cache.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class MarkTest : public ::testing::Test {
 protected:
  std::string Cache() const { return directory_ / "cache"; }
  std::string State() const { return Cache() + ".state"; }

  static std::unique_ptr<ScheduleCache> Open(const std::string& directory, const std::string& system = "") {
    CacheOptions options;
    options.directory = directory;
    options.system_directory = system;
    Result<std::unique_ptr<ScheduleCache>> cache = ScheduleCache::Open(options);
    EXPECT_TRUE(cache.has_value()) << (cache ? "" : cache.error().Text());
    return *std::move(cache);
  }
  static void Put(ScheduleCache& cache, int kernel) {
    std::vector<std::byte> artifact = SampleArtifact(kernel);
    NewRecord entry = SampleEntry(kernel);
    entry.artifact = artifact;
    ASSERT_TRUE(cache.Put(entry, Durability::kSynced).has_value());
  }
  static bool IsCurrent(ScheduleCache& cache, int kernel) {
    std::optional<CacheHit> hit = *cache.Lookup(SampleKey(kernel));
    EXPECT_TRUE(hit.has_value());
    if (hit) { EXPECT_EQ(hit->record.schedule, SampleRecord(kernel).schedule); }
    return hit && hit->artifact_current;
  }
  void SetUp() override { Put(*Open(Cache()), 1); }

  // Whoever can write the files can do this: change the record, and seal it again.
  void Edit(const std::function<void(Record&, StoreBatch&)>& edit) {
    RocksOptions options;
    options.path = Cache() + "/db";
    std::unique_ptr<Store> store = *OpenRocksStore(options);
    const std::string key = RecordKey(SampleKey(1));
    Record record = *DecodeRecord(**store->Get(Family::kRecords, key));
    StoreBatch batch;
    edit(record, batch);
    batch.Put(Family::kRecords, key, EncodeRecord(record));
    ASSERT_TRUE(store->Write(batch, SyncMode::kSync).has_value());
  }
  static void Plant(Record& record, StoreBatch& batch) {
    const std::string code = "planted code";
    record.artifact_digest = Hash256(code);
    record.artifact_bytes = code.size();
    batch.Put(Family::kArtifacts, RecordKey(record.key), Seal(ValueType::kArtifact, 1, code));
  }

  TemporaryDirectory directory_;
};

TEST_F(MarkTest, WhatSomebodyTrustedSentIsToBeCheckedAndNotServed) {
  {
    std::unique_ptr<ScheduleCache> cache = Open(Cache());
    const std::vector<std::byte> artifact = SampleArtifact(2);
    NewRecord entry = SampleEntry(2);
    entry.artifact = artifact;
    entry.check = ArtifactCheck::kTrusted;
    ASSERT_TRUE(cache->Put(entry, Durability::kSynced).has_value());
  }
  std::unique_ptr<ScheduleCache> cache = Open(Cache());
  CacheHit hit = **cache->Lookup(SampleKey(2));
  EXPECT_FALSE(hit.artifact_current);
  EXPECT_TRUE(hit.artifact_to_check);
  ASSERT_TRUE(cache->Pin(SampleKey(2).fingerprint, true).has_value());
  EXPECT_TRUE((*cache->Lookup(SampleKey(2)))->artifact_to_check);
  Put(*cache, 2);  // it was checked
  hit = **cache->Lookup(SampleKey(2));
  EXPECT_TRUE(hit.artifact_current);
  EXPECT_FALSE(hit.artifact_to_check);
}

TEST_F(MarkTest, CodeOfAKeyThatIsNoLongerTrustedIsMadeAgain) {
  const Digest256 lost = Hash256("a key that was lost"), other = Hash256("another");
  for (const ArtifactCheck check : {ArtifactCheck::kHere, ArtifactCheck::kTrusted}) {
    const std::vector<std::byte> artifact = SampleArtifact(2);
    NewRecord entry = SampleEntry(2);
    entry.record.origin = Origin::kImported;
    entry.record.source = RecordSource{"fleet", 1, lost, Origin::kTuned, false};
    entry.artifact = artifact;
    entry.check = check;
    {
      std::unique_ptr<ScheduleCache> cache = Open(Cache());
      ASSERT_TRUE(cache->Put(entry, Durability::kSynced).has_value());
      cache->Distrust(std::set{other});
      EXPECT_EQ(cache->CheckOf((*cache->Lookup(SampleKey(2)))->record), check);
    }
    std::unique_ptr<ScheduleCache> cache = Open(Cache());
    cache->Distrust(std::set{lost, other});
    const CacheHit hit = **cache->Lookup(SampleKey(2));
    EXPECT_FALSE(hit.artifact_current);
    EXPECT_FALSE(hit.artifact_to_check);
    EXPECT_FALSE(cache->IsCheckedHere(hit.record));
    EXPECT_EQ(cache->CheckOf(hit.record), ArtifactCheck::kNone);
    ASSERT_TRUE(cache->Pin(SampleKey(2).fingerprint, true).has_value());
    EXPECT_FALSE(IsCurrent(*cache, 2));
    entry.check = ArtifactCheck::kHere;  // it was compiled and checked here
    ASSERT_TRUE(cache->Put(entry, Durability::kSynced).has_value());
    EXPECT_TRUE(IsCurrent(*cache, 2));
    EXPECT_TRUE(IsCurrent(*cache, 1));  // that no bundle brought
    EXPECT_FALSE((*cache->Lookup(SampleKey(2)))->record.source->key);
    ASSERT_TRUE(cache->Remove(SampleKey(2).fingerprint).has_value());
  }
}

TEST_F(MarkTest, WhereNobodyKnowsWhichKeysAreTrustedCodeIsMadeAgain) {
  const std::vector<std::byte> artifact = SampleArtifact(2);
  NewRecord entry = SampleEntry(2);
  entry.record.origin = Origin::kImported;
  entry.record.source = RecordSource{"fleet", 1, Hash256("a key"), Origin::kTuned, false};
  entry.artifact = artifact;
  std::unique_ptr<ScheduleCache> cache = Open(Cache());
  ASSERT_TRUE(cache->Put(entry, Durability::kSynced).has_value());
  EXPECT_TRUE(IsCurrent(*cache, 2));
  cache->Distrust(std::nullopt);
  EXPECT_FALSE(IsCurrent(*cache, 2));
  EXPECT_TRUE(IsCurrent(*cache, 1));  // that no bundle brought
  cache->Distrust(std::set<Digest256>());
  EXPECT_TRUE(IsCurrent(*cache, 2));
}

TEST_F(MarkTest, WhatWasCheckedHereIsServedAfterARestart) { EXPECT_TRUE(IsCurrent(*Open(Cache()), 1)); }

TEST_F(MarkTest, TheKeyLiesBesideTheCacheAndIsNobodyElses) {
  struct stat info;
  ASSERT_EQ(stat(State().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  ASSERT_EQ(stat((State() + "/key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST_F(MarkTest, TheKeyLiesBesideTheCacheHoweverItsDirectoryIsWritten) {
  for (const std::string end : {"/", "//", "/.", "/db/.."}) {
    EXPECT_TRUE(IsCurrent(*Open(Cache() + end), 1)) << end;  // by the one key that there is
    EXPECT_FALSE(fs::exists(Cache() + "/.state")) << end;
  }
}

TEST_F(MarkTest, PlantedCodeIsNotServedWhateverMarkItHas) {
  for (int way = 0; way < 3; ++way) {
    Put(*Open(Cache()), 1);
    ASSERT_TRUE(IsCurrent(*Open(Cache()), 1));
    Edit([&](Record& record, StoreBatch& batch) {
      Plant(record, batch);
      if (way == 1) record.mark.reset();              // as an older hone writes it
      if (way == 2) Mark(record, RandomSecretKey());  // by a key of the planter's
    });
    EXPECT_FALSE(IsCurrent(*Open(Cache()), 1)) << way;
  }
}

TEST_F(MarkTest, TheMarkCoversTheWholeRecord) {
  Edit([](Record&, StoreBatch&) {});
  EXPECT_TRUE(IsCurrent(*Open(Cache()), 1));
  Edit([](Record& record, StoreBatch&) { record.request += " "; });
  EXPECT_FALSE(IsCurrent(*Open(Cache()), 1));
}

TEST_F(MarkTest, WhatAnOlderHoneWroteIsGoodForItsSchedule) {
  Edit([](Record& record, StoreBatch&) { record.mark.reset(); });
  std::unique_ptr<ScheduleCache> cache = Open(Cache());
  EXPECT_FALSE(IsCurrent(*cache, 1));
  Put(*cache, 1);
  EXPECT_TRUE(IsCurrent(*cache, 1));
}

TEST_F(MarkTest, PinningAndStoringAgainDoNotMarkWhatWasPlanted) {
  Edit(Plant);
  {
    std::unique_ptr<ScheduleCache> cache = Open(Cache());
    ASSERT_TRUE(cache->Pin(SampleKey(1).fingerprint, true).has_value());
    EXPECT_FALSE(IsCurrent(*cache, 1));
    ASSERT_TRUE(cache->Put(SampleEntry(1), Durability::kSynced).has_value());  // the same schedule: keeps its artifact
    EXPECT_FALSE(IsCurrent(*cache, 1));
  }
  std::unique_ptr<ScheduleCache> cache = Open(Cache());
  EXPECT_FALSE(IsCurrent(*cache, 1));
  Put(*cache, 1);  // compiled and checked here
  EXPECT_TRUE(IsCurrent(*cache, 1));
  EXPECT_TRUE((*cache->Lookup(SampleKey(1)))->record.pinned);
}

TEST_F(MarkTest, PinningAndStoringAgainKeepTheMark) {
  std::unique_ptr<ScheduleCache> cache = Open(Cache());
  ASSERT_TRUE(cache->Pin(SampleKey(1).fingerprint, true).has_value());
  EXPECT_TRUE(IsCurrent(*cache, 1));
  ASSERT_TRUE(cache->Put(SampleEntry(1), Durability::kSynced).has_value());
  EXPECT_TRUE(IsCurrent(*cache, 1));
}

TEST_F(MarkTest, ACopiedDirectoryIsGoodForItsSchedules) {
  fs::copy(Cache(), directory_ / "copy", fs::copy_options::recursive);
  std::unique_ptr<ScheduleCache> cache = Open(directory_ / "copy");
  EXPECT_FALSE(IsCurrent(*cache, 1));
  Put(*cache, 1);
  EXPECT_TRUE(IsCurrent(*cache, 1));
}

TEST_F(MarkTest, ASystemLayerIsGoodForItsSchedules) {
  std::unique_ptr<ScheduleCache> cache = Open(directory_ / "own", Cache());
  EXPECT_FALSE(IsCurrent(*cache, 1));
  ASSERT_TRUE(cache->Pin(SampleKey(1).fingerprint, true).has_value());  // copied up, and no more trusted for that
  EXPECT_FALSE(IsCurrent(*cache, 1));
}

TEST_F(MarkTest, AKeyThatOthersCanReadOrThatIsDamagedIsReplaced) {
  for (bool readable : {true, false}) {
    Put(*Open(Cache()), 1);
    ASSERT_TRUE(IsCurrent(*Open(Cache()), 1));
    const std::string before = *ReadFile(State() + "/key", 4096);
    const std::string contents = readable ? before : "hone key\nnot at all\n";
    ASSERT_TRUE(WriteFileAtomically(State() + "/key", contents, readable ? 0644 : 0600));
    EXPECT_FALSE(IsCurrent(*Open(Cache()), 1));
    EXPECT_NE(*ReadFile(State() + "/key", 4096), before);
  }
}

TEST_F(MarkTest, WithoutAPlaceForTheKeyCodeIsGoodUntilTheEnd) {
  fs::remove_all(State());
  ASSERT_TRUE(WriteFileAtomically(State(), "in the way"));
  {
    std::unique_ptr<ScheduleCache> cache = Open(Cache());
    EXPECT_FALSE(IsCurrent(*cache, 1));
    Put(*cache, 1);
    EXPECT_TRUE(IsCurrent(*cache, 1));
  }
  EXPECT_FALSE(IsCurrent(*Open(Cache()), 1));
}

// As a cost model is stored, in a cache that is closed.
std::string StoredModel(const std::string& cache, const std::string& name) {
  RocksOptions options;
  options.path = cache + "/db";
  std::unique_ptr<Store> store = *OpenRocksStore(options);
  return store->Get(Family::kModels, name)->value_or("");
}
void PlantModel(const std::string& cache, const std::string& name, const std::string& value) {
  RocksOptions options;
  options.path = cache + "/db";
  std::unique_ptr<Store> store = *OpenRocksStore(options);
  StoreBatch batch;
  batch.Put(Family::kModels, name, value);
  ASSERT_TRUE(store->Write(batch, SyncMode::kSync).has_value());
}

TEST_F(MarkTest, AModelThatWasPlantedIsNotRead) {
  PlantModel(Cache(), "cpu", Seal(ValueType::kModel, 2, "trees"));
  EXPECT_EQ(Open(Cache())->GetModel("cpu").error().kind, ErrorKind::kInvalid);
  // One that this cache makes takes its place.
  ASSERT_TRUE(Open(Cache())->PutModel("cpu", "other trees").has_value());
  EXPECT_EQ(Open(Cache())->GetModel("cpu").value(), "other trees");
}

TEST_F(MarkTest, AModelIsReadByItsOwnCacheAndNameAlone) {
  ASSERT_TRUE(Open(Cache())->PutModel("cpu", "trees").has_value());
  const std::string stored = StoredModel(Cache(), "cpu");
  PlantModel(Cache(), "gpu", stored);
  EXPECT_EQ(Open(Cache())->GetModel("gpu").error().kind, ErrorKind::kInvalid);
  std::string changed(Unseal(ValueType::kMarked, 1, stored).value());
  changed.replace(changed.find("trees"), 5, "weeds");
  PlantModel(Cache(), "cpu", Seal(ValueType::kMarked, 1, changed));
  EXPECT_FALSE(Open(Cache())->GetModel("cpu").has_value());
  PlantModel(Cache(), "cpu", stored);
  EXPECT_EQ(Open(Cache())->GetModel("cpu").value(), "trees");
  const std::string elsewhere = directory_ / "elsewhere";
  fs::copy(Cache(), elsewhere, fs::copy_options::recursive);
  EXPECT_EQ(Open(elsewhere)->GetModel("cpu").error().kind, ErrorKind::kInvalid);
}

}  // namespace
}  // namespace hone
