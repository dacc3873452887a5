// OpenCL as a driver. libOpenCL, the loader of installed drivers, is opened at run time.
#pragma once

#include <memory>
#include <vector>

#include "backends/drivers/gpu_context.h"
#include "base/result.h"
#include "ir/target.h"

namespace hone {

Result<std::vector<DeviceTarget>> FindOpenClDevices();
Result<std::unique_ptr<GpuContext>> OpenOpenClDevice(const DeviceTarget& target);

}  // namespace hone
