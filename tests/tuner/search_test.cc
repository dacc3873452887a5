// Searches on a made-up device: what is tried, what each mishap costs, why they end.
#include "tuner/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "tests/tuner/scripted_evaluator.h"
#include "tuner/xgb_model.h"

namespace hone::search_test {
namespace {

using testing::OpenSpace;
using testing::ScriptedEvaluator;

struct Ran {
  SearchResult result;
  std::vector<Trial> trials;
};

Ran RunSearch(ScriptedEvaluator& evaluator, SearchOptions options, CostModel* model = nullptr,
              std::stop_token stop = {}) {
  Ran ran;
  SearchWatcher watcher;
  watcher.on_trial = [&](const Trial& trial) { ran.trials.push_back(trial); };
  if (model == nullptr && options.strategy == Strategy::kModel) options.strategy = Strategy::kEvolution;
  Result<SearchResult> result = Search(OpenSpace(), evaluator, model, options, watcher, stop);
  EXPECT_TRUE(result) << result.error().Text();
  if (result) ran.result = *std::move(result);
  return ran;
}

TEST(Search, BeginsWithTheDefaultAndTriesNothingTwice) {
  ScriptedEvaluator evaluator;
  Ran ran = RunSearch(evaluator, {.trials = 100});
  ASSERT_EQ(ran.trials.size(), 100u);
  EXPECT_EQ(ran.trials[0].candidate.program, OpenSpace().Default()->program);
  std::set<uint64_t> programs;
  for (const Trial& trial : ran.trials) EXPECT_TRUE(programs.insert(trial.candidate.program).second);
  EXPECT_EQ(ran.result.stopped, "100 trials");
  EXPECT_EQ(ran.result.progress.valid, 100);
  for (size_t i = 1; i < ran.result.top.size(); ++i)
    EXPECT_LE(ran.result.top[i - 1].time_us, ran.result.top[i].time_us);
  EXPECT_EQ(ran.result.progress.best_us, ran.result.top[0].time_us);
}

TEST(Search, OneSeedOneSearch) {
  for (Strategy strategy : {Strategy::kModel, Strategy::kEvolution, Strategy::kRandom}) {
    std::vector<std::string> first;
    for (int i = 0; i < 2; ++i) {
      ScriptedEvaluator evaluator;
      evaluator.count = 1 + 3 * i;  // how many builders there are does not matter
      std::unique_ptr<CostModel> model = MakeXgbModel();
      SearchOptions options{.trials = 64, .seed = 7, .strategy = strategy};
      RunSearch(evaluator, options, model.get());
      if (i == 0) first = evaluator.timed;
      EXPECT_EQ(evaluator.timed, first);
    }
    ScriptedEvaluator other;
    RunSearch(other,
              {.trials = 64, .seed = 8, .strategy = strategy == Strategy::kModel ? Strategy::kEvolution : strategy});
    EXPECT_NE(other.timed, first);
  }
}

std::multiset<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::multiset<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

// The device likes schedules that resemble one that nobody told the search about: every step that only one of the two
// has costs.
TEST(Search, EvolutionBeatsChance) {
  Rng rng(99);
  const Space space = OpenSpace();
  Result<Plan> hidden = space.Sample(rng);
  while (!hidden || !space.Complete(*hidden)) hidden = space.Sample(rng);
  const std::multiset<std::string> liked = Lines(PrintSchedule(hidden->schedule));
  auto best_of = [&](Strategy strategy, uint64_t seed) {
    ScriptedEvaluator evaluator;
    evaluator.time_of = [&](const std::string& text) {
      const std::multiset<std::string> steps = Lines(text);
      std::vector<std::string> different;
      std::set_symmetric_difference(steps.begin(), steps.end(), liked.begin(), liked.end(),
                                    std::back_inserter(different));
      return 100.0 + static_cast<double>(different.size());
    };
    return RunSearch(evaluator, {.trials = 320, .seed = seed, .strategy = strategy}).result.progress.best_us;
  };
  double evolved = 0, at_random = 0;  // steps too many or too few
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    evolved += best_of(Strategy::kEvolution, seed) - 100;
    at_random += best_of(Strategy::kRandom, seed) - 100;
  }
  EXPECT_LT(2 * evolved, at_random);
}

TEST(Search, EachMishapCostsOneTrial) {
  ScriptedEvaluator evaluator;
  evaluator.time_of = [](const std::string&) {
    return 100.0;
  };  // none is better, so the drift_reference is timed at the begin alone
  evaluator.on_build = [](int n) -> std::optional<Error> {
    if (n == 3) return Error{ErrorKind::kBuildFailed, "the builder died of SIGSEGV", "build"};
    if (n == 4) return Error{ErrorKind::kTimeout, "not built in 20 s", "build"};
    return {};
  };
  evaluator.on_check = [](int n) -> std::optional<Error> {
    switch (n) {  // counts what was built
      case 5: return Error{ErrorKind::kRunFailed, "stray access", "run"};
      case 6: return Error{ErrorKind::kTimeout, "an endless loop", "run"};
      case 7: return Error{ErrorKind::kWrongResult, "y[3] is 4, expected 5", "check"};
      case 8: return Error{ErrorKind::kLimit, "out of memory", "run"};
      default: return {};
    }
  };
  evaluator.on_time = [](int n) -> std::optional<Error> {
    if (n == 9) return Error{ErrorKind::kBusy, "never quiet", "time"};
    if (n == 10) return Error{ErrorKind::kRunFailed, "died of SIGILL", "time"};
    return {};
  };
  Ran ran = RunSearch(evaluator, {.trials = 48});
  EXPECT_EQ(ran.trials.size(), 48u);
  EXPECT_EQ(ran.result.progress.valid, 40);
  auto count = [&](Verdict verdict) { return ran.result.verdicts[static_cast<size_t>(verdict)]; };
  EXPECT_EQ(count(Verdict::kNotBuilt), 2);
  EXPECT_EQ(count(Verdict::kCrashed), 3);
  EXPECT_EQ(count(Verdict::kTimedOut), 1);
  EXPECT_EQ(count(Verdict::kWrong), 1);
  EXPECT_EQ(count(Verdict::kDisturbed), 1);
  for (const Trial& trial : ran.trials) {
    EXPECT_EQ(trial.verdict == Verdict::kTimed, trial.why.empty());
    if (trial.verdict == Verdict::kTimed) continue;
    for (const Trial& top : ran.result.top) EXPECT_NE(top.candidate.program, trial.candidate.program);
  }
}

TEST(Search, ADefaultThatFailsIsNoEnd) {
  ScriptedEvaluator evaluator;
  evaluator.on_check = [](int n) -> std::optional<Error> {
    if (n == 0) return Error{ErrorKind::kWrongResult, "y[0]", "check"};
    return {};
  };
  Ran ran = RunSearch(evaluator, {.trials = 20});
  EXPECT_EQ(ran.result.progress.valid, 19);
  EXPECT_EQ(ran.result.progress.start_us, 0);
  EXPECT_GT(ran.result.progress.best_us, 0);
}

TEST(Search, WithoutADeviceItEndsWithAnError) {
  ScriptedEvaluator evaluator;
  evaluator.on_check = [](int n) -> std::optional<Error> {
    if (n >= 20) return Error{ErrorKind::kUnavailable, "the runner is gone", "runner"};
    return {};
  };
  int told = 0;
  SearchWatcher watcher;
  watcher.on_trial = [&](const Trial&) { ++told; };
  Result<SearchResult> result =
      Search(OpenSpace(), evaluator, nullptr, {.trials = 64, .strategy = Strategy::kRandom}, watcher, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::kUnavailable);
  EXPECT_EQ(told, 20);  // all but the one in hand
}

// Whoever stops a search may take its processes away at the same moment: only the trial in hand is lost.
TEST(Search, StoppingKeepsWhatWasMeasured) {
  std::stop_source stop;
  ScriptedEvaluator evaluator;
  evaluator.on_check = [&](int n) -> std::optional<Error> {
    if (n < 21) return {};
    stop.request_stop();
    return Error{ErrorKind::kUnavailable, "the runner was killed", "runner"};
  };
  Ran ran = RunSearch(evaluator, {.trials = 64}, nullptr, stop.get_token());
  EXPECT_EQ(ran.trials.size(), 21u);
  EXPECT_EQ(ran.result.stopped, "interrupted");
  EXPECT_FALSE(ran.result.top.empty());
  std::stop_source building;
  ScriptedEvaluator other;
  other.on_build = [&](int n) -> std::optional<Error> {
    if (n < 18) return {};
    building.request_stop();
    return Error{ErrorKind::kUnavailable, "the builder was killed", "builder"};
  };
  ran = RunSearch(other, {.trials = 64}, nullptr, building.get_token());
  EXPECT_EQ(ran.trials.size(), 16u);
}

TEST(Search, EndsWhenNothingBetterComes) {
  ScriptedEvaluator evaluator;
  evaluator.time_of = [](const std::string&) { return 50.0; };
  Ran ran = RunSearch(evaluator, {.trials = 1000, .patience = 40});
  EXPECT_LT(ran.trials.size(), 80u);
  EXPECT_NE(ran.result.stopped.find("no better one in"), std::string::npos) << ran.result.stopped;
}

TEST(Search, EndsWhenTheSpaceDoes) {
  ScriptedEvaluator evaluator;
  Result<Space> space = Space::Open("add(M=1,N=3)", Target());
  ASSERT_TRUE(space) << space.error().Text();
  Result<SearchResult> result =
      Search(*space, evaluator, nullptr, {.trials = 5000, .strategy = Strategy::kRandom}, {}, {});
  ASSERT_TRUE(result) << result.error().Text();
  EXPECT_EQ(result->stopped, "the space is exhausted");
  EXPECT_TRUE(result->exhausted);
}

TEST(Search, KnownChoicesAreTriedFirst) {
  ScriptedEvaluator first;
  Ran ran = RunSearch(first, {.trials = 40, .seed = 3});
  std::string known = PrintChoices(ran.trials[30].candidate.choices);
  ScriptedEvaluator second;
  Ran again = RunSearch(second, {.trials = 4, .seed = 4, .known = {known, "not a choice", known}});
  EXPECT_EQ(again.trials[1].candidate.program, ran.trials[30].candidate.program);
}

}  // namespace
}  // namespace hone::search_test
