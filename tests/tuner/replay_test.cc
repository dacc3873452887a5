// Recorded searches as a text and as a device: what is kept, what is refused, and strategies compared without noise.
#include "tuner/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "base/file.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "tests/tuner/scripted_evaluator.h"
#include "tuner/search.h"
#include "tuner/xgb_model.h"

namespace hone::replay_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Two kernels, 300 trials at random and 300 of a search each, one thread, by `search_lab --record`.
const std::string kCommitted = std::string(HONE_SOURCE_DIR) + "/tests/tuner/searches.recording";

struct Ran {
  SearchResult result;
  std::vector<std::pair<uint64_t, double>> trials;  // program, time
  std::vector<Verdict> verdicts;
};

Ran RunSearch(const Space& space, Evaluator& evaluator, SearchOptions options, CostModel* model = nullptr) {
  Ran ran;
  SearchWatcher watcher;
  watcher.on_trial = [&](const Trial& trial) {
    ran.trials.emplace_back(trial.candidate.program, trial.time_us);
    ran.verdicts.push_back(trial.verdict);
  };
  Result<SearchResult> result = Search(space, evaluator, model, options, watcher, {});
  EXPECT_TRUE(result) << result.error().Text();
  if (result) ran.result = *std::move(result);
  return ran;
}

Ran RunReplay(Replay& replay, SearchOptions options) {
  std::unique_ptr<CostModel> model = MakeXgbModel();
  options.instead = [&](const Candidate& wanted, const std::unordered_set<uint64_t>& taken) {
    return replay.Nearest(wanted, taken);
  };
  return RunSearch(replay.space(), replay, options, model.get());
}

// 64 trials of a made-up device on which the candidates 1 to 5 each fail in another way.
Recording Scripted() {
  Recording recording;
  recording.name = "matmul(M=64,N=96,K=80)";
  recording.kernel = "matmul(M=64,N=96,K=80)";
  CpuTarget target;
  target.cpu = "haswell";
  recording.target = PrintTarget(target);
  testing::ScriptedEvaluator evaluator;
  evaluator.on_build = [](int n) -> std::optional<Error> {
    if (n == 1) return Error{ErrorKind::kBuildFailed, "too many registers", "build"};
    return {};
  };
  evaluator.on_check = [](int n) -> std::optional<Error> {  // of what was built
    if (n == 1) return Error{ErrorKind::kRunFailed, "a stray write", "run"};
    if (n == 2) return Error{ErrorKind::kTimeout, "an endless loop", "run"};
    if (n == 3) return Error{ErrorKind::kWrongResult, "y[3]", "check"};
    return {};
  };
  evaluator.on_time = [](int n) -> std::optional<Error> {  // the default three times, as the drift_reference
    if (n == 3) return Error{ErrorKind::kBusy, "never quiet", "time"};
    return {};
  };
  Result<Space> space = Space::Open(recording.kernel, target);
  EXPECT_TRUE(space);
  SearchWatcher watcher;
  watcher.on_trial = [&](const Trial& trial) { recording.trials.push_back(RecordOf(trial)); };
  SearchOptions options{.trials = 64, .seed = 5, .strategy = Strategy::kRandom};
  EXPECT_TRUE(Search(*space, evaluator, nullptr, options, watcher, {}));
  return recording;
}

const Verdict kFirst[] = {Verdict::kTimed,    Verdict::kNotBuilt, Verdict::kCrashed,
                          Verdict::kTimedOut, Verdict::kWrong,    Verdict::kDisturbed};

TEST(Recording, GoesThroughItsText) {
  Recording recording = Scripted();
  recording.name = "two\nlines \\n and a backslash";
  Recording other = Scripted();
  other.trials.clear();
  Result<std::vector<Recording>> read = ParseRecordings(PrintRecording(recording) + PrintRecording(other), "file");
  ASSERT_TRUE(read) << read.error().Text();
  int reasons = 0;
  for (TrialRecord& trial : recording.trials) reasons += !std::exchange(trial.why, "").empty();
  EXPECT_GT(reasons, 0);  // which the log keeps, and the text does not
  EXPECT_EQ(*read, (std::vector<Recording>{recording, other}));
}

TEST(Recording, CutShortAnywhereIsRefusedWithTheLine) {
  Recording recording = Scripted();
  recording.trials.resize(3);
  const std::string text = PrintRecording(recording);
  for (size_t size = 1; size < text.size(); ++size) {
    Result<std::vector<Recording>> read = ParseRecordings(text.substr(0, size), "file");
    ASSERT_FALSE(read) << size;
    EXPECT_EQ(read.error().kind, ErrorKind::kCorrupt) << size;
    EXPECT_THAT(read.error().Text(), StartsWith("file:")) << size;
  }
  EXPECT_THAT(ParseRecordings(text.substr(0, text.rfind("end ")), "file").error().Text(), HasSubstr("cut short"));
}

TEST(Recording, OneChangedByteIsRefused) {
  Recording recording = Scripted();
  recording.trials.resize(8);
  const std::string text = PrintRecording(recording);
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = changed[at] == '1' ? '2' : '1';
    if (changed == text) continue;
    Result<std::vector<Recording>> read = ParseRecordings(changed, "file");
    ASSERT_FALSE(read) << at;
    EXPECT_TRUE(read.error().kind == ErrorKind::kCorrupt || read.error().kind == ErrorKind::kUnsupported) << at;
  }
}

TEST(Recording, MessagesSayLineSeenAndWanted) {
  auto message = [](const std::string& text) { return ParseRecordings(text, "file").error().Text(); };
  EXPECT_EQ(message("hone recording 7\n"), "file:1: a recording of format 7, this hone reads 1");
  EXPECT_THAT(message("PNG\n"), AllOf(StartsWith("file:1: saw \"PNG\""), HasSubstr("hone recording")));
  const std::string head = "hone recording 1\nname x\nkernel x\ntarget x\nthreads 1\n";
  EXPECT_EQ(message(head + "1 5 x 0 \n"), "file:6: saw \"x\", wanted a number");
  EXPECT_THAT(message(head + "9 5 0 0 \n"), HasSubstr("verdict"));
  EXPECT_THAT(message(head + "1 0 0 0 \n"), HasSubstr("time"));
  EXPECT_THAT(message(head + "1 5 0 0 what\n"), HasSubstr("SITE=NUMBER"));
  EXPECT_THAT(message(head + "end 4 00\n"), HasSubstr("says otherwise"));
}

TEST(Recording, SearchesOfOneKernelAreJoined) {
  const std::string path = ::testing::TempDir() + "/joined-" + std::to_string(getpid());
  Recording recording = Scripted(), other = recording;
  other.kernel = "matmul(M=64,N=96,K=81)";
  for (const Recording& one : {recording, other, recording}) ASSERT_TRUE(AppendRecording(path, one));
  Result<std::vector<Recording>> read = ReadRecordings(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(read) << read.error().Text();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].trials.size(), 128u);
  EXPECT_EQ((*read)[1].trials.size(), 64u);
  EXPECT_EQ(ReadRecordings(path).error().kind, ErrorKind::kNotFound);
}

TEST(Recording, ComesFromACache) {
  const std::string directory = ::testing::TempDir() + "/cache-" + std::to_string(getpid());
  Recording recording = Scripted();
  Kernel kernel = *ParseKernel(recording.kernel);
  Canonical canonical = Canonicalize(kernel);
  recording.kernel = canonical.text;
  {
    Record record;
    record.key = MakeCacheKey(canonical, *ParseTarget(recording.target), 1, "cc 1");
    record.request = recording.name;
    record.label = "matmul";
    record.schedule = "the default";
    CacheOptions options;
    options.directory = directory;
    std::unique_ptr<ScheduleCache> cache = *ScheduleCache::Open(options);
    ASSERT_TRUE(cache->Put({.record = record, .class_text = canonical.class_text, .artifact = std::nullopt},
                           Durability::kSynced));
    ASSERT_TRUE(cache->AppendTrials(record.key, recording.trials));
  }
  Result<std::vector<Recording>> read = ReadRecordings(directory);
  std::filesystem::remove_all(directory);
  ASSERT_TRUE(read) << read.error().Text();
  ASSERT_EQ(read->size(), 1u);
  for (TrialRecord& trial : (*read)[0].trials) trial.at = {};
  EXPECT_EQ((*read)[0], recording);
}

TEST(Replay, AnswersEachTrialAsItEnded) {
  Recording recording = Scripted();
  Result<std::unique_ptr<Replay>> replay = Replay::Open(recording);
  ASSERT_TRUE(replay) << replay.error().Text();
  EXPECT_EQ((*replay)->size(), 64u);
  EXPECT_EQ((*replay)->left_out(), 0);
  std::vector<Candidate> candidates;
  for (const TrialRecord& trial : recording.trials) candidates.push_back(*(*replay)->space().Parse(trial.choices));
  Result<std::vector<Trial>> trials = MeasureBatch(**replay, candidates, {}, {});
  ASSERT_TRUE(trials) << trials.error().Text();
  ASSERT_EQ(trials->size(), 64u);
  for (size_t i = 0; i < trials->size(); ++i) {
    EXPECT_EQ(static_cast<uint8_t>((*trials)[i].verdict), recording.trials[i].verdict) << i;
    EXPECT_EQ((*trials)[i].time_us * 1000, static_cast<double>(recording.trials[i].time.count())) << i;
    if (i < std::size(kFirst)) { EXPECT_EQ((*trials)[i].verdict, kFirst[i]); }
    EXPECT_EQ((*trials)[i].why.find("as recorded") != std::string::npos, (*trials)[i].verdict != Verdict::kTimed);
  }
}

// By the program, however its schedule is written; and for no other.
TEST(Replay, MakesUpNothing) {
  Recording recording = Scripted();
  std::unique_ptr<Replay> replay = *Replay::Open(recording);
  const std::string known = replay->space().Default()->schedule;
  EXPECT_TRUE(replay->Build(known));
  EXPECT_TRUE(replay->Build("# the same\n" + known));
  Rng rng(99);
  Candidate unknown;
  std::set<uint64_t> programs;
  for (const TrialRecord& trial : recording.trials) programs.insert(trial.program);
  while (unknown.schedule.empty() || programs.contains(unknown.program))
    if (Result<Plan> plan = replay->space().Sample(rng))
      if (Result<Candidate> sample = replay->space().Complete(*plan)) unknown = *sample;
  Result<BuiltArtifact> built = replay->Build(unknown.schedule);
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().kind, ErrorKind::kNotFound);
  EXPECT_THAT(built.error().Text(), HasSubstr("not recorded"));
  EXPECT_EQ(replay->Build("nonsense").error().kind, ErrorKind::kInvalid);
  EXPECT_FALSE(replay->Time(*SealedMemfd::Create(AsBytes(std::string_view("x"))), {}));

  std::unordered_set<uint64_t> taken;
  std::optional<Candidate> nearest = replay->Nearest(unknown, taken);
  ASSERT_TRUE(nearest);
  EXPECT_TRUE(programs.contains(nearest->program));
  for (; nearest; nearest = replay->Nearest(unknown, taken)) EXPECT_TRUE(taken.insert(nearest->program).second);
  EXPECT_EQ(taken.size(), 64u);
}

TEST(Replay, TheMiddleOfSeveralTimesCounts) {
  Recording recording = Scripted();
  recording.trials.resize(1);  // the default
  recording.trials[0].time = std::chrono::nanoseconds(3000);
  for (int time : {9000, 2000}) {
    recording.trials.push_back(recording.trials[0]);
    recording.trials.back().time = std::chrono::nanoseconds(time);
  }
  recording.trials.push_back(recording.trials[0]);
  recording.trials.back().verdict = static_cast<uint8_t>(Verdict::kDisturbed);
  recording.trials.back().time = {};
  EXPECT_EQ((*Replay::Open(recording))->best_us(), 3.0);
}

TEST(Replay, TrialsOfOtherRulesAreLeftOutUnlessToldOtherwise) {
  Recording recording = Scripted();
  for (size_t i = 10; i < recording.trials.size(); ++i) recording.trials[i].program ^= 1;
  EXPECT_EQ((*Replay::Open(recording))->size(), 10u);
  EXPECT_EQ((*Replay::Open(recording))->left_out(), 54);
  EXPECT_EQ((*Replay::Open(recording, {.by_choices = true}))->size(), 64u);
  for (TrialRecord& trial : recording.trials) trial.program ^= 2;
  Result<std::unique_ptr<Replay>> none = Replay::Open(recording);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().Text(), HasSubstr("record it anew"));
}

TEST(Replay, EndsWhenAllThatWasRecordedIsTried) {
  std::unique_ptr<Replay> replay = *Replay::Open(Scripted());
  for (Strategy strategy : {Strategy::kEvolution, Strategy::kRandom}) {
    Ran ran = RunReplay(*replay, {.trials = 500, .strategy = strategy});
    EXPECT_EQ(ran.trials.size(), 64u);
    EXPECT_EQ(ran.result.stopped, "the space is exhausted");
    for (Verdict verdict : kFirst) EXPECT_GT(ran.result.verdicts[static_cast<size_t>(verdict)], 0);
    EXPECT_EQ(ran.result.progress.best_us, replay->best_us());
  }
}

TEST(Replay, OneSeedOneSearch) {
  const std::vector<Recording> recordings = *ReadRecordings(kCommitted);
  std::unique_ptr<Replay> replay = *Replay::Open(recordings[0], {.by_choices = true});
  for (Strategy strategy : {Strategy::kModel, Strategy::kEvolution, Strategy::kRandom}) {
    auto search = [&](uint64_t seed) {
      return RunReplay(*replay, {.trials = 48, .seed = seed, .strategy = strategy}).trials;
    };
    EXPECT_EQ(search(3), search(3));
    EXPECT_NE(search(3), search(4));
  }
}

// The model earns its place: over the seeds, a search with it needs fewer trials to be near the best than drawing at
// random. The recording is a landscape here (by_choices), so that it outlives changes of the rules.
TEST(Replay, TheModelBeatsChance) {
  const std::vector<Recording> recordings = *ReadRecordings(kCommitted);
  ASSERT_EQ(recordings.size(), 2u);
  constexpr int kTrials = 128;
  constexpr int kSeeds = 8;
  int with_model = 0, at_random = 0;
  for (const Recording& recording : recordings) {
    std::unique_ptr<Replay> replay = *Replay::Open(recording, {.by_choices = true});
    ASSERT_GE(replay->size(), 400u) << recording.name
                                    << ": too many recorded choices lead to one program by now; record "
                                    << "the kernels anew with search_lab --record";
    auto trials_to_95 = [&](Strategy strategy, uint64_t seed) {
      Ran ran = RunReplay(*replay, {.trials = kTrials, .seed = seed, .strategy = strategy});
      for (size_t i = 0; i < ran.trials.size(); ++i)
        if (ran.trials[i].second > 0 && ran.trials[i].second * 0.95 <= replay->best_us())
          return static_cast<int>(i) + 1;
      return kTrials;
    };
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      with_model += trials_to_95(Strategy::kModel, seed);
      at_random += trials_to_95(Strategy::kRandom, seed);
    }
  }
  RecordProperty("with_model", with_model);
  RecordProperty("at_random", at_random);
  EXPECT_LT(with_model * 1.3, at_random);
}

}  // namespace
}  // namespace hone::replay_test
