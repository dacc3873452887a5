// OpenCL as a driver. libOpenCL, the loader of installed drivers, is opened at run time.
#pragma once

#include <memory>
#include <vector>

#include "backends/drivers/borrowed_context.h"
#include "backends/drivers/gpu_context.h"
#include "base/result.h"
#include "ir/target.h"

struct _cl_context;  // OpenCL's cl_context and cl_device_id point to these
struct _cl_device_id;

namespace hone {

Result<std::vector<DeviceTarget>> FindOpenClDevices();
Result<std::unique_ptr<GpuContext>> OpenOpenClDevice(const DeviceTarget& target);

// An application's context, which is retained. kInvalid: the device is none of its.
Result<std::unique_ptr<BorrowedContext>> BorrowOpenClContext(_cl_context* context, _cl_device_id* device);

}  // namespace hone
