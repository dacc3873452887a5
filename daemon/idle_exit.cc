#include "daemon/idle_exit.h"

#include <algorithm>
#include <utility>

namespace hone {

IdleExit::IdleExit(EventLoop& loop, std::chrono::milliseconds after, std::function<bool()> is_busy,
                   std::function<void()> leave)
    : after_(after), is_busy_(std::move(is_busy)), leave_(std::move(leave)), timer_(loop) {
  Look();
}

void IdleExit::Look() {
  const auto now = std::chrono::steady_clock::now();
  timer_.Set(now + std::max(after_ / 8, std::chrono::milliseconds(1)), [this] { Look(); });
  if (is_busy_()) busy_at_ = now;
  if (now - busy_at_ < after_) return;
  busy_at_ = now;
  leave_();
}

}  // namespace hone
