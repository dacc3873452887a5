#include "tuner/pool_rig.h"

#include <utility>

namespace hone {
namespace {

constexpr std::chrono::seconds kLimit{30};  // of one build, check or timing, waiting included

class PoolRig : public Rig {
 public:
  PoolRig(BuilderPool& builders, RunnerPool& runners, int at_once, std::string kernel, Target target,
          RunnerPool::Prepared prepared)
      : builders_(builders),
        runners_(runners),
        at_once_(at_once),
        kernel_(std::move(kernel)),
        target_(std::move(target)),
        prepared_(std::move(prepared)) {}

  int builders() const override { return at_once_; }
  Result<BuiltArtifact> Build(const std::string& schedule) override {
    return builders_.Build({kernel_, schedule, target_}, Deadline());
  }
  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options) override {
    return runners_.Check(prepared_, artifact, options, Deadline());
  }
  Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions& options) override {
    return runners_.Time(prepared_, artifact, options, Deadline());
  }

 private:
  static MonotonicTime Deadline() { return std::chrono::steady_clock::now() + kLimit; }

  BuilderPool& builders_;
  RunnerPool& runners_;
  const int at_once_;
  const std::string kernel_;
  const Target target_;
  RunnerPool::Prepared prepared_;
};

}  // namespace

Result<std::unique_ptr<Rig>> MakePoolRig(BuilderPool& builders, RunnerPool& runners, int builds_at_once,
                                         std::string kernel, Target target) {
  RunnerPool::Prepared prepared = HONE_TRY(runners.Prepare(kernel, std::chrono::steady_clock::now() + kLimit));
  return std::unique_ptr<Rig>(std::make_unique<PoolRig>(builders, runners, builds_at_once, std::move(kernel),
                                                        std::move(target), std::move(prepared)));
}

}  // namespace hone
