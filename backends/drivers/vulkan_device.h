// A Vulkan device with one queue: finds, allocates, copies, runs and times. What is here needs Vulkan's headers;
// includers ask for them first (vulkan_context.cc).
#pragma once

#include <vulkan/vulkan.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
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
  F(vkCreateDevice) F(vkDestroyDevice) F(vkGetDeviceQueue) F(vkQueueSubmit) F(vkQueueWaitIdle)              \
  F(vkCreateCommandPool) F(vkDestroyCommandPool) F(vkAllocateCommandBuffers) F(vkBeginCommandBuffer)        \
  F(vkEndCommandBuffer) F(vkCmdPipelineBarrier) F(vkCmdCopyBuffer) F(vkCmdBindPipeline)                     \
  F(vkCmdPushConstants) F(vkCmdDispatch) F(vkCmdResetQueryPool) F(vkCmdWriteTimestamp)                      \
  F(vkCreateQueryPool) F(vkDestroyQueryPool) F(vkGetQueryPoolResults) F(vkCreateBuffer) F(vkDestroyBuffer)  \
  F(vkGetBufferMemoryRequirements) F(vkGetBufferDeviceAddress) F(vkAllocateMemory) F(vkFreeMemory)          \
  F(vkBindBufferMemory) F(vkMapMemory) F(vkCreateShaderModule) F(vkDestroyShaderModule)                     \
  F(vkCreatePipelineLayout) F(vkDestroyPipelineLayout) F(vkCreateComputePipelines) F(vkDestroyPipeline)
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

struct VulkanMemory {
  VulkanOwned<VkDeviceMemory> memory;
  VulkanOwned<VkBuffer> buffer;
  VkDeviceAddress address = 0;
  std::byte* mapped = nullptr;  // if the host sees it
  size_t bytes = 0;
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
Result<std::vector<VulkanFound>> FindVulkan();

class VulkanDevice {
 public:
  static Result<std::unique_ptr<VulkanDevice>> Open(VulkanFound found);
  ~VulkanDevice();
  VulkanDevice(const VulkanDevice&) = delete;
  VulkanDevice& operator=(const VulkanDevice&) = delete;

  const VulkanFunctions& vk() const { return vk_; }
  VkDevice get() const { return device_; }

  using Record = std::function<void(VkCommandBuffer)>;
  // Runs what is recorded after all that was added before, when somebody waits.
  Result<void> Add(const Record& record);
  Result<void> Finish();
  // Adds, and waits.
  Result<void> Do(const Record& record);
  // The same, by itself; nanoseconds that the device took for it, or, where it has no clock, the host.
  Result<int64_t> Time(const Record& record);
  // Later commands see what earlier ones wrote.
  void Order(VkCommandBuffer commands) const;

  // Memory of the device's own, or, `seen`, what the host sees.
  Result<VulkanMemory> Allocate(size_t bytes, bool seen);
  Result<void> Write(const VulkanMemory& to, size_t offset, std::span<const std::byte> data);
  Result<void> Read(const VulkanMemory& from, size_t offset, std::span<std::byte> data);
  // Added.
  Result<void> Copy(const VulkanMemory& from, size_t from_offset, const VulkanMemory& to, size_t to_offset,
                    size_t bytes);

 private:
  VulkanDevice(const VulkanFunctions& vk, VulkanFound found, VkDevice device)
      : vk_(vk), found_(std::move(found)), device_(device) {}
  Result<void> MakeParts();
  Result<uint32_t> MemoryType(uint32_t allowed, bool seen) const;

  const VulkanFunctions& vk_;
  const VulkanFound found_;
  const VkDevice device_;
  VkQueue queue_ = nullptr;
  VulkanOwned<VkCommandPool> commands_;
  VkCommandBuffer recording_ = nullptr;
  bool is_recording_ = false;
  VulkanOwned<VkQueryPool> queries_;
  VulkanMemory staging_;
};

}  // namespace hone
