#include "client/cli/device_run.h"

#include <algorithm>
#include <cmath>

#include "backends/drivers/gpu_context.h"
#include "base/clock.h"
#include "client/api/device_code.h"
#include "ir/language/parse.h"

namespace hone::cli {
namespace {

constexpr double kSampleNs = 1e6;             // between two events, so that their clock's grain does not matter
constexpr double kMostSampledUs = 1'000'000;  // for all samples together

Comparison Compare(const Kernel& kernel, const DeviceArtifact& artifact,
                   const std::vector<std::vector<std::byte>>& operands) {
  std::vector<OperandView> inputs;
  std::vector<std::span<const std::byte>> outputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (artifact.manifest.operands[i].is_output)
      outputs.push_back(operands[i]);
    else
      inputs.push_back({operands[i].data()});
  }
  Interpreter interpreter(kernel, inputs);
  return CompareOutputs(kernel, interpreter, ComputeSamples(kernel, interpreter, {}, InputSeed(kernel)), outputs);
}

}  // namespace

Result<RunReport> RunOnDevice(const Served& served, int samples) {
  const DeviceArtifact artifact = HONE_TRY(OpenDeviceCode(served));
  const Target target = HONE_TRY(ParseTarget(artifact.manifest.target));
  std::unique_ptr<GpuContext> context = HONE_TRY(OpenDevice(*target.device()));
  std::unique_ptr<LoadedKernel> loaded = HONE_TRY(context->Load(artifact, Operands::kOwned));
  const Kernel kernel = HONE_TRY(ParseKernel(artifact.manifest.kernel));
  std::vector<std::vector<std::byte>> operands(artifact.manifest.operands.size());
  for (size_t b = 0; b < artifact.buffers.size(); ++b) {
    const DeviceBuffer& buffer = artifact.buffers[b];
    if (buffer.operand < 0) continue;
    const auto i = static_cast<size_t>(buffer.operand);
    operands[i].resize(static_cast<size_t>(buffer.bytes));
    if (artifact.manifest.operands[i].is_output)
      FillUnwritten(artifact.manifest.operands[i].dtype, operands[i]);
    else
      FillInput(kernel, buffer.operand, InputSeed(kernel), operands[i]);
    HONE_TRY(loaded->Write(b, operands[i]));
  }
  HONE_TRY(loaded->Pack());
  const double once_ns = std::max(1.0, static_cast<double>(HONE_TRY(loaded->Call(1))));
  for (size_t b = 0; b < artifact.buffers.size(); ++b)
    if (artifact.buffers[b].operand >= 0 && artifact.buffers[b].is_written)
      HONE_TRY(loaded->Read(b, operands[static_cast<size_t>(artifact.buffers[b].operand)]));
  RunReport report;
  report.comparison = Compare(kernel, artifact, operands);
  const auto calls = static_cast<int>(std::clamp(std::ceil(kSampleNs / once_ns), 1.0, 1e4));
  std::vector<double> times;
  for (Stopwatch all;
       static_cast<int>(times.size()) < samples && (times.size() < 3 || all.Microseconds() < kMostSampledUs);)
    times.push_back(static_cast<double>(HONE_TRY(loaded->Call(calls))) / calls / 1000);
  report.time_us = MedianOf(std::move(times));
  report.gflops = report.time_us > 0 ? FlopCount(kernel) / report.time_us / 1e3 : 0;
  return report;
}

}  // namespace hone::cli
