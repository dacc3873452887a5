#include "backends/drivers/vulkan_context.h"

#if __has_include(<vulkan/vulkan.h>)
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "backends/drivers/fact_word.h"
#include "backends/drivers/vulkan_device.h"
#include "backends/drivers/vulkan_kernel.h"

namespace hone {
namespace {

// Of its own, or an application's.
class VulkanContext : public BorrowedContext {
 public:
  VulkanContext(DeviceTarget target, std::unique_ptr<VulkanDevice> device)
      : BorrowedContext(std::move(target)), device_(std::move(device)) {}

  Result<std::unique_ptr<LoadedKernel>> Load(const DeviceArtifact& artifact, Operands operands) override {
    return std::unique_ptr<LoadedKernel>(HONE_TRY(Make(artifact, operands, VulkanKernel::Guards::kBothSides)));
  }

  Result<std::unique_ptr<BorrowedKernel>> LoadBorrowed(const DeviceArtifact& artifact) override {
    return std::unique_ptr<BorrowedKernel>(HONE_TRY(Make(artifact, Operands::kPlaced, VulkanKernel::Guards::kNone)));
  }

  Result<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes) override {
    return std::unique_ptr<DeviceMemory>(
        std::make_unique<VulkanDeviceMemory>(HONE_TRY(device_->Allocate(std::max<size_t>(bytes, 16), false))));
  }
  Result<void> Write(const DeviceMemory& to, size_t offset, std::span<const std::byte> data) override {
    return device_->Write(MemoryOf(to), offset, data);
  }
  Result<void> Read(const DeviceMemory& from, size_t offset, std::span<std::byte> data) override {
    return device_->Read(MemoryOf(from), offset, data);
  }
  Result<void> Copy(const DeviceMemory& from, size_t from_offset, const DeviceMemory& to, size_t to_offset,
                    size_t bytes) override {
    if (bytes == 0) return {};
    return device_->Copy(MemoryOf(from), from_offset, MemoryOf(to), to_offset, bytes);
  }
  Result<void> Finish() override { return device_->Finish(); }

  // Whose device an address or a command buffer is of, Vulkan does not say.
  Result<MemoryRange> Find(const BorrowedBuffer& buffer, uint64_t bytes, bool, uint64_t element_bytes) const override {
    const auto invalid = [](std::string what) { return Error{ErrorKind::kInvalid, std::move(what), ""}; };
    if (buffer.bytes < bytes)
      return invalid(fmt::format("the buffer has {} bytes, the operand {}", buffer.bytes, bytes));
    if (const uint64_t alignment = std::max<uint64_t>(kVulkanAlignment, element_bytes); buffer.handle % alignment != 0)
      return invalid(fmt::format("its address is no multiple of {} bytes", alignment));
    return MemoryRange{0, buffer.handle, buffer.bytes};
  }

  Result<void> Check(const BorrowedQueue& queue) const override {
    if (queue.queue == nullptr) return Error{ErrorKind::kInvalid, "no command buffer", "commands"};
    if (queue.timeline == 0)
      return Error{ErrorKind::kInvalid, "no timeline semaphore to say when the commands have ended", "timeline"};
    return {};
  }

  // Commands are submitted when the application likes, and as often.
  bool CanOrder() const override { return false; }

 private:
  Result<std::unique_ptr<VulkanKernel>> Make(const DeviceArtifact& artifact, Operands operands,
                                             VulkanKernel::Guards guards) {
    if (artifact.language != kSpirv)
      return Error{ErrorKind::kUnsupported, "an artifact in " + artifact.language + " for Vulkan", "artifact"};
    return VulkanKernel::Make({*device_, pipelines_, arguments_}, artifact, operands, guards);
  }

  std::unique_ptr<VulkanDevice> device_;
  VulkanPipelines pipelines_{*device_};
  VulkanArguments arguments_{*device_};
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
  return std::unique_ptr<GpuContext>(
      std::make_unique<VulkanContext>(target, HONE_TRY(VulkanDevice::Open(std::move(*found)))));
}

Result<std::unique_ptr<BorrowedContext>> BorrowVulkanDevice(const BorrowedVulkan& device) {
  const auto invalid = [](std::string what) { return Error{ErrorKind::kInvalid, std::move(what), "device"}; };
  if (device.instance == nullptr || device.physical_device == nullptr || device.device == nullptr)
    return invalid("no instance, no physical device or no device");
  if (device.queue == nullptr) return invalid("no queue, where constants are packed");
  const VulkanFunctions& vk = *HONE_TRY(LoadVulkan());
  VulkanFound found = HONE_TRY(FindBorrowedVulkan(vk, device.instance, device.physical_device, device.queue_family));
  DeviceTarget target = found.target;
  return std::unique_ptr<BorrowedContext>(
      std::make_unique<VulkanContext>(std::move(target), HONE_TRY(VulkanDevice::Borrow(std::move(found), device))));
}

}  // namespace hone

#else

namespace hone {

namespace {
Error WithoutVulkan() {
  return {ErrorKind::kUnsupported, "built without Vulkan's headers (Debian: libvulkan-dev)", ""};
}
}  // namespace

Result<std::vector<DeviceTarget>> FindVulkanDevices() { return WithoutVulkan(); }
Result<std::unique_ptr<GpuContext>> OpenVulkanDevice(const DeviceTarget&) { return WithoutVulkan(); }
Result<std::unique_ptr<BorrowedContext>> BorrowVulkanDevice(const BorrowedVulkan&) { return WithoutVulkan(); }

}  // namespace hone

#endif
