#include "daemon/watchdog.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace hone {
namespace {

std::optional<int64_t> TakeNumber(const char* name) {
  const char* text = getenv(name);
  if (text == nullptr) return std::nullopt;
  int64_t value = 0;
  auto [end, code] = std::from_chars(text, text + strlen(text), value);
  const bool is_number = code == std::errc() && *end == '\0';
  unsetenv(name);
  return is_number ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<std::chrono::microseconds> WatchdogLimit() {
  const std::optional<int64_t> pid = TakeNumber("WATCHDOG_PID"), limit = TakeNumber("WATCHDOG_USEC");
  if (!limit || *limit <= 0 || (pid && *pid != getpid())) return std::nullopt;
  return std::chrono::microseconds(*limit);
}

Watchdog::Watchdog(EventLoop& loop, std::chrono::microseconds limit, Ask ask, std::function<void()> tell)
    : period_(limit / 4),
      ask_(std::move(ask)),
      tell_(std::move(tell)),
      self_(std::make_shared<Watchdog*>(this)),
      timer_(loop) {
  Tick();
}

void Watchdog::Tick() {
  timer_.Set(std::chrono::steady_clock::now() + period_, [this] { Tick(); });
  if (std::exchange(is_asked_, true)) return;
  ask_([self = self_](bool was_answered) {
    if (*self == nullptr) return;
    (*self)->is_asked_ = false;
    if (was_answered) (*self)->tell_();
  });
}

}  // namespace hone
