// Kernels that a bundle brought are made ready before somebody asks for them: code is checked, and a schedule alone is
// compiled and checked. One after the other, those that are worth most first, when nothing else is to be done.
#pragma once

#include <cstdint>
#include <queue>
#include <string>
#include <vector>

#include "base/hash.h"
#include "cache/schedule_cache.h"
#include "daemon/metrics.h"
#include "daemon/serve/event_loop.h"
#include "daemon/serve/misses.h"

namespace hone {

// A record that a bundle brought.
struct Imported {
  Fingerprint fingerprint;
  std::string target;  // one of several, maybe, that the kernel came for
  double worth = 0;    // calls × time, as far as whoever sent it knows
};

// Used by the event loop's thread alone. What is left when honed ends is made ready when it is asked for.
class GetReady {
 public:
  // All of them outlive it, and the loop runs nothing of it after its end.
  GetReady(EventLoop& loop, ScheduleCache& cache, Misses& misses, Metrics& metrics)
      : loop_(loop), cache_(cache), misses_(misses), metrics_(metrics) {}

  void Add(const std::vector<Imported>& kernels);

 private:
  struct IsWorthLess {
    bool operator()(const Imported& a, const Imported& b) const { return a.worth < b.worth; }
  };

  void Next();

  EventLoop& loop_;
  ScheduleCache& cache_;
  Misses& misses_;
  Metrics& metrics_;
  std::priority_queue<Imported, std::vector<Imported>, IsWorthLess> waiting_;
  bool is_at_work_ = false;
};

}  // namespace hone
