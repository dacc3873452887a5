// The servers' yardstick and the clients that serving_bench puts load on both with.
#pragma once

#include <sys/types.h>

#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"

namespace hone {

double NowUs();  // of a clock that only grows

[[noreturn]] void Die(const std::string& what);  // says it and ends the program with 1

template <typename T>
T Must(Result<T> result) {
  if (!result) Die(result.error().Text());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

double Quantile(std::vector<double>& values, double q);  // reorders them; 0 of none

// A connection to the server at `path`, which may still be starting.
int Dial(const std::string& path);

// The yardstick, in a process of its own: reads `request` bytes, answers `reply` bytes and a descriptor. One thread and
// epoll, as any server of many clients.
pid_t StartPingPong(const std::string& path, size_t request, size_t reply);

struct Messages {
  std::string request;
  size_t reply = 0;  // bytes
};

struct LoopResult {
  double p50 = 0, p99 = 0;  // µs
  double per_second = 0;
};

inline constexpr int kWarmUp = 20;  // exchanges of each client before time is taken

// `clients` threads, a connection each, that ask again as soon as they were answered.
LoopResult ClosedLoop(const std::string& path, const Messages& messages, int clients, double seconds);

// `rate` requests a second at fixed times over a few connections.
LoopResult OpenLoop(const std::string& path, const Messages& messages, double rate, double seconds);

}  // namespace hone
