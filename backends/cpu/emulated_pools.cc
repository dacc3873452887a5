#include "backends/cpu/emulated_pools.h"

#include <utility>
#include <vector>

#include "backends/cpu/emulator.h"
#include "base/cpu_features.h"
#include "base/mutex.h"
#include "base/subprocess.h"

namespace hone {
namespace {

bool RunsHere(const Target& target) {
  return target.cpu() == nullptr || CheckProcessor(IsaName(target.cpu()->isa), target.cpu()->features);
}

// Hands on what is right and what is not, and no times: they are the emulator's.
class EmulatedReference : public WorkerPools::Reference {
 public:
  explicit EmulatedReference(std::unique_ptr<Reference> reference) : reference_(std::move(reference)) {}
  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options,
                            WorkerPools::Deadline deadline) override {
    CheckOptions once = options;
    once.timed_runs = 0;
    CheckReport report = HONE_TRY(reference_->Check(artifact, once, deadline));
    report.first_run_us = report.time_us = report.pack_us = 0;
    return report;
  }

 private:
  const std::unique_ptr<Reference> reference_;
};

class EmulatedPools : public WorkerPools {
 public:
  EmulatedPools(std::unique_ptr<WorkerPools> own, WorkerPoolsOptions options)
      : own_(std::move(own)), options_(std::move(options)) {}

  Result<std::unique_ptr<Reference>> Prepare(const std::string& kernel, const Target& target, Deadline deadline,
                                             const std::stop_token& stop) override {
    if (RunsHere(target)) return own_->Prepare(kernel, target, deadline, stop);
    WorkerPools& emulated = HONE_TRY(EmulatedFor(*target.cpu())).get();
    return std::unique_ptr<Reference>(
        std::make_unique<EmulatedReference>(HONE_TRY(emulated.Prepare(kernel, target, deadline, stop))));
  }
  Result<std::unique_ptr<Evaluator>> MakeEvaluator(const std::string& kernel, const Target& target,
                                                   const std::stop_token& stop) override {
    if (RunsHere(target)) return own_->MakeEvaluator(kernel, target, stop);
    return Error{ErrorKind::kUnsupported, "code for another machine's processor can be checked here, and not timed",
                 "target"};
  }
  Result<BuiltArtifact> Build(const BuildRequest& request, Deadline deadline, const std::stop_token& stop) override {
    return own_->Build(request, deadline, stop);
  }
  Result<std::string> Explain(const BuildRequest& request, Deadline deadline, const std::stop_token& stop) override {
    return own_->Explain(request, deadline, stop);
  }
  BuilderPoolStats BuilderStats() const override { return own_->BuilderStats(); }
  RunnerPoolStats RunnerStats() const override { return own_->RunnerStats(); }
  std::vector<Confinement> Confinements() const override { return own_->Confinements(); }
  void Pause() override { own_->Pause(); }  // nothing is searched by the others
  void Resume() override { own_->Resume(); }
  void Shutdown() override {
    {
      MutexLock lock(mutex_);
      is_shut_ = true;
      if (emulated_) emulated_->Shutdown();
    }
    own_->Shutdown();
  }

 private:
  // There is one other processor that can be emulated here. Its runner starts when there is something to check.
  Result<std::reference_wrapper<WorkerPools>> EmulatedFor(const CpuTarget& target) HONE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (is_shut_) return Error{ErrorKind::kUnavailable, "the pools are shut down", ""};
    if (!emulated_) {
      WorkerPoolsOptions options;
      options.builders.builders = 0;
      options.runners.runners = 1;
      options.runners.nice = options_.runners.nice;
      options.runners.executable =
          options_.runners.executable.empty() ? HONE_TRY(FindOwnProgram("hone-runner")) : options_.runners.executable;
      // Our own runner's program locks itself in, and becomes the emulator.
      options.runners.arguments = HONE_TRY(FindEmulatedRunner(target));
      options.runners.arguments.insert(options.runners.arguments.begin(), "--emulate");
      emulated_ = MakeLazyWorkerPools([options] { return StartProcessPools(options); });
    }
    return std::ref(*emulated_);
  }

  const std::unique_ptr<WorkerPools> own_;
  const WorkerPoolsOptions options_;
  Mutex mutex_;
  std::unique_ptr<WorkerPools> emulated_ HONE_GUARDED_BY(mutex_);  // once there, it stays
  bool is_shut_ HONE_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<WorkerPools> WithEmulatedRunners(std::unique_ptr<WorkerPools> own, WorkerPoolsOptions options) {
  return std::make_unique<EmulatedPools>(std::move(own), std::move(options));
}

}  // namespace hone
