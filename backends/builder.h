// Building a kernel for the CPU: kernel text and schedule in, a checked ELF shared object out. Runs in builder
// processes only (backends/builder_main.cc): LLVM may abort, loop or eat memory, and must take nothing else down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/manifest.h"
#include "ir/target.h"

namespace hone {

struct BuildRequest {
  std::string kernel;    // anything ParseKernel reads
  std::string schedule;  // ir/schedule/schedule.h's text form; "" asks for the default schedule
  Target target;
};

// Microseconds spent in each step, for the table of where a miss' time goes.
struct BuildTimes {
  double parse = 0, schedule = 0, lower = 0, emit = 0, optimize = 0, codegen = 0, link = 0;
};

struct BuildOutput {
  std::string schedule;           // the schedule in its text form, also when it was the default
  Manifest manifest;              // also inside the object
  std::vector<std::byte> object;  // ELF shared object, reproducible: same request, same bytes
  BuildTimes times;
};

// kInvalid (kernel or schedule refused, with the step), kUnsupported, kLimit, kBuildFailed.
Result<BuildOutput> BuildForCpu(const BuildRequest& request);

// Text of the generated code for `hone code`: LLVM IR, then assembly.
Result<std::string> ExplainCode(const BuildRequest& request);

}  // namespace hone
