// What every store must do, on both of them: RocksDB and memory.
#include "cache/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "cache/memory_store.h"
#include "cache/rocks_store.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StoreTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "Memory") {
      store_ = std::make_unique<MemoryStore>();
      return;
    }
    RocksOptions options;
    options.path = directory_ / "db";
    Result<std::unique_ptr<Store>> store = OpenRocksStore(options);
    ASSERT_TRUE(store.has_value()) << store.error().Text();
    store_ = *std::move(store);
  }
  void Put(Family family, const std::string& key, const std::string& value) {
    StoreBatch batch;
    batch.Put(family, key, value);
    ASSERT_TRUE(store_->Write(batch, SyncMode::kSync).has_value());
  }
  std::vector<std::string> KeysFrom(Family family, std::string_view from) {
    std::vector<std::string> keys;
    std::unique_ptr<StoreIterator> entries = store_->Iterate(family);
    for (entries->Seek(from); entries->Valid(); entries->Next()) keys.emplace_back(entries->key());
    EXPECT_TRUE(entries->status().has_value());
    return keys;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Store> store_;
};

TEST_P(StoreTest, GetsWhatWasPutInThatFamily) {
  Put(Family::kRecords, "a", "1");
  Put(Family::kArtifacts, "a", std::string(5000, 'x'));
  EXPECT_EQ(**store_->Get(Family::kRecords, "a"), "1");
  EXPECT_EQ(**store_->Get(Family::kArtifacts, "a"), std::string(5000, 'x'));
  EXPECT_FALSE(store_->Get(Family::kMeta, "a")->has_value());
  EXPECT_FALSE(store_->Get(Family::kRecords, "b")->has_value());
  Put(Family::kRecords, "a", "2");
  EXPECT_EQ(**store_->Get(Family::kRecords, "a"), "2");
}

TEST_P(StoreTest, BatchesAreOrderedAndMayDelete) {
  Put(Family::kRecords, "a", "1");
  StoreBatch batch;
  batch.Put(Family::kRecords, "b", "1");
  batch.Delete(Family::kRecords, "a");
  batch.Put(Family::kRecords, "b", "2");
  batch.Delete(Family::kRecords, "never");
  ASSERT_TRUE(store_->Write(batch, SyncMode::kNoSync).has_value());
  EXPECT_FALSE(store_->Get(Family::kRecords, "a")->has_value());
  EXPECT_EQ(**store_->Get(Family::kRecords, "b"), "2");
}

TEST_P(StoreTest, IteratesInByteOrder) {
  for (const char* key : {"b", "a", "\xff", "ab", "c"}) Put(Family::kRecords, key, "v");
  Put(Family::kMeta, "zz", "v");
  EXPECT_THAT(KeysFrom(Family::kRecords, ""), ElementsAre("a", "ab", "b", "c", "\xff"));
  EXPECT_THAT(KeysFrom(Family::kRecords, "aa"), ElementsAre("ab", "b", "c", "\xff"));
  EXPECT_THAT(KeysFrom(Family::kTrials, ""), IsEmpty());
}

TEST_P(StoreTest, IteratorsSeeTheirMoment) {
  Put(Family::kRecords, "a", "1");
  std::unique_ptr<StoreIterator> entries = store_->Iterate(Family::kRecords);
  Put(Family::kRecords, "b", "1");
  entries->Seek("");
  ASSERT_TRUE(entries->Valid());
  entries->Next();
  EXPECT_FALSE(entries->Valid());
}

TEST_P(StoreTest, CountsAndSizes) {
  for (int i = 0; i < 100; ++i) Put(Family::kArtifacts, std::to_string(i), std::string(2000, static_cast<char>(i)));
  ASSERT_TRUE(store_->Flush().has_value());
  FamilySize size = store_->SizeOf(Family::kArtifacts);
  EXPECT_EQ(size.entries, 100u);
  EXPECT_GT(size.bytes, 1000u);
  EXPECT_EQ(store_->SizeOf(Family::kTrials).entries, 0u);
  EXPECT_GT(store_->MemoryUsage(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Both, StoreTest, ::testing::Values("Memory", "Rocks"),
                         [](const auto& info) { return info.param; });

TEST(MemoryStore, TellsDeletionFromAbsence) {
  MemoryStore store;
  StoreBatch batch;
  batch.Delete(Family::kRecords, "gone");
  batch.Put(Family::kRecords, "there", "v");
  ASSERT_TRUE(store.Write(batch, SyncMode::kNoSync).has_value());
  EXPECT_FALSE(store.Find(Family::kRecords, "never").has_value());
  EXPECT_TRUE(store.Find(Family::kRecords, "gone").has_value());
  EXPECT_FALSE(store.Find(Family::kRecords, "gone")->value.has_value());
  StoreBatch copy = store.Copy();
  EXPECT_EQ(copy.operations().size(), 2u);
  EXPECT_GT(store.bytes(), 0u);
  store.Clear();
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_TRUE(store.Copy().empty());
}

TEST(RocksStore, CompactionGivesTheSpaceOfBlobsBack) {
  TemporaryDirectory directory;
  RocksOptions options;
  options.path = directory / "db";
  std::unique_ptr<Store> store = *OpenRocksStore(options);
  for (int i = 0; i < 100; ++i) {
    StoreBatch batch;
    batch.Put(Family::kArtifacts, std::to_string(1000 + i),
              std::string(20'000, static_cast<char>(i)) + std::to_string(i));
    ASSERT_TRUE(store->Write(batch, SyncMode::kNoSync).has_value());
  }
  ASSERT_TRUE(store->Flush().has_value());
  uint64_t before = store->SizeOf(Family::kArtifacts).bytes;
  StoreBatch batch;
  for (int i = 0; i < 90; ++i) batch.Delete(Family::kArtifacts, std::to_string(1000 + i));
  ASSERT_TRUE(store->Write(batch, SyncMode::kNoSync).has_value());
  ASSERT_TRUE(store->Compact(Family::kArtifacts, 1.0).has_value());
  EXPECT_LT(store->SizeOf(Family::kArtifacts).bytes, before / 4);
  for (int i = 90; i < 100; ++i) EXPECT_TRUE(store->Get(Family::kArtifacts, std::to_string(1000 + i))->has_value());
}

TEST(RocksStore, OpeningWhatIsNotThereForReadingFails) {
  TemporaryDirectory directory;
  RocksOptions options;
  options.path = directory / "none";
  for (RocksMode mode : {RocksMode::kReadOnly, RocksMode::kSecondary}) {
    options.mode = mode;
    EXPECT_FALSE(OpenRocksStore(options).has_value());
    EXPECT_FALSE(std::filesystem::exists(options.path));
  }
}

TEST(RocksStore, SecondarySeesWhatTheWriterWroteAfterCatchingUp) {
  TemporaryDirectory directory;
  RocksOptions options;
  options.path = directory / "db";
  std::unique_ptr<Store> writer = *OpenRocksStore(options);
  options.mode = RocksMode::kSecondary;
  std::unique_ptr<Store> secondary = *OpenRocksStore(options);
  StoreBatch batch;
  batch.Put(Family::kRecords, "a", "1");
  batch.Put(Family::kArtifacts, "a", std::string(3000, 'x'));
  ASSERT_TRUE(writer->Write(batch, SyncMode::kSync).has_value());
  ASSERT_TRUE(writer->Flush().has_value());
  EXPECT_FALSE(secondary->Get(Family::kRecords, "a")->has_value());
  ASSERT_TRUE(secondary->CatchUp().has_value());
  EXPECT_EQ(**secondary->Get(Family::kRecords, "a"), "1");
  EXPECT_EQ(**secondary->Get(Family::kArtifacts, "a"), std::string(3000, 'x'));
  EXPECT_FALSE(secondary->Write(batch, SyncMode::kSync).has_value());
}

}  // namespace
}  // namespace hone
