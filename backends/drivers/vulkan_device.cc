#if __has_include(<vulkan/vulkan.h>)
#include "backends/drivers/vulkan_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/clock.h"

namespace hone {
namespace {

constexpr size_t kStagingBytes = size_t{16} << 20;  // copied at once

}  // namespace

Result<std::unique_ptr<VulkanDevice>> VulkanDevice::Open(VulkanFound found) {
  const VulkanFunctions& vk = *HONE_TRY(LoadVulkan());
  VulkanFeatures has, wanted;
  vk.vkGetPhysicalDeviceFeatures2(found.device, &has.core);
  wanted.v12.bufferDeviceAddress = wanted.v12.scalarBlockLayout = VK_TRUE;
  wanted.v12.shaderInt8 = has.v12.shaderInt8;
  wanted.v12.storageBuffer8BitAccess = has.v12.storageBuffer8BitAccess;
  wanted.v11.storageBuffer16BitAccess = has.v11.storageBuffer16BitAccess;
  wanted.core.features.shaderInt16 = has.core.features.shaderInt16;
  wanted.core.features.shaderInt64 = has.core.features.shaderInt64;
  wanted.core.features.shaderFloat64 = has.core.features.shaderFloat64;
  const float priority = 1;
  VkDeviceQueueCreateInfo queue{};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = found.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &wanted.core;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  VkDevice device = nullptr;
  HONE_TRY(CheckVulkan("opening the device", vk.vkCreateDevice(found.device, &info, nullptr, &device)));
  std::unique_ptr<VulkanDevice> opened(new VulkanDevice(vk, std::move(found), device, true));
  vk.vkGetDeviceQueue(device, opened->found_.queue_family, 0, &opened->queue_);
  HONE_TRY(opened->MakeParts());
  return opened;
}

Result<std::unique_ptr<VulkanDevice>> VulkanDevice::Borrow(VulkanFound found, const BorrowedVulkan& from) {
  const VulkanFunctions& vk = *HONE_TRY(LoadVulkan());
  std::unique_ptr<VulkanDevice> borrowed(new VulkanDevice(vk, std::move(found), from.device, false));
  borrowed->queue_ = from.queue;
  borrowed->lock_ = from;
  HONE_TRY(borrowed->MakeParts());
  return borrowed;
}

Result<void> VulkanDevice::MakeParts() {
  VkCommandPoolCreateInfo pool{};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pool.queueFamilyIndex = found_.queue_family;
  VkCommandPool commands = nullptr;
  HONE_TRY(CheckVulkan("making a command pool", vk_.vkCreateCommandPool(device_, &pool, nullptr, &commands)));
  commands_ = {device_, commands, vk_.vkDestroyCommandPool};
  VkCommandBufferAllocateInfo buffer{};
  buffer.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  buffer.commandPool = commands;
  buffer.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  buffer.commandBufferCount = 1;
  HONE_TRY(CheckVulkan("making a command buffer", vk_.vkAllocateCommandBuffers(device_, &buffer, &recording_)));
  VkQueryPoolCreateInfo query{};
  query.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
  query.queryType = VK_QUERY_TYPE_TIMESTAMP;
  query.queryCount = 2;
  VkQueryPool queries = nullptr;
  HONE_TRY(CheckVulkan("making a query pool", vk_.vkCreateQueryPool(device_, &query, nullptr, &queries)));
  queries_ = {device_, queries, vk_.vkDestroyQueryPool};
  VkFenceCreateInfo fence{};
  fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
  VkFence ended = nullptr;
  HONE_TRY(CheckVulkan("making a fence", vk_.vkCreateFence(device_, &fence, nullptr, &ended)));
  ended_ = {device_, ended, vk_.vkDestroyFence};
  return {};
}

Result<void> VulkanDevice::Stage() {
  if (staging_.bytes == 0) staging_ = HONE_TRY(Allocate(kStagingBytes, true));
  return {};
}

VulkanDevice::~VulkanDevice() {
  staging_ = {};
  ended_ = {};
  queries_ = {};
  commands_ = {};
  if (is_owned_) vk_.vkDestroyDevice(device_, nullptr);
}

Result<void> VulkanDevice::Add(const Record& record) {
  if (!is_recording_) {
    VkCommandBufferBeginInfo begin{};
    begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    HONE_TRY(CheckVulkan("recording", vk_.vkBeginCommandBuffer(recording_, &begin)));
    is_recording_ = true;
  }
  record(recording_);
  return {};
}

Result<void> VulkanDevice::Do(const Record& record) {
  HONE_TRY(Add(record));
  return Finish();
}

Result<void> VulkanDevice::Finish() {
  if (!is_recording_) return {};
  is_recording_ = false;
  HONE_TRY(CheckVulkan("recording", vk_.vkEndCommandBuffer(recording_)));
  VkSubmitInfo submit{};
  submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  submit.commandBufferCount = 1;
  submit.pCommandBuffers = &recording_;
  VkFence ended = ended_.get();
  HONE_TRY(CheckVulkan("launching", vk_.vkResetFences(device_, 1, &ended)));
  if (lock_.lock != nullptr) lock_.lock(lock_.user);
  const VkResult submitted = vk_.vkQueueSubmit(queue_, 1, &submit, ended);
  if (lock_.unlock != nullptr) lock_.unlock(lock_.user);
  HONE_TRY(CheckVulkan("launching", submitted));
  return CheckVulkan("running", vk_.vkWaitForFences(device_, 1, &ended, VK_TRUE, UINT64_MAX));
}

Result<int64_t> VulkanDevice::Time(const Record& record) {
  HONE_TRY(Finish());
  const Stopwatch watch;
  HONE_TRY(Do([&](VkCommandBuffer commands) {
    if (found_.timestamp_bits == 0) return record(commands);
    vk_.vkCmdResetQueryPool(commands, queries_.get(), 0, 2);
    vk_.vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries_.get(), 0);
    record(commands);
    vk_.vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries_.get(), 1);
  }));
  const auto host_ns = static_cast<int64_t>(watch.Microseconds() * 1000);
  if (found_.timestamp_bits == 0) return host_ns;
  std::array<uint64_t, 2> ticks{};
  HONE_TRY(CheckVulkan("reading the device's clock",
                       vk_.vkGetQueryPoolResults(device_, queries_.get(), 0, 2, sizeof ticks, ticks.data(),
                                                 sizeof ticks[0], VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT)));
  const uint64_t mask = found_.timestamp_bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << found_.timestamp_bits) - 1;
  const auto ns = static_cast<int64_t>(static_cast<double>((ticks[1] - ticks[0]) & mask) *
                                       static_cast<double>(found_.timestamp_ns));
  // A clock that says more than the host saw pass is none.
  return ns > 0 && ns <= host_ns ? ns : host_ns;
}

void VulkanDevice::Order(VkCommandBuffer commands) const {
  constexpr VkPipelineStageFlags kStages =
      VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_HOST_BIT;
  VkMemoryBarrier barrier{};
  barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  barrier.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT;
  barrier.dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT;
  vk_.vkCmdPipelineBarrier(commands, kStages, kStages, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

Result<VulkanMemory> VulkanDevice::Allocate(size_t bytes, bool seen) {
  VulkanMemory memory;
  memory.bytes = bytes;
  if (bytes > found_.most_bytes)
    return Error{ErrorKind::kLimit,
                 fmt::format("a buffer of {} bytes; this device has none above {}", bytes, found_.most_bytes), ""};
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.size = bytes;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
               VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  VkBuffer buffer = nullptr;
  HONE_TRY(CheckVulkan("making a buffer", vk_.vkCreateBuffer(device_, &info, nullptr, &buffer)));
  memory.buffer = {device_, buffer, vk_.vkDestroyBuffer};
  VkMemoryRequirements needs{};
  vk_.vkGetBufferMemoryRequirements(device_, buffer, &needs);
  VkMemoryAllocateFlagsInfo flags{};
  flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo allocate{};
  allocate.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  allocate.pNext = &flags;
  allocate.allocationSize = needs.size;
  allocate.memoryTypeIndex = HONE_TRY(MemoryType(needs.memoryTypeBits, seen));
  VkDeviceMemory owned = nullptr;
  HONE_TRY(CheckVulkan(fmt::format("allocating {} bytes", bytes),
                       vk_.vkAllocateMemory(device_, &allocate, nullptr, &owned)));
  memory.memory = {device_, owned, vk_.vkFreeMemory};
  HONE_TRY(CheckVulkan("placing a buffer", vk_.vkBindBufferMemory(device_, buffer, owned, 0)));
  VkBufferDeviceAddressInfo where{};
  where.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
  where.buffer = buffer;
  memory.address = vk_.vkGetBufferDeviceAddress(device_, &where);
  if (seen) {
    void* mapped = nullptr;
    HONE_TRY(CheckVulkan("mapping memory", vk_.vkMapMemory(device_, owned, 0, VK_WHOLE_SIZE, 0, &mapped)));
    memory.mapped = static_cast<std::byte*>(mapped);
  }
  return memory;
}

Result<void> VulkanDevice::Write(const VulkanMemory& to, size_t offset, std::span<const std::byte> data) {
  for (size_t at = 0; at < data.size(); at += kStagingBytes) {
    const std::span<const std::byte> part = data.subspan(at, std::min(kStagingBytes, data.size() - at));
    HONE_TRY(Finish());  // nobody reads the staging memory any more
    HONE_TRY(Stage());
    std::memcpy(staging_.mapped, part.data(), part.size());
    HONE_TRY(Copy(staging_, 0, to, offset + at, part.size()));
    HONE_TRY(Finish());
  }
  return {};
}

Result<void> VulkanDevice::Read(const VulkanMemory& from, size_t offset, std::span<std::byte> data) {
  for (size_t at = 0; at < data.size(); at += kStagingBytes) {
    const std::span<std::byte> part = data.subspan(at, std::min(kStagingBytes, data.size() - at));
    HONE_TRY(Stage());
    HONE_TRY(Copy(from, offset + at, staging_, 0, part.size()));
    HONE_TRY(Finish());
    std::memcpy(part.data(), staging_.mapped, part.size());
  }
  return {};
}

Result<void> VulkanDevice::Copy(const VulkanMemory& from, size_t from_offset, const VulkanMemory& to, size_t to_offset,
                                size_t bytes) {
  const VkBufferCopy region{from_offset, to_offset, bytes};
  return Add([&](VkCommandBuffer commands) {
    Order(commands);
    vk_.vkCmdCopyBuffer(commands, from.buffer.get(), to.buffer.get(), 1, &region);
    Order(commands);
  });
}

Result<uint32_t> VulkanDevice::MemoryType(uint32_t allowed, bool seen) const {
  VkPhysicalDeviceMemoryProperties memory{};
  vk_.vkGetPhysicalDeviceMemoryProperties(found_.device, &memory);
  constexpr VkMemoryPropertyFlags kSeen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  // The best first: what the host reads from its cache; what is the device's own.
  const std::array<VkMemoryPropertyFlags, 2> wanted =
      seen ? std::array<VkMemoryPropertyFlags, 2>{kSeen | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, kSeen}
           : std::array<VkMemoryPropertyFlags, 2>{VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0};
  for (VkMemoryPropertyFlags flags : wanted)
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i)
      if ((allowed >> i & 1) != 0 && (memory.memoryTypes[i].propertyFlags & flags) == flags) return i;
  return Error{ErrorKind::kUnsupported, "the device has no memory of the kind that buffers need", ""};
}

}  // namespace hone

#endif
