// CUDA C -> code for one architecture of NVIDIA's (a cubin), by NVRTC, where kernels are built, so that who runs them
// needs no compiler. NVRTC is a library that comes with a CUDA installation or in a Python package, and is opened at
// run time.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hone {

// Opens NVRTC, once in a process, and has it compile a little something, so that from then on it needs no file.
// kUnsupported: it cannot be opened, or is too old for us. REQUIRES: one thread.
Result<void> OpenNvrtc(const std::string& path);

// For "sm_90": a cubin. kBuildFailed with NVRTC's log; kUnsupported: NVRTC was not opened, with what to install.
// Thread-safe.
Result<std::string> CompileCuda(const std::string& source, std::string_view arch);
// What ptxas has to say of the same code: registers, bytes of block storage and spills of each launch.
Result<std::string> ReportOfPtxas(const std::string& source, std::string_view arch);

}  // namespace hone
