// The data that the cost model is judged by: times of random and mutated schedules on this machine, as JSON lines
// {"kernel", "target", "schedule", "time_us"}. Kernels are built and timed in a child process of the bench each: a
// candidate that crashes ends its kernel's part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/target.h"

namespace hone {

struct CollectOptions {
  int per_kernel = 120;
  double seconds = 30;  // per kernel
  uint64_t seed = 1;
  Target target;
};

// Appends to `path`. Both return the exit status.
int Collect(const CollectOptions& options, const std::string& path, const std::vector<std::string>& kernels);

// Times what `path` holds once more, up to `per_kernel` of each kernel: how far two measurements agree bounds what any
// model can reach.
int Remeasure(const CollectOptions& options, const std::string& path, const std::string& out_path);

}  // namespace hone
