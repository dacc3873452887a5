// Vulkan as a driver. libvulkan, the loader of installed drivers, is opened at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/drivers/borrowed_context.h"
#include "backends/drivers/gpu_context.h"
#include "base/result.h"
#include "ir/target.h"

struct VkInstance_T;  // Vulkan's VkInstance and so on point to these
struct VkPhysicalDevice_T;
struct VkDevice_T;
struct VkQueue_T;

namespace hone {

Result<std::vector<DeviceTarget>> FindVulkanDevices();
Result<std::unique_ptr<GpuContext>> OpenVulkanDevice(const DeviceTarget& target);

// An application's device, and a queue of it, of the found family: `lock` and `unlock`, which may be nullptr, are
// called around what is submitted there, because Vulkan wants that done by one thread at a time.
struct BorrowedVulkan {
  VkInstance_T* instance = nullptr;
  VkPhysicalDevice_T* physical_device = nullptr;
  VkDevice_T* device = nullptr;
  uint32_t queue_family = 0;
  VkQueue_T* queue = nullptr;
  void (*lock)(void* user) = nullptr;
  void (*unlock)(void* user) = nullptr;
  void* user = nullptr;
};

// kInvalid: no such queue, or one that does not compute; kUnsupported: our shaders do not run on it.
Result<std::unique_ptr<BorrowedContext>> BorrowVulkanDevice(const BorrowedVulkan& device);

}  // namespace hone
