// A search that is interrupted again and again tries what it would have tried in one go.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tuner/scripted_evaluator.h"
#include "tuner/search.h"
#include "tuner/xgb_model.h"

namespace hone::search_turns_test {
namespace {

using testing::OpenSpace;
using testing::ScriptedEvaluator;

// Asks for a stop after so many trials of a turn, or while the search thinks: in its nth turn for the nth time.
class Interrupting : public ScriptedEvaluator {
 public:
  Interrupting(int trials, bool in_thoughts) : trials_(trials), in_thoughts_(in_thoughts) {}

  std::stop_token Begin() {
    stop_ = std::stop_source();
    ++turn_;
    tried_ = thought_ = 0;
    return stop_.get_token();
  }
  void OnTrial() {
    if (trials_ > 0 && ++tried_ == trials_) stop_.request_stop();
  }
  void RunInParallel(size_t count, const std::function<void(size_t index)>& work) override {
    const bool is_to_stop = in_thoughts_ && ++thought_ == turn_;
    for (size_t i = 0; i < count; ++i) {
      if (is_to_stop && i == count / 2) stop_.request_stop();
      work(i);
    }
  }

 private:
  const int trials_;
  const bool in_thoughts_;
  int turn_ = 0, tried_ = 0, thought_ = 0;
  std::stop_source stop_;
};

struct Told {
  std::vector<std::string> tried;  // schedules, in order
  SearchResult result;
  int turns = 0;
};

Told SearchInTurns(Interrupting& evaluator, const SearchOptions& options) {
  Told told;
  std::unique_ptr<CostModel> model = MakeXgbModel();
  SearchState state;
  SearchWatcher watcher;
  watcher.on_trial = [&](const Trial& trial) {
    told.tried.push_back(trial.candidate.schedule);
    evaluator.OnTrial();
  };
  do {
    ++told.turns;
    Result<SearchResult> result =
        Search(OpenSpace(), evaluator, model.get(), options, watcher, evaluator.Begin(), &state);
    EXPECT_TRUE(result) << result.error().Text();
    if (!result) break;
    told.result = *std::move(result);
  } while (told.result.stopped == "interrupted" && told.turns < 1'000);
  return told;
}

TEST(SearchTurns, TogetherTryWhatOneSearchTries) {
  for (Strategy strategy : {Strategy::kModel, Strategy::kEvolution, Strategy::kRandom}) {
    const SearchOptions options{.trials = 96, .seed = 7, .strategy = strategy};
    Interrupting never(0, false), in_batches(7, false), after_batches(16, false), in_thoughts(0, true),
        in_both(11, true);
    const Told whole = SearchInTurns(never, options);
    EXPECT_EQ(whole.turns, 1);
    ASSERT_EQ(whole.tried.size(), 96u);
    for (Interrupting* evaluator : {&in_batches, &after_batches, &in_thoughts, &in_both}) {
      const Told told = SearchInTurns(*evaluator, options);
      EXPECT_GT(told.turns, 4);
      EXPECT_TRUE(told.tried == whole.tried);
      EXPECT_EQ(told.result.stopped, "96 trials");
      EXPECT_EQ(told.result.progress.trials, 96);
      EXPECT_EQ(told.result.progress.start_us, whole.result.progress.start_us);
      EXPECT_EQ(told.result.progress.best_us, whole.result.progress.best_us);
      ASSERT_EQ(told.result.top.size(), whole.result.top.size());
      EXPECT_EQ(told.result.top[0].candidate.schedule, whole.result.top[0].candidate.schedule);
    }
  }
}

TEST(SearchTurns, HavePatienceTogether) {
  const SearchOptions options{.trials = 100'000, .seed = 7, .patience = 40, .strategy = Strategy::kEvolution};
  Interrupting never(0, false), often(9, false);
  const Told whole = SearchInTurns(never, options), told = SearchInTurns(often, options);
  EXPECT_TRUE(told.tried == whole.tried);
  EXPECT_EQ(told.result.stopped, whole.result.stopped);
}

}  // namespace
}  // namespace hone::search_turns_test
