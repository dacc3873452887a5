#include "backends/drivers/vulkan_context.h"

#if __has_include(<vulkan/vulkan.h>)
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "backends/drivers/vulkan_device.h"

namespace hone {
namespace {

struct Pipeline {
  VulkanOwned<VkPipelineLayout> layout;
  VulkanOwned<VkPipeline> pipeline;
};

// A launch: its code, its blocks, its arguments and where they lie.
struct Entry {
  std::shared_ptr<const Pipeline> code;
  std::array<uint32_t, 3> grid{};
  std::vector<int32_t> buffers;
  size_t arguments = 0;  // offset
};

// The same code at other places is compiled once, for as long as it is loaded: by module.
using Pipelines = std::map<std::string, std::weak_ptr<const Pipeline>>;

struct OwnMemory : DeviceMemory {
  explicit OwnMemory(VulkanMemory owned) : memory(std::move(owned)) {}
  VulkanMemory memory;
};

const VulkanMemory& Of(const DeviceMemory& memory) { return static_cast<const OwnMemory&>(memory).memory; }

class VulkanKernel : public LoadedKernel {
 public:
  VulkanKernel(VulkanDevice& device, Pipelines& pipelines) : device_(device), pipelines_(pipelines) {}

  Result<void> Load(const DeviceArtifact& artifact, Operands operands) {
    for (const DeviceBuffer& buffer : artifact.buffers) {
      const bool is_elsewhere = operands == Operands::kPlaced && buffer.operand >= 0;
      memory_.push_back(is_elsewhere
                            ? VulkanMemory()
                            : HONE_TRY(AllocateGuarded(std::max<size_t>(static_cast<size_t>(buffer.bytes), 16))));
      addresses_.push_back(is_elsewhere ? 0 : memory_.back().address + kDeviceGuardBytes);
    }
    size_t pointers = 0;
    for (const DeviceLaunch& launch : artifact.launches) pointers += launch.buffers.size();
    arguments_ = HONE_TRY(device_.Allocate(std::max<size_t>(pointers, 1) * sizeof(VkDeviceAddress), true));
    size_t at = 0;
    for (const DeviceLaunch& launch : artifact.launches) {
      Entry entry;
      entry.code = HONE_TRY(PipelineOf(artifact.sources[static_cast<size_t>(launch.source)]));
      for (size_t d = 0; d < 3; ++d) entry.grid[d] = static_cast<uint32_t>(launch.grid[d]);
      entry.buffers = launch.buffers;
      entry.arguments = at;
      at += launch.buffers.size() * sizeof(VkDeviceAddress);
      Pass(entry);
      (launch.packs ? pack_ : entries_).push_back(std::move(entry));
    }
    return {};
  }

  // An address is good for a kernel wherever its elements may lie.
  Result<void> Place(size_t buffer, const DeviceMemory& memory, size_t offset) override {
    HONE_TRY(device_.Finish());  // who is enqueued still reads its arguments
    memory_[buffer] = {};
    addresses_[buffer] = Of(memory).address + offset;
    for (const std::vector<Entry>* entries : {&pack_, &entries_})
      for (const Entry& entry : *entries) Pass(entry);
    return {};
  }

  Result<void> Enqueue() override {
    return device_.Add([&](VkCommandBuffer commands) { Record(commands, entries_); });
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
      if (memory_[i].bytes == 0) continue;  // somebody else's
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

  void Pass(const Entry& entry) {
    std::byte* to = arguments_.mapped + entry.arguments;
    for (int32_t buffer : entry.buffers) {
      std::memcpy(to, &addresses_[static_cast<size_t>(buffer)], sizeof(VkDeviceAddress));
      to += sizeof(VkDeviceAddress);
    }
  }

  Result<std::shared_ptr<const Pipeline>> PipelineOf(const std::string& source) {
    std::weak_ptr<const Pipeline>& known = pipelines_[source];
    if (std::shared_ptr<const Pipeline> pipeline = known.lock()) return pipeline;
    auto pipeline = std::make_shared<const Pipeline>(HONE_TRY(MakePipeline(source)));
    known = pipeline;
    return std::shared_ptr<const Pipeline>(pipeline);
  }

  Result<Pipeline> MakePipeline(const std::string& source) {
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
    Pipeline made;
    VkPipelineLayout made_layout = nullptr;
    HONE_TRY(CheckVulkan("making a pipeline", vk.vkCreatePipelineLayout(device, &layout, nullptr, &made_layout)));
    made.layout = {device, made_layout, vk.vkDestroyPipelineLayout};
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
    made.pipeline = {device, pipeline, vk.vkDestroyPipeline};
    return made;
  }

  void Record(VkCommandBuffer commands, const std::vector<Entry>& entries) const {
    const VulkanFunctions& vk = device_.vk();
    for (const Entry& entry : entries) {
      const VkDeviceAddress arguments = arguments_.address + entry.arguments;
      vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, entry.code->pipeline.get());
      vk.vkCmdPushConstants(commands, entry.code->layout.get(), VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof arguments,
                            &arguments);
      vk.vkCmdDispatch(commands, entry.grid[0], entry.grid[1], entry.grid[2]);
      device_.Order(commands);
    }
  }

  Result<int64_t> Run(const std::vector<Entry>& entries, int calls) {
    if (entries.empty()) return 0;
    return device_.Time([&](VkCommandBuffer commands) {
      device_.Order(commands);
      for (int call = 0; call < calls; ++call) Record(commands, entries);
    });
  }

  VulkanDevice& device_;
  Pipelines& pipelines_;
  std::vector<VulkanMemory> memory_;        // with guards; of no bytes: somebody else's
  std::vector<VkDeviceAddress> addresses_;  // of what kernels see
  VulkanMemory arguments_;
  std::vector<Entry> pack_, entries_;
};

class VulkanContext : public GpuContext {
 public:
  explicit VulkanContext(std::unique_ptr<VulkanDevice> device) : device_(std::move(device)) {}

  Result<std::unique_ptr<LoadedKernel>> Load(const DeviceArtifact& artifact, Operands operands) override {
    if (artifact.language != kSpirv)
      return Error{ErrorKind::kUnsupported, "an artifact in " + artifact.language + " for Vulkan", "artifact"};
    auto kernel = std::make_unique<VulkanKernel>(*device_, pipelines_);
    HONE_TRY(kernel->Load(artifact, operands));
    return std::unique_ptr<LoadedKernel>(std::move(kernel));
  }

  Result<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes) override {
    return std::unique_ptr<DeviceMemory>(
        std::make_unique<OwnMemory>(HONE_TRY(device_->Allocate(std::max<size_t>(bytes, 16), false))));
  }
  Result<void> Write(const DeviceMemory& to, size_t offset, std::span<const std::byte> data) override {
    return device_->Write(Of(to), offset, data);
  }
  Result<void> Read(const DeviceMemory& from, size_t offset, std::span<std::byte> data) override {
    return device_->Read(Of(from), offset, data);
  }
  Result<void> Copy(const DeviceMemory& from, size_t from_offset, const DeviceMemory& to, size_t to_offset,
                    size_t bytes) override {
    if (bytes == 0) return {};
    return device_->Copy(Of(from), from_offset, Of(to), to_offset, bytes);
  }
  Result<void> Finish() override { return device_->Finish(); }

 private:
  std::unique_ptr<VulkanDevice> device_;
  Pipelines pipelines_;
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
