// Measuring candidates: a batch is built, side by side, then checked and timed one by one, since building beside
// measuring disturbs caches and bandwidth. Whatever goes wrong with one costs that one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/builder_pool.h"
#include "backends/runner_pool.h"
#include "base/clock.h"
#include "base/result.h"
#include "tuner/space.h"

namespace hone {

// Where one kernel's candidates are built and run. Builds may be asked for from several threads at once; checks and
// times come from one.
class Rig {
 public:
  virtual ~Rig() = default;
  virtual int builders() const = 0;
  // Called before anything that takes the processor for a while: blocks while the machine is somebody else's.
  virtual void AwaitTurn() {}
  virtual const Clock& clock() const { return Clock::Real(); }  // by which what was measured ages
  virtual Result<BuiltArtifact> Build(const std::string& schedule) = 0;
  virtual Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options) = 0;
  virtual Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions& options) = 0;
};

// What became of a candidate. Stored in the log of trials: never reuse a number.
enum class Verdict : uint8_t {
  kTimed = 1,
  kNotBuilt = 2,   // the builder refused it, crashed on it or took too long
  kCrashed = 3,    // its code did: a forbidden call, a stray access
  kTimedOut = 4,   // its code ran for ever, or so much slower than the best that it was stopped
  kWrong = 5,      // its code computes something else
  kDisturbed = 6,  // the machine was never quiet enough
};
std::string_view VerdictName(Verdict verdict);  // "timed", "not built" …

struct Trial {
  Candidate candidate;
  Verdict verdict = Verdict::kDisturbed;
  double time_us = 0;   // median of a call, kTimed only; at the anchor's pace, if there is one
  double noise_us = 0;  // its spread
  std::string why;      // of every other verdict
  std::string protocol;
  double build_us = 0, check_us = 0, measure_us = 0;  // what the trial cost
};

// What the times of a search are held against. A shared machine may be 1.4 times slower for some seconds, and times are
// compared that were taken minutes apart: so one program, the default schedule's, is timed again and again between the
// candidates, and every time is told as it would have been when the anchor was timed first.
class Anchor {
 public:
  // The program may come as a candidate of any batch; until it was timed, and without one, times are what was measured.
  explicit Anchor(std::optional<uint64_t> program = std::nullopt) : program_(program) {}

  std::optional<uint64_t> program() const { return program_; }

  // If `trial` timed the anchor's program: its code. Times it anew until two timings agree, since what runs first may run
  // cold, and two threads may share a processor for a while; puts the faster one into the trial. Errors as MeasureBatch's.
  Result<void> Adopt(Rig& rig, int workers, SealedMemfd code, Trial& trial);

  // How many times as long as at first everything takes now; as it was found a moment ago, or anew.
  Result<double> Pace(Rig& rig, int workers);
  Result<double> NewPace(Rig& rig, int workers);

 private:
  Result<std::optional<RunTiming>> TimeNow(Rig& rig, int workers);  // nullopt: the machine was not quiet enough

  const std::optional<uint64_t> program_;
  SealedMemfd code_;
  double first_us_ = 0;  // its shortest sample, since noise only adds: threads that share a processor for a moment are no
                         // slower machine. 0: not timed yet
  double pace_ = 1;
  MonotonicTime at_{};                // of the pace
  std::chrono::nanoseconds cost_{0};  // what timing it took
};

struct MeasureOptions {
  int workers = 1;
  double best_us = 0;  // so far; 0: none. What is clearly slower than that, or the best of the batch, is stopped early.
  Anchor* anchor = nullptr;
};

// A trial per candidate, in order, each told to `on_trial` as soon as it is over; fewer if `stop` was requested. An
// error means that measuring itself does not work (kUnavailable, kBusy …), not that a candidate failed.
Result<std::vector<Trial>> MeasureBatch(Rig& rig, std::vector<Candidate> candidates, MeasureOptions options,
                                        std::stop_token stop, const std::function<void(const Trial&)>& on_trial = {});

// Which of several is fastest, measured in turns: the index of the one with the least median over the rounds, of each
// round's shortest sample, since noise only adds.
// REQUIRES: at least one.
Result<size_t> Fastest(Rig& rig, const std::vector<const SealedMemfd*>& codes, int workers, int rounds,
                       std::stop_token stop);

// Ratios old/new of paired, interleaved samples; > 1: the new one is faster.
struct HeadToHead {
  double ratio = 1;  // median
  double low = 1;    // 95 % interval of the median, from order statistics
  double high = 1;
  double old_us = 0, new_us = 0;
};
// Where the new one seems to win by more than 2 % but the interval holds 1, up to four times the rounds.
Result<HeadToHead> Compare(Rig& rig, const SealedMemfd& old_code, const SealedMemfd& new_code, int workers, int rounds,
                           std::stop_token stop);

}  // namespace hone
