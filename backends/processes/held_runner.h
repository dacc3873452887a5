// One runner of a pool for one kernel, for as long as somebody checks and times that kernel's code.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/processes/runner_pool.h"

namespace hone {

// One thread at a time. The pool must outlive it.
class HeldRunner {
 public:
  // `kernel`: anything ParseKernel reads; what is wrong with it comes out of Check. `limit`: of one preparation, check
  // or timing, waiting included. kBusy: no runner came free. A request to stop ends at once what is asked:
  // kUnavailable.
  static Result<std::unique_ptr<HeldRunner>> Hold(RunnerPool& pool, std::string kernel, std::chrono::seconds limit,
                                                  std::stop_token stop = {});

  // As RunnerPool's, on another runner if the first is lost, since most are lost for reasons of their own (killed, or
  // starved of memory): kRunFailed if that one is lost, too. kUnavailable: runners are lost whatever they are asked, or
  // do not start.
  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options);
  Result<std::vector<std::optional<Error>>> Rehearse(std::span<const SealedMemfd* const> artifacts,
                                                     const CheckOptions& options, int at_once);
  Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions& options);

 private:
  HeldRunner(RunnerPool& pool, std::string kernel, std::chrono::seconds limit, RunnerPool::Prepared prepared,
             std::stop_token stop)
      : pool_(pool),
        kernel_(std::move(kernel)),
        limit_(limit),
        stop_(std::move(stop)),
        prepared_(std::move(prepared)) {}
  template <typename Answer, typename Question>
  Result<Answer> Ask(const Question& ask);
  MonotonicTime Deadline() const { return std::chrono::steady_clock::now() + limit_; }

  RunnerPool& pool_;
  const std::string kernel_;
  const std::chrono::seconds limit_;
  const std::stop_token stop_;
  std::optional<RunnerPool::Prepared> prepared_;  // nullopt: lost
  int lost_ = 0;                                  // runners since one answered
};

}  // namespace hone
