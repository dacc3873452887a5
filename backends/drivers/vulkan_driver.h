// Vulkan's functions, found in its loader, and devices as targets. What is here needs Vulkan's headers; includers ask
// for them first (vulkan_context.cc).
#pragma once

#include <vulkan/vulkan.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ir/target.h"

namespace hone {

// The functions that we call, found in the loader.
// clang-format off
#define HONE_VULKAN_FUNCTIONS(F)                                                                            \
  F(vkCreateInstance) F(vkEnumeratePhysicalDevices) F(vkEnumerateDeviceExtensionProperties)                 \
  F(vkGetPhysicalDeviceProperties) F(vkGetPhysicalDeviceProperties2) F(vkGetPhysicalDeviceFeatures2)        \
  F(vkGetPhysicalDeviceQueueFamilyProperties) F(vkGetPhysicalDeviceMemoryProperties)                        \
  F(vkCreateDevice) F(vkDestroyDevice) F(vkGetDeviceQueue) F(vkQueueSubmit)              \
  F(vkCreateCommandPool) F(vkDestroyCommandPool) F(vkAllocateCommandBuffers) F(vkBeginCommandBuffer)        \
  F(vkEndCommandBuffer) F(vkCmdPipelineBarrier) F(vkCmdCopyBuffer) F(vkCmdBindPipeline)                     \
  F(vkCmdPushConstants) F(vkCmdDispatch) F(vkCmdResetQueryPool) F(vkCmdWriteTimestamp)                      \
  F(vkCreateQueryPool) F(vkDestroyQueryPool) F(vkGetQueryPoolResults) F(vkCreateBuffer) F(vkDestroyBuffer)  \
  F(vkGetBufferMemoryRequirements) F(vkGetBufferDeviceAddress) F(vkAllocateMemory) F(vkFreeMemory)          \
  F(vkBindBufferMemory) F(vkMapMemory) F(vkCreateShaderModule) F(vkDestroyShaderModule)                     \
  F(vkCreatePipelineLayout) F(vkDestroyPipelineLayout) F(vkCreateComputePipelines) F(vkDestroyPipeline)     \
  F(vkCreateFence) F(vkDestroyFence) F(vkResetFences) F(vkWaitForFences) F(vkGetSemaphoreCounterValue)      \
  F(vkWaitSemaphores)
// clang-format on

struct VulkanFunctions {
#define HONE_DECLARE(function) decltype(&::function) function = nullptr;
  HONE_VULKAN_FUNCTIONS(HONE_DECLARE)
#undef HONE_DECLARE
};

// kLimit: out of memory; kRunFailed otherwise, and the device may be good for nothing any more.
Result<void> CheckVulkan(const std::string& what, VkResult code);

// Destroyed with its owner, which must not outlive the device.
template <typename T>
class VulkanOwned {
 public:
  using Destroy = void (*)(VkDevice, T, const VkAllocationCallbacks*);
  VulkanOwned() = default;
  VulkanOwned(VkDevice device, T object, Destroy destroy) : device_(device), object_(object), destroy_(destroy) {}
  VulkanOwned(VulkanOwned&& other) noexcept
      : device_(other.device_), object_(std::exchange(other.object_, T{})), destroy_(other.destroy_) {}
  VulkanOwned& operator=(VulkanOwned&& other) noexcept {
    std::swap(device_, other.device_), std::swap(object_, other.object_), std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~VulkanOwned() {
    if (object_ != T{}) destroy_(device_, object_, nullptr);
  }
  T get() const { return object_; }

 private:
  VkDevice device_ = nullptr;
  T object_{};
  Destroy destroy_ = nullptr;
};

// A device that our shaders run on.
struct VulkanFound {
  VkPhysicalDevice device = nullptr;
  uint32_t queue_family = 0;
  uint32_t timestamp_bits = 0;
  float timestamp_ns = 1;
  VkDeviceSize most_bytes = 0;  // of one allocation
  DeviceTarget target;
};

// kNotFound: no loader, or no driver.
Result<const VulkanFunctions*> LoadVulkan();
Result<std::vector<VulkanFound>> FindVulkan();
// nullopt: our shaders do not run on it.
std::optional<VulkanFound> DescribeVulkan(const VulkanFunctions& vk, VkPhysicalDevice device);
// An application's, whose queues of this family are used. kInvalid: it is none of the instance's; it has no such
// family, or one that does not compute; kUnsupported: our shaders do not run on it.
Result<VulkanFound> FindBorrowedVulkan(const VulkanFunctions& vk, VkInstance instance, VkPhysicalDevice device,
                                       uint32_t queue_family);

// What a device can do beyond Vulkan 1.0, and what is asked of it.
struct VulkanFeatures {
  VkPhysicalDeviceVulkan12Features v12{};
  VkPhysicalDeviceVulkan11Features v11{};
  VkPhysicalDeviceFeatures2 core{};

  VulkanFeatures() {
    core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
    v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    core.pNext = &v11;
    v11.pNext = &v12;
  }
  VulkanFeatures(const VulkanFeatures&) = delete;  // its parts point at each other
  VulkanFeatures& operator=(const VulkanFeatures&) = delete;

  bool IsEnough() const { return v12.bufferDeviceAddress != 0 && v12.scalarBlockLayout != 0; }
  bool HasBytes() const { return v12.shaderInt8 != 0 && v12.storageBuffer8BitAccess != 0; }
  bool HasHalfWords() const { return core.features.shaderInt16 != 0 && v11.storageBuffer16BitAccess != 0; }
};

}  // namespace hone
