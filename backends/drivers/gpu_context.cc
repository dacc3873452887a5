#include "backends/drivers/gpu_context.h"

#include "backends/drivers/cuda_context.h"
#include "backends/drivers/opencl_context.h"
#include "backends/drivers/vulkan_context.h"

namespace hone {
namespace {

struct Driver {
  std::string_view kind;
  Result<std::vector<DeviceTarget>> (*find)();
  Result<std::unique_ptr<GpuContext>> (*open)(const DeviceTarget& target);
};
constexpr Driver kDrivers[] = {
    {kOpenClKind, FindOpenClDevices, OpenOpenClDevice},
    {kVulkanKind, FindVulkanDevices, OpenVulkanDevice},
    {kCudaKind, FindCudaDevices, OpenCudaDevice},
};

Result<const Driver*> DriverOf(std::string_view kind) {
  for (const Driver& driver : kDrivers)
    if (driver.kind == kind) return &driver;
  return Error{ErrorKind::kUnsupported, "no driver for devices of kind \"" + std::string(kind) + "\"", "target"};
}

}  // namespace

Result<std::vector<DeviceTarget>> FindDevices(std::string_view kind) { return HONE_TRY(DriverOf(kind))->find(); }
Result<std::unique_ptr<GpuContext>> OpenDevice(const DeviceTarget& target) {
  if (!IsChecked(target))
    return Error{ErrorKind::kUnsupported, "code for a device that is not here can be built, and not run", "target"};
  return HONE_TRY(DriverOf(target.kind))->open(target);
}

}  // namespace hone
