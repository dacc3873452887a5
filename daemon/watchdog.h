// Tells the service manager that honed lives, as often as it wants to hear it: only after a question has gone from the
// event loop through the lane of quick answers and back. A honed that hangs is silent, and is started anew.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "daemon/serve/event_loop.h"

namespace hone {

// How long the service manager bears silence (WATCHDOG_USEC, WATCHDOG_PID); nullopt if it does not ask this process.
// Taken out of the environment: children must not take it for theirs.
std::optional<std::chrono::microseconds> WatchdogLimit();

// Used by the event loop's thread alone; must not outlive the loop.
class Watchdog {
 public:
  // Has a question answered; then calls `answered` in the loop's thread, with false if there was no room for it.
  using Ask = std::function<void(std::function<void(bool)> answered)>;

  // Calls `tell` four times within `limit` while the answers come.
  Watchdog(EventLoop& loop, std::chrono::microseconds limit, Ask ask, std::function<void()> tell);
  ~Watchdog() { *self_ = nullptr; }

 private:
  void Tick();

  const std::chrono::microseconds period_;
  const Ask ask_;
  const std::function<void()> tell_;
  bool is_asked_ = false;  // and not answered yet
  // Where answers go: outlives this object, empty once it is gone.
  std::shared_ptr<Watchdog*> self_;
  LoopTimer timer_;
};

}  // namespace hone
