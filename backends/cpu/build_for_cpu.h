// Building a kernel for the CPU: an ELF shared object. Runs in builder processes only (cpu/builder_main.cc): LLVM may
// abort, loop or eat memory, and must take nothing else down.
#pragma once

#include <string>

#include "backends/processes/build_request.h"
#include "base/result.h"

namespace hone {

// kInvalid (kernel or schedule refused, with the step), kUnsupported, kLimit, kBuildFailed.
Result<BuildOutput> BuildForCpu(const BuildRequest& request);

// Text of the generated code for `hone code`: LLVM IR, then assembly.
Result<std::string> ExplainCode(const BuildRequest& request);

}  // namespace hone
