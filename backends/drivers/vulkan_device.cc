#if __has_include(<vulkan/vulkan.h>)
#include "backends/drivers/vulkan_device.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <thread>

#include "backends/drivers/gpu_context.h"
#include "base/clock.h"

namespace hone {
namespace {

constexpr size_t kStagingBytes = size_t{16} << 20;  // copied at once

Result<const VulkanFunctions*> LoadVulkan() {
  static VulkanFunctions vk;
  static const std::optional<Error> failure = []() -> std::optional<Error> {
    void* library = ::dlopen("libvulkan.so.1", RTLD_NOW);
    if (library == nullptr)
      return Error{ErrorKind::kNotFound, "there is no libvulkan.so.1 here (Debian: libvulkan1)", ""};
#define HONE_FIND(name)                                                   \
  vk.name = reinterpret_cast<decltype(&::name)>(::dlsym(library, #name)); \
  if (vk.name == nullptr) return Error{ErrorKind::kUnsupported, "libvulkan.so.1 has no " #name, ""};
    HONE_VULKAN_FUNCTIONS(HONE_FIND)
#undef HONE_FIND
    return std::nullopt;
  }();
  if (failure) return *failure;
  return &vk;
}

std::string_view NameOf(VkResult code) {
  switch (code) {
    case VK_ERROR_OUT_OF_HOST_MEMORY: return "the driver has no memory left";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY: return "the device has no memory left";
    case VK_ERROR_DEVICE_LOST: return "the device was lost";
    case VK_ERROR_TOO_MANY_OBJECTS: return "the device has no room for more buffers";
    default: return "see vulkan_core.h";
  }
}

// Vulkan with its drivers, for as long as the process lives.
Result<VkInstance> OpenInstance(const VulkanFunctions& vk) {
  static VkInstance instance = nullptr;
  if (instance != nullptr) return instance;
  VkApplicationInfo application{};
  application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  application.pApplicationName = "hone";
  application.apiVersion = VK_API_VERSION_1_2;
  VkInstanceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &application;
  const VkResult code = vk.vkCreateInstance(&info, nullptr, &instance);
  if (code == VK_ERROR_INCOMPATIBLE_DRIVER) return Error{ErrorKind::kNotFound, "no driver for Vulkan is here", ""};
  HONE_TRY(CheckVulkan("starting Vulkan", code));
  return instance;
}

// What a device can do beyond Vulkan 1.0, and what is asked of it.
struct Features {
  VkPhysicalDeviceVulkan12Features v12{};
  VkPhysicalDeviceVulkan11Features v11{};
  VkPhysicalDeviceFeatures2 core{};

  Features() {
    core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
    v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    core.pNext = &v11;
    v11.pNext = &v12;
  }
  Features(const Features&) = delete;  // its parts point at each other
  Features& operator=(const Features&) = delete;

  bool IsEnough() const { return v12.bufferDeviceAddress != 0 && v12.scalarBlockLayout != 0; }
  bool HasBytes() const { return v12.shaderInt8 != 0 && v12.storageBuffer8BitAccess != 0; }
  bool HasHalfWords() const { return core.features.shaderInt16 != 0 && v11.storageBuffer16BitAccess != 0; }
};

// Compute units, where a maker's extension says how many there are.
int64_t UnitsOf(const VulkanFunctions& vk, VkPhysicalDevice device, bool is_cpu) {
  if (is_cpu) return std::max(1u, std::thread::hardware_concurrency());
  uint32_t count = 0;
  vk.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> extensions(count);
  vk.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data());
  const auto has = [&](const char* name) {
    return std::ranges::any_of(extensions, [&](const auto& it) { return std::strcmp(it.extensionName, name) == 0; });
  };
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia{};
  nvidia.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV;
  VkPhysicalDeviceShaderCorePropertiesAMD amd{};
  amd.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD;
  VkPhysicalDeviceProperties2 properties{};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  if (has(VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    properties.pNext = &nvidia;
    vk.vkGetPhysicalDeviceProperties2(device, &properties);
    return nvidia.shaderSMCount;
  }
  if (has(VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME)) {
    properties.pNext = &amd;
    vk.vkGetPhysicalDeviceProperties2(device, &properties);
    return int64_t{amd.shaderEngineCount} * amd.shaderArraysPerEngineCount * amd.computeUnitsPerShaderArray;
  }
  return 16;  // it does not say: between the small ones and the large
}

std::optional<VulkanFound> Describe(const VulkanFunctions& vk, VkPhysicalDevice device) {
  // What knows only Vulkan 1.0 must not be asked for more.
  VkPhysicalDeviceProperties old{};
  vk.vkGetPhysicalDeviceProperties(device, &old);
  if (old.apiVersion < VK_API_VERSION_1_2) return std::nullopt;
  Features features;
  vk.vkGetPhysicalDeviceFeatures2(device, &features.core);
  if (!features.IsEnough()) return std::nullopt;
  VkPhysicalDeviceDriverProperties driver{};
  driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
  VkPhysicalDeviceMaintenance3Properties sizes{};
  sizes.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES;
  sizes.pNext = &driver;
  VkPhysicalDeviceProperties2 properties{};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  properties.pNext = &sizes;
  vk.vkGetPhysicalDeviceProperties2(device, &properties);
  uint32_t count = 0;
  vk.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vk.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  const auto family = std::ranges::find_if(
      families, [](const VkQueueFamilyProperties& it) { return (it.queueFlags & VK_QUEUE_COMPUTE_BIT) != 0; });
  if (family == families.end()) return std::nullopt;

  const VkPhysicalDeviceLimits& limits = properties.properties.limits;
  const bool is_cpu = properties.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  VulkanFound found;
  found.device = device;
  found.queue_family = static_cast<uint32_t>(family - families.begin());
  found.timestamp_bits = family->timestampValidBits;
  found.timestamp_ns = limits.timestampPeriod;
  found.most_bytes = sizes.maxMemoryAllocationSize;
  found.target.kind = kVulkanKind;
  auto& facts = found.target.facts;
  const auto number = [&](const char* fact, auto value) { facts[fact] = std::to_string(value); };
  facts["device"] = FactWord(properties.properties.deviceName);
  facts["driver"] = FactWord(std::string(driver.driverName) + " " + driver.driverInfo);
  facts["type"] = is_cpu ? "cpu" : "gpu";
  number("units", UnitsOf(vk, device, is_cpu));
  number("block_threads", limits.maxComputeWorkGroupInvocations);
  number("block_bytes", limits.maxComputeSharedMemorySize);
  number("grid", *std::ranges::min_element(limits.maxComputeWorkGroupCount));
  number("f64", features.core.features.shaderFloat64 != 0 ? 1 : 0);
  number("i64", features.core.features.shaderInt64 != 0 ? 1 : 0);
  number("i8", features.HasBytes() ? 1 : 0);
  number("i16", features.HasHalfWords() ? 1 : 0);
  return found;
}

}  // namespace

Result<void> CheckVulkan(const std::string& what, VkResult code) {
  if (code >= 0) return {};
  const bool is_memory = code == VK_ERROR_OUT_OF_DEVICE_MEMORY || code == VK_ERROR_TOO_MANY_OBJECTS;
  return Error{is_memory ? ErrorKind::kLimit : ErrorKind::kRunFailed,
               fmt::format("{} failed: {} (Vulkan's error {})", what, NameOf(code), static_cast<int>(code)), ""};
}

Result<std::vector<VulkanFound>> FindVulkan() {
  const VulkanFunctions& vk = *HONE_TRY(LoadVulkan());
  const VkInstance instance = HONE_TRY(OpenInstance(vk));
  std::array<VkPhysicalDevice, 64> devices{};
  auto count = static_cast<uint32_t>(devices.size());
  HONE_TRY(CheckVulkan("finding devices", vk.vkEnumeratePhysicalDevices(instance, &count, devices.data())));
  std::vector<VulkanFound> found;
  for (VkPhysicalDevice device : std::span(devices).first(count))
    if (std::optional<VulkanFound> described = Describe(vk, device)) found.push_back(std::move(*described));
  return found;
}

Result<std::unique_ptr<VulkanDevice>> VulkanDevice::Open(VulkanFound found) {
  const VulkanFunctions& vk = *HONE_TRY(LoadVulkan());
  Features has, wanted;
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
  std::unique_ptr<VulkanDevice> opened(new VulkanDevice(vk, std::move(found), device));
  HONE_TRY(opened->MakeParts());
  return opened;
}

Result<void> VulkanDevice::MakeParts() {
  vk_.vkGetDeviceQueue(device_, found_.queue_family, 0, &queue_);
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
  staging_ = HONE_TRY(Allocate(kStagingBytes, true));
  return {};
}

VulkanDevice::~VulkanDevice() {
  staging_ = {};
  queries_ = {};
  commands_ = {};
  vk_.vkDestroyDevice(device_, nullptr);
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
  HONE_TRY(CheckVulkan("launching", vk_.vkQueueSubmit(queue_, 1, &submit, VK_NULL_HANDLE)));
  return CheckVulkan("running", vk_.vkQueueWaitIdle(queue_));
}

Result<int64_t> VulkanDevice::Time(const Record& record) {
  HONE_TRY(Finish());
  const Stopwatch watch;
  HONE_TRY(Do([&](VkCommandBuffer commands) {
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
    std::memcpy(staging_.mapped, part.data(), part.size());
    HONE_TRY(Copy(staging_, 0, to, offset + at, part.size()));
    HONE_TRY(Finish());
  }
  return {};
}

Result<void> VulkanDevice::Read(const VulkanMemory& from, size_t offset, std::span<std::byte> data) {
  for (size_t at = 0; at < data.size(); at += kStagingBytes) {
    const std::span<std::byte> part = data.subspan(at, std::min(kStagingBytes, data.size() - at));
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
