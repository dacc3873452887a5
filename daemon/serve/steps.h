// The steps of a request and what each took.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "client/protocol/protocol.h"
#include "daemon/metrics.h"

namespace hone {

// Collects the steps' times for the reply and for `hone stats`.
class Steps {
 public:
  explicit Steps(std::vector<StepTime> before = {}) : steps_(std::move(before)) {}
  void Done(std::string name, Histogram& histogram) {
    double us = stopwatch_.Microseconds();
    histogram.Add(us);
    steps_.push_back({std::move(name), us});
    stopwatch_.Restart();
  }
  void Add(std::string name, double us) { steps_.push_back({std::move(name), us}); }
  std::vector<StepTime> Take() { return std::move(steps_); }

 private:
  std::vector<StepTime> steps_;
  Stopwatch stopwatch_;
};

}  // namespace hone
