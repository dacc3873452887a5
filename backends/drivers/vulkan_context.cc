#include "backends/drivers/vulkan_context.h"

#if __has_include(<vulkan/vulkan.h>)
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "backends/drivers/vulkan_device.h"

namespace hone {
namespace {

// A launch: its pipeline, its blocks, where its arguments lie.
struct Entry {
  VulkanOwned<VkPipelineLayout> layout;
  VulkanOwned<VkPipeline> pipeline;
  std::array<uint32_t, 3> grid{};
  VkDeviceAddress arguments = 0;
};

class VulkanKernel : public LoadedKernel {
 public:
  explicit VulkanKernel(VulkanDevice& device) : device_(device) {}

  Result<void> Load(const DeviceArtifact& artifact) {
    for (const DeviceBuffer& buffer : artifact.buffers)
      memory_.push_back(HONE_TRY(AllocateGuarded(std::max<size_t>(static_cast<size_t>(buffer.bytes), 16))));
    size_t pointers = 0;
    for (const DeviceLaunch& launch : artifact.launches) pointers += launch.buffers.size();
    arguments_ = HONE_TRY(device_.Allocate(std::max<size_t>(pointers, 1) * sizeof(VkDeviceAddress), true));
    size_t at = 0;
    for (const DeviceLaunch& launch : artifact.launches) {
      Entry entry = HONE_TRY(MakeEntry(launch, artifact.sources[static_cast<size_t>(launch.source)]));
      entry.arguments = arguments_.address + at;
      for (int32_t buffer : launch.buffers) {
        const VkDeviceAddress address = memory_[static_cast<size_t>(buffer)].address + kDeviceGuardBytes;
        std::memcpy(arguments_.mapped + at, &address, sizeof address);
        at += sizeof address;
      }
      (launch.packs ? pack_ : entries_).push_back(std::move(entry));
    }
    return {};
  }

  Result<void> Write(size_t buffer, std::span<const std::byte> data) override {
    return device_.Write(memory_[buffer], kDeviceGuardBytes, data);
  }
  Result<void> Read(size_t buffer, std::span<std::byte> data) override {
    return device_.Read(memory_[buffer], kDeviceGuardBytes, data);
  }

  Result<int64_t> Pack() override { return Run(pack_, 1); }
  Result<int64_t> Call(int calls) override { return Run(entries_, calls); }

  Result<std::optional<size_t>> FindOverrun() override {
    std::vector<std::byte> guard(kDeviceGuardBytes);
    for (size_t i = 0; i < memory_.size(); ++i) {
      for (const size_t at : {size_t{0}, memory_[i].bytes - kDeviceGuardBytes}) {
        HONE_TRY(device_.Read(memory_[i], at, guard));
        if (std::ranges::any_of(guard, [](std::byte b) { return b != kDeviceGuardByte; })) return std::optional(i);
      }
    }
    return std::optional<size_t>();
  }

 private:
  Result<VulkanMemory> AllocateGuarded(size_t bytes) {
    VulkanMemory memory = HONE_TRY(device_.Allocate(bytes + 2 * kDeviceGuardBytes, false));
    const std::vector<std::byte> guard(kDeviceGuardBytes, kDeviceGuardByte);
    for (const size_t at : {size_t{0}, memory.bytes - kDeviceGuardBytes}) HONE_TRY(device_.Write(memory, at, guard));
    return memory;
  }

  Result<Entry> MakeEntry(const DeviceLaunch& launch, const std::string& source) {
    const VulkanFunctions& vk = device_.vk();
    const VkDevice device = device_.get();
    VkShaderModuleCreateInfo module{};
    module.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
    module.codeSize = source.size();
    module.pCode = reinterpret_cast<const uint32_t*>(source.data());  // as aligned as new makes it
    VkShaderModule shader = nullptr;
    HONE_TRY(CheckVulkan("taking the shader", vk.vkCreateShaderModule(device, &module, nullptr, &shader)));
    const VulkanOwned<VkShaderModule> own_shader(device, shader, vk.vkDestroyShaderModule);
    const VkPushConstantRange constants{VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(VkDeviceAddress)};
    VkPipelineLayoutCreateInfo layout{};
    layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
    layout.pushConstantRangeCount = 1;
    layout.pPushConstantRanges = &constants;
    Entry entry;
    VkPipelineLayout made_layout = nullptr;
    HONE_TRY(CheckVulkan("making a pipeline", vk.vkCreatePipelineLayout(device, &layout, nullptr, &made_layout)));
    entry.layout = {device, made_layout, vk.vkDestroyPipelineLayout};
    VkComputePipelineCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = shader;
    info.stage.pName = "main";
    info.layout = made_layout;
    VkPipeline pipeline = nullptr;
    HONE_TRY(CheckVulkan("making a pipeline",
                         vk.vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, nullptr, &pipeline)));
    entry.pipeline = {device, pipeline, vk.vkDestroyPipeline};
    for (size_t d = 0; d < 3; ++d) entry.grid[d] = static_cast<uint32_t>(launch.grid[d]);
    return entry;
  }

  Result<int64_t> Run(const std::vector<Entry>& entries, int calls) {
    if (entries.empty()) return 0;
    const VulkanFunctions& vk = device_.vk();
    return device_.Time([&](VkCommandBuffer commands) {
      device_.Order(commands);
      for (int call = 0; call < calls; ++call) {
        for (const Entry& entry : entries) {
          vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, entry.pipeline.get());
          vk.vkCmdPushConstants(commands, entry.layout.get(), VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof entry.arguments,
                                &entry.arguments);
          vk.vkCmdDispatch(commands, entry.grid[0], entry.grid[1], entry.grid[2]);
          device_.Order(commands);
        }
      }
    });
  }

  VulkanDevice& device_;
  std::vector<VulkanMemory> memory_;  // with guards
  VulkanMemory arguments_;
  std::vector<Entry> pack_, entries_;
};

class VulkanContext : public GpuContext {
 public:
  explicit VulkanContext(std::unique_ptr<VulkanDevice> device) : device_(std::move(device)) {}

  Result<std::unique_ptr<LoadedKernel>> Load(const DeviceArtifact& artifact) override {
    if (artifact.language != kSpirv)
      return Error{ErrorKind::kUnsupported, "an artifact in " + artifact.language + " for Vulkan", "artifact"};
    auto kernel = std::make_unique<VulkanKernel>(*device_);
    HONE_TRY(kernel->Load(artifact));
    return std::unique_ptr<LoadedKernel>(std::move(kernel));
  }

 private:
  std::unique_ptr<VulkanDevice> device_;
};

}  // namespace

Result<std::vector<DeviceTarget>> FindVulkanDevices() {
  std::vector<DeviceTarget> targets;
  for (VulkanFound& found : HONE_TRY(FindVulkan())) targets.push_back(std::move(found.target));
  return targets;
}

Result<std::unique_ptr<GpuContext>> OpenVulkanDevice(const DeviceTarget& target) {
  std::vector<VulkanFound> all = HONE_TRY(FindVulkan());
  const auto found = std::ranges::find(all, target, &VulkanFound::target);
  if (found == all.end()) return DeviceIsGone(target);
  return std::unique_ptr<GpuContext>(std::make_unique<VulkanContext>(HONE_TRY(VulkanDevice::Open(std::move(*found)))));
}

}  // namespace hone

#else

namespace hone {

namespace {
Error Unsupported() { return {ErrorKind::kUnsupported, "built without Vulkan's headers (Debian: libvulkan-dev)", ""}; }
}  // namespace

Result<std::vector<DeviceTarget>> FindVulkanDevices() { return Unsupported(); }
Result<std::unique_ptr<GpuContext>> OpenVulkanDevice(const DeviceTarget&) { return Unsupported(); }

}  // namespace hone

#endif
