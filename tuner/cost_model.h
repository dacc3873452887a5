// The cost model: predicts from features how fast a candidate will be, learns from what was measured.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"

namespace hone {

// A candidate that ran and was timed. What failed is no sample: it has no time. Samples come in the order in which they
// were made: what ran after a default is compared with what else ran then by its gain over that default's time, since
// an hour later the machine may be another.
struct Sample {
  std::vector<float> features;  // ExtractFeatures of its loop program
  double time_us = 0;
  uint64_t group = 0;       // kernel and target: only samples of one group are compared
  bool is_default = false;  // the default schedule, from which gains are counted
};

// How long a candidate may take. The bounds hold about 80 % of what was measured, by held-out groups: what the model
// said of kernels that it had not seen.
struct Latency {
  double expected_us = 0;
  double low_us = 0;
  double high_us = 0;
};

// How many times as fast as the default schedule candidates may be.
struct Gains {
  std::vector<float> log2;
  double trust = 0;  // 0 … 1: how much of what is predicted so was found on kernels that were kept from the model
};

// Thread-safe: Score and Predict use the newest finished model and never wait for training.
class CostModel {
 public:
  virtual ~CostModel() = default;

  // Learns from these as well, from the next Update or Retrain on. A group may come in several calls. kInvalid: a
  // feature vector of another length, a number that is not finite, a time that is not positive; then none is added.
  virtual Result<void> Add(std::span<const Sample> samples) = 0;

  // What the samples of one group say beyond the model of all: cheap enough for every round of a search
  // (bench/model_bench: ≤ 100 ms for 2,000 samples). Scores of the group's candidates take `group`. Nothing to learn
  // from: no change.
  virtual Result<void> Update(uint64_t group) = 0;

  // Learns anew from the samples of all groups; what Update learnt is dropped, as it is part of that. Some 0.4 ms of a
  // processor for each sample: for the background. kTimeout: told to stop; it says what it said before.
  virtual Result<void> Retrain(const std::stop_token& stop = {}) = 0;

  // A score per row, higher is faster; only the order within one group counts. nullopt: nothing was learnt yet.
  // kInvalid: rows as Add refuses them.
  virtual Result<std::optional<std::vector<float>>> Score(uint64_t group,
                                                          std::span<const std::vector<float>> rows) const = 0;

  // The gain of each row over the default schedule, whose features are `standard`, on a kernel that need not have been
  // seen: what is different from the default tells more than what a candidate is by itself. nullopt: never retrained,
  // or no default was among the samples. kInvalid: rows as Add refuses them.
  virtual Result<std::optional<Gains>> Gain(const std::vector<float>& standard,
                                            std::span<const std::vector<float>> rows) const = 0;

  // nullopt: never retrained.
  virtual Result<std::optional<Latency>> Predict(const std::vector<float>& row) const = 0;

  virtual size_t SampleCount() const = 0;     // that it holds
  virtual size_t NewSampleCount() const = 0;  // that were added since it learnt anew, those too that it holds no more

  // What was learnt, sealed (base/envelope.h), without the samples: those are in the log of trials.
  virtual Result<std::string> Save() const = 0;
};

}  // namespace hone
