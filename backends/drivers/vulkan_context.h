// Vulkan as a driver. libvulkan, the loader of installed drivers, and libshaderc, which compiles GLSL to what they
// take, are opened at run time.
#pragma once

#include <memory>
#include <vector>

#include "backends/drivers/gpu_context.h"
#include "base/result.h"
#include "ir/target.h"

namespace hone {

Result<std::vector<DeviceTarget>> FindVulkanDevices();
Result<std::unique_ptr<GpuContext>> OpenVulkanDevice(const DeviceTarget& target);

}  // namespace hone
