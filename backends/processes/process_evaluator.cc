#include "backends/processes/process_evaluator.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/check.h"

namespace hone {
namespace {

constexpr std::chrono::seconds kLimit{30};  // of one build, check or timing, waiting included
constexpr int kMostLost = 6;                // runners in a row before searching makes no sense

class ProcessEvaluator : public Evaluator {
 public:
  ProcessEvaluator(BuilderPool& builders, RunnerPool& runners, int at_once, std::string kernel, Target target,
                   const IdleGroup* idle_group, RunnerPool::Prepared prepared, std::stop_token stop)
      : builders_(builders),
        runners_(runners),
        at_once_(at_once),
        kernel_(std::move(kernel)),
        target_(std::move(target)),
        idle_group_(idle_group),
        stop_(std::move(stop)),
        prepared_(std::move(prepared)) {}

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
  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options) override {
    return Ask<CheckReport>([&] { return runners_.Check(*prepared_, artifact, options, Deadline()); });
  }
  Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions& options) override {
    return Ask<RunTiming>([&] { return runners_.Time(*prepared_, artifact, options, Deadline()); });
  }

 private:
  // A runner that is lost takes the prepared kernel along: another one prepares it and is asked again, since most are
  // lost for reasons of their own (killed, or starved of memory). If that one is lost, too, the candidate is at fault.
  template <typename Answer, typename Question>
  Result<Answer> Ask(const Question& ask) {
    MonotonicTime killed_at{};
    for (bool again : {false, true}) {
      if (!prepared_) prepared_ = HONE_TRY(runners_.Prepare(kernel_, Deadline(), stop_, killed_at));
      Result<Answer> answer = ask();
      if (!prepared_->lost()) {
        lost_ = 0;
        return answer;
      }
      killed_at = prepared_->killed_at();
      prepared_.reset();
      if (++lost_ >= kMostLost)
        return Error{ErrorKind::kUnavailable,
                     fmt::format("{} runners in a row were lost: {}", lost_, answer.error().message), ""};
      if (again) return Error{ErrorKind::kRunFailed, "two runners were lost with it: " + answer.error().message, ""};
    }
    HONE_CHECK(false);
  }

  static MonotonicTime Deadline() { return std::chrono::steady_clock::now() + kLimit; }

  BuilderPool& builders_;
  RunnerPool& runners_;
  const int at_once_;
  const std::string kernel_;
  const Target target_;
  const IdleGroup* const idle_group_;
  const std::stop_token stop_;
  std::optional<RunnerPool::Prepared> prepared_;  // nullopt: lost
  int lost_ = 0;                                  // runners since one answered
};

}  // namespace

Result<std::unique_ptr<Evaluator>> MakeProcessEvaluator(BuilderPool& builders, RunnerPool& runners, int builds_at_once,
                                                        std::string kernel, Target target, const IdleGroup* idle_group,
                                                        std::stop_token stop) {
  RunnerPool::Prepared prepared = HONE_TRY(runners.Prepare(kernel, std::chrono::steady_clock::now() + kLimit, stop));
  return std::unique_ptr<Evaluator>(std::make_unique<ProcessEvaluator>(builders, runners, builds_at_once,
                                                                       std::move(kernel), std::move(target), idle_group,
                                                                       std::move(prepared), std::move(stop)));
}

}  // namespace hone
