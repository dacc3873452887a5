#include "client/cli/trial_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "ir/parse.h"

namespace hone::cli {
namespace {

constexpr double kSampleUs = 500;      // a sample is at least that long, so that the clock does not matter
constexpr double kMostUs = 1'000'000;  // for all samples together

struct Operand {
  AlignedBytes memory;
  int64_t bytes = 0;
  std::span<std::byte> span() const { return {static_cast<std::byte*>(memory.get()), static_cast<size_t>(bytes)}; }
};

// A dynamic kernel is run at its largest sizes.
std::vector<int64_t> FixSizes(Kernel& kernel) {
  std::vector<int64_t> values;
  for (Size& size : kernel.sizes) {
    if (size.is_constant()) continue;
    size.lo = size.hi;
    values.push_back(size.hi);
  }
  return values;
}

void Fill(const Kernel& kernel, int operand, uint64_t seed, std::span<std::byte> data) {
  size_t period = std::min<size_t>(data.size(), kInputPeriod);
  FillInput(kernel, operand, seed, data.first(period));
  for (size_t at = period; at < data.size(); at += period) {
    std::memcpy(data.data() + at, data.data(), std::min(period, data.size() - at));
  }
}

Result<void> CallOnce(KernelHandle& handle, std::vector<void*>& buffers, const std::vector<int64_t>& sizes) {
  int status = handle.Call(buffers.data(), sizes.empty() ? nullptr : sizes.data());
  if (status == 0) return {};
  return Error{static_cast<ErrorKind>(status & 0xff),
               "the call was refused or failed, status " + std::to_string(status),
               "operand " + std::to_string((status >> 8) - 1)};
}

Result<double> MedianUs(KernelHandle& handle, std::vector<void*>& buffers, const std::vector<int64_t>& sizes,
                        int samples) {
  Stopwatch first;
  HONE_TRY(CallOnce(handle, buffers, sizes));
  auto calls = static_cast<int64_t>(std::clamp(std::ceil(kSampleUs / std::max(first.Microseconds(), 0.05)), 1.0, 1e5));
  std::vector<double> times;
  for (Stopwatch all; static_cast<int>(times.size()) < samples && (times.size() < 3 || all.Microseconds() < kMostUs);) {
    Stopwatch stopwatch;
    for (int64_t i = 0; i < calls; ++i) HONE_TRY(CallOnce(handle, buffers, sizes));
    times.push_back(stopwatch.Microseconds() / static_cast<double>(calls));
  }
  auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

Result<RunReport> TrialRun(KernelHandle& handle, int samples) {
  Kernel kernel = HONE_TRY(ParseKernel(handle.manifest().kernel));
  std::vector<int64_t> sizes = FixSizes(kernel);
  uint64_t seed = InputSeed(kernel);
  const std::vector<ManifestOperand>& operands = handle.manifest().operands;
  std::vector<Operand> memory;
  std::vector<void*> buffers;
  std::vector<OperandView> inputs;
  std::vector<std::span<const std::byte>> outputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand operand;
    operand.bytes = handle.BytesOf(static_cast<int>(i));
    operand.memory = AllocateAligned(std::max<int64_t>(operand.bytes, 1));
    if (!operand.memory) {
      return Error{ErrorKind::kLimit, "no memory for its " + std::to_string(operand.bytes) + " bytes",
                   operands[i].name};
    }
    buffers.push_back(operand.memory.get());
    if (operands[i].is_output) {
      FillUnwritten(operands[i].dtype, operand.span());
      outputs.push_back(operand.span());
    } else {
      Fill(kernel, static_cast<int>(i), seed, operand.span());
      inputs.push_back({operand.memory.get()});
      if (operands[i].is_const) HONE_TRY(handle.Bind(static_cast<int>(i), operand.memory.get()));
    }
    memory.push_back(std::move(operand));
  }
  HONE_TRY(CallOnce(handle, buffers, sizes));
  Interpreter interpreter(kernel, inputs);
  RunReport report;
  report.comparison = CompareOutputs(kernel, interpreter, ComputeSamples(kernel, interpreter, {}, seed), outputs);
  report.time_us = HONE_TRY(MedianUs(handle, buffers, sizes, samples));
  report.gflops = report.time_us > 0 ? handle.manifest().flops / report.time_us / 1e3 : 0;
  return report;
}

}  // namespace hone::cli
