// Running a kernel on random inputs: is it right, and how fast.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/result.h"
#include "client/api/kernel_handle.h"
#include "ir/reference/check_output.h"

namespace hone::cli {

// A kernel's operands with test data in them, its constants bound: ready to be called.
class TrialOperands {
 public:
  // `kernel`: the handle's kernel at these sizes, the dynamic ones, in order. Both outlive this, and the handle's
  // constants are bound to this one's data until another takes its place. kLimit: no memory.
  static Result<TrialOperands> Make(KernelHandle& handle, const Kernel& kernel, std::vector<int64_t> sizes);

  Result<void> Call();                   // kRunFailed, or what hone_call said
  Result<double> Sample(int64_t calls);  // microseconds of one
  Comparison Compare() const;            // REQUIRES: called

  // So many calls that a sample is long enough for the clock not to matter.
  Result<int64_t> CallsInASample();

 private:
  struct Operand {
    AlignedBytes memory;
    int64_t bytes = 0;
    bool is_output = false;
    std::span<std::byte> span() const { return {static_cast<std::byte*>(memory.get()), static_cast<size_t>(bytes)}; }
  };

  TrialOperands(KernelHandle& handle, const Kernel& kernel, std::vector<int64_t> sizes)
      : handle_(&handle), kernel_(&kernel), sizes_(std::move(sizes)) {}

  KernelHandle* handle_;
  const Kernel* kernel_;
  std::vector<int64_t> sizes_;
  std::vector<Operand> operands_;
  std::vector<void*> buffers_;
};

double MedianOf(std::vector<double> values);  // REQUIRES: not empty

struct RunReport {
  Comparison comparison;
  double time_us = 0;  // median of the samples
  double gflops = 0;
};

// Binds constants, calls once and compares, then times `samples` samples of as many calls as make one long enough;
// stops early when that takes long. A dynamic kernel is run at its largest sizes. kLimit: no memory for the operands;
// kRunFailed.
Result<RunReport> TrialRun(KernelHandle& handle, int samples);

}  // namespace hone::cli
