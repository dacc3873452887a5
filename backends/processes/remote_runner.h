// The runner of another machine, seen from the daemon: over a socket at whose other end somebody's command (ssh) leads
// to hone-runner --stdio. What it says is a stranger's word: bounded, decoded, and held against our clock. Whatever
// goes wrong with it, once, is the end of it; what was measured before stays measured.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "backends/processes/child_channel.h"
#include "backends/processes/remote_messages.h"
#include "backends/processes/runner_pool.h"
#include "base/mutex.h"
#include "base/result.h"

namespace hone {

struct RemoteLimits {
  std::chrono::milliseconds hello{60'000};    // until it says what it is: somebody may have to type a passphrase
  std::chrono::milliseconds silence{10'000};  // without a sign of life while it is at work
  std::chrono::milliseconds answer{600'000};  // of one question
};

// Thread-safe: one kernel at a time, for whoever holds a Turn.
class RemoteRunner {
 public:
  RemoteRunner(UniqueFd socket, RemoteLimits limits);

  // Its first words. Called once, before anything else.
  Result<RemoteHello> Greet();

  // A kernel at the device, until destroyed. One thread at a time; errors as HeldRunner's, and kUnavailable "the device
  // …" once it is lost. A request to stop is heeded within moments, and what the device answers later is passed over.
  class Turn {
   public:
    ~Turn() { runner_.EndTurn(); }
    Turn(const Turn&) = delete;
    Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options);
    Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions& options);

   private:
    friend class RemoteRunner;
    Turn(RemoteRunner& runner, double flops, std::stop_token stop)
        : runner_(runner), flops_(flops), stop_(std::move(stop)) {}
    Result<std::string> AskAbout(ChildMessage question, ChildMessage answer, std::string_view options,
                                 const SealedMemfd& artifact);
    RemoteRunner& runner_;
    const double flops_;
    const std::stop_token stop_;
  };
  // Waits until others' turns are over. `kernel`: anything ParseKernel reads. kBusy at the deadline.
  Result<std::unique_ptr<Turn>> Prepare(const std::string& kernel, MonotonicTime deadline, std::stop_token stop = {});

  // It has said what cannot be true, or is not wanted any more. Errors from then on: this one.
  Error GiveUp(Error why);
  // Why it is lost, if it is: looks whether it has hung up, if nobody is talking with it.
  std::optional<Error> Lost();
  bool IsAtWork();  // for somebody

 private:
  Result<ChildFrame> Ask(ChildMessage question, ChildMessage answer, std::string_view body,
                         const std::stop_token& stop);
  Result<void> Say(ChildMessage type, uint64_t id, std::string_view body);
  Result<ChildFrame> Await(uint64_t id, const std::stop_token& stop);
  Result<bool> WaitReadable(MonotonicTime deadline, const std::stop_token& stop) const;
  void EndTurn();

  const RemoteLimits limits_;
  ChildChannel channel_;      // of whoever has the turn
  uint64_t last_id_ = 0;      // his, too
  KeptArtifacts<bool> kept_;  // at the device; his, too
  Mutex mutex_;
  CondVar changed_;
  bool has_turn_ HONE_GUARDED_BY(mutex_) = false;
  std::optional<Error> lost_ HONE_GUARDED_BY(mutex_);
};

}  // namespace hone
