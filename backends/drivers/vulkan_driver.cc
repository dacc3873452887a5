#if __has_include(<vulkan/vulkan.h>)
#include "backends/drivers/vulkan_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <thread>

#include "backends/drivers/fact_word.h"

namespace hone {
namespace {

std::string_view NameOf(VkResult code) {
  switch (code) {
    case VK_ERROR_OUT_OF_HOST_MEMORY: return "the driver has no memory left";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY: return "the device has no memory left";
    case VK_ERROR_DEVICE_LOST: return "the device was lost";
    case VK_ERROR_TOO_MANY_OBJECTS: return "the device has no room for more buffers";
    case VK_ERROR_FRAGMENTED_POOL:
    case VK_ERROR_OUT_OF_POOL_MEMORY: return "the driver's pool has no room left";
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

}  // namespace

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

std::optional<VulkanFound> DescribeVulkan(const VulkanFunctions& vk, VkPhysicalDevice device) {
  // What knows only Vulkan 1.0 must not be asked for more.
  VkPhysicalDeviceProperties old{};
  vk.vkGetPhysicalDeviceProperties(device, &old);
  if (old.apiVersion < VK_API_VERSION_1_2) return std::nullopt;
  VulkanFeatures features;
  vk.vkGetPhysicalDeviceFeatures2(device, &features.core);
  if (!features.IsEnough()) return std::nullopt;
  VkPhysicalDeviceDriverProperties driver{};
  driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
  VkPhysicalDeviceMaintenance3Properties sizes{};
  sizes.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES;
  sizes.pNext = &driver;
  VkPhysicalDeviceFloatControlsProperties floats{};
  floats.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES;
  driver.pNext = &floats;
  VkPhysicalDeviceProperties2 properties{};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  properties.pNext = &sizes;
  vk.vkGetPhysicalDeviceProperties2(device, &properties);
  // Without it x · 0 may be 0 whatever x is.
  if (floats.shaderSignedZeroInfNanPreserveFloat32 == 0) return std::nullopt;
  const bool has_f64 = features.core.features.shaderFloat64 != 0 && floats.shaderSignedZeroInfNanPreserveFloat64 != 0;
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
  number("f64", has_f64 ? 1 : 0);
  number("i64", features.core.features.shaderInt64 != 0 ? 1 : 0);
  number("i8", features.HasBytes() ? 1 : 0);
  number("i16", features.HasHalfWords() ? 1 : 0);
  return found;
}

Result<void> CheckVulkan(const std::string& what, VkResult code) {
  if (code >= 0) return {};
  const bool is_memory = code == VK_ERROR_OUT_OF_HOST_MEMORY || code == VK_ERROR_OUT_OF_DEVICE_MEMORY ||
                         code == VK_ERROR_TOO_MANY_OBJECTS || code == VK_ERROR_FRAGMENTED_POOL ||
                         code == VK_ERROR_OUT_OF_POOL_MEMORY;
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
    if (std::optional<VulkanFound> described = DescribeVulkan(vk, device)) found.push_back(std::move(*described));
  return found;
}

Result<VulkanFound> FindBorrowedVulkan(const VulkanFunctions& vk, VkInstance instance, VkPhysicalDevice device,
                                       uint32_t queue_family) {
  const auto invalid = [](std::string what) { return Error{ErrorKind::kInvalid, std::move(what), "device"}; };
  std::array<VkPhysicalDevice, 64> devices{};
  auto count = static_cast<uint32_t>(devices.size());
  HONE_TRY(CheckVulkan("finding devices", vk.vkEnumeratePhysicalDevices(instance, &count, devices.data())));
  const std::span<VkPhysicalDevice> all = std::span(devices).first(count);
  if (std::ranges::find(all, device) == all.end()) return invalid("the physical device is none of this instance's");
  std::optional<VulkanFound> found = DescribeVulkan(vk, device);
  if (!found)
    return Error{
        ErrorKind::kUnsupported,
        "it lacks Vulkan 1.2, bufferDeviceAddress, scalarBlockLayout or shaderSignedZeroInfNanPreserveFloat32, which "
        "kernels need",
        "device"};
  vk.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vk.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  if (queue_family >= families.size())
    return invalid(fmt::format("it has no queue family {}, but 0 … {}", queue_family, families.size() - 1));
  if ((families[queue_family].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0)
    return invalid(fmt::format("queues of its family {} do not compute", queue_family));
  found->queue_family = queue_family;
  found->timestamp_bits = families[queue_family].timestampValidBits;
  return *std::move(found);
}

}  // namespace hone

#endif
