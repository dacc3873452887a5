// Runs a kernel with a schedule for a GPU in the machine model, and compares every element of every output with the
// reference.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "codegen/device_kinds.h"
#include "codegen/gpu/simt_run.h"
#include "codegen/gpu/straighten.h"
#include "codegen/lower/lower.h"
#include "ir/graph/element.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "ir/reference/check_output.h"
#include "ir/schedule/apply.h"

namespace hone {

// A device with 256 threads and 32 KiB a block.
inline Target SomeGpu() {
  return DeviceTarget{std::string(kOpenClKind), {{"block_threads", "256"}, {"block_bytes", "32768"}}};
}

struct GpuOutcome {
  std::string refusal;  // the schedule cannot be made code, for this reason
  std::string failure;  // a wrong element; "" if there is none
  SimtReport report;

  bool IsRight() const { return refusal.empty() && failure.empty() && report.findings.empty(); }
  std::string Text() const {
    std::string text = refusal + failure;
    for (const std::string& finding : report.findings) text += "\n" + finding;
    return text;
  }
};

inline Result<straight::Program> StraightOf(std::string_view text, const Schedule& schedule,
                                            const straight::DeviceLimits& limits = {}) {
  const Kernel kernel = Specialize(HONE_TRY(ParseKernel(text)));
  return Straighten(HONE_TRY(Lower(HONE_TRY(ApplySchedule(kernel, schedule)))), limits);
}

// Runs what is there already, perhaps with something broken on purpose. `fill`: the inputs, if not with test data.
inline GpuOutcome RunStraight(std::string_view text, const straight::Program& program, const SimtOptions& options = {},
                              const std::function<void(int operand, std::span<std::byte> bytes)>& fill = {}) {
  GpuOutcome outcome;
  const Kernel kernel = Specialize(ParseKernel(text).value());
  std::vector<std::vector<std::byte>> storage;
  std::vector<OperandView> inputs;
  std::vector<void*> operands;
  for (size_t i = 0; i < kernel.operands.size(); ++i) {
    const Tensor& tensor = kernel.tensors[kernel.operands[i]];
    storage.emplace_back(static_cast<size_t>(ElementCount(kernel, tensor) * ByteSize(tensor.dtype)));
    if (tensor.kind == TensorKind::kInput && fill)
      fill(static_cast<int>(i), storage.back());
    else if (tensor.kind == TensorKind::kInput)
      FillInput(kernel, static_cast<int>(i), 7, storage.back());
    else
      FillUnwritten(tensor.dtype, storage.back());
  }
  for (size_t i = 0; i < storage.size(); ++i) {
    operands.push_back(storage[i].data());
    if (kernel.tensors[kernel.operands[i]].kind == TensorKind::kInput) inputs.push_back({storage[i].data()});
  }
  outcome.report = SimtRun(program, operands, {}, options).value();
  Interpreter reference(kernel, inputs);
  const double tolerance = Tolerance(kernel);
  int output = -1;
  for (size_t i = 0; i < storage.size() && outcome.failure.empty(); ++i) {
    const Tensor& tensor = kernel.tensors[kernel.operands[i]];
    if (tensor.kind != TensorKind::kOutput) continue;
    ++output;
    for (int64_t e = 0; e < ElementCount(kernel, tensor); ++e) {
      const Reference wanted = reference.At(output, e);
      const double seen = LoadElement(tensor.dtype, storage[i].data(), static_cast<size_t>(e));
      if (RelativeError(seen, wanted, tensor.dtype) <= Allowed(wanted, tensor.dtype, tolerance)) continue;
      outcome.failure = tensor.name + "[" + std::to_string(e) + "] is " + std::to_string(seen) + ", wanted " +
                        std::to_string(wanted.value);
      break;
    }
  }
  return outcome;
}

inline GpuOutcome RunOnGpu(std::string_view text, const Schedule& schedule, const straight::DeviceLimits& limits = {},
                           const SimtOptions& options = {}) {
  Result<straight::Program> program = StraightOf(text, schedule, limits);
  if (!program) return {program.error().Text(), "", {}};
  return RunStraight(text, *program, options);
}

}  // namespace hone
