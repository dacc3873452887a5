// Serving from the cache: what was put is found, what differs is not, and restarts change nothing.
#include "cache/schedule_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "base/envelope.h"
#include "cache/keys.h"
#include "cache/rocks_store.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ScheduleCacheTest : public ::testing::Test {
 protected:
  CacheOptions Options() const {
    CacheOptions options;
    options.directory = directory_ / "cache";
    options.clock = &clock_;
    return options;
  }
  void Open(CacheOptions options) {
    cache_.reset();
    Result<std::unique_ptr<ScheduleCache>> opened = ScheduleCache::Open(std::move(options));
    ASSERT_TRUE(opened.has_value()) << opened.error().Text();
    cache_ = *std::move(opened);
  }
  void SetUp() override { Open(Options()); }
  void PutWithArtifact(int kernel, int class_number = 0, Durability durability = Durability::kSynced) {
    std::vector<std::byte> artifact = SampleArtifact(kernel);
    NewRecord entry = SampleEntry(kernel, class_number);
    entry.artifact = artifact;
    Result<void> put = cache_->Put(entry, durability);
    ASSERT_TRUE(put.has_value()) << put.error().Text();
  }
  std::optional<CacheHit> Lookup(const CacheKey& key) {
    Result<std::optional<CacheHit>> hit = cache_->Lookup(key);
    EXPECT_TRUE(hit.has_value());
    return hit ? *std::move(hit) : std::nullopt;
  }

  TemporaryDirectory directory_;
  FakeClock clock_;
  std::unique_ptr<ScheduleCache> cache_;
};

TEST_F(ScheduleCacheTest, FindsWhatWasPutAlsoAfterARestart) {
  PutWithArtifact(1);
  for (int round = 0; round < 2; ++round) {
    std::optional<CacheHit> hit = Lookup(SampleKey(1));
    ASSERT_TRUE(hit.has_value());
    EXPECT_TRUE(hit->artifact_current);
    EXPECT_EQ(hit->layer, CacheLayer::kUser);
    Record expected = SampleRecord(1);
    expected.artifact_digest = Hash256(SampleArtifact(1));
    expected.artifact_bytes = 20'000;
    expected.created = expected.updated = clock_.WallNow();
    EXPECT_TRUE(hit->record.mark.has_value());
    expected.mark = hit->record.mark;
    EXPECT_EQ(hit->record, expected);
    Result<std::optional<std::vector<std::byte>>> artifact = cache_->Artifact(hit->record);
    ASSERT_TRUE(artifact.has_value() && artifact->has_value());
    EXPECT_EQ(**artifact, SampleArtifact(1));
    Open(Options());
  }
}

TEST_F(ScheduleCacheTest, AnotherKernelTargetOrThreadCountIsAMiss) {
  PutWithArtifact(1);
  CacheKey key = SampleKey(1);
  EXPECT_FALSE(Lookup(SampleKey(2)).has_value());
  key.threads = 1;
  EXPECT_FALSE(Lookup(key).has_value());
  key = SampleKey(1);
  key.target += " ";
  EXPECT_FALSE(Lookup(key).has_value());
  EXPECT_EQ(cache_->Stats().misses, 3u);
}

TEST_F(ScheduleCacheTest, AnotherCompilerKeepsTheScheduleAndLosesTheArtifact) {
  PutWithArtifact(1);
  CacheKey key = SampleKey(1);
  key.code = "llvm-20.1.0 abi=1 avx512 cpu=znver5 features=avx512vnni";
  std::optional<CacheHit> hit = Lookup(key);
  ASSERT_TRUE(hit.has_value());
  EXPECT_FALSE(hit->artifact_current);
  EXPECT_EQ(hit->record.schedule, SampleRecord(1).schedule);
}

TEST_F(ScheduleCacheTest, CollisionOfFingerprintsIsAMiss) {
  PutWithArtifact(1);
  CacheKey collides = SampleKey(1);
  collides.canonical += " other";  // the same fingerprint, another text
  EXPECT_FALSE(Lookup(collides).has_value());
  EXPECT_EQ(cache_->Stats().collisions, 1u);
  EXPECT_TRUE(Lookup(SampleKey(1)).has_value());
}

TEST_F(ScheduleCacheTest, WhatWasPinnedMeanwhileStays) {
  PutWithArtifact(1);
  NewRecord better = SampleEntry(1);
  better.record.schedule = "split t2.i 14\n";
  better.admits = IfStill(StateOf(Lookup(SampleKey(1))->record));
  ASSERT_TRUE(cache_->Pin(SampleKey(1).fingerprint, true).has_value());
  Record pinned = Lookup(SampleKey(1))->record;
  EXPECT_EQ(cache_->Put(better, Durability::kSynced).error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(Lookup(SampleKey(1))->record, pinned);
  EXPECT_TRUE(cache_->Artifact(pinned)->has_value());
  ASSERT_TRUE(cache_->Pin(SampleKey(1).fingerprint, false).has_value());
  EXPECT_TRUE(cache_->Put(better, Durability::kSynced).has_value());
  EXPECT_EQ(Lookup(SampleKey(1))->record.schedule, better.record.schedule);
}

TEST_F(ScheduleCacheTest, ReplacingKeepsPinAndCreationAndDropsTheOldArtifact) {
  PutWithArtifact(1);
  WallTime created = clock_.WallNow();
  ASSERT_TRUE(cache_->Pin(SampleKey(1).fingerprint, true).has_value());
  Record old = Lookup(SampleKey(1))->record;
  clock_.Advance(std::chrono::hours(1));
  NewRecord better = SampleEntry(1);
  better.record.schedule = "split t2.i 14\n";
  better.record.origin = Origin::kTuned;
  ASSERT_TRUE(cache_->Put(better, Durability::kSynced).has_value());
  std::optional<CacheHit> hit = Lookup(SampleKey(1));
  ASSERT_TRUE(hit.has_value());
  EXPECT_TRUE(hit->record.pinned);
  EXPECT_EQ(hit->record.created, created);
  EXPECT_EQ(hit->record.updated, clock_.WallNow());
  EXPECT_FALSE(hit->artifact_current);
  EXPECT_FALSE(cache_->Artifact(hit->record)->has_value());
  EXPECT_FALSE(cache_->Artifact(old)->has_value());
}

TEST_F(ScheduleCacheTest, UpdateWithTheSameScheduleKeepsTheArtifact) {
  PutWithArtifact(1);
  NewRecord measured = SampleEntry(1);
  measured.record.measured->time = std::chrono::nanoseconds(40'000);
  ASSERT_TRUE(cache_->Put(measured, Durability::kSoon).has_value());
  std::optional<CacheHit> hit = Lookup(SampleKey(1));
  EXPECT_TRUE(hit->artifact_current);
  EXPECT_TRUE(cache_->Artifact(hit->record)->has_value());
  EXPECT_EQ(hit->record.measured->time, std::chrono::nanoseconds(40'000));
}

TEST_F(ScheduleCacheTest, TimesOfAnotherMachineReplaceNoneOfThisOneOfTheSameSchedule) {
  PutWithArtifact(1);
  NewRecord incoming = SampleEntry(1);
  incoming.record.origin = Origin::kImported;
  incoming.record.source = RecordSource{"pool", 1, std::nullopt, Origin::kTuned, true};
  incoming.record.measured->time = std::chrono::nanoseconds(1);
  incoming.record.check.max_rel_err = 0;
  ASSERT_TRUE(cache_->Put(incoming, Durability::kSynced).has_value());
  CacheHit hit = *Lookup(SampleKey(1));
  EXPECT_TRUE(hit.artifact_current);
  EXPECT_EQ(hit.record.origin, Origin::kImported);
  EXPECT_FALSE(hit.record.source->times_elsewhere);
  EXPECT_EQ(hit.record.measured, SampleRecord(1).measured);
  EXPECT_EQ(hit.record.check, SampleRecord(1).check);
  incoming.record.schedule += "unroll t2.i.1\n";
  ASSERT_TRUE(cache_->Put(incoming, Durability::kSynced).has_value());
  hit = *Lookup(SampleKey(1));
  EXPECT_TRUE(hit.record.source->times_elsewhere);
  EXPECT_EQ(hit.record.measured, incoming.record.measured);
}

TEST_F(ScheduleCacheTest, RemovedIsGoneAlsoAfterARestart) {
  PutWithArtifact(1);
  PutWithArtifact(2);
  ASSERT_TRUE(cache_->Remove(SampleKey(1).fingerprint).has_value());
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(Lookup(SampleKey(1)).has_value());
    EXPECT_TRUE(Lookup(SampleKey(2)).has_value());
    EXPECT_THAT(*cache_->FindByPrefix(SampleKey(1).fingerprint.Hex()), IsEmpty());
    Open(Options());
  }
  EXPECT_EQ(cache_->Remove(SampleKey(1).fingerprint).error().kind, ErrorKind::kNotFound);
}

TEST_F(ScheduleCacheTest, SaysHowManyRecordsThereAreHoweverOftenEachWasWritten) {
  for (int round = 0; round < 3; ++round)
    for (int kernel = 0; kernel < 4; ++kernel) PutWithArtifact(kernel);
  ASSERT_TRUE(cache_->Remove(SampleKey(1).fingerprint).has_value());
  const CacheStats stats = cache_->Stats();
  EXPECT_EQ(stats.families.at(static_cast<size_t>(Family::kRecords)).entries, 3u);
}

TEST_F(ScheduleCacheTest, ListsAClassWithoutTheOthers) {
  for (int kernel = 0; kernel < 5; ++kernel) PutWithArtifact(kernel, kernel % 2);
  std::vector<std::string> requests;
  Fingerprint odd = SampleKey(1, 1).class_fingerprint;
  ASSERT_TRUE(cache_->ForEachRecord(odd, [&](const Record& record) {
    requests.push_back(record.request);
    return true;
  }));
  EXPECT_THAT(requests, ::testing::UnorderedElementsAre(SampleRecord(1).request, SampleRecord(3).request));
  Result<std::vector<ClassSummary>> classes = cache_->Classes();
  ASSERT_THAT(*classes, SizeIs(2));
  for (const ClassSummary& summary : *classes) {
    EXPECT_EQ(summary.kernels, summary.info.fingerprint == odd ? 2u : 3u);
    EXPECT_EQ(summary.info.class_text, SampleCanonical(0, summary.info.fingerprint == odd ? 1 : 0).class_text);
  }
  size_t seen = 0;
  ASSERT_TRUE(cache_->ForEachRecord(std::nullopt, [&](const Record&) { return ++seen < 3; }));
  EXPECT_EQ(seen, 3u);
}

TEST_F(ScheduleCacheTest, AWalkGoesOnWhereItStoppedWhateverComesAndGoes) {
  constexpr int kKernels = 60;
  for (int kernel = 0; kernel < kKernels; kernel += 2) PutWithArtifact(kernel, kernel % 3, Durability::kSoon);
  std::multiset<std::string> seen;
  std::string place;
  int removed = 0, added = 1;
  for (bool at_end = false; !at_end;) {
    size_t taken = 0;
    Result<bool> walked = cache_->ForEachRecordAfter(place, [&](const Record& record) {
      seen.insert(record.request);
      return ++taken < 4;
    });
    ASSERT_TRUE(walked.has_value());
    at_end = *walked;
    EXPECT_EQ(at_end, taken < 4);
    // Every sixth kernel goes, be it the last that was seen; others come, before and behind it.
    if (removed < kKernels) (void)cache_->Remove(SampleKey(removed, removed % 3).fingerprint);
    removed += 6;
    if (added < kKernels) PutWithArtifact(added, added % 3, Durability::kSoon);
    added += 2;
  }
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    const size_t times = seen.count(SampleRecord(kernel, kernel % 3).request);
    EXPECT_LE(times, 1u) << kernel;
    const bool is_always_there = kernel % 2 == 0 && kernel % 6 != 0;
    EXPECT_GE(times, is_always_there ? 1u : 0u) << kernel;
  }
}

TEST_F(ScheduleCacheTest, ResolvesUnambiguousPrefixes) {
  for (int kernel = 0; kernel < 40; ++kernel) PutWithArtifact(kernel);
  for (int kernel = 0; kernel < 40; ++kernel) {
    std::string hex = SampleKey(kernel).fingerprint.Hex();
    EXPECT_EQ(*cache_->Resolve(hex), SampleKey(kernel).fingerprint);
    EXPECT_EQ(*cache_->Resolve(hex.substr(0, 9)), SampleKey(kernel).fingerprint);
  }
  // 40 kernels, 16 first digits: some digit begins several.
  bool ambiguous = false;
  for (char digit : std::string("0123456789abcdef")) {
    Result<Fingerprint> resolved = cache_->Resolve(std::string(1, digit));
    ambiguous |= !resolved && resolved.error().kind == ErrorKind::kInvalid &&
                 resolved.error().message.find("give more digits") != std::string::npos;
  }
  EXPECT_TRUE(ambiguous);
  EXPECT_EQ(cache_->Resolve("xyz").error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(cache_->Resolve("").error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(cache_->Resolve(std::string(32, '0')).error().kind, ErrorKind::kNotFound);
}

TEST_F(ScheduleCacheTest, CountsUsesAndWritesThemInBatches) {
  PutWithArtifact(1);
  Fingerprint kernel = SampleKey(1).fingerprint;
  clock_.Advance(std::chrono::minutes(5));
  for (int i = 0; i < 3; ++i) Lookup(SampleKey(1));
  cache_->NoteUse(kernel, SampleKey(1).class_fingerprint, 10);
  EXPECT_EQ(cache_->UseOf(kernel)->calls, 13u);
  Open(Options());
  EXPECT_EQ(cache_->UseOf(kernel)->calls, 13u);
  EXPECT_EQ(cache_->UseOf(kernel)->last_used, clock_.WallNow());
  Lookup(SampleKey(1));
  EXPECT_EQ(cache_->UseOf(kernel)->calls, 14u);
}

TEST_F(ScheduleCacheTest, SecondWriterIsToldWhereAndWho) {
  Result<std::unique_ptr<ScheduleCache>> second = ScheduleCache::Open(Options());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().kind, ErrorKind::kBusy);
  EXPECT_THAT(second.error().Text(), HasSubstr(Options().directory));
  EXPECT_THAT(second.error().Text(), HasSubstr(std::to_string(getpid())));
}

TEST_F(ScheduleCacheTest, InspectorSeesALiveCacheAndChangesNothing) {
  PutWithArtifact(1);
  ASSERT_TRUE(cache_->Flush().has_value());  // in a blob file
  PutWithArtifact(2, 0, Durability::kSoon);  // still in the writer's log
  CacheOptions options = Options();
  options.inspect = true;
  Result<std::unique_ptr<ScheduleCache>> inspector = ScheduleCache::Open(options);
  ASSERT_TRUE(inspector.has_value()) << inspector.error().Text();
  for (int kernel : {1, 2}) {
    Result<std::optional<CacheHit>> hit = (*inspector)->Lookup(SampleKey(kernel));
    ASSERT_TRUE(hit->has_value());
    EXPECT_EQ(**(*inspector)->Artifact((*hit)->record), SampleArtifact(kernel));
  }
  PutWithArtifact(4);  // after the inspector opened
  ASSERT_TRUE(cache_->Flush().has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  std::optional<CacheHit> late = *(*inspector)->Lookup(SampleKey(4));
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(**(*inspector)->Artifact(late->record), SampleArtifact(4));
  EXPECT_FALSE((*inspector)->Put(SampleEntry(3), Durability::kSoon).has_value());
  EXPECT_FALSE((*inspector)->Remove(SampleKey(1).fingerprint).has_value());
  EXPECT_TRUE(Lookup(SampleKey(1)).has_value());
}

TEST_F(ScheduleCacheTest, InspectingWhatIsNotThereSaysSo) {
  CacheOptions options = Options();
  options.directory = directory_ / "nothing";
  options.inspect = true;
  EXPECT_EQ(ScheduleCache::Open(options).error().kind, ErrorKind::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(options.directory));
}

class SystemLayerTest : public ScheduleCacheTest {
 protected:
  void SetUp() override {
    CacheOptions system = Options();
    system.directory = directory_ / "system";
    Open(system);
    for (int kernel : {1, 2, 3}) PutWithArtifact(kernel);
    CacheOptions options = Options();
    options.system_directory = directory_ / "system";
    Open(options);
  }
};

TEST_F(SystemLayerTest, LiesUnderTheUsersLayer) {
  EXPECT_EQ(Lookup(SampleKey(1))->layer, CacheLayer::kSystem);
  EXPECT_EQ(**cache_->Artifact(Lookup(SampleKey(1))->record), SampleArtifact(1));
  NewRecord better = SampleEntry(1);
  better.record.schedule = "split t2.i 14\n";
  ASSERT_TRUE(cache_->Put(better, Durability::kSynced).has_value());
  EXPECT_EQ(Lookup(SampleKey(1))->layer, CacheLayer::kUser);
  EXPECT_EQ(Lookup(SampleKey(1))->record.schedule, "split t2.i 14\n");
  size_t seen = 0;
  ASSERT_TRUE(cache_->ForEachRecord(std::nullopt, [&](const Record&) { return ++seen > 0; }));
  EXPECT_EQ(seen, 3u);
}

TEST_F(SystemLayerTest, RemoveHidesItAndPinCopiesItUp) {
  CacheOptions options = Options();
  options.system_directory = directory_ / "system";
  ASSERT_TRUE(cache_->Remove(SampleKey(1).fingerprint).has_value());
  ASSERT_TRUE(cache_->Pin(SampleKey(2).fingerprint, true).has_value());
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(Lookup(SampleKey(1)).has_value());
    EXPECT_THAT(*cache_->RecordsOf(SampleKey(1).fingerprint), IsEmpty());
    EXPECT_THAT(*cache_->FindByPrefix(SampleKey(1).fingerprint.Hex()), IsEmpty());
    std::optional<CacheHit> pinned = Lookup(SampleKey(2));
    ASSERT_TRUE(pinned.has_value());
    EXPECT_TRUE(pinned->record.pinned);
    EXPECT_EQ(pinned->layer, CacheLayer::kUser);
    EXPECT_TRUE(cache_->Artifact(pinned->record)->has_value());
    Open(options);
  }
  PutWithArtifact(1);
  EXPECT_TRUE(Lookup(SampleKey(1)).has_value());
}

TEST(ScheduleCache, InMemoryWithoutADirectory) {
  Result<std::unique_ptr<ScheduleCache>> cache = ScheduleCache::Open({});
  ASSERT_TRUE(cache.has_value());
  ASSERT_TRUE((*cache)->Put(SampleEntry(1), Durability::kSynced).has_value());
  EXPECT_TRUE((*cache)->Lookup(SampleKey(1))->has_value());
  EXPECT_EQ((*cache)->Stats().not_persisting, "");
  ASSERT_TRUE((*cache)->Remove(SampleKey(1).fingerprint).has_value());
  EXPECT_FALSE((*cache)->Lookup(SampleKey(1))->has_value());
}

TEST_F(ScheduleCacheTest, WhatReplacesARecordThatChangedOrWentChangesNothing) {
  PutWithArtifact(1);
  NewRecord better = SampleEntry(1);
  better.record.schedule = "split t2.i 14\n";
  better.admits = IfStill(StateOf(Lookup(SampleKey(1))->record));
  NewRecord other = SampleEntry(1);
  other.record.schedule = "split t2.i 7\n";
  ASSERT_TRUE(cache_->Put(other, Durability::kSynced).has_value());
  EXPECT_EQ(cache_->Put(better, Durability::kSynced).error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(Lookup(SampleKey(1))->record.schedule, other.record.schedule);
  better.admits = IfStill(StateOf(Lookup(SampleKey(1))->record));
  ASSERT_TRUE(cache_->Put(better, Durability::kSynced).has_value());
  EXPECT_EQ(Lookup(SampleKey(1))->record.schedule, better.record.schedule);
  better.admits = IfStill(StateOf(Lookup(SampleKey(1))->record));
  ASSERT_TRUE(cache_->Remove(SampleKey(1).fingerprint).has_value());
  EXPECT_EQ(cache_->Put(better, Durability::kSynced).error().kind, ErrorKind::kNotFound);
  EXPECT_FALSE(Lookup(SampleKey(1)).has_value());
}

TEST_F(ScheduleCacheTest, WhatIsForNoRecordDoesNotReplaceOneThatCameMeanwhile) {
  NewRecord first = SampleEntry(1);
  first.admits = IfStill(std::nullopt);
  ASSERT_TRUE(cache_->Put(first, Durability::kSynced).has_value());
  NewRecord late = first;
  late.record.schedule = "split t2.i 7\n";
  EXPECT_EQ(cache_->Put(late, Durability::kSynced).error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(Lookup(SampleKey(1))->record.schedule, first.record.schedule);
}

TEST_F(ScheduleCacheTest, NotesAndTrialsAboutARecordThatWentAreNotKept) {
  PutWithArtifact(1);
  const CacheKey key = SampleKey(1);
  const WallTime created = Lookup(key)->record.created;
  const std::vector<TrialRecord> trials(1);
  EXPECT_TRUE(cache_->PutNote(key, "won", "1.5", Durability::kSoon, created).has_value());
  EXPECT_TRUE(cache_->AppendTrials(key, trials, created).has_value());
  const WallTime another = created + std::chrono::seconds(1);
  EXPECT_EQ(cache_->PutNote(key, "won", "2", Durability::kSoon, another).error().kind, ErrorKind::kNotFound);
  ASSERT_TRUE(cache_->Remove(key.fingerprint).has_value());
  EXPECT_EQ(cache_->PutNote(key, "won", "2", Durability::kSoon, created).error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(cache_->AppendTrials(key, trials, created).error().kind, ErrorKind::kNotFound);
  EXPECT_FALSE(cache_->GetNote(key, "won")->has_value());
  EXPECT_TRUE(cache_->ForEachTrial(key, [](const TrialRecord&) {
    ADD_FAILURE() << "a trial of what was removed";
    return true;
  }));
}

TEST_F(ScheduleCacheTest, MetaValuesRoundTrip) {
  EXPECT_FALSE(cache_->GetMeta("peak")->has_value());
  ASSERT_TRUE(cache_->PutMeta("peak", std::string("\0\1 285", 6), Durability::kSynced).has_value());
  Open(Options());
  EXPECT_EQ(**cache_->GetMeta("peak"), std::string("\0\1 285", 6));
}

TEST_F(ScheduleCacheTest, NotesGoWithTheirRecord) {
  PutWithArtifact(1);
  PutWithArtifact(2);
  for (int kernel : {1, 2})
    ASSERT_TRUE(cache_->PutNote(SampleKey(kernel), "won", "1.5", Durability::kSynced).has_value());
  ASSERT_TRUE(cache_->PutNote(SampleKey(1), "transfer", "", Durability::kSoon).has_value());
  Open(Options());
  EXPECT_EQ(**cache_->GetNote(SampleKey(1), "won"), "1.5");
  EXPECT_EQ(**cache_->GetNote(SampleKey(1), "transfer"), "");
  EXPECT_FALSE(cache_->GetNote(SampleKey(2), "transfer")->has_value());
  ASSERT_TRUE(cache_->Remove(SampleKey(1).fingerprint).has_value());
  EXPECT_FALSE(cache_->GetNote(SampleKey(1), "won")->has_value());
  EXPECT_FALSE(cache_->GetNote(SampleKey(1), "transfer")->has_value());
  EXPECT_TRUE(cache_->GetNote(SampleKey(2), "won")->has_value());
}

TEST_F(ScheduleCacheTest, RefusesTextsBeyondTheLimits) {
  NewRecord entry = SampleEntry(1);
  entry.record.schedule.assign((1 << 20) + 1, 'x');
  EXPECT_EQ(cache_->Put(entry, Durability::kSoon).error().kind, ErrorKind::kLimit);
  entry.record.schedule.resize(1 << 20);
  EXPECT_TRUE(cache_->Put(entry, Durability::kSoon).has_value());
  EXPECT_TRUE(Lookup(SampleKey(1)).has_value());
  entry.record.measured->time = std::chrono::nanoseconds(-1);
  EXPECT_EQ(cache_->Put(entry, Durability::kSoon).error().kind, ErrorKind::kInvalid);
}

TEST_F(ScheduleCacheTest, ServesWhileOthersWrite) {
  for (int kernel = 0; kernel < 20; ++kernel) PutWithArtifact(kernel);
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int reader = 0; reader < 3; ++reader)
      threads.emplace_back([&, reader] {
        Rng rng(static_cast<uint64_t>(reader));
        for (int i = 0; i < 1000; ++i) {
          int kernel = static_cast<int>(rng.Below(20));
          Result<std::optional<CacheHit>> hit = cache_->Lookup(SampleKey(kernel));
          if (!hit || !*hit || (*hit)->record.key.canonical != SampleKey(kernel).canonical) ++wrong;
        }
      });
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        if (!cache_->Put(SampleEntry(i % 40), i % 10 == 0 ? Durability::kSynced : Durability::kSoon)) ++wrong;
        if (!cache_->Pin(SampleKey(i % 20).fingerprint, i % 2 == 0)) ++wrong;
      }
    });
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hone
