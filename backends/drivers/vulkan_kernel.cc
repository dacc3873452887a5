#if __has_include(<vulkan/vulkan.h>)
#include "backends/drivers/vulkan_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace hone {
namespace {

constexpr size_t kArgumentBlock = size_t{64} << 10;  // allocated at once
constexpr size_t kArgumentStep = 64;                 // sizes of pieces

// Commands of the application's, which a timeline semaphore of its own says the end of.
class VulkanWork : public EnqueuedWork {
 public:
  VulkanWork(const VulkanFunctions& vk, VkDevice device, VkSemaphore timeline, uint64_t value)
      : vk_(vk), device_(device), timeline_(timeline), value_(value) {}

  // A device that was lost runs nothing any more.
  bool HasEnded() override {
    uint64_t now = 0;
    return vk_.vkGetSemaphoreCounterValue(device_, timeline_, &now) != VK_SUCCESS || now >= value_;
  }
  void Wait() override {
    VkSemaphoreWaitInfo wait{};
    wait.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
    wait.semaphoreCount = 1;
    wait.pSemaphores = &timeline_;
    wait.pValues = &value_;
    vk_.vkWaitSemaphores(device_, &wait, UINT64_MAX);
  }

 private:
  const VulkanFunctions& vk_;
  const VkDevice device_;
  const VkSemaphore timeline_;
  const uint64_t value_;
};

}  // namespace

Result<std::shared_ptr<const VulkanPipelines::Pipeline>> VulkanPipelines::Find(const std::string& module) {
  if (std::shared_ptr<const Pipeline> pipeline = known_.Find(module)) return pipeline;
  return known_.Add(module, std::make_shared<const Pipeline>(HONE_TRY(Make(module))));
}

Result<VulkanPipelines::Pipeline> VulkanPipelines::Make(const std::string& source) const {
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

Result<VulkanArguments::Piece> VulkanArguments::Take(size_t bytes) {
  bytes = (std::max<size_t>(bytes, 1) + kArgumentStep - 1) / kArgumentStep * kArgumentStep;
  MutexLock lock(mutex_);
  std::vector<Piece>& free = free_[bytes];
  if (free.empty()) {
    VulkanMemory block = HONE_TRY(device_.Allocate(std::max(bytes, kArgumentBlock), true));
    for (size_t at = 0; at + bytes <= block.bytes; at += bytes)
      free.push_back({block.address + at, block.mapped + at, bytes});
    blocks_.push_back(std::move(block));
  }
  const Piece piece = free.back();
  free.pop_back();
  return piece;
}

void VulkanArguments::GiveBack(const Piece& piece) {
  MutexLock lock(mutex_);
  free_[piece.bytes].push_back(piece);
}

Result<std::unique_ptr<VulkanKernel>> VulkanKernel::Make(const Home& home, const DeviceArtifact& artifact,
                                                         Operands operands, Guards guards) {
  auto plan = std::make_shared<Plan>(Plan{artifact.buffers, artifact.launches, {}, operands, guards});
  for (const DeviceLaunch& launch : artifact.launches)
    plan->code.push_back(HONE_TRY(home.pipelines.Find(artifact.sources[static_cast<size_t>(launch.source)])));
  std::unique_ptr<VulkanKernel> kernel(new VulkanKernel(home, std::move(plan)));
  HONE_TRY(kernel->Fill(nullptr));
  return kernel;
}

Result<std::unique_ptr<BorrowedKernel>> VulkanKernel::Another() {
  std::unique_ptr<VulkanKernel> kernel(new VulkanKernel(home_, plan_));
  HONE_TRY(kernel->Fill(this));
  return std::unique_ptr<BorrowedKernel>(std::move(kernel));
}

VulkanKernel::~VulkanKernel() {
  if (arguments_.mapped != nullptr) home_.arguments.GiveBack(arguments_);
}

Result<void> VulkanKernel::Fill(const VulkanKernel* packed) {
  const std::vector<bool> is_packed = PackedBuffers(plan_->buffers, plan_->launches);
  for (size_t i = 0; i < plan_->buffers.size(); ++i) {
    const bool is_elsewhere = plan_->operands == Operands::kPlaced && plan_->buffers[i].operand >= 0;
    const auto bytes = std::max<size_t>(static_cast<size_t>(plan_->buffers[i].bytes), 16);
    if (is_elsewhere)
      memory_.push_back(nullptr);
    else if (packed != nullptr && is_packed[i])
      memory_.push_back(packed->memory_[i]);
    else
      memory_.push_back(std::make_shared<const VulkanMemory>(HONE_TRY(Allocate(bytes))));
    addresses_.push_back(is_elsewhere ? 0 : memory_.back()->address + plan_->guard_bytes());
  }
  size_t pointers = 0;
  for (const DeviceLaunch& launch : plan_->launches) pointers += launch.buffers.size();
  arguments_ = HONE_TRY(home_.arguments.Take(pointers * sizeof(VkDeviceAddress)));
  size_t at = 0;
  for (size_t i = 0; i < plan_->launches.size(); ++i) {
    const DeviceLaunch& launch = plan_->launches[i];
    Entry entry{plan_->code[i], {}, launch.buffers, at};
    for (size_t d = 0; d < 3; ++d) entry.grid[d] = static_cast<uint32_t>(launch.grid[d]);
    at += launch.buffers.size() * sizeof(VkDeviceAddress);
    Pass(entry);
    (launch.packs ? pack_ : entries_).push_back(std::move(entry));
  }
  return {};
}

Result<VulkanMemory> VulkanKernel::Allocate(size_t bytes) {
  VulkanMemory memory = HONE_TRY(home_.device.Allocate(bytes + 2 * plan_->guard_bytes(), false));
  if (plan_->guards == Guards::kNone) return memory;
  const std::vector<std::byte> guard(kDeviceGuardBytes, kDeviceGuardByte);
  for (const size_t at : {size_t{0}, memory.bytes - kDeviceGuardBytes}) HONE_TRY(home_.device.Write(memory, at, guard));
  return memory;
}

Result<void> VulkanKernel::Place(size_t buffer, const DeviceMemory& memory, size_t offset) {
  if (offset % kVulkanAlignment != 0)
    return Error{ErrorKind::kUnsupported, fmt::format("a buffer at offset {}", offset), ""};
  HONE_TRY(home_.device.Finish());  // who is enqueued still reads its arguments
  Put(buffer, MemoryOf(memory).address + offset);
  return {};
}

Result<void> VulkanKernel::PlaceBorrowed(size_t buffer, const BorrowedBuffer& memory) {
  Put(buffer, memory.handle);
  return {};
}

void VulkanKernel::Put(size_t buffer, VkDeviceAddress address) {
  memory_[buffer] = nullptr;
  addresses_[buffer] = address;
  for (const std::vector<Entry>* entries : {&pack_, &entries_})
    for (const Entry& entry : *entries) Pass(entry);
}

void VulkanKernel::Pass(const Entry& entry) {
  std::byte* to = arguments_.mapped + entry.arguments;
  for (int32_t buffer : entry.buffers) {
    std::memcpy(to, &addresses_[static_cast<size_t>(buffer)], sizeof(VkDeviceAddress));
    to += sizeof(VkDeviceAddress);
  }
}

Result<void> VulkanKernel::Enqueue() {
  return home_.device.Add([&](VkCommandBuffer commands) { Record(commands, entries_); });
}

Result<std::unique_ptr<EnqueuedWork>> VulkanKernel::EnqueueOn(const BorrowedQueue& queue, EnqueuedWork*) {
  auto* commands = static_cast<VkCommandBuffer>(queue.queue);
  home_.device.Order(commands);
  Record(commands, entries_);
  return std::unique_ptr<EnqueuedWork>(std::make_unique<VulkanWork>(
      home_.device.vk(), home_.device.get(), reinterpret_cast<VkSemaphore>(queue.timeline), queue.timeline_value));
}

Result<void> VulkanKernel::Write(size_t buffer, std::span<const std::byte> data) {
  return home_.device.Write(*memory_[buffer], plan_->guard_bytes(), data);
}

Result<void> VulkanKernel::Read(size_t buffer, std::span<std::byte> data) {
  return home_.device.Read(*memory_[buffer], plan_->guard_bytes(), data);
}

Result<std::optional<size_t>> VulkanKernel::FindOverrun() {
  std::vector<std::byte> guard(kDeviceGuardBytes);
  for (size_t i = 0; i < memory_.size() && plan_->guards == Guards::kBothSides; ++i) {
    if (memory_[i] == nullptr) continue;
    for (const size_t at : {size_t{0}, memory_[i]->bytes - kDeviceGuardBytes}) {
      HONE_TRY(home_.device.Read(*memory_[i], at, guard));
      if (std::ranges::any_of(guard, [](std::byte b) { return b != kDeviceGuardByte; })) return std::optional(i);
    }
  }
  return std::optional<size_t>();
}

void VulkanKernel::Record(VkCommandBuffer commands, const std::vector<Entry>& entries) const {
  const VulkanFunctions& vk = home_.device.vk();
  for (const Entry& entry : entries) {
    const VkDeviceAddress arguments = arguments_.address + entry.arguments;
    vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, entry.code->pipeline.get());
    vk.vkCmdPushConstants(commands, entry.code->layout.get(), VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof arguments,
                          &arguments);
    vk.vkCmdDispatch(commands, entry.grid[0], entry.grid[1], entry.grid[2]);
    home_.device.Order(commands);
  }
}

Result<int64_t> VulkanKernel::Run(const std::vector<Entry>& entries, int calls) {
  if (entries.empty()) return 0;
  return home_.device.Time([&](VkCommandBuffer commands) {
    home_.device.Order(commands);
    for (int call = 0; call < calls; ++call) Record(commands, entries);
  });
}

}  // namespace hone

#endif
