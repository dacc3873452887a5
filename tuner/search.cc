#include "tuner/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
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

class Run {
 public:
  Run(const Space& space, Evaluator& evaluator, CostModel* model, const SearchOptions& options,
      const SearchWatcher& watcher, std::stop_token stop)
      : space_(space),
        evaluator_(evaluator),
        model_(model),
        options_(options),
        watcher_(watcher),
        stop_(std::move(stop)),
        rng_(options.seed),
        default_(space.Default()),
        drift_reference_(default_ ? std::optional(default_->program) : std::nullopt) {}

  Result<SearchResult> Go() {
    Begin();
    while (result_.stopped.empty()) {
      std::vector<Candidate> batch = NextBatch();
      if (batch.empty()) {
        result_.stopped = stop_.stop_requested() ? "interrupted" : "the space is exhausted";
        break;
      }
      HONE_TRY(Measure(std::move(batch)));
      HONE_TRY(Learn());
      DecideWhetherToStop();
    }
    result_.top.assign(parents_.begin(), parents_.begin() + static_cast<int64_t>(std::min(parents_.size(), kTop)));
    return std::move(result_);
  }

 private:
  bool UsesModel() const { return options_.strategy == Strategy::kModel && model_ != nullptr; }

  struct Scored {
    Candidate candidate;
    float score = 0;
  };

  // What is known already, the default first: everything is compared with it.
  void Begin() {
    auto add = [&](Result<Candidate> made) {
      std::optional<Candidate> candidate = ToTry(std::move(made));
      if (candidate && seen_.insert(candidate->program).second) first_.push_back(*std::move(candidate));
    };
    add(default_);
    for (const std::string& known : options_.known) add(space_.Parse(known));
    for (const Candidate& seed : options_.seeds) add(seed);
    result_.verdicts.resize(static_cast<size_t>(Verdict::kDisturbed) + 1);
  }

  std::vector<Candidate> NextBatch() {
    Stopwatch watch;
    size_t wanted =
        static_cast<size_t>(std::max(1, std::min(options_.batch, options_.trials - result_.progress.trials)));
    std::vector<Candidate> batch = std::exchange(first_, {});
    if (batch.size() > wanted) batch.resize(wanted);
    size_t random = options_.strategy == Strategy::kRandom
                        ? wanted
                        : static_cast<size_t>(options_.random_share * static_cast<double>(wanted) + rng_.Uniform());
    const size_t bred = wanted - std::min(wanted, batch.size() + random);
    for (Candidate& candidate : UsesModel() ? Promising(bred) : ThinkOf(bred, [&](Rng& rng) { return Child(rng); }))
      batch.push_back(std::move(candidate));
    for (Candidate& candidate : ThinkOf(wanted - batch.size(), [&](Rng& rng) { return space_.Sample(rng); }))
      batch.push_back(std::move(candidate));
    // A small space: what is left of the pool.
    while (batch.size() < wanted && !pool_.empty()) {
      batch.push_back(std::move(pool_.back().candidate));
      pool_.pop_back();
    }
    result_.costs.think += watch.Microseconds() / 1e6;
    return batch;
  }

  // The best of the pool, of what is thought up now and what was left over, as the model sees it today.
  std::vector<Candidate> Promising(size_t wanted) {
    for (Candidate& candidate :
         ThinkOf(static_cast<size_t>(options_.new_per_round), [&](Rng& rng) { return Child(rng); }))
      pool_.push_back({std::move(candidate), 0});
    std::vector<std::vector<float>> rows;
    for (const Scored& scored : pool_) rows.push_back(scored.candidate.features);
    Result<std::optional<std::vector<float>>> scores = std::optional<std::vector<float>>();
    if (!rows.empty()) evaluator_.RunInParallel(1, [&](size_t) { scores = model_->Score(options_.group, rows); });
    for (size_t i = 0; i < pool_.size(); ++i)
      pool_[i].score = scores && *scores ? (**scores)[i] : static_cast<float>(rng_.Uniform());
    // Candidates of one score differ by what they are, not by where they stand.
    std::stable_sort(pool_.begin(), pool_.end(), [](const Scored& a, const Scored& b) { return a.score > b.score; });
    std::vector<Candidate> best;
    for (size_t i = 0; i < std::min(pool_.size(), wanted); ++i) best.push_back(std::move(pool_[i].candidate));
    pool_.erase(pool_.begin(), pool_.begin() + static_cast<int64_t>(best.size()));
    if (pool_.size() > kPool) pool_.resize(kPool);
    return best;
  }

  // Of the fastest; now and then a stranger.
  Result<Plan> Child(Rng& rng) const {
    if (parents_.size() < 4 || rng.Chance(0.15)) return space_.Sample(rng);
    const Candidate& parent = Parent(rng);
    return rng.Chance(0.25) ? space_.Cross(parent, Parent(rng), rng) : space_.Mutate(parent, rng);
  }

  // Faster ones more often.
  const Candidate& Parent(Rng& rng) const {
    return parents_[std::min(rng.Below(parents_.size()), rng.Below(parents_.size()))].candidate;
  }

  std::optional<Candidate> ToTry(Result<Candidate> made) const {
    if (!made) return std::nullopt;
    if (options_.instead) return options_.instead(*made, seen_);
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
        if (candidate && seen_.insert(candidate->program).second) thought.push_back(*std::move(candidate));
      }
    }
    return thought;
  }

  // What comes of some tries, but for schedules that were thought of before.
  std::vector<Plan> Plans(size_t tries, const std::function<Result<Plan>(Rng& rng)>& think) {
    const Rng rng(rng_.Next());
    std::vector<std::optional<Plan>> made(tries);
    std::vector<size_t> texts(tries);
    evaluator_.RunInParallel(tries, [&](size_t i) {
      if (stop_.stop_requested()) return;
      Rng own = rng.Fork(i);
      Result<Plan> plan = think(own);
      if (!plan) return;
      texts[i] = std::hash<std::string>{}(PrintSchedule(plan->schedule));
      made[i] = *std::move(plan);
    });
    std::vector<Plan> plans;
    for (size_t i = 0; i < tries; ++i) {
      const bool is_new = made[i] && (thought_of_.insert(texts[i]).second || options_.instead);
      if (is_new) plans.push_back(*std::move(made[i]));
    }
    return plans;
  }

  std::vector<Result<Candidate>> Complete(std::vector<Plan> plans) {
    const Error stopped{ErrorKind::kTimeout, "stopped", ""};
    std::vector<Result<Candidate>> candidates(plans.size(), stopped);
    evaluator_.RunInParallel(plans.size(), [&](size_t i) {
      if (!stop_.stop_requested()) candidates[i] = space_.Complete(std::move(plans[i]));
    });
    return candidates;
  }

  Result<void> Measure(std::vector<Candidate> batch) {
    Stopwatch watch;
    SearchProgress& progress = result_.progress;
    MeasureOptions options{options_.workers, progress.best_us, &drift_reference_};
    std::vector<Trial> trials = HONE_TRY(MeasureBatch(evaluator_, std::move(batch), options, stop_, watcher_.on_trial));
    result_.costs.measure += watch.Microseconds() / 1e6;
    for (Trial& trial : trials) {
      bool is_default = progress.trials == 0;
      ++progress.trials;
      ++result_.verdicts[static_cast<size_t>(trial.verdict)];
      result_.costs.build += trial.build_us / 1e6;
      result_.costs.check += trial.check_us / 1e6;
      result_.costs.time += trial.measure_us / 1e6;
      if (trial.verdict != Verdict::kTimed) continue;
      ++progress.valid;
      if (is_default) progress.start_us = trial.time_us;
      if (progress.best_us == 0 || trial.time_us < progress.best_us * kBetter) last_better_ = progress.trials;
      if (progress.best_us == 0 || trial.time_us < progress.best_us) progress.best_us = trial.time_us;
      samples_.push_back({trial.candidate.features, trial.time_us, options_.group,
                          trial.candidate.program == drift_reference_.program()});
      auto place = std::upper_bound(parents_.begin(), parents_.end(), trial,
                                    [](const Trial& a, const Trial& b) { return a.time_us < b.time_us; });
      parents_.insert(place, std::move(trial));
      if (parents_.size() > kParents) parents_.pop_back();
    }
    progress.elapsed_s = watch_.Microseconds() / 1e6;
    if (watcher_.on_round) watcher_.on_round(progress);
    return {};
  }

  Result<void> Learn() {
    if (!UsesModel() || samples_.empty()) return {};
    if (stop_.stop_requested()) return model_->Add(std::exchange(samples_, {}));  // for the next search
    Result<void> learnt;
    evaluator_.RunInParallel(1, [&](size_t) {
      Stopwatch watch;
      learnt = model_->Add(std::exchange(samples_, {}));
      if (learnt) learnt = model_->Update(options_.group);
      result_.costs.learn += watch.Microseconds() / 1e6;
    });
    return learnt;
  }

  void DecideWhetherToStop() {
    const SearchProgress& progress = result_.progress;
    if (stop_.stop_requested()) {
      result_.stopped = "interrupted";
    } else if (progress.trials >= options_.trials) {
      result_.stopped = fmt::format("{} trials", progress.trials);
    } else if (options_.time.count() > 0 && watch_.Microseconds() >= static_cast<double>(options_.time.count()) * 1e3) {
      result_.stopped = fmt::format("{:.0f} s", watch_.Microseconds() / 1e6);
    } else if (options_.patience > 0 && progress.trials - last_better_ >= options_.patience) {
      result_.stopped = fmt::format("no better one in {} trials", progress.trials - last_better_);
    }
  }

  const Space& space_;
  Evaluator& evaluator_;
  CostModel* const model_;
  const SearchOptions& options_;
  const SearchWatcher& watcher_;
  const std::stop_token stop_;
  Rng rng_;
  const Result<Candidate> default_;
  DriftReference drift_reference_;
  Stopwatch watch_;
  SearchResult result_;
  std::vector<Candidate> first_;
  std::vector<Scored> pool_;
  std::vector<Trial> parents_;  // the fastest, in order
  std::vector<Sample> samples_;
  std::unordered_set<uint64_t> seen_;      // programs
  std::unordered_set<size_t> thought_of_;  // hashes of schedules' texts
  int last_better_ = 0;
};

}  // namespace

Result<SearchResult> Search(const Space& space, Evaluator& evaluator, CostModel* model, const SearchOptions& options,
                            const SearchWatcher& watcher, std::stop_token stop) {
  return Run(space, evaluator, model, options, watcher, std::move(stop)).Go();
}

}  // namespace hone
