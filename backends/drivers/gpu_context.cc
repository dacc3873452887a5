#include "backends/drivers/gpu_context.h"

#include <algorithm>
#include <cstring>

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

std::string FactWord(std::string text) {
  text.resize(std::min(text.find('\0'), text.size()));
  std::string word;
  for (char c : text) {
    const bool is_plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || std::strchr(".+-:", c) != nullptr;
    if (is_plain)
      word += c;
    else if (!word.empty() && word.back() != '_')
      word += '_';
  }
  word.resize(std::min<size_t>(word.size(), 100));
  while (!word.empty() && word.back() == '_') word.pop_back();
  return word.empty() ? "unnamed" : word;
}

Error DeviceIsGone(const DeviceTarget& target) {
  return {ErrorKind::kNotFound, "the device is not there any more, or has another driver: " + PrintTarget(target),
          "target"};
}

Result<std::vector<DeviceTarget>> FindDevices(std::string_view kind) { return HONE_TRY(DriverOf(kind))->find(); }
Result<std::unique_ptr<GpuContext>> OpenDevice(const DeviceTarget& target) {
  if (!IsChecked(target))
    return Error{ErrorKind::kUnsupported, "code for a device that is not here can be built, and not run", "target"};
  return HONE_TRY(DriverOf(target.kind))->open(target);
}

}  // namespace hone
