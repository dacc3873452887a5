// Building a kernel for a GPU: the source of its launches in the device's language, or what a compiler of ours makes of
// it where the driver takes no text, and the plan of a call. The device's own compiler comes later, where the code runs
// (backends/gpu/device_process.h).
#pragma once

#include <string>
#include <string_view>

#include "backends/processes/build_request.h"
#include "base/result.h"

namespace hone {

// The language of a kind of device, as a dialect of codegen/gpu: "opencl". "": it is no kind of GPU.
std::string_view LanguageOf(std::string_view kind);

// kInvalid (kernel or schedule refused, with the step), kUnsupported (what code for GPUs does not know yet, or the
// device lacks), kLimit (of the device).
Result<BuildOutput> BuildForGpu(const BuildRequest& request);

// Schedule, loop program and source, for `hone code`.
Result<std::string> ExplainGpuCode(const BuildRequest& request);

}  // namespace hone
