#include "client/cli/trial_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "ir/language/parse.h"

namespace hone::cli {
namespace {

constexpr double kSampleUs = 500;      // a sample is at least that long, so that the clock does not matter
constexpr double kMostUs = 1'000'000;  // for all samples together

void Fill(const Kernel& kernel, int operand, uint64_t seed, std::span<std::byte> data) {
  size_t period = std::min<size_t>(data.size(), kInputPeriod);
  FillInput(kernel, operand, seed, data.first(period));
  for (size_t at = period; at < data.size(); at += period) {
    std::memcpy(data.data() + at, data.data(), std::min(period, data.size() - at));
  }
}

int64_t BytesAt(const Kernel& kernel, int operand) {
  const Tensor& tensor = kernel.tensors[kernel.operands[static_cast<size_t>(operand)]];
  return ElementCount(kernel, tensor) * ByteSize(tensor.dtype);
}

}  // namespace

Result<TrialOperands> TrialOperands::Make(KernelHandle& handle, const Kernel& kernel, std::vector<int64_t> sizes) {
  TrialOperands trial(handle, kernel, std::move(sizes));
  const uint64_t seed = InputSeed(kernel);
  const std::vector<ManifestOperand>& facts = handle.manifest().operands;
  for (size_t i = 0; i < facts.size(); ++i) {
    Operand operand;
    operand.bytes = BytesAt(kernel, static_cast<int>(i));
    operand.is_output = facts[i].is_output;
    operand.memory = AllocateAligned(std::max<int64_t>(operand.bytes, 1));
    if (!operand.memory)
      return Error{ErrorKind::kLimit, "no memory for its " + std::to_string(operand.bytes) + " bytes", facts[i].name};
    trial.buffers_.push_back(operand.memory.get());
    if (operand.is_output) {
      FillUnwritten(facts[i].dtype, operand.span());
    } else {
      Fill(kernel, static_cast<int>(i), seed, operand.span());
      if (facts[i].is_const) HONE_TRY(handle.Bind(static_cast<int>(i), operand.memory.get()));
    }
    trial.operands_.push_back(std::move(operand));
  }
  return trial;
}

Result<void> TrialOperands::Call() {
  int status = handle_->Call(buffers_.data(), sizes_.empty() ? nullptr : sizes_.data());
  if (status == 0) return {};
  return Error{static_cast<ErrorKind>(status & 0xff),
               "the call was refused or failed, status " + std::to_string(status),
               "operand " + std::to_string((status >> 8) - 1)};
}

Result<double> TrialOperands::Sample(int64_t calls) {
  Stopwatch stopwatch;
  for (int64_t i = 0; i < calls; ++i) HONE_TRY(Call());
  return stopwatch.Microseconds() / static_cast<double>(calls);
}

Result<int64_t> TrialOperands::CallsInASample() {
  const double once = HONE_TRY(Sample(1));
  return static_cast<int64_t>(std::clamp(std::ceil(kSampleUs / std::max(once, 0.05)), 1.0, 1e5));
}

Comparison TrialOperands::Compare() const {
  std::vector<OperandView> inputs;
  std::vector<std::span<const std::byte>> outputs;
  for (const Operand& operand : operands_) {
    if (operand.is_output)
      outputs.push_back(operand.span());
    else
      inputs.push_back({operand.memory.get()});
  }
  Interpreter interpreter(*kernel_, inputs);
  return CompareOutputs(*kernel_, interpreter, ComputeSamples(*kernel_, interpreter, {}, InputSeed(*kernel_)), outputs);
}

double MedianOf(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Result<RunReport> TrialRun(KernelHandle& handle, int samples) {
  Kernel kernel = HONE_TRY(ParseKernel(handle.manifest().kernel));
  std::vector<int64_t> sizes;
  for (Size& size : kernel.sizes) {
    if (!size.is_constant()) sizes.push_back(size.hi);
    size.lo = size.hi;
  }
  TrialOperands operands = HONE_TRY(TrialOperands::Make(handle, kernel, std::move(sizes)));
  HONE_TRY(operands.Call());
  RunReport report;
  report.comparison = operands.Compare();
  const int64_t calls = HONE_TRY(operands.CallsInASample());
  std::vector<double> times;
  for (Stopwatch all; static_cast<int>(times.size()) < samples && (times.size() < 3 || all.Microseconds() < kMostUs);)
    times.push_back(HONE_TRY(operands.Sample(calls)));
  report.time_us = MedianOf(std::move(times));
  report.gflops = report.time_us > 0 ? FlopCount(kernel) / report.time_us / 1e3 : 0;
  return report;
}

}  // namespace hone::cli
