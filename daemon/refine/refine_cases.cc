// Refining a kernel with dynamic sizes:
//
//   RefineCases:   SearchCases (tuner/case_search.h) → PromoteCases
//   PromoteCases:  all cases in one artifact → every element compared at many sizes → where a case changed, head to
//   head
//                  with what is served → store, synced → forget the old code, tell who holds it
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/processes/check_sizes.h"
#include "base/log.h"
#include "daemon/refine/tuning.h"
#include "ir/language/parse.h"
#include "tuner/case_search.h"
#include "tuner/head_to_head.h"

namespace hone {
namespace {

constexpr int kRounds = 9;  // of a head-to-head at one size
constexpr std::chrono::minutes kFullCheck{5};

// Samples for the record's time.
TimeOptions ForTheRecord(int workers) {
  TimeOptions options;
  options.workers = workers;
  return options;
}

}  // namespace

Result<Tuning::Outcome> Tuning::RefineCases(const LookUpResult& found, const Record& served,
                                            const SearchOptions& options, WorkerPools& pools,
                                            const SearchWatcher& watcher, std::stop_token stop,
                                            const std::optional<std::stop_token>& keep_until, CasesState* state) {
  const ResolvedKernel& identity = found.identity;
  const Kernel kernel = HONE_TRY(ParseKernel(identity.key.canonical));
  Outcome outcome;
  outcome.fingerprint = identity.key.fingerprint;
  outcome.origin = served.origin;
  CasesFound cases = HONE_TRY(SearchCases(
      kernel, identity.target, served.schedule,
      [&](const std::string& text) { return pools.MakeEvaluator(text, identity.target); },
      model_.ToTeach(identity.target.kind(), stop_.get_token()), options, watcher, stop, state));
  outcome.search = std::move(cases.search);
  const bool is_better = std::find(cases.is_new.begin(), cases.is_new.end(), true) != cases.is_new.end();
  const bool in_time = !stop_.stop_requested() && (keep_until || !stop.stop_requested());
  if (!is_better || !in_time) return outcome;
  const std::optional<CacheHit> there = HONE_TRY(cache_.Lookup(identity.key, Counting::kNot));
  if (!there || there->record.pinned) {  // before all is checked for nothing
    outcome.search.stopped += "; it was removed or pinned meanwhile";
    return outcome;
  }
  const std::stop_token until = keep_until.value_or(stop);
  Result<void> promoted = PromoteCases(found, served, kernel, cases, pools, until, keep_until.has_value(), outcome);
  if (!promoted && !until.stop_requested()) return promoted.error();
  return outcome;
}

Result<void> Tuning::PromoteCases(const LookUpResult& found, const Record& before, const Kernel& kernel,
                                  const CasesFound& cases, WorkerPools& pools, std::stop_token stop, bool by_request,
                                  Outcome& outcome) {
  const ResolvedKernel& identity = found.identity;
  const std::string schedule = PrintScheduleCases(cases.cases);
  std::unique_ptr<Evaluator> evaluator = HONE_TRY(pools.MakeEvaluator(identity.key.canonical, identity.target));
  BuiltArtifact old_code = HONE_TRY(evaluator->Build(before.schedule));
  BuiltArtifact new_code = HONE_TRY(evaluator->Build(schedule));
  if (old_code.digest == new_code.digest) return {};
  CheckOptions check;
  check.workers = identity.key.threads;
  check.full = true;
  check.run_limit = kFullCheck;
  CheckReport report = HONE_TRY(CheckAllSizes(
      kernel, schedule, check, [&](const CheckOptions& each) { return evaluator->Check(new_code.object, each); }));
  if (report.failure) {
    LogWarn("refined_code_wrong", {{"fingerprint", identity.key.fingerprint.Hex()}, {"why", report.failure->Text()}});
    return {};
  }
  // Each case for its share of the sizes; what did not change is as fast as before.
  const int size = HONE_TRY(FindCaseSize(kernel, cases.cases));
  const std::vector<CaseSample> samples = SampleCases(kernel, size, cases.cases);
  double log_ratio = 0, noise = 0, old_us = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!cases.is_new[i]) continue;
    EvaluatorAtSizes there(*evaluator, samples[i].sizes);
    Result<HeadToHead> compared = Compare(there, old_code.object, new_code.object, identity.key.threads, kRounds, stop);
    if (!compared) {
      outcome.search.stopped +=
          "; what it found could not be compared with what is served: " + compared.error().message;
      return {};
    }
    log_ratio += samples[i].share * std::log(compared->ratio);
    noise += std::pow(samples[i].share * std::log(compared->ratio / compared->low), 2);
    old_us += samples[i].share * compared->old_us;
  }
  outcome.served_us = outcome.search.progress.start_us > 0 ? outcome.search.progress.start_us : old_us;
  if (log_ratio <= std::sqrt(noise)) return {};
  const double ratio = std::exp(log_ratio);
  const RunTiming timing = HONE_TRY(evaluator->Time(new_code.object, ForTheRecord(identity.key.threads)));
  Record record = before;
  record.schedule = schedule;
  record.check = {report.max_rel_err, report.samples, report.full};
  auto ns = [](double us) { return std::chrono::nanoseconds(static_cast<int64_t>(us * 1000)); };
  record.expected.reset();
  record.measured = Timing{.time = ns(timing.median_us),
                           .noise = ns(timing.spread_us),
                           .temperature = CacheTemperature::kWarm,
                           .statistic = TimeStatistic::kMedian,
                           .threads = identity.key.threads,
                           .repeats = timing.samples};
  return StoreRefined(found, before, std::move(record), new_code, ratio, by_request, outcome);
}

}  // namespace hone
