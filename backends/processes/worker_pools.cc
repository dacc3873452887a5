// What stands in front of a kind's worker pools: some that last only while they are used, and those of several kinds.
#include "backends/processes/worker_pools.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/start_thread.h"

namespace hone {
namespace {

// A pools that is there while it is used, and for a while afterwards. What it hands out keeps it.
class LazyWorkerPools : public WorkerPools {
 public:
  LazyWorkerPools(StartWorkerPools start, std::chrono::milliseconds keep) : start_(std::move(start)), keep_(keep) {}

  Result<std::unique_ptr<Reference>> Prepare(const std::string& kernel, const Target& target, Deadline deadline,
                                             const std::stop_token& stop) override {
    std::shared_ptr<WorkerPools> pools = HONE_TRY(Borrow());
    std::unique_ptr<Reference> reference = HONE_TRY(pools->Prepare(kernel, target, deadline, stop));
    return std::unique_ptr<Reference>(std::make_unique<LentReference>(std::move(pools), std::move(reference)));
  }
  Result<std::unique_ptr<Evaluator>> MakeEvaluator(const std::string&, const Target&, const std::stop_token&) override {
    return Error{ErrorKind::kUnsupported, "nothing is searched here", ""};
  }
  Result<BuiltArtifact> Build(const BuildRequest& request, Deadline deadline, const std::stop_token& stop) override {
    std::shared_ptr<WorkerPools> pools = HONE_TRY(Borrow());
    return pools->Build(request, deadline, stop);
  }
  Result<std::string> Explain(const BuildRequest& request, Deadline deadline, const std::stop_token& stop) override {
    std::shared_ptr<WorkerPools> pools = HONE_TRY(Borrow());
    return pools->Explain(request, deadline, stop);
  }
  BuilderPoolStats BuilderStats() const override {
    MutexLock lock(mutex_);
    return pools_ ? pools_->BuilderStats() : BuilderPoolStats{};
  }
  RunnerPoolStats RunnerStats() const override {
    MutexLock lock(mutex_);
    return pools_ ? pools_->RunnerStats() : RunnerPoolStats{};
  }
  std::vector<Confinement> Confinements() const override {
    MutexLock lock(mutex_);
    return pools_ ? pools_->Confinements() : std::vector<Confinement>{};
  }
  void Pause() override {
    MutexLock lock(mutex_);
    if (pools_) pools_->Pause();
  }
  void Resume() override {
    MutexLock lock(mutex_);
    if (pools_) pools_->Resume();
  }
  void Shutdown() override {
    MutexLock lock(mutex_);
    caretaker_.request_stop();
    is_shut_ = true;
    if (pools_) pools_->Shutdown();
  }

 private:
  // Lent together with the pools, which goes back after it.
  class LentReference : public Reference {
   public:
    LentReference(std::shared_ptr<WorkerPools> pools, std::unique_ptr<Reference> reference)
        : pools_(std::move(pools)), reference_(std::move(reference)) {}
    Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options, Deadline deadline) override {
      return reference_->Check(artifact, options, deadline);
    }

   private:
    const std::shared_ptr<WorkerPools> pools_;
    const std::unique_ptr<Reference> reference_;
  };

  // The pools, started if there is none. It is not taken down while somebody has it.
  Result<std::shared_ptr<WorkerPools>> Borrow() {
    MutexLock lock(mutex_);
    if (is_shut_) return Error{ErrorKind::kUnavailable, "the pools is shut down", ""};
    if (!caretaker_.joinable())
      caretaker_ = HONE_TRY(StartThread([this](const std::stop_token& stop) { TakeCare(stop); }));
    if (!pools_) pools_ = HONE_TRY(start_());
    ++borrowers_;
    return std::shared_ptr<WorkerPools>(pools_.get(), [this](WorkerPools*) { GiveBack(); });
  }

  void GiveBack() {
    MutexLock lock(mutex_);
    --borrowers_;
    given_back_ = std::chrono::steady_clock::now();
    changed_.NotifyAll();
  }

  // Takes it down when nobody has had it for a while.
  void TakeCare(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::unique_ptr<WorkerPools> old;  // goes without the lock
      MutexLock lock(mutex_);
      const auto now = std::chrono::steady_clock::now();
      if (!pools_ || borrowers_ > 0)
        changed_.WaitFor(mutex_, keep_, stop);
      else if (now < given_back_ + keep_)
        changed_.WaitFor(mutex_, given_back_ + keep_ - now, stop);
      else
        old = std::move(pools_);
    }
  }

  const StartWorkerPools start_;
  const std::chrono::milliseconds keep_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::unique_ptr<WorkerPools> pools_ HONE_GUARDED_BY(mutex_);
  int borrowers_ HONE_GUARDED_BY(mutex_) = 0;
  Deadline given_back_ HONE_GUARDED_BY(mutex_){};
  bool is_shut_ HONE_GUARDED_BY(mutex_) = false;
  std::jthread caretaker_ HONE_GUARDED_BY(mutex_);  // since they were wanted first; last: ends first
};

// One's pools for each kind. What is under way when it is shut down ends as its pools end it. Pools that are being
// started keep nobody waiting but those who want some that are not there: not who pauses, counts or shuts down.
class PoolsByKind : public WorkerPools {
 public:
  explicit PoolsByKind(std::map<std::string, StartWorkerPools, std::less<>> kinds) {
    for (auto& [kind, start] : kinds) {
      starts_.emplace(kind, std::move(start));
      pools_.emplace(kind, nullptr);
    }
  }

  Result<std::unique_ptr<Reference>> Prepare(const std::string& kernel, const Target& target, Deadline deadline,
                                             const std::stop_token& stop) override {
    return HONE_TRY(Of(target))->Prepare(kernel, target, deadline, stop);
  }
  Result<std::unique_ptr<Evaluator>> MakeEvaluator(const std::string& kernel, const Target& target,
                                                   const std::stop_token& stop) override {
    return HONE_TRY(Of(target))->MakeEvaluator(kernel, target, stop);
  }
  Result<BuiltArtifact> Build(const BuildRequest& request, Deadline deadline, const std::stop_token& stop) override {
    return HONE_TRY(Of(request.target))->Build(request, deadline, stop);
  }
  Result<std::string> Explain(const BuildRequest& request, Deadline deadline, const std::stop_token& stop) override {
    return HONE_TRY(Of(request.target))->Explain(request, deadline, stop);
  }
  BuilderPoolStats BuilderStats() const override {
    BuilderPoolStats sum;
    for (WorkerPools* pools : Started()) sum += pools->BuilderStats();
    return sum;
  }
  RunnerPoolStats RunnerStats() const override {
    RunnerPoolStats sum;
    for (WorkerPools* pools : Started()) sum += pools->RunnerStats();
    return sum;
  }
  std::vector<Confinement> Confinements() const override {
    std::vector<Confinement> found;
    for (WorkerPools* pools : Started())
      for (Confinement& confinement : pools->Confinements()) found.push_back(std::move(confinement));
    return found;
  }
  void Pause() override {
    MutexLock lock(mutex_);
    is_paused_ = true;
    for (auto& [_, pools] : pools_)
      if (pools) pools->Pause();
  }
  void Resume() override {
    MutexLock lock(mutex_);
    is_paused_ = false;
    for (auto& [_, pools] : pools_)
      if (pools) pools->Resume();
  }
  void Shutdown() override {
    MutexLock lock(mutex_);
    is_shut_ = true;
    for (auto& [_, pools] : pools_)
      if (pools) pools->Shutdown();
  }

 private:
  // What is started stays until the end, so that it may be used without the lock.
  Result<WorkerPools*> Of(const Target& target) {
    if (WorkerPools* pools = HONE_TRY(FindStarted(target))) return pools;
    MutexLock starting(starting_);
    if (WorkerPools* pools = HONE_TRY(FindStarted(target))) return pools;  // by another meanwhile
    std::unique_ptr<WorkerPools> started = HONE_TRY(starts_.find(target.kind())->second());
    MutexLock lock(mutex_);
    WorkerPools* pools = (pools_.find(target.kind())->second = std::move(started)).get();
    if (is_paused_) pools->Pause();
    if (!is_shut_) return pools;
    pools->Shutdown();
    return IsShut();
  }

  static Error IsShut() { return {ErrorKind::kUnavailable, "the worker pools are shut down", ""}; }

  // nullptr: there are none yet.
  Result<WorkerPools*> FindStarted(const Target& target) {
    MutexLock lock(mutex_);
    if (is_shut_) return IsShut();
    auto pools = pools_.find(target.kind());
    if (pools == pools_.end())
      return Error{ErrorKind::kUnsupported, fmt::format("no device of kind \"{}\" is in service here", target.kind()),
                   "target"};
    return pools->second.get();
  }

  std::vector<WorkerPools*> Started() const {
    std::vector<WorkerPools*> started;
    MutexLock lock(mutex_);
    for (auto& [_, pools] : pools_)
      if (pools) started.push_back(pools.get());
    return started;
  }

  std::map<std::string, StartWorkerPools, std::less<>> starts_;
  Mutex starting_;  // before mutex_
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<WorkerPools>, std::less<>> pools_ HONE_GUARDED_BY(mutex_);
  bool is_paused_ HONE_GUARDED_BY(mutex_) = false;
  bool is_shut_ HONE_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<WorkerPools> MakeLazyWorkerPools(StartWorkerPools start, std::chrono::milliseconds keep) {
  return std::make_unique<LazyWorkerPools>(std::move(start), keep);
}

std::unique_ptr<WorkerPools> MakePoolsByKind(std::map<std::string, StartWorkerPools, std::less<>> kinds) {
  return std::make_unique<PoolsByKind>(std::move(kinds));
}

}  // namespace hone
