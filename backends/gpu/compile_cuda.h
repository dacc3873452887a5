// CUDA C -> code for one architecture of NVIDIA's (a cubin), by NVRTC, where kernels are built, so that who runs them
// needs no compiler. NVRTC is a library that comes with a CUDA installation or in a Python package, and is opened at
// run time.
#pragma once

#include <cstdint>
#include <map>
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

// The same code before ptxas made instructions of it, as text, for who wants to read it.
Result<std::string> PtxOfCuda(const std::string& source, std::string_view arch);

// What ptxas counts of one launch.
struct PtxasCounts {
  int64_t registers = 0;      // of a thread
  int64_t shared_bytes = 0;   // of a block
  int64_t spilled_bytes = 0;  // of a thread: stored and loaded
  bool serializes = false;    // products of a group of warps, for which it waits one by one
};
// Of every launch of the same code, by its name. kCorrupt: ptxas' report is not as we know it.
Result<std::map<std::string, PtxasCounts>> CountsOfPtxas(const std::string& source, std::string_view arch);

}  // namespace hone
