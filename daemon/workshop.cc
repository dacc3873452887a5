#include "daemon/workshop.h"

#include "base/mutex.h"
#include "tuner/pool_rig.h"

namespace hone {
namespace {

class RunnerReference : public Workshop::Reference {
 public:
  RunnerReference(RunnerPool& pool, RunnerPool::Prepared prepared) : pool_(pool), prepared_(std::move(prepared)) {}
  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options,
                            Workshop::Deadline deadline) override {
    return pool_.Check(prepared_, artifact, options, deadline);
  }

 private:
  RunnerPool& pool_;
  RunnerPool::Prepared prepared_;
};

class ProcessWorkshop : public Workshop {
 public:
  ProcessWorkshop(std::unique_ptr<BuilderPool> builders, std::unique_ptr<RunnerPool> runners,
                  const WorkshopOptions& options)
      : builders_(std::move(builders)),
        runners_(std::move(runners)),
        builds_at_once_(options.builders.builders),
        idle_group_(options.idle_group) {}

  Result<std::unique_ptr<Reference>> Prepare(const std::string& kernel, Deadline deadline) override {
    RunnerPool::Prepared prepared = HONE_TRY(runners_->Prepare(kernel, deadline));
    return std::unique_ptr<Reference>(std::make_unique<RunnerReference>(*runners_, std::move(prepared)));
  }
  Result<std::unique_ptr<Rig>> MakeRig(const std::string& kernel, const Target& target) override {
    return MakePoolRig(*builders_, *runners_, builds_at_once_, kernel, target, idle_group_);
  }
  Result<BuiltArtifact> Build(const BuildRequest& request, Deadline deadline) override {
    return builders_->Build(request, deadline);
  }
  Result<std::string> Explain(const BuildRequest& request, Deadline deadline) override {
    return builders_->Explain(request, deadline);
  }
  BuilderPoolStats BuilderStats() const override { return builders_->Stats(); }
  RunnerPoolStats RunnerStats() const override { return runners_->Stats(); }
  void Pause() override {
    builders_->Pause();
    runners_->Pause();
  }
  void Resume() override {
    builders_->Resume();
    runners_->Resume();
  }
  void Shutdown() override {
    builders_->Shutdown();
    runners_->Shutdown();
  }

 private:
  const std::unique_ptr<BuilderPool> builders_;
  const std::unique_ptr<RunnerPool> runners_;
  const int builds_at_once_;
  const IdleGroup* const idle_group_;
};

class LazyWorkshop : public Workshop {
 public:
  explicit LazyWorkshop(const WorkshopOptions& options) : options_(options) {}

  Result<std::unique_ptr<Reference>> Prepare(const std::string& kernel, Deadline deadline) override {
    Workshop* workshop = HONE_TRY(Started());
    return workshop->Prepare(kernel, deadline);
  }
  Result<std::unique_ptr<Rig>> MakeRig(const std::string& kernel, const Target& target) override {
    Workshop* workshop = HONE_TRY(Started());
    return workshop->MakeRig(kernel, target);
  }
  Result<BuiltArtifact> Build(const BuildRequest& request, Deadline deadline) override {
    Workshop* workshop = HONE_TRY(Started());
    return workshop->Build(request, deadline);
  }
  Result<std::string> Explain(const BuildRequest& request, Deadline deadline) override {
    Workshop* workshop = HONE_TRY(Started());
    return workshop->Explain(request, deadline);
  }
  BuilderPoolStats BuilderStats() const override {
    MutexLock lock(mutex_);
    return workshop_ ? workshop_->BuilderStats() : BuilderPoolStats{};
  }
  RunnerPoolStats RunnerStats() const override {
    MutexLock lock(mutex_);
    return workshop_ ? workshop_->RunnerStats() : RunnerPoolStats{};
  }
  void Pause() override {
    MutexLock lock(mutex_);
    if (workshop_) workshop_->Pause();
  }
  void Resume() override {
    MutexLock lock(mutex_);
    if (workshop_) workshop_->Resume();
  }
  void Shutdown() override {
    MutexLock lock(mutex_);
    if (workshop_) workshop_->Shutdown();
  }

 private:
  Result<Workshop*> Started() {
    MutexLock lock(mutex_);
    if (!workshop_) workshop_ = HONE_TRY(StartWorkshop(options_));
    return workshop_.get();
  }

  const WorkshopOptions options_;
  mutable Mutex mutex_;
  std::unique_ptr<Workshop> workshop_ HONE_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<Workshop>> StartWorkshop(const WorkshopOptions& options) {
  std::unique_ptr<BuilderPool> builders = HONE_TRY(BuilderPool::Start(options.builders));
  std::unique_ptr<RunnerPool> runners = HONE_TRY(RunnerPool::Start(options.runners));
  return std::unique_ptr<Workshop>(
      std::make_unique<ProcessWorkshop>(std::move(builders), std::move(runners), options));
}

std::unique_ptr<Workshop> MakeLazyWorkshop(const WorkshopOptions& options) {
  return std::make_unique<LazyWorkshop>(options);
}

}  // namespace hone
