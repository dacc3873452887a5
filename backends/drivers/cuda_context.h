// CUDA as a driver. libcuda, which comes with NVIDIA's driver, is opened at run time.
#pragma once

#include <memory>
#include <vector>

#include "backends/drivers/borrowed_context.h"
#include "backends/drivers/gpu_context.h"
#include "base/result.h"
#include "ir/target.h"

struct CUctx_st;  // CUDA's CUcontext points to it

namespace hone {

Result<std::vector<DeviceTarget>> FindCudaDevices();
Result<std::unique_ptr<GpuContext>> OpenCudaDevice(const DeviceTarget& target);

// An application's context, which lives longer; nullptr: the one that is current in this thread. kInvalid: none is.
Result<std::unique_ptr<BorrowedContext>> BorrowCudaContext(CUctx_st* context);

}  // namespace hone
