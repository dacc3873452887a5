// What the times of a search are held against.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "base/sealed_memfd.h"
#include "tuner/evaluator.h"

namespace hone {

// A shared machine may be 1.4 times slower for some seconds, and times are compared that were taken minutes apart: so
// one program, the default schedule's, is timed again and again between the candidates, and every time is told as it
// would have been when the drift_reference was timed first.
class DriftReference {
 public:
  // The program may come as a candidate of any batch; until it was timed, and without one, times are what was measured.
  explicit DriftReference(std::optional<uint64_t> program = std::nullopt) : program_(program) {}

  std::optional<uint64_t> program() const { return program_; }

  bool is_timed() const { return first_us_ > 0; }

  // The program's code, whose first timing was `time_us`. Times it anew until two timings agree, since what runs first
  // may run cold, and two threads may share a processor for a while; returns the faster one's median. Errors here and
  // below as IsEvaluatorFailure has them.
  Result<double> Adopt(Evaluator& evaluator, int workers, SealedMemfd code, double time_us);

  // How many times as long as at first everything takes now; as it was found a moment ago, or anew.
  Result<double> Pace(Evaluator& evaluator, int workers);
  Result<double> NewPace(Evaluator& evaluator, int workers);

 private:
  Result<std::optional<RunTiming>> TimeNow(Evaluator& evaluator,
                                           int workers);  // nullopt: the machine was not quiet enough

  const std::optional<uint64_t> program_;
  SealedMemfd code_;
  double first_us_ = 0;  // its shortest sample, since noise only adds: threads that share a processor for a moment are
                         // no slower machine. 0: not timed yet
  double pace_ = 1;
  MonotonicTime at_{};                // of the pace
  std::chrono::nanoseconds cost_{0};  // what timing it took
};

}  // namespace hone
