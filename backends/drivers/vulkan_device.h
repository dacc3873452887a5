// A Vulkan device with one queue: finds, allocates, copies, runs and times. What is here needs Vulkan's headers;
// includers ask for them first (vulkan_context.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "backends/drivers/vulkan_context.h"
#include "backends/drivers/vulkan_driver.h"
#include "base/result.h"

namespace hone {

struct VulkanMemory {
  VulkanOwned<VkDeviceMemory> memory;
  VulkanOwned<VkBuffer> buffer;
  VkDeviceAddress address = 0;
  std::byte* mapped = nullptr;  // if the host sees it
  size_t bytes = 0;
};

class VulkanDevice {
 public:
  static Result<std::unique_ptr<VulkanDevice>> Open(VulkanFound found);
  static Result<std::unique_ptr<VulkanDevice>> Borrow(VulkanFound found, const BorrowedVulkan& from);
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
  VulkanDevice(const VulkanFunctions& vk, VulkanFound found, VkDevice device, bool is_owned)
      : vk_(vk), found_(std::move(found)), device_(device), is_owned_(is_owned) {}
  Result<void> MakeParts();
  Result<void> Stage();
  Result<uint32_t> MemoryType(uint32_t allowed, bool seen) const;

  const VulkanFunctions& vk_;
  const VulkanFound found_;
  const VkDevice device_;
  const bool is_owned_;
  VkQueue queue_ = nullptr;
  BorrowedVulkan lock_;
  VulkanOwned<VkCommandPool> commands_;
  VkCommandBuffer recording_ = nullptr;
  bool is_recording_ = false;
  VulkanOwned<VkQueryPool> queries_;
  VulkanOwned<VkFence> ended_;
  VulkanMemory staging_;
};

}  // namespace hone
