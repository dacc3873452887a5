// Measuring candidates: a batch is built, side by side, and compiled by the device's driver if it has one that
// compiles; then they are checked and timed one by one, since building beside measuring disturbs caches and bandwidth.
// Whatever goes wrong with one costs that one.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/trial.h"
#include "tuner/drift_reference.h"
#include "tuner/evaluator.h"
#include "tuner/space.h"

namespace hone {

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
