// Caches of a time when all cores were told apart from no number of threads: what was won goes to the kernel that is
// asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/envelope.h"
#include "cache/keys.h"
#include "cache/rocks_store.h"
#include "cache/schedule_cache.h"
#include "cache/tuning_gain.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kText[] = "matmul(M=64,N=64,K=64,const=1)";
constexpr char kOther[] = "matmul(M=96,N=64,K=64,const=1)";

std::string TargetOf(int cores) {
  return "cpu avx2 cpu=haswell features= l1=32768 l2=262144 l3=8388608 cores=" + std::to_string(cores);
}

// As a honed of that time wrote it: the text says what was said, and the key what was meant.
Record Old(const std::string& text, int said, Origin origin, int cores = 2) {
  Kernel kernel = *ParseKernel(text);
  kernel.options.threads = said;
  Record record;
  record.key = MakeCacheKey(Canonicalize(kernel), *ParseTarget(TargetOf(cores)), said > 0 ? said : cores, kSampleCode);
  record.shape = Canonicalize(kernel).shape;
  record.request = text;
  record.label = "matmul";
  record.schedule = "split t2.i0 " + std::to_string(2 + said + static_cast<int>(origin)) + "\n";
  record.origin = origin;
  record.measured = Timing{.time = std::chrono::microseconds(100), .threads = record.key.threads, .repeats = 9};
  return record;
}
Fingerprint NameOf(int said) { return Old(kText, said, Origin::kDefault).key.fingerprint; }

class MergeTwinsTest : public ::testing::Test {
 protected:
  void Open(const std::string& system = "") {
    cache_.reset();
    CacheOptions options;
    options.directory = directory_ / "cache";
    options.system_directory = system;
    Result<std::unique_ptr<ScheduleCache>> cache = ScheduleCache::Open(options);
    ASSERT_TRUE(cache) << cache.error().Text();
    cache_ = *std::move(cache);
  }
  // What was put is of that time: the next to open the cache finds twins.
  void CloseAsOld() {
    cache_.reset();
    RocksOptions options;
    options.path = directory_ / "cache/db";
    std::unique_ptr<Store> store = *OpenRocksStore(options);
    StoreBatch batch;
    batch.Delete(Family::kMeta, "stwins_merged");
    ASSERT_TRUE(store->Write(batch, SyncMode::kSync));
  }
  void OpenAsOld() {
    CloseAsOld();
    Open();
  }
  void SetUp() override { Open(); }

  void Put(const Record& record, bool with_code = true) {
    std::vector<std::byte> code = SampleArtifact(record.key.threads + static_cast<int>(record.origin));
    NewRecord entry{.record = record, .class_text = "a class", .artifact = {}};
    if (with_code) entry.artifact = code;
    ASSERT_TRUE(cache_->Put(entry, Durability::kSynced));
  }
  void Try(const Record& record, uint64_t program) {
    TrialRecord trial;
    trial.program = program;
    ASSERT_TRUE(cache_->AppendTrials(record.key, {{trial}}));
  }
  std::vector<uint64_t> TrialsOf(const Record& record) {
    std::vector<uint64_t> programs;
    EXPECT_TRUE(cache_->ForEachTrial(record.key, [&](const TrialRecord& trial) {
      programs.push_back(trial.program);
      return true;
    }));
    return programs;
  }
  std::vector<Record> All() {
    std::vector<Record> records;
    EXPECT_TRUE(cache_->ForEachRecord(std::nullopt, [&](const Record& record) {
      records.push_back(record);
      return true;
    }));
    return records;
  }
  // The one record that there is, of the kernel that says so many threads.
  Record Only(int said) {
    std::vector<Record> records = All();
    EXPECT_EQ(records.size(), 1u);
    if (records.size() != 1) return {};
    EXPECT_EQ(records[0].key.fingerprint, NameOf(said));
    EXPECT_EQ(records[0].key.canonical, Old(kText, said, Origin::kDefault).key.canonical);
    EXPECT_EQ(cache_->RecordsOf(NameOf(said))->size(), 1u);
    return records[0];
  }

  TemporaryDirectory directory_;
  std::unique_ptr<ScheduleCache> cache_;
};

TEST_F(MergeTwinsTest, WhatTheTwinWonIsServedToWhoAsks) {
  const Record asked = Old(kText, 0, Origin::kDefault), twin = Old(kText, 2, Origin::kTuned);
  Put(asked);
  Put(twin);
  Try(asked, 1);
  Try(twin, 2);
  Try(asked, 3);
  NoteTuningGain(*cache_, twin, false, 1.5, true);
  ASSERT_TRUE(cache_->PutNote(twin.key, "transfer", "the twin's story", Durability::kSynced));
  ASSERT_TRUE(cache_->PutNote(asked.key, "transfer", "the default's story", Durability::kSynced));
  cache_->NoteUse(asked.key.fingerprint, asked.key.class_fingerprint, 1);
  cache_->NoteUse(twin.key.fingerprint, twin.key.class_fingerprint, 41);
  for (int round = 0; round < 3; ++round) {  // again, and again from the beginning: nothing changes
    round == 1 ? Open() : OpenAsOld();
    const Record merged = Only(0);
    EXPECT_EQ(merged.schedule, twin.schedule);
    EXPECT_EQ(merged.origin, Origin::kTuned);
    EXPECT_EQ(merged.measured, twin.measured);
    EXPECT_EQ(merged.key.threads, 2);
    EXPECT_EQ(merged.request, kText);
    EXPECT_FALSE(merged.artifact_digest) << "its code says another text";
    EXPECT_FALSE((*cache_->Lookup(asked.key, Counting::kNot))->artifact_current);
    EXPECT_DOUBLE_EQ(TuningGainOf(*cache_, merged).idle_ratio, 1.5);
    EXPECT_EQ(*cache_->GetNote(merged.key, "transfer"), "the twin's story");
    EXPECT_THAT(TrialsOf(merged), ElementsAre(1, 2, 3));
    EXPECT_THAT(TrialsOf(twin), IsEmpty());
    EXPECT_EQ(*cache_->GetNote(twin.key, "won"), std::nullopt);
    EXPECT_EQ(cache_->UseOf(NameOf(0))->calls, 42u);
    EXPECT_EQ(cache_->UseOf(NameOf(2))->calls, 0u);
    EXPECT_THAT(*cache_->FindByPrefix(NameOf(2).Hex()), IsEmpty());
    EXPECT_EQ(cache_->Classes()->at(0).kernels, 1u);
  }
}

TEST_F(MergeTwinsTest, ATwinThatIsNoBetterGoesAndTheCodeStays) {
  Record asked = Old(kText, 0, Origin::kTuned), twin = Old(kText, 2, Origin::kTuned);
  twin.measured->time = std::chrono::microseconds(110);
  for (Origin origin : {Origin::kTuned, Origin::kTransferred, Origin::kDefault}) {
    Put(asked);
    twin.origin = origin;
    Put(twin);
    Try(twin, 7);
    OpenAsOld();
    EXPECT_EQ(Only(0).schedule, asked.schedule);
    Result<std::optional<CacheHit>> hit = cache_->Lookup(asked.key);
    EXPECT_TRUE((*hit)->artifact_current) << "and its mark";
    EXPECT_TRUE(cache_->Artifact((*hit)->record)->has_value());
  }
  EXPECT_THAT(TrialsOf(asked), ElementsAre(7, 7, 7));
}

TEST_F(MergeTwinsTest, OfTwoThatWereTunedTheFasterIsTaken) {
  Record asked = Old(kText, 0, Origin::kTuned), twin = Old(kText, 2, Origin::kTuned);
  twin.schedule = "split t2.i0 9\n";
  twin.measured->time = std::chrono::microseconds(90);
  Put(asked);
  Put(twin);
  OpenAsOld();
  EXPECT_EQ(Only(0).schedule, twin.schedule);
}

TEST_F(MergeTwinsTest, ATwinAloneIsAskedForUnderItsNewName) {
  const Record twin = Old(kText, 2, Origin::kTuned);
  Put(twin);
  OpenAsOld();
  EXPECT_EQ(Only(0).schedule, twin.schedule);
  EXPECT_EQ(cache_->Classes()->at(0).info.class_text, "a class");
}

TEST_F(MergeTwinsTest, OnOneCoreTheNumberIsSaid) {
  Put(Old(kText, 0, Origin::kTuned, 1));
  Put(Old(kText, 1, Origin::kDefault, 1));
  OpenAsOld();
  EXPECT_EQ(Only(1).origin, Origin::kTuned);
}

TEST_F(MergeTwinsTest, OtherNumbersOfThreadsStayApart) {
  for (int said : {0, 1, 3, 4}) Put(Old(kText, said, Origin::kTuned, 2));
  for (int said : {1, 2}) Put(Old(kText, said, Origin::kTuned, 4));
  const std::vector<Record> before = All();
  OpenAsOld();
  EXPECT_EQ(All(), before);
}

// The same text on two machines: of the one it is a twin, of the other it is not.
TEST_F(MergeTwinsTest, ARecordOfAnotherMachineKeepsItsNameAndItsUses) {
  Put(Old(kText, 2, Origin::kTuned, 2));
  Put(Old(kText, 2, Origin::kTuned, 4));
  Record heir = Old(kOther, 0, Origin::kTransferred);
  heir.donor = NameOf(2);
  Put(heir);
  cache_->NoteUse(NameOf(2), heir.key.class_fingerprint, 5);
  OpenAsOld();
  ASSERT_EQ(cache_->RecordsOf(NameOf(0))->size(), 1u);
  ASSERT_EQ(cache_->RecordsOf(NameOf(2))->size(), 1u);
  EXPECT_EQ(cache_->RecordsOf(NameOf(2))->at(0).key.target, TargetOf(4));
  EXPECT_EQ(cache_->UseOf(NameOf(2))->calls, 5u);
  EXPECT_EQ(cache_->RecordsOf(heir.key.fingerprint)->at(0).donor, NameOf(2));
}

TEST_F(MergeTwinsTest, WhatIsPinnedStaysAsItIs) {
  const Record tuned = Old(kText, 2, Origin::kTuned), standard = Old(kText, 0, Origin::kDefault);
  Put(tuned);
  Put(standard);
  ASSERT_TRUE(cache_->Pin(NameOf(0), true));
  OpenAsOld();
  EXPECT_EQ(Only(0).schedule, standard.schedule);
  EXPECT_TRUE(Only(0).pinned);
  EXPECT_TRUE((*cache_->Lookup(standard.key))->artifact_current);
}

TEST_F(MergeTwinsTest, APinnedTwinIsPinnedUnderItsNewName) {
  const Record tuned = Old(kText, 0, Origin::kTuned), standard = Old(kText, 2, Origin::kDefault);
  Put(tuned);
  Put(standard);
  ASSERT_TRUE(cache_->Pin(NameOf(2), true));
  OpenAsOld();
  EXPECT_EQ(Only(0).schedule, standard.schedule);
  EXPECT_TRUE(Only(0).pinned);
}

TEST_F(MergeTwinsTest, HeirsKnowTheirDonorByItsNewName) {
  Put(Old(kText, 2, Origin::kTuned));
  Record heir = Old(kOther, 0, Origin::kTransferred), twin_of_heir = Old(kOther, 2, Origin::kDefault);
  heir.donor = twin_of_heir.donor = NameOf(2);
  Put(heir);
  Put(twin_of_heir);
  Record own = Old(kText, 0, Origin::kTransferred);  // what its own twin won was the nearest guess
  own.donor = NameOf(2);
  Put(own);
  OpenAsOld();
  ASSERT_EQ(All().size(), 2u);
  const Record found = cache_->RecordsOf(heir.key.fingerprint)->at(0);
  EXPECT_EQ(found.donor, NameOf(0));
  EXPECT_TRUE((*cache_->Lookup(heir.key))->artifact_current) << "it is marked anew";
  EXPECT_EQ(cache_->RecordsOf(NameOf(0))->at(0).donor, std::nullopt);
}

// Whoever can write the files can plant code under either name.
TEST_F(MergeTwinsTest, WhatWasNotCheckedHereIsNotMarked) {
  Put(Old(kText, 0, Origin::kTuned));
  Put(Old(kText, 2, Origin::kDefault));
  cache_.reset();
  std::filesystem::remove_all(directory_ / "cache.state");  // another user's key
  OpenAsOld();
  EXPECT_FALSE((*cache_->Lookup(Old(kText, 0, Origin::kTuned).key))->artifact_current);
}

TEST_F(MergeTwinsTest, ATwinOfTheSystemLayerIsLeftThere) {
  Put(Old(kText, 2, Origin::kTuned));
  cache_.reset();
  std::filesystem::rename(directory_ / "cache", directory_ / "system");
  Open(directory_ / "system");
  EXPECT_EQ(Only(2).origin, Origin::kTuned);
}

TEST_F(MergeTwinsTest, ACacheIsLookedThroughOnce) {
  OpenAsOld();
  Put(Old(kText, 2, Origin::kTuned));
  Open();
  EXPECT_EQ(Only(2).origin, Origin::kTuned);
}

TEST_F(MergeTwinsTest, WhoOnlyLooksChangesNothing) {
  Put(Old(kText, 2, Origin::kTuned));
  CloseAsOld();
  CacheOptions options;
  options.directory = directory_ / "cache";
  options.inspect = true;
  cache_ = *ScheduleCache::Open(options);
  EXPECT_EQ(Only(2).origin, Origin::kTuned);
}

}  // namespace
}  // namespace hone
