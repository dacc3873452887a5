// Measuring candidates: a batch is built, side by side, then checked and timed one by one, since building beside
// measuring disturbs caches and bandwidth. Whatever goes wrong with one costs that one.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tuner/drift_reference.h"
#include "tuner/evaluator.h"
#include "tuner/space.h"

namespace hone {

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
  double time_us = 0;   // median of a call, kTimed only; at the drift_reference's pace, if there is one
  double noise_us = 0;  // its spread
  std::string why;      // of every other verdict
  std::string protocol;
  double build_us = 0, check_us = 0, measure_us = 0;  // what the trial cost
};

struct MeasureOptions {
  int workers = 1;
  double best_us = 0;  // so far; 0: none. What is clearly slower than that, or the best of the batch, is stopped early.
  DriftReference* drift_reference = nullptr;
};

// A trial per candidate, in order, each told to `on_trial` as soon as it is over; fewer if `stop` was requested. An
// error means that measuring itself does not work (kUnavailable, kBusy …), not that a candidate failed.
Result<std::vector<Trial>> MeasureBatch(Evaluator& evaluator, std::vector<Candidate> candidates, MeasureOptions options,
                                        std::stop_token stop, const std::function<void(const Trial&)>& on_trial = {});

}  // namespace hone
