// A cache that holds schedules in the words of once (ir/steps/old_words.h): tests/compat/old_words/cache, written by
// the last version that wrote them, with a tuned record, trials and a kernel of several cases. It opens, and all that
// is done with a record goes on as if its schedule had been written today.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/generated_code.h"
#include "cache/schedule_cache.h"
#include "codegen/rules/choices.h"
#include "daemon/inspect/insight.h"
#include "ir/schedule/schedule_cases.h"
#include "tests/support/temporary_directory.h"
#include "tuner/space.h"

namespace hone {
namespace {

class OldWords : public ::testing::Test {
 protected:
  OldWords() {
    std::filesystem::copy(HONE_SOURCE_DIR "/tests/compat/old_words/cache", directory_ / "cache",
                          std::filesystem::copy_options::recursive);
    CacheOptions options;
    options.directory = directory_ / "cache";
    Result<std::unique_ptr<ScheduleCache>> cache = ScheduleCache::Open(options);
    EXPECT_TRUE(cache) << cache.error().Text();
    if (!cache) return;
    cache_ = *std::move(cache);
    Result<void> walked = cache_->ForEachRecord(std::nullopt, [&](const Record& record) {
      records_.push_back(record);
      return true;
    });
    EXPECT_TRUE(walked);
  }

  const Record* Tuned() const {
    for (const Record& record : records_)
      if (record.origin == Origin::kTuned) return &record;
    return nullptr;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<ScheduleCache> cache_;
  std::vector<Record> records_;
};

TEST_F(OldWords, RecordsAreListedAndTheirSchedulesReadAsIfWrittenToday) {
  EXPECT_EQ(records_.size(), 8u);
  std::map<std::string, int> seen;
  for (const Record& record : records_) {
    for (const char* word : {"rewrite separate ", "rewrite collapse ", "rewrite trim ", "rewrite numbers ",
                             "rewrite online ", " shared", " private", "cache_write ", "case "})
      if (record.schedule.find(word) != std::string::npos) ++seen[word];
    const std::string today = InWordsOfToday(record.schedule);
    Result<ScheduleCases> old = ParseScheduleCases(record.schedule), now = ParseScheduleCases(today);
    ASSERT_TRUE(old) << record.label << ": " << old.error().Text();
    ASSERT_TRUE(now) << record.label << ": " << now.error().Text();
    EXPECT_EQ(*old, *now) << record.label;
    EXPECT_EQ(PrintScheduleCases(*old), today) << record.label;
    EXPECT_EQ(today.find("shared"), std::string::npos);
    EXPECT_EQ(today.find("private"), std::string::npos);
  }
  EXPECT_EQ(seen.size(), 9u) << "the cache has no example of some old word";
}

// What a trial measured is found again by its program, whose hash is of a text with names for scopes.
TEST_F(OldWords, TrialsAreThoseOfTheProgramsThatSchedulesMakeToday) {
  const Record* tuned = Tuned();
  ASSERT_NE(tuned, nullptr);
  Result<Target> target = ParseTarget(tuned->key.target);
  ASSERT_TRUE(target);
  Result<Space> space = Space::Open(tuned->key.canonical, *target);
  ASSERT_TRUE(space) << space.error().Text();
  Result<uint64_t> program = space->ProgramOf(tuned->schedule);
  ASSERT_TRUE(program) << program.error().Text();
  EXPECT_EQ(*program, *space->ProgramOf(InWordsOfToday(tuned->schedule)));
  bool found = false;
  ASSERT_TRUE(cache_->ForEachTrial(tuned->key, [&](const TrialRecord& trial) {
    if (trial.choices == ChoicesOf(tuned->schedule)) found |= trial.program == *program;
    return true;
  }));
  EXPECT_TRUE(found);
}

// Targets had no kind then. Whoever asks in the words of today, or of then, finds the record, its trials and its notes.
TEST_F(OldWords, TargetsHaveTheirKindAndRecordsTheirKeys) {
  const Record* tuned = Tuned();
  ASSERT_NE(tuned, nullptr);
  ASSERT_TRUE(tuned->key.target.starts_with("cpu avx")) << tuned->key.target;
  for (const Record& record : records_) {
    const Result<Target> target = ParseTarget(record.key.target);
    ASSERT_TRUE(target) << target.error().Text();
    EXPECT_EQ(record.key.target, PrintTarget(*target));
    EXPECT_EQ(PrintTarget(*ParseTarget(record.key.target.substr(4))), record.key.target);
    Result<std::optional<CacheHit>> hit = cache_->Lookup(record.key);
    ASSERT_TRUE(hit && *hit) << record.label;
    EXPECT_EQ((*hit)->record, record);
    // The code was made under a key that is the same today.
    EXPECT_TRUE(record.key.code.ends_with(CodeKey("", HONE_ABI_VERSION, *target))) << record.key.code;
  }
}

TEST_F(OldWords, ARecordIsExplained) {
  const Record* tuned = Tuned();
  ASSERT_NE(tuned, nullptr);
  Insight insight(*cache_, Devices::OfCpu(*ParseTarget(tuned->key.target)->cpu(), "cc 1"),
                  [](const Target&, int) { return MachinePeaks{100, {400, 200, 100, 10}}; });
  Result<ExplainReply> reply = insight.Explain(*tuned);
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_GT(reply->trials, 20u);
  EXPECT_GT(reply->default_us, 0);
  EXPECT_FALSE(reply->choices.empty());
}

// Stored again with its schedule in today's words it is the same schedule: the code stays.
TEST_F(OldWords, CodeStaysWithAScheduleThatIsWrittenAnew) {
  const Record* tuned = Tuned();
  ASSERT_NE(tuned, nullptr);
  ASSERT_TRUE(tuned->artifact_digest);
  NewRecord entry;
  entry.record = *tuned;
  entry.record.schedule = InWordsOfToday(tuned->schedule);
  ASSERT_NE(entry.record.schedule, tuned->schedule);
  ASSERT_TRUE(cache_->Put(entry, Durability::kSynced));
  Result<std::vector<Record>> stored = cache_->RecordsOf(tuned->key.fingerprint);
  ASSERT_TRUE(stored);
  ASSERT_EQ(stored->size(), 1u);
  EXPECT_EQ(stored->front().schedule, entry.record.schedule);
  EXPECT_EQ(stored->front().artifact_digest, tuned->artifact_digest);
  Result<std::optional<std::vector<std::byte>>> code = cache_->Artifact(stored->front());
  ASSERT_TRUE(code);
  EXPECT_TRUE(code->has_value());
}

}  // namespace
}  // namespace hone
