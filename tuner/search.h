// The search for a faster schedule of one kernel: evolution over the space, steered by the cost model, in rounds of a
// batch that is built and measured. Everything random comes from one seed: the same seed, model and times give the same
// trials.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "tuner/cost_model.h"
#include "tuner/measure.h"
#include "tuner/space.h"

namespace hone {

enum class Strategy : uint8_t {
  kModel = 1,
  kEvolution = 2,
  kRandom = 3
};  // the other two are what the model is compared with

struct SearchOptions {
  int trials = 256;                   // distinct candidates, failed ones included
  std::chrono::milliseconds time{0};  // 0: unlimited
  uint64_t seed = 1;
  uint64_t group = 0;  // kernel and target, for the model
  int workers = 1;
  int batch = 16;
  int new_per_round = 96;     // candidates thought up a round; the unmeasured ones stay in the pool
  double random_share = 0.1;  // of a batch, whatever the model says
  int patience = 0;           // trials without a better one before the search ends; 0: none
  Strategy strategy = Strategy::kModel;
  std::vector<std::string> known = {};  // choices to begin with: the best so far
  std::vector<Candidate> seeds = {};    // candidates to begin with: what neighbours' schedules come to
  // What is tried in place of a candidate that was thought up, on a device that cannot try any (tuner/replay.h); none
  // of `taken`, programs that were tried or wait for it. nullopt: nothing is left. Empty: the candidate itself.
  std::function<std::optional<Candidate>(const Candidate& wanted, const std::unordered_set<uint64_t>& taken)> instead =
      {};
};

struct SearchProgress {
  int trials = 0;
  int valid = 0;  // of them timed
  double elapsed_s = 0;
  double start_us = 0;  // the default's time, 0 if it could not be timed
  double best_us = 0;
};

// Where the time of a search went, seconds.
struct SearchCosts {
  double think = 0;                       // sampling, lowering, features, scores
  double learn = 0;                       // the model's updates
  double measure = 0;                     // batches, from the first build to the last sample
  double build = 0, check = 0, time = 0;  // summed over trials; builds overlap
};

struct SearchResult {
  SearchProgress progress;
  std::vector<Trial> top;  // the fastest, fastest first; one that is first by luck is found out by measuring again
  std::string stopped;     // why: "256 trials", "no better one in 128 trials", "interrupted" …
  bool exhausted = false;  // nothing is left to try
  SearchCosts costs;
  std::vector<int> verdicts;  // trials by Verdict
};

struct SearchWatcher {
  std::function<void(const Trial&)> on_trial;  // when it is over, before the next one begins
  std::function<void(const SearchProgress&)> on_round;
  // Where the search computes (Evaluator::RunInParallel), unless it was stopped: what else is to be learnt. No locks.
  std::function<void()> at_end;
};

// What an interrupted search has seen, thought of and measured. Empty before it begins. Not thread-safe.
struct SearchState {
  std::shared_ptr<struct SearchMemory> memory;
};

// `model` may be nullptr where the strategy needs none. kUnavailable …: measuring does not work any more; what was
// found until then was told to the watcher.
// `state`: of the same search, which was interrupted: it goes on there, with what it would have tried in one go, as far
// as times and the model are the same. Limits and results are those of all its turns together.
Result<SearchResult> Search(const Space& space, Evaluator& evaluator, CostModel* model, const SearchOptions& options,
                            const SearchWatcher& watcher, std::stop_token stop, SearchState* state = nullptr);

}  // namespace hone
