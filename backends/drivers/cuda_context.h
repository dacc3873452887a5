// CUDA as a driver. libcuda, which comes with NVIDIA's driver, is opened at run time; what we call of it is declared in
// cuda_driver.h.
#pragma once

#include <memory>
#include <vector>

#include "backends/drivers/gpu_context.h"
#include "base/result.h"
#include "ir/target.h"

namespace hone {

Result<std::vector<DeviceTarget>> FindCudaDevices();
Result<std::unique_ptr<GpuContext>> OpenCudaDevice(const DeviceTarget& target);

}  // namespace hone
