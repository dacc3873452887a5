// Ends a honed that its socket started when nobody has wanted anything for a while: the service manager keeps the
// socket, and starts it again for the next connection.
#pragma once

#include <chrono>
#include <functional>

#include "daemon/serve/event_loop.h"

namespace hone {

// Used by the event loop's thread alone; must not outlive the loop.
class IdleExit {
 public:
  // `is_busy` is asked eight times within `after`. Once it has said no for so long, `leave` is called, and again after
  // the same time: whoever refuses to leave is asked later.
  IdleExit(EventLoop& loop, std::chrono::milliseconds after, std::function<bool()> is_busy,
           std::function<void()> leave);

 private:
  void Look();

  const std::chrono::milliseconds after_;
  const std::function<bool()> is_busy_;
  const std::function<void()> leave_;
  std::chrono::steady_clock::time_point busy_at_ = std::chrono::steady_clock::now();
  LoopTimer timer_;
};

}  // namespace hone
