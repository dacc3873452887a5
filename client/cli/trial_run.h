// Running a kernel on random inputs: is it right, and how fast.
#pragma once

#include "base/result.h"
#include "client/kernel_handle.h"
#include "ir/check.h"

namespace hone::cli {

struct RunReport {
  Comparison comparison;
  double time_us = 0;  // median of the samples
  double gflops = 0;
};

// Binds constants, calls once and compares, then times `samples` samples of as many calls as make one long enough;
// stops early when that takes long. kLimit: no memory for the operands; kRunFailed.
Result<RunReport> TrialRun(KernelHandle& handle, int samples);

}  // namespace hone::cli
