#include "backends/processes/worker_pools.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>

#include "backends/processes/process_evaluator.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/start_thread.h"

namespace hone {
namespace {

// Descriptors that a child takes of ours: its channel, its standard error, and what tells that it has ended; the last
// two also of one that was killed and still dies.
constexpr int kDescriptorsPerChild = 5;
// For starting one, and for the code and the connections of a daemon that serves a few.
constexpr int kSpareDescriptors = 32;

class RunnerReference : public WorkerPools::Reference {
 public:
  RunnerReference(RunnerPool& pool, std::string kernel, RunnerPool::Prepared prepared, std::stop_token stop)
      : pool_(pool), kernel_(std::move(kernel)), prepared_(std::move(prepared)), stop_(std::move(stop)) {}

  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options,
                            WorkerPools::Deadline deadline) override {
    Result<CheckReport> report = CheckOnce(artifact, options, deadline);
    // A runner that its own deadline ended has had its time.
    if (report || prepared_ || report.error().kind == ErrorKind::kTimeout) return report;
    report = CheckOnce(artifact, options, deadline);
    if (report || prepared_ || report.error().kind == ErrorKind::kTimeout || was_refused_) return report;
    return Error{ErrorKind::kRunFailed, "two runners were lost with it: " + report.error().message, ""};
  }

 private:
  // Afterwards prepared_ is empty if the runner was lost.
  Result<CheckReport> CheckOnce(const SealedMemfd& artifact, const CheckOptions& options,
                                WorkerPools::Deadline deadline) {
    was_refused_ = !prepared_;
    if (!prepared_) prepared_ = HONE_TRY(pool_.Prepare(kernel_, deadline, stop_, killed_at_));
    Result<CheckReport> report = pool_.Check(*prepared_, artifact, options, deadline);
    killed_at_ = prepared_->killed_at();
    was_refused_ = prepared_->has_failed_to_start();
    if (prepared_->lost()) prepared_.reset();
    return report;
  }

  RunnerPool& pool_;
  const std::string kernel_;
  std::optional<RunnerPool::Prepared> prepared_;
  const std::stop_token stop_;
  bool was_refused_ = false;   // there was no runner to be had, or none that started
  MonotonicTime killed_at_{};  // when somebody else ended the last one
};

// Says what holds the children of a kind: once, until it is something else.
void Say(const Confinement& confinement) {
  static Mutex mutex;
  static std::set<std::string> said;
  {
    MutexLock lock(mutex);
    if (!said.insert(confinement.Text()).second) return;
  }
  if (confinement.complete())
    LogInfo("sandbox", {{"child", confinement.child}, {"holds", confinement.Text()}});
  else
    LogWarn("sandbox_incomplete", {{"child", confinement.child}, {"holds", confinement.Text()}});
}

// Raises the soft limit to the hard one first.
Result<void> CheckDescriptors(const WorkerPoolsOptions& options) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const int children = std::max(options.builders.builders, 0) + std::max(options.runners.runners, 1);
  const uint64_t open = ListDirectory("/proc/self/fd").value_or(std::vector<std::string>()).size();
  const uint64_t needed = open + static_cast<uint64_t>(children * kDescriptorsPerChild + kSpareDescriptors);
  if (limit.rlim_max >= needed) return {};
  return Error{ErrorKind::kLimit,
               fmt::format("{} builders and runners and what they make take {} descriptors, {} of which are open, and "
                           "this process may have {}; raise RLIMIT_NOFILE (ulimit -n, systemd: LimitNOFILE=) or start "
                           "fewer (build.builders, build.runners)",
                           children, needed, open, limit.rlim_max),
               ""};
}

class ProcessWorkerPools : public WorkerPools {
 public:
  ProcessWorkerPools(std::unique_ptr<BuilderPool> builders, std::unique_ptr<RunnerPool> runners,
                     const WorkerPoolsOptions& options)
      : builders_(std::move(builders)),
        runners_(std::move(runners)),
        builds_at_once_(options.builders.builders),
        idle_group_(options.idle_group) {
    Result<std::jthread> herald = StartThread([this](const std::stop_token& stop) { Herald(stop); });
    if (herald)
      herald_ = *std::move(herald);
    else
      LogWarn("sandbox_not_said", {{"why", herald.error().Text()}});  // `hone status` shows it
  }

  Result<std::unique_ptr<Reference>> Prepare(const std::string& kernel, const Target&, Deadline deadline,
                                             const std::stop_token& stop) override {
    RunnerPool::Prepared prepared = HONE_TRY(runners_->Prepare(kernel, deadline, stop));
    return std::unique_ptr<Reference>(std::make_unique<RunnerReference>(*runners_, kernel, std::move(prepared), stop));
  }
  Result<std::unique_ptr<Evaluator>> MakeEvaluator(const std::string& kernel, const Target& target,
                                                   const std::stop_token& stop) override {
    if (!builders_) return NoCompiler();
    return MakeProcessEvaluator(*builders_, *runners_, builds_at_once_, kernel, target, idle_group_, stop);
  }
  Result<BuiltArtifact> Build(const BuildRequest& request, Deadline deadline, const std::stop_token& stop) override {
    if (!builders_) return NoCompiler();
    return builders_->Build(request, deadline, stop);
  }
  Result<std::string> Explain(const BuildRequest& request, Deadline deadline, const std::stop_token& stop) override {
    if (!builders_) return NoCompiler();
    return builders_->Explain(request, deadline, stop);
  }
  BuilderPoolStats BuilderStats() const override { return builders_ ? builders_->Stats() : BuilderPoolStats{}; }
  RunnerPoolStats RunnerStats() const override { return runners_->Stats(); }
  std::vector<Confinement> Confinements() const override {
    std::vector<Confinement> found;
    if (builders_) found = builders_->Confinements();
    for (Confinement& confinement : runners_->Confinements()) found.push_back(std::move(confinement));
    return found;
  }
  void Pause() override {
    if (builders_) builders_->Pause();
    runners_->Pause();
  }
  void Resume() override {
    if (builders_) builders_->Resume();
    runners_->Resume();
  }
  void Shutdown() override {
    herald_.request_stop();
    if (builders_) builders_->Shutdown();
    runners_->Shutdown();
  }

 private:
  // Children need moments to start, and nobody waits for them: a thread says what holds them when they have said so.
  void Herald(const std::stop_token& stop) {
    constexpr std::chrono::milliseconds kLook{20};
    const Deadline give_up = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    Mutex mutex;
    CondVar stopped;
    MutexLock lock(mutex);
    for (bool builder = !builders_, runner = false; !(builder && runner) && !stop.stop_requested();
         stopped.WaitFor(mutex, kLook, stop)) {
      for (const Confinement& confinement : Confinements()) {
        (confinement.child == "builder" ? builder : runner) = true;
        Say(confinement);
      }
      if (std::chrono::steady_clock::now() > give_up) break;
    }
  }

  static Error NoCompiler() { return {ErrorKind::kUnsupported, "there is no compiler on this device", ""}; }

  const std::unique_ptr<BuilderPool> builders_;  // nullptr: nothing is built
  const std::unique_ptr<RunnerPool> runners_;
  const int builds_at_once_;
  const IdleGroup* const idle_group_;
  std::jthread herald_;  // none where it could not be started; last: ends before what it looks at
};

}  // namespace

Result<std::unique_ptr<WorkerPools>> StartProcessPools(const WorkerPoolsOptions& options) {
  HONE_TRY(CheckDescriptors(options));
  std::unique_ptr<BuilderPool> builders;
  if (options.builders.builders > 0) builders = HONE_TRY(BuilderPool::Start(options.builders));
  std::unique_ptr<RunnerPool> runners = HONE_TRY(RunnerPool::Start(options.runners));
  return std::unique_ptr<WorkerPools>(
      std::make_unique<ProcessWorkerPools>(std::move(builders), std::move(runners), options));
}

}  // namespace hone
