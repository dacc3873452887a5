// Time as a dependency: what ages, expires or is stamped takes a Clock, so that tests move time by hand.
#pragma once

#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace hone {

using MonotonicTime = std::chrono::steady_clock::time_point;        // for intervals
using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;  // for stamps that are stored

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonotonicTime Now() const { return std::chrono::steady_clock::now(); }
  virtual WallTime WallNow() const {
    return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
  }

  static const Clock& Real() {
    static const Clock clock;
    return clock;
  }
};

// A clock that stands still until it is told otherwise.
class FakeClock : public Clock {
 public:
  explicit FakeClock(WallTime start = WallTime(std::chrono::seconds(1'000'000'000))) : start_(start) {}
  MonotonicTime Now() const override { return MonotonicTime(passed()); }
  WallTime WallNow() const override { return start_ + std::chrono::duration_cast<std::chrono::milliseconds>(passed()); }
  void Advance(std::chrono::nanoseconds step) { passed_ += step.count(); }

 private:
  std::chrono::nanoseconds passed() const { return std::chrono::nanoseconds(passed_.load()); }

  const WallTime start_;
  std::atomic<int64_t> passed_{0};
};

// Nanoseconds by a clock of the system's. Safe where only system calls are: in forks and signal handlers.
inline int64_t NowNs(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Microseconds since construction or the last Restart.
class Stopwatch {
 public:
  double Microseconds() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_).count();
  }
  void Restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace hone
