#include "tuner/evaluator.h"

namespace hone {
namespace {

constexpr int kSamples = 9;
constexpr double kNarrow = 0.01;
constexpr std::chrono::microseconds kMinSample{150};
constexpr std::chrono::microseconds kWarmup{500};

}  // namespace

bool IsEvaluatorFailure(const Error& error) {
  return error.kind == ErrorKind::kUnavailable || error.kind == ErrorKind::kInternal;
}

TimeOptions TrialTiming(int workers) {
  TimeOptions options;
  options.workers = workers;
  options.samples = kSamples;
  options.max_samples = 4 * kSamples;
  options.narrow = kNarrow;
  options.min_sample = kMinSample;
  options.warmup = kWarmup;
  return options;
}

}  // namespace hone
