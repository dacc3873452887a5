// A cache of bundles alone: which bundles of a directory are taken, which of several codes for a kernel, and that code
// counts as checked only once it was.
#include "cache/bundle_cache.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "base/file.h"
#include "tests/support/sample_bundles.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kOurs = "cpu avx2 cpu=generic features= l1=32768 l2=524288 l3=4194304 cores=4";
const std::string kLike = "cpu avx2 cpu=generic features= l1=32768 l2=524288 l3=4194304 cores=2";
const std::string kForeign = "cpu neon cpu=generic features= l1=32768 l2=524288 l3=4194304 cores=4";

class BundleCacheTest : public ::testing::Test {
 protected:
  std::string Folder() const { return directory_ / "bundles"; }
  void SetUp() override { ASSERT_EQ(mkdir(Folder().c_str(), 0700), 0); }

  void WriteFile(const std::string& name, std::string_view bytes) {
    ASSERT_TRUE(WriteFileAtomically(Folder() + "/" + name, bytes).has_value());
  }
  void WriteSample(const std::string& name, const BundleSample& sample, std::optional<SigningSeed> seed = kSampleSeed) {
    WriteFile(name, *sample.Write(seed));
  }

  std::unique_ptr<BundleCache> Open(Roles roles = kSchedules | kArtifacts) {
    BundleCacheOptions options;
    options.directories = {Folder(), "/nowhere/at/all"};
    KeyFile key;
    key.name = "fleet";
    key.roles = roles;
    key.key = PublicKeyOf(kSampleSeed);
    options.keys.Add(key);
    options.target = kOurs;
    options.suits = [](const std::string& target) -> uint64_t {
      return target == kOurs ? 3 : target == kLike ? 2 : target == kSampleTarget ? 1 : 0;
    };
    options.clock = &clock_;
    Result<std::unique_ptr<BundleCache>> cache = BundleCache::Open(std::move(options));
    EXPECT_TRUE(cache.has_value()) << cache.error().Text();
    return *std::move(cache);
  }

  // The sample's first record with its code, for another target.
  static BundleEntry EntryFor(BundleSample& sample, const std::string& target, int code, int threads = 0) {
    BundleEntry entry{SampleRecord(0), SampleCanonical(0).class_text, 0};
    entry.record.key.target = target;
    if (threads > 0) entry.record.key.threads = threads;
    std::vector<std::byte> bytes = SampleArtifact(code, 2000);
    entry.record.artifact_digest = Hash256(bytes);
    entry.record.artifact_bytes = bytes.size();
    sample.code.emplace(*entry.record.artifact_digest, std::move(bytes));
    return entry;
  }

  static CacheKey KeyOfSample(const std::string& target = kOurs) {
    CacheKey key = SampleRecord(0).key;
    key.target = target;
    return key;
  }

  FakeClock clock_;
  TemporaryDirectory directory_;
};

TEST_F(BundleCacheTest, ServesTheCodeOfATrustedBundleOnceItWasChecked) {
  const BundleSample sample = SampleBundle(600);
  WriteSample("a.bundle", sample);
  auto cache = Open();
  EXPECT_EQ(cache->bundles(), 1u);
  EXPECT_EQ(cache->records(), 300u);  // every other one has code
  EXPECT_THAT(cache->left_out(), IsEmpty());
  for (const BundleEntry& entry : sample.entries) {
    CacheKey key = entry.record.key;
    key.target = kOurs;
    Result<std::optional<CacheHit>> hit = cache->Lookup(key, Counting::kAsUse);
    ASSERT_TRUE(hit.has_value()) << hit.error().Text();
    ASSERT_EQ(hit->has_value(), entry.record.artifact_digest.has_value());
    if (!*hit) continue;
    const Record& record = (*hit)->record;
    EXPECT_FALSE((*hit)->artifact_current);
    EXPECT_TRUE((*hit)->artifact_to_check);
    EXPECT_EQ(record.key, entry.record.key);
    EXPECT_EQ(record.schedule, entry.record.schedule);
    EXPECT_EQ(record.origin, Origin::kImported);
    EXPECT_EQ(record.source->bundle, "sample");
    EXPECT_EQ(record.source->origin, entry.record.origin);
    EXPECT_EQ(**cache->Artifact(record), sample.code.at(*record.artifact_digest));
    EXPECT_EQ(cache->UseOf(key.fingerprint)->calls, 1u);
  }
  const Record first = (*cache->Lookup(KeyOfSample(), Counting::kNot))->record;
  EXPECT_EQ(cache->CheckOf(first), ArtifactCheck::kTrusted);
  ASSERT_TRUE(cache->Put({first, "", std::nullopt}, Durability::kSoon).has_value());
  EXPECT_EQ(cache->CheckOf(first), ArtifactCheck::kHere);
  const CacheHit again = **cache->Lookup(KeyOfSample(), Counting::kNot);
  EXPECT_TRUE(again.artifact_current);
  EXPECT_FALSE(again.artifact_to_check);
  // That of no other, and not for ever.
  const BundleEntry& other = sample.entries[2];
  EXPECT_EQ(cache->CheckOf(other.record), ArtifactCheck::kTrusted);
  EXPECT_EQ(Open()->CheckOf(first), ArtifactCheck::kTrusted);
}

TEST_F(BundleCacheTest, ServesWhatSuitsTheDeviceBestAndNothingThatDoesNotRunThere) {
  BundleSample sample = SampleBundle(0);
  sample.entries = {EntryFor(sample, kForeign, 1), EntryFor(sample, kLike, 2), EntryFor(sample, kSampleTarget, 3)};
  WriteSample("a.bundle", sample);
  EXPECT_EQ(Open()->records(), 2u);
  EXPECT_EQ((**Open()->Lookup(KeyOfSample(), Counting::kNot)).record.key.target, kLike);
  sample.entries.push_back(EntryFor(sample, kOurs, 4));
  WriteSample("a.bundle", sample);
  EXPECT_EQ((**Open()->Lookup(KeyOfSample(), Counting::kNot)).record.key.target, kOurs);
  // Who names a target gets what was made for that one.
  EXPECT_EQ((**Open()->Lookup(KeyOfSample(kLike), Counting::kNot)).record.key.target, kLike);
  EXPECT_FALSE(Open()->Lookup(KeyOfSample(kForeign), Counting::kNot)->has_value());
}

TEST_F(BundleCacheTest, CodeForAsManyThreadsComesFirst) {
  BundleSample sample = SampleBundle(0);
  const int threads = SampleRecord(0).key.threads;
  sample.entries = {EntryFor(sample, kOurs, 1, threads + 1), EntryFor(sample, kLike, 2, threads)};
  WriteSample("a.bundle", sample);
  EXPECT_EQ((**Open()->Lookup(KeyOfSample(), Counting::kNot)).record.key.threads, threads);
  CacheKey more = KeyOfSample();
  more.threads = threads + 7;
  EXPECT_EQ((**Open()->Lookup(more, Counting::kNot)).record.key.target, kOurs);
}

TEST_F(BundleCacheTest, CodeThatSeveralRecordsNameIsCheckedOnce) {
  BundleSample sample = SampleBundle(0);
  const int threads = SampleRecord(0).key.threads;
  sample.entries = {EntryFor(sample, kOurs, 1, threads + 1), EntryFor(sample, kLike, 1, threads)};
  WriteSample("a.bundle", sample);
  auto cache = Open();
  const Record served = (**cache->Lookup(KeyOfSample(), Counting::kNot)).record;
  EXPECT_EQ(served.key.target, kLike);
  ASSERT_TRUE(cache->Put({served, "", std::nullopt}, Durability::kSoon).has_value());
  EXPECT_TRUE((**cache->Lookup(KeyOfSample(), Counting::kNot)).artifact_current);
}

TEST_F(BundleCacheTest, AnotherTextOfTheSameFingerprintIsAMiss) {
  WriteSample("a.bundle", SampleBundle(2));
  auto cache = Open();
  CacheKey key = KeyOfSample();
  key.canonical += " ";
  EXPECT_FALSE(cache->Lookup(key, Counting::kNot)->has_value());
  EXPECT_EQ(cache->Stats().collisions, 1u);
  EXPECT_EQ(cache->Stats().misses, 1u);
}

TEST_F(BundleCacheTest, WhatNobodyVouchesForIsLeftOut) {
  WriteSample("signed.bundle", SampleBundle(2));
  WriteSample("unsigned.bundle", SampleBundle(2), std::nullopt);
  WriteSample("unknown.bundle", SampleBundle(2), SigningSeed{9});
  WriteFile("other.txt", "no bundle, and not called one");
  auto cache = Open();
  EXPECT_EQ(cache->bundles(), 1u);
  EXPECT_THAT(cache->left_out(), ElementsAre(HasSubstr("unknown.bundle: no trusted key signed it"),
                                             HasSubstr("unsigned.bundle: it is not signed")));
  EXPECT_THAT(cache->Stats().problem, HasSubstr("2 bundles are left out"));
  EXPECT_THAT(Open(kSchedules)->left_out(),
              ElementsAre(HasSubstr("do not include artifacts"), HasSubstr("unknown"), HasSubstr("unsigned")));
}

TEST_F(BundleCacheTest, OneThatIsCutOrChangedIsLeftOutAndTheOthersAreServed) {
  WriteSample("b.bundle", SampleBundle(2));
  std::string bytes = *SampleBundle(4).Write(kSampleSeed);
  for (const size_t at : {size_t{40}, bytes.size() / 2, bytes.size() - 1}) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    WriteFile("a.bundle", changed);
    auto cache = Open();
    EXPECT_EQ(cache->records(), 1u);
    EXPECT_THAT(cache->left_out(), ElementsAre(HasSubstr("a.bundle: ")));
  }
  WriteFile("a.bundle", std::string_view(bytes).substr(0, bytes.size() - 4096));
  EXPECT_THAT(Open()->left_out(), ElementsAre(HasSubstr("the bundle is cut")));
  WriteFile("a.bundle", "");
  EXPECT_THAT(Open()->left_out(), ElementsAre(HasSubstr("a.bundle: ")));
}

TEST_F(BundleCacheTest, OfOneKeyAndNameTheLastVersionIsServed) {
  BundleSample old = SampleBundle(2), next = SampleBundle(4);
  next.manifest.version = old.manifest.version + 1;
  next.manifest.issued += std::chrono::hours(1);
  for (const auto& [first, second] : {std::pair(&old, &next), std::pair(&next, &old)}) {
    WriteSample("a.bundle", *first);
    WriteSample("b.bundle", *second);
    auto cache = Open();
    EXPECT_EQ(cache->bundles(), 1u);
    EXPECT_EQ(cache->records(), 2u);
    EXPECT_EQ(cache->left_out().size(), 1u);
  }
  next.manifest.name = "another";
  WriteSample("a.bundle", next);
  EXPECT_EQ(Open()->bundles(), 2u);
}

TEST_F(BundleCacheTest, OnePastItsDateIsLeftOut) {
  BundleSample sample = SampleBundle(2);
  sample.manifest.expires = clock_.WallNow() + std::chrono::hours(1);
  WriteSample("a.bundle", sample);
  EXPECT_EQ(Open()->bundles(), 1u);
  clock_.Advance(std::chrono::hours(2));
  EXPECT_THAT(Open()->left_out(), ElementsAre(HasSubstr("has expired")));
}

TEST_F(BundleCacheTest, WhatOthersCouldChangeIsNotRead) {
  WriteSample("a.bundle", SampleBundle(2));
  ASSERT_EQ(chmod((Folder() + "/a.bundle").c_str(), 0666), 0);
  EXPECT_EQ(Open()->bundles(), 0u);
  EXPECT_THAT(Open()->left_out(), ElementsAre(HasSubstr("a.bundle")));
  ASSERT_EQ(chmod((Folder() + "/a.bundle").c_str(), 0644), 0);
  EXPECT_EQ(Open()->bundles(), 1u);
  ASSERT_EQ(chmod(Folder().c_str(), 0777), 0);
  EXPECT_EQ(Open()->bundles(), 0u);
  EXPECT_THAT(Open()->left_out(), ElementsAre(HasSubstr("bundles")));
}

TEST_F(BundleCacheTest, ListsInPartsAndChangesNothing) {
  const BundleSample sample = SampleBundle(20);
  WriteSample("a.bundle", sample);
  auto cache = Open();
  std::string place;
  size_t seen = 0, parts = 0;
  for (bool at_end = false; !at_end; ++parts) {
    size_t left = 3;
    at_end = *cache->ForEachRecordAfter(place, [&](const Record&) {
      ++seen;
      return --left > 0;
    });
  }
  EXPECT_EQ(seen, 10u);
  EXPECT_EQ(parts, 4u);
  const Fingerprint fingerprint = sample.entries[0].record.key.fingerprint;
  EXPECT_EQ(*cache->Resolve(fingerprint.Hex()), fingerprint);
  EXPECT_EQ(cache->Resolve("xyz").error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(cache->RecordsOf(fingerprint)->size(), 1u);
  for (const Result<void>& refused : {cache->Pin(fingerprint, true), cache->Remove(fingerprint)})
    EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  BundleEntry stranger{SampleRecord(0), "", 0};
  stranger.record.artifact_digest = Hash256("planted");
  EXPECT_FALSE(cache->Put({stranger.record, "", std::nullopt}, Durability::kSoon).has_value());
  EXPECT_EQ(cache->CheckOf(stranger.record), ArtifactCheck::kNone);
}

}  // namespace
}  // namespace hone
