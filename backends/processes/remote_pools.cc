#include "backends/processes/remote_pools.h"

#include <optional>
#include <utility>

namespace hone {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kBuildLimit{30};   // of one build, waiting included
constexpr std::chrono::minutes kOthersTurns{10};  // at the device
constexpr std::chrono::minutes kCheckLimit{5};    // of a check here

// A stop of whoever asked, and of all pools.
class EitherStop {
 public:
  EitherStop(const std::stop_token& one, const std::stop_token& other)
      : with_one_(one, Pass{both_}), with_other_(other, Pass{both_}) {}
  std::stop_token token() const { return both_.get_token(); }

 private:
  struct Pass {
    std::stop_source both;
    void operator()() { both.request_stop(); }
  };
  std::stop_source both_;
  std::stop_callback<Pass> with_one_, with_other_;
};

// A kernel at the device and, where its code runs here as well, here.
class Checked {
 public:
  Checked(const RemotePoolsOptions& options, std::string kernel, Target target, const std::stop_token& stop,
          const std::stop_token& shut)
      : options_(options), kernel_(std::move(kernel)), target_(std::move(target)), stop_(stop, shut) {}

  Result<void> Prepare(MonotonicTime deadline) {
    turn_ = HONE_TRY(options_.runner->Prepare(kernel_, deadline, stop_.token()));
    return {};
  }

  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options, bool here_too) {
    CheckReport report = HONE_TRY(turn_->Check(artifact, options));
    if (!here_too || !options_.runs_here || report.failure) return report;
    const MonotonicTime deadline = steady_clock::now() + kCheckLimit;
    auto reference = HONE_TRY(options_.own->Prepare(kernel_, target_, deadline, stop_.token()));
    CheckOptions once = options;
    once.timed_runs = 0;
    CheckReport here = HONE_TRY(reference->Check(artifact, once, deadline));
    if (here.failure)
      return options_.runner->GiveUp(
          std::move(*here.failure)
              .Context("is not believed: it calls right what is checked here as well, and is wrong"));
    return report;
  }
  Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions& options) {
    return turn_->Time(artifact, options);
  }
  std::stop_token stop() const { return stop_.token(); }
  WorkerPools& own() const { return *options_.own; }
  int builders() const { return options_.builders; }

 private:
  const RemotePoolsOptions options_;
  const std::string kernel_;
  const Target target_;
  const EitherStop stop_;
  std::unique_ptr<RemoteRunner::Turn> turn_;
};

class RemoteReference : public WorkerPools::Reference {
 public:
  explicit RemoteReference(std::unique_ptr<Checked> checked) : checked_(std::move(checked)) {}
  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options, WorkerPools::Deadline) override {
    return checked_->Check(artifact, options, true);
  }

 private:
  const std::unique_ptr<Checked> checked_;
};

class RemoteEvaluator : public Evaluator {
 public:
  RemoteEvaluator(std::unique_ptr<Checked> checked, std::string kernel, Target target)
      : checked_(std::move(checked)), kernel_(std::move(kernel)), target_(std::move(target)) {}
  int builders() const override { return checked_->builders(); }
  Result<BuiltArtifact> Build(const std::string& schedule) override {
    return checked_->own().Build({kernel_, schedule, target_}, steady_clock::now() + kBuildLimit, checked_->stop());
  }
  // Candidates are never handed out; what is to be stored has been compared in full.
  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options) override {
    return checked_->Check(artifact, options, options.full);
  }
  Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions& options) override {
    return checked_->Time(artifact, options);
  }

 private:
  const std::unique_ptr<Checked> checked_;
  const std::string kernel_;
  const Target target_;
};

class RemotePools : public WorkerPools {
 public:
  explicit RemotePools(RemotePoolsOptions options) : options_(std::move(options)) {}

  Result<std::unique_ptr<Reference>> Prepare(const std::string& kernel, const Target& target, Deadline,
                                             const std::stop_token& stop) override {
    return std::unique_ptr<Reference>(std::make_unique<RemoteReference>(HONE_TRY(At(kernel, target, stop))));
  }
  Result<std::unique_ptr<Evaluator>> MakeEvaluator(const std::string& kernel, const Target& target,
                                                   const std::stop_token& stop) override {
    return std::unique_ptr<Evaluator>(
        std::make_unique<RemoteEvaluator>(HONE_TRY(At(kernel, target, stop)), kernel, target));
  }
  Result<BuiltArtifact> Build(const BuildRequest& request, Deadline deadline, const std::stop_token& stop) override {
    const EitherStop either(stop, shut_.get_token());
    return options_.own->Build(request, deadline, either.token());
  }
  Result<std::string> Explain(const BuildRequest& request, Deadline deadline, const std::stop_token& stop) override {
    return options_.own->Explain(request, deadline, stop);
  }
  BuilderPoolStats BuilderStats() const override { return options_.own->BuilderStats(); }
  RunnerPoolStats RunnerStats() const override { return {}; }
  void Pause() override {}  // it is another machine's processor
  void Resume() override {}
  void Shutdown() override { shut_.request_stop(); }  // `own` belongs to others, too

 private:
  Result<std::unique_ptr<Checked>> At(const std::string& kernel, const Target& target, const std::stop_token& stop) {
    auto checked = std::make_unique<Checked>(options_, kernel, target, stop, shut_.get_token());
    HONE_TRY(checked->Prepare(steady_clock::now() + kOthersTurns));
    return checked;
  }

  const RemotePoolsOptions options_;
  std::stop_source shut_;
};

}  // namespace

std::unique_ptr<WorkerPools> MakeRemotePools(RemotePoolsOptions options) {
  return std::make_unique<RemotePools>(std::move(options));
}

}  // namespace hone
