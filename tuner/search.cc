#include "tuner/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"

namespace hone {
namespace {

constexpr size_t kPool = 512;        // unmeasured candidates that are kept from round to round
constexpr size_t kParents = 24;      // of the measured ones
constexpr size_t kTop = 6;           // of them that the result names
constexpr size_t kTries = 4;         // for a candidate that lowers and is new, on average
constexpr size_t kFewestTries = 64;  // before the space counts as exhausted
constexpr double kBetter = 0.995;    // of the best time: less is noise

struct Scored {
  Candidate candidate;
  float score = 0;
};

}  // namespace

// What goes on from turn to turn of one search.
struct SearchMemory {
  SearchMemory(const Space& space, uint64_t seed)
      : rng(seed),
        standard(space.Default()),
        drift_reference(standard ? std::optional(standard->program) : std::nullopt) {}

  // What a batch that is being thought up changes: taken back if that is interrupted, and then thought up again.
  struct Thoughts {
    Rng rng;
    std::vector<Candidate> first;
    std::vector<Scored> pool;
    std::vector<uint64_t> seen = {};      // new ones
    std::vector<size_t> thought_of = {};  // the same
  };

  Rng rng;
  const Result<Candidate> standard;
  DriftReference drift_reference;
  SearchResult result;
  double elapsed_us = 0;  // in the turns that are over
  std::vector<Candidate> first;
  std::vector<Candidate> batch;  // those that are still to be measured
  std::vector<Scored> pool;
  std::vector<Trial> parents;  // the fastest, in order
  std::vector<Sample> samples;
  bool has_to_learn = false;
  std::unordered_set<uint64_t> seen;      // programs
  std::unordered_set<size_t> thought_of;  // hashes of schedules' texts
  std::optional<Thoughts> before;         // the batch that is being thought up
  // What was made for that, so that it is not made again after an interruption: by the number that was drawn for all
  // tries together, and a try's place; and by the hash of a schedule's text.
  std::map<std::pair<uint64_t, size_t>, std::optional<Plan>> plans;
  std::unordered_map<size_t, Result<Candidate>> completed;
  int last_better = 0;
};

namespace {

class Run {
 public:
  Run(const Space& space, Evaluator& evaluator, CostModel* model, const SearchOptions& options,
      const SearchWatcher& watcher, std::stop_token stop, SearchMemory& memory)
      : space_(space),
        evaluator_(evaluator),
        model_(model),
        options_(options),
        watcher_(watcher),
        stop_(std::move(stop)),
        memory_(memory) {}

  Result<SearchResult> Go() {
    SearchResult& result = memory_.result;
    if (result.verdicts.empty()) {
      Begin();
    } else if (memory_.batch.empty()) {
      HONE_TRY(Learn());
      DecideWhetherToStop();
    }
    while (result.stopped.empty()) {
      if (memory_.batch.empty()) memory_.batch = NextBatch();
      if (memory_.batch.empty()) {
        result.exhausted = !stop_.stop_requested();
        result.stopped = result.exhausted ? "the space is exhausted" : "interrupted";
        break;
      }
      HONE_TRY(Measure());
      HONE_TRY(Learn());
      DecideWhetherToStop();
    }
    if (watcher_.at_end && !stop_.stop_requested()) evaluator_.RunInParallel(1, [&](size_t) { watcher_.at_end(); });
    const std::vector<Trial>& parents = memory_.parents;
    result.top.assign(parents.begin(), parents.begin() + static_cast<int64_t>(std::min(parents.size(), kTop)));
    memory_.elapsed_us = ElapsedUs();
    SearchResult whole = result;
    result.stopped.clear();
    return whole;
  }

 private:
  bool UsesModel() const { return options_.strategy == Strategy::kModel && model_ != nullptr; }

  double ElapsedUs() const { return memory_.elapsed_us + watch_.Microseconds(); }

  bool IsNew(const Candidate& candidate) {
    if (!memory_.seen.insert(candidate.program).second) return false;
    if (memory_.before) memory_.before->seen.push_back(candidate.program);
    return true;
  }

  // What is known already, the default first: everything is compared with it.
  void Begin() {
    auto add = [&](Result<Candidate> made) {
      std::optional<Candidate> candidate = ToTry(std::move(made));
      if (candidate && IsNew(*candidate)) memory_.first.push_back(*std::move(candidate));
    };
    add(memory_.standard);
    for (const std::string& known : options_.known) add(space_.Parse(known));
    for (const Candidate& seed : options_.seeds) add(seed);
    memory_.result.verdicts.resize(static_cast<size_t>(Verdict::kDisturbed) + 1);
  }

  // Empty if there is none, or it was interrupted: then it is as if nothing had been thought of.
  std::vector<Candidate> NextBatch() {
    Stopwatch watch;
    memory_.before = SearchMemory::Thoughts{memory_.rng, memory_.first, memory_.pool};
    std::vector<Candidate> batch = ThinkOfBatch();
    if (stop_.stop_requested()) {
      Forget(*std::move(memory_.before));
      batch.clear();
    } else {
      memory_.plans.clear();
      memory_.completed.clear();
    }
    memory_.before.reset();
    memory_.result.costs.think += watch.Microseconds() / 1e6;
    return batch;
  }

  void Forget(SearchMemory::Thoughts thoughts) {
    memory_.rng = thoughts.rng;
    memory_.first = std::move(thoughts.first);
    memory_.pool = std::move(thoughts.pool);
    for (uint64_t program : thoughts.seen) memory_.seen.erase(program);
    for (size_t text : thoughts.thought_of) memory_.thought_of.erase(text);
  }

  std::vector<Candidate> ThinkOfBatch() {
    size_t wanted =
        static_cast<size_t>(std::max(1, std::min(options_.batch, options_.trials - memory_.result.progress.trials)));
    std::vector<Candidate> batch = std::exchange(memory_.first, {});
    if (batch.size() > wanted) batch.resize(wanted);
    size_t random =
        options_.strategy == Strategy::kRandom
            ? wanted
            : static_cast<size_t>(options_.random_share * static_cast<double>(wanted) + memory_.rng.Uniform());
    const size_t bred = wanted - std::min(wanted, batch.size() + random);
    for (Candidate& candidate : UsesModel() ? Promising(bred) : ThinkOf(bred, [&](Rng& rng) { return Child(rng); }))
      batch.push_back(std::move(candidate));
    for (Candidate& candidate : ThinkOf(wanted - batch.size(), [&](Rng& rng) { return space_.Sample(rng); }))
      batch.push_back(std::move(candidate));
    // A small space: what is left of the pool.
    while (batch.size() < wanted && !memory_.pool.empty()) {
      batch.push_back(std::move(memory_.pool.back().candidate));
      memory_.pool.pop_back();
    }
    return batch;
  }

  // The best of the pool, of what is thought up now and what was left over, as the model sees it today.
  std::vector<Candidate> Promising(size_t wanted) {
    for (Candidate& candidate :
         ThinkOf(static_cast<size_t>(options_.new_per_round), [&](Rng& rng) { return Child(rng); }))
      memory_.pool.push_back({std::move(candidate), 0});
    std::vector<std::vector<float>> rows;
    for (const Scored& scored : memory_.pool) rows.push_back(scored.candidate.features);
    Result<std::optional<std::vector<float>>> scores = std::optional<std::vector<float>>();
    if (!rows.empty()) evaluator_.RunInParallel(1, [&](size_t) { scores = model_->Score(options_.group, rows); });
    for (size_t i = 0; i < memory_.pool.size(); ++i)
      memory_.pool[i].score = scores && *scores ? (**scores)[i] : static_cast<float>(memory_.rng.Uniform());
    // Candidates of one score differ by what they are, not by where they stand.
    std::stable_sort(memory_.pool.begin(), memory_.pool.end(),
                     [](const Scored& a, const Scored& b) { return a.score > b.score; });
    std::vector<Candidate> best;
    for (size_t i = 0; i < std::min(memory_.pool.size(), wanted); ++i)
      best.push_back(std::move(memory_.pool[i].candidate));
    memory_.pool.erase(memory_.pool.begin(), memory_.pool.begin() + static_cast<int64_t>(best.size()));
    if (memory_.pool.size() > kPool) memory_.pool.resize(kPool);
    return best;
  }

  // Of the fastest; now and then a stranger.
  Result<Plan> Child(Rng& rng) const {
    if (memory_.parents.size() < 4 || rng.Chance(0.15)) return space_.Sample(rng);
    const Candidate& parent = Parent(rng);
    return rng.Chance(0.25) ? space_.Cross(parent, Parent(rng), rng) : space_.Mutate(parent, rng);
  }

  // Faster ones more often.
  const Candidate& Parent(Rng& rng) const {
    return memory_.parents[std::min(rng.Below(memory_.parents.size()), rng.Below(memory_.parents.size()))].candidate;
  }

  std::optional<Candidate> ToTry(Result<Candidate> made) const {
    if (!made) return std::nullopt;
    if (options_.instead) return options_.instead(*made, memory_.seen);
    return *std::move(made);
  }

  // As many new candidates as are wanted, fewer where the space has no more; on the builders' processors, which rest
  // meanwhile. Every try has random numbers of its own, so how many threads there are changes nothing.
  std::vector<Candidate> ThinkOf(size_t wanted, const std::function<Result<Plan>(Rng& rng)>& think) {
    std::vector<Candidate> thought;
    size_t left = std::max(kTries * wanted, kFewestTries);
    while (thought.size() < wanted && left > 0) {
      const size_t tries = std::min(wanted - thought.size(), left);
      left -= tries;
      for (Result<Candidate>& made : Complete(Plans(tries, think))) {
        std::optional<Candidate> candidate = ToTry(std::move(made));
        if (candidate && IsNew(*candidate)) thought.push_back(*std::move(candidate));
      }
    }
    return thought;
  }

  struct Thought {
    size_t text = 0;  // its hash
    Plan plan;
  };

  // What comes of some tries, but for schedules that were thought of before.
  std::vector<Thought> Plans(size_t tries, const std::function<Result<Plan>(Rng& rng)>& think) {
    const uint64_t drawn = memory_.rng.Next();
    const Rng rng(drawn);
    std::vector<std::optional<Plan>*> made(tries);
    std::vector<size_t> wanted;
    for (size_t i = 0; i < tries; ++i) {
      auto [entry, is_new] = memory_.plans.try_emplace({drawn, i});
      made[i] = &entry->second;
      if (is_new) wanted.push_back(i);
    }
    std::vector<char> is_done(wanted.size());
    evaluator_.RunInParallel(wanted.size(), [&](size_t w) {
      if (stop_.stop_requested()) return;
      Rng own = rng.Fork(wanted[w]);
      if (Result<Plan> plan = think(own)) *made[wanted[w]] = *std::move(plan);
      is_done[w] = 1;
    });
    for (size_t w = 0; w < wanted.size(); ++w) {
      if (is_done[w]) continue;
      made[wanted[w]] = nullptr;
      memory_.plans.erase({drawn, wanted[w]});
    }
    std::vector<Thought> plans;
    for (const std::optional<Plan>* plan : made) {
      if (plan == nullptr || !*plan) continue;
      const size_t text = std::hash<std::string>{}(PrintSchedule((*plan)->schedule));
      const bool is_new = memory_.thought_of.insert(text).second;
      if (is_new) memory_.before->thought_of.push_back(text);
      if (is_new || options_.instead) plans.push_back({text, **plan});
    }
    return plans;
  }

  std::vector<Result<Candidate>> Complete(std::vector<Thought> thoughts) {
    const Error stopped{ErrorKind::kTimeout, "stopped", ""};
    std::vector<std::optional<Result<Candidate>>> made(thoughts.size());
    std::vector<size_t> wanted;
    for (size_t i = 0; i < thoughts.size(); ++i)
      if (auto known = memory_.completed.find(thoughts[i].text); known != memory_.completed.end())
        made[i] = known->second;
      else
        wanted.push_back(i);
    evaluator_.RunInParallel(wanted.size(), [&](size_t w) {
      if (!stop_.stop_requested()) made[wanted[w]] = space_.Complete(std::move(thoughts[wanted[w]].plan));
    });
    for (size_t i : wanted)
      if (made[i]) memory_.completed.try_emplace(thoughts[i].text, *made[i]);
    std::vector<Result<Candidate>> candidates;
    for (std::optional<Result<Candidate>>& one : made) candidates.push_back(one ? *std::move(one) : stopped);
    return candidates;
  }

  // What is not measured any more is left in the batch.
  Result<void> Measure() {
    Stopwatch watch;
    SearchProgress& progress = memory_.result.progress;
    std::vector<Candidate>& batch = memory_.batch;
    MeasureOptions options{options_.workers, progress.best_us, &memory_.drift_reference};
    std::vector<Trial> trials = HONE_TRY(MeasureBatch(evaluator_, batch, options, stop_, watcher_.on_trial));
    batch.erase(batch.begin(), batch.begin() + static_cast<int64_t>(trials.size()));
    memory_.result.costs.measure += watch.Microseconds() / 1e6;
    for (Trial& trial : trials) {
      bool is_default = progress.trials == 0;
      ++progress.trials;
      ++memory_.result.verdicts[static_cast<size_t>(trial.verdict)];
      memory_.result.costs.build += trial.build_us / 1e6;
      memory_.result.costs.check += trial.check_us / 1e6;
      memory_.result.costs.time += trial.measure_us / 1e6;
      if (trial.verdict != Verdict::kTimed) continue;
      ++progress.valid;
      if (is_default) progress.start_us = trial.time_us;
      if (progress.best_us == 0 || trial.time_us < progress.best_us * kBetter) memory_.last_better = progress.trials;
      if (progress.best_us == 0 || trial.time_us < progress.best_us) progress.best_us = trial.time_us;
      memory_.samples.push_back({trial.candidate.features, trial.time_us, options_.group,
                                 trial.candidate.program == memory_.drift_reference.program()});
      auto place = std::upper_bound(memory_.parents.begin(), memory_.parents.end(), trial,
                                    [](const Trial& a, const Trial& b) { return a.time_us < b.time_us; });
      memory_.parents.insert(place, std::move(trial));
      if (memory_.parents.size() > kParents) memory_.parents.pop_back();
    }
    progress.elapsed_s = ElapsedUs() / 1e6;
    if (watcher_.on_round) watcher_.on_round(progress);
    return {};
  }

  Result<void> Learn() {
    memory_.has_to_learn |= !memory_.samples.empty();
    if (!UsesModel() || !memory_.has_to_learn) return {};
    if (stop_.stop_requested()) return model_->Add(std::exchange(memory_.samples, {}));  // for the next search
    memory_.has_to_learn = false;
    Result<void> learnt;
    evaluator_.RunInParallel(1, [&](size_t) {
      Stopwatch watch;
      learnt = model_->Add(std::exchange(memory_.samples, {}));
      if (learnt) learnt = model_->Update(options_.group);
      memory_.result.costs.learn += watch.Microseconds() / 1e6;
    });
    return learnt;
  }

  void DecideWhetherToStop() {
    const SearchProgress& progress = memory_.result.progress;
    if (progress.trials >= options_.trials) {
      memory_.result.stopped = fmt::format("{} trials", progress.trials);
    } else if (stop_.stop_requested()) {
      memory_.result.stopped = "interrupted";
    } else if (options_.time.count() > 0 && ElapsedUs() >= static_cast<double>(options_.time.count()) * 1e3) {
      memory_.result.stopped = fmt::format("{:.0f} s", ElapsedUs() / 1e6);
    } else if (options_.patience > 0 && progress.trials - memory_.last_better >= options_.patience) {
      memory_.result.stopped = fmt::format("no better one in {} trials", progress.trials - memory_.last_better);
    }
  }

  const Space& space_;
  Evaluator& evaluator_;
  CostModel* const model_;
  const SearchOptions& options_;
  const SearchWatcher& watcher_;
  const std::stop_token stop_;
  SearchMemory& memory_;
  Stopwatch watch_;
};

}  // namespace

Result<SearchResult> Search(const Space& space, Evaluator& evaluator, CostModel* model, const SearchOptions& options,
                            const SearchWatcher& watcher, std::stop_token stop, SearchState* state) {
  SearchState own;
  std::shared_ptr<SearchMemory>& memory = state != nullptr ? state->memory : own.memory;
  if (!memory) memory = std::make_shared<SearchMemory>(space, options.seed);
  return Run(space, evaluator, model, options, watcher, std::move(stop), *memory).Go();
}

}  // namespace hone
