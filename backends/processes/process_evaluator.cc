#include "backends/processes/process_evaluator.h"

#include <algorithm>
#include <utility>

#include "backends/processes/held_runner.h"
#include "backends/runner/candidate_spec.h"

namespace hone {
namespace {

constexpr std::chrono::seconds kLimit{30};  // of one build, check or timing, waiting included

class ProcessEvaluator : public Evaluator {
 public:
  ProcessEvaluator(BuilderPool& builders, int at_once, std::string kernel, Target target, const IdleGroup* idle_group,
                   std::unique_ptr<HeldRunner> runner, bool rehearses, std::stop_token stop)
      : builders_(builders),
        at_once_(at_once),
        rehearses_(rehearses && at_once > 1),
        kernel_(std::move(kernel)),
        target_(std::move(target)),
        idle_group_(idle_group),
        stop_(std::move(stop)),
        runner_(std::move(runner)) {}

  int builders() const override { return at_once_; }
  void RunInParallel(size_t count, const std::function<void(size_t index)>& work) override {
    IdleGroup::Visit visit(idle_group_);
    ForEachIndex(count, at_once_, [&](size_t i) {
      builders_.AwaitResume(stop_);
      work(i);
    });
  }
  Result<BuiltArtifact> Build(const std::string& schedule) override {
    return builders_.Build({kernel_, schedule, target_}, Deadline(), stop_);
  }
  std::vector<std::optional<Error>> Rehearse(std::span<const SealedMemfd* const> artifacts,
                                             const CheckOptions& options) override {
    std::vector<std::optional<Error>> failures;
    while (failures.size() < artifacts.size()) {
      const auto some =
          artifacts.subspan(failures.size(), std::min(kMostRehearsed, artifacts.size() - failures.size()));
      std::vector<std::optional<Error>> theirs(some.size());
      // What keeps it from being rehearsed will be found again when it is checked, and count then.
      if (rehearses_ && some.size() > 1)
        if (auto told = runner_->Rehearse(some, options, at_once_)) theirs = *std::move(told);
      for (std::optional<Error>& failure : theirs) failures.push_back(std::move(failure));
    }
    return failures;
  }
  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options) override {
    return runner_->Check(artifact, options);
  }
  Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions& options) override {
    return runner_->Time(artifact, options);
  }

 private:
  static MonotonicTime Deadline() { return std::chrono::steady_clock::now() + kLimit; }

  BuilderPool& builders_;
  const int at_once_;
  const bool rehearses_;
  const std::string kernel_;
  const Target target_;
  const IdleGroup* const idle_group_;
  const std::stop_token stop_;
  const std::unique_ptr<HeldRunner> runner_;
};

}  // namespace

Result<std::unique_ptr<Evaluator>> MakeProcessEvaluator(BuilderPool& builders, RunnerPool& runners, int builds_at_once,
                                                        std::string kernel, Target target, const IdleGroup* idle_group,
                                                        std::stop_token stop) {
  std::unique_ptr<HeldRunner> runner = HONE_TRY(HeldRunner::Hold(runners, kernel, kLimit, stop));
  return std::unique_ptr<Evaluator>(std::make_unique<ProcessEvaluator>(builders, builds_at_once, std::move(kernel),
                                                                       std::move(target), idle_group, std::move(runner),
                                                                       runners.rehearses(), std::move(stop)));
}

}  // namespace hone
