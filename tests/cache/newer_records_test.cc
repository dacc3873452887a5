// What a newer hone wrote is a miss, and stays as it is: whoever goes back to that hone finds it.
#include <gtest/gtest.h>

#include "base/envelope.h"
#include "cache/keys.h"
#include "cache/rocks_store.h"
#include "cache/schedule_cache.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone::newer_records_test {
namespace {

class NewerRecords : public ::testing::Test {
 protected:
  std::unique_ptr<ScheduleCache> Open() const {
    CacheOptions options;
    options.directory = directory_ / "cache";
    return *ScheduleCache::Open(options);
  }
  std::unique_ptr<Store> OpenStore() const {
    RocksOptions options;
    options.path = directory_ / "cache/db";
    return *OpenRocksStore(options);
  }
  void Write(Family family, const std::string& key, const std::string& value) const {
    StoreBatch batch;
    batch.Put(family, key, value);
    ASSERT_TRUE(OpenStore()->Write(batch, SyncMode::kSync).has_value());
  }

  TemporaryDirectory directory_;
  const std::string key_ = RecordKey(SampleKey(1));
  const std::string record_ = Seal(ValueType::kRecord, kRecordVersion + 1, "what a later hone knows");
  const std::string artifact_ = Seal(ValueType::kArtifact, 1, "its code");
};

TEST_F(NewerRecords, AreNotReplacedByWhatIsStoredOnAMiss) {
  { ASSERT_TRUE(Open()->Put(SampleEntry(2), Durability::kSynced).has_value()); }
  Write(Family::kRecords, key_, record_);
  Write(Family::kArtifacts, key_, artifact_);
  {
    std::unique_ptr<ScheduleCache> cache = Open();
    EXPECT_FALSE(cache->Lookup(SampleKey(1))->has_value());
    for (const Durability durability : {Durability::kSoon, Durability::kSynced}) {
      Result<void> put = cache->Put(SampleEntry(1), durability);
      ASSERT_FALSE(put.has_value());
      EXPECT_EQ(put.error().kind, ErrorKind::kUnsupported);
    }
    EXPECT_TRUE(cache->Put(SampleEntry(3), Durability::kSynced).has_value());
  }
  std::unique_ptr<Store> store = OpenStore();
  EXPECT_EQ(**store->Get(Family::kRecords, key_), record_);
  EXPECT_EQ(**store->Get(Family::kArtifacts, key_), artifact_);
}

TEST_F(NewerRecords, RowsOfTheIndexAreNotSetAside) {
  const std::string use = UseKey(SampleKey(1).fingerprint);
  const std::string value = Seal(ValueType::kKernelUse, kKernelUseVersion + 1, "counted otherwise");
  { ASSERT_TRUE(Open()->Put(SampleEntry(2), Durability::kSynced).has_value()); }
  Write(Family::kKernels, use, value);
  {
    std::unique_ptr<ScheduleCache> cache = Open();
    EXPECT_EQ(cache->UseOf(SampleKey(1).fingerprint)->calls, 0u);
    cache->NoteUse(SampleKey(1).fingerprint, SampleKey(1).class_fingerprint);
    EXPECT_TRUE(cache->Classes().has_value());
    ASSERT_TRUE(cache->Flush().has_value());
    EXPECT_EQ(cache->Stats().quarantined, 0u);
  }
  EXPECT_EQ(**OpenStore()->Get(Family::kKernels, use), value);
}

}  // namespace
}  // namespace hone::newer_records_test
