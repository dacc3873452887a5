// Kernels that could not be compiled, remembered for a while: who asks again is told at once, and no builder is kept
// busy by them. A kernel that fails again is remembered for twice as long.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/result.h"

namespace hone {

// One thread at a time.
class Failures {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kFirst{10};
  static constexpr std::chrono::hours kLongest{1};
  static constexpr size_t kMost = 4096;  // then the one that is over first is forgotten

  void Note(const std::string& kernel, const Error& error, Clock::time_point now);
  // Why it failed, if that is still remembered; valid until the next call.
  const Error* Find(const std::string& kernel, Clock::time_point now) const;
  void Forget(const std::string& kernel) { failures_.erase(kernel); }
  void ForgetAll() { failures_.clear(); }

 private:
  struct Failure {
    Error error;
    std::chrono::seconds time;  // that it is remembered
    Clock::time_point until;
  };
  std::unordered_map<std::string, Failure> failures_;
};

}  // namespace hone
