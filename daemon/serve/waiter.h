// Somebody who waits for a kernel that memory did not have, and what is left of the time that they would wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "client/protocol/protocol.h"
#include "daemon/serve/event_loop.h"
#include "daemon/serve/hot_set.h"
#include "daemon/serve/peer.h"

namespace hone {

using WaitClock = std::chrono::steady_clock;

// Used by the event loop's thread alone.
struct Waiter {
  PeerPtr peer;
  uint64_t request_id = 0;
  bool no_compile = false;
  bool no_artifact = false;
  std::chrono::microseconds budget{};  // from the arrival; 0: as long as one build takes
  Stopwatch begun;
  WaitClock::time_point until = WaitClock::time_point::max();  // the budget's end
  // A compiled kernel that is searched further for this waiter: the answer if nothing better comes.
  HotCodePtr code;
  std::vector<StepTime> steps;  // of the compilation; empty: it was a hit
  bool is_answered = false;     // each is answered once; who was told to ask again is kept until its connection closes

  void Answer(const HotCodePtr& answer);
  // With `code`, if there is some: no error is a reason to get nothing.
  void AnswerError(const Error& error, uint32_t retry_after_ms = 0);
  std::chrono::microseconds Left() const;  // until the budget's end; at least 0
};
using WaiterPtr = std::shared_ptr<Waiter>;
using Waiters = std::vector<WaiterPtr>;

// Adds one who waits. Of those of a connection that were told to ask again one is kept, to know that it was told so.
void AddWaiter(Waiters& waiters, WaiterPtr waiter);
// Erases those of a connection; how many of them had not been answered.
size_t EraseWaitersOf(const Peer& peer, Waiters& waiters);

// Tells when budgets end. Used by the event loop's thread alone.
class Budgets {
 public:
  Budgets(EventLoop& loop, std::function<void(const WaiterPtr&)> on_end);
  void Add(const WaiterPtr& waiter);  // nothing if it has no budget

 private:
  void Arm();
  void OnTimer();

  const std::function<void(const WaiterPtr&)> on_end_;
  std::multimap<WaitClock::time_point, std::weak_ptr<Waiter>> ends_;
  size_t sweep_at_ = 1024;  // entries, at which those of waiters that are gone are erased
  LoopTimer timer_;
};

}  // namespace hone
