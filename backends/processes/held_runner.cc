#include "backends/processes/held_runner.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace hone {
namespace {

constexpr int kMostLost = 6;  // runners in a row before asking makes no sense

}  // namespace

Result<std::unique_ptr<HeldRunner>> HeldRunner::Hold(RunnerPool& pool, std::string kernel, std::chrono::seconds limit,
                                                     std::stop_token stop) {
  RunnerPool::Prepared prepared = HONE_TRY(pool.Prepare(kernel, std::chrono::steady_clock::now() + limit, stop));
  return std::unique_ptr<HeldRunner>(
      new HeldRunner(pool, std::move(kernel), limit, std::move(prepared), std::move(stop)));
}

Result<CheckReport> HeldRunner::Check(const SealedMemfd& artifact, const CheckOptions& options) {
  return Ask<CheckReport>([&] { return pool_.Check(*prepared_, artifact, options, Deadline()); });
}

Result<std::vector<std::optional<Error>>> HeldRunner::Rehearse(std::span<const SealedMemfd* const> artifacts,
                                                               const CheckOptions& options, int at_once) {
  return Ask<std::vector<std::optional<Error>>>(
      [&] { return pool_.Rehearse(*prepared_, artifacts, options, at_once, Deadline()); });
}

Result<RunTiming> HeldRunner::Time(const SealedMemfd& artifact, const TimeOptions& options) {
  return Ask<RunTiming>([&] { return pool_.Time(*prepared_, artifact, options, Deadline()); });
}

// A runner that is lost takes the prepared kernel along: another one prepares it and is asked again. If that one is
// lost, too, the candidate is at fault.
template <typename Answer, typename Question>
Result<Answer> HeldRunner::Ask(const Question& ask) {
  MonotonicTime killed_at{};
  for (bool again : {false, true}) {
    if (!prepared_) prepared_ = HONE_TRY(pool_.Prepare(kernel_, Deadline(), stop_, killed_at));
    Result<Answer> answer = ask();
    if (!prepared_->lost()) {
      lost_ = 0;
      return answer;
    }
    killed_at = prepared_->killed_at();
    const bool is_to_blame = !prepared_->has_failed_to_start();
    prepared_.reset();
    if (++lost_ >= kMostLost)
      return Error{ErrorKind::kUnavailable,
                   fmt::format("{} runners in a row were lost: {}", lost_, answer.error().message), ""};
    if (again && !is_to_blame) return answer;
    if (again) return Error{ErrorKind::kRunFailed, "two runners were lost with it: " + answer.error().message, ""};
  }
  HONE_CHECK(false);
}

}  // namespace hone
