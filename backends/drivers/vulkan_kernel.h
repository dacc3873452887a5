// An artifact on a Vulkan device, and the memory that it works on. Needs Vulkan's headers; includers ask for them first
// (vulkan_context.cc).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/drivers/borrowed_context.h"
#include "backends/drivers/shared_code.h"
#include "backends/drivers/vulkan_device.h"
#include "base/mutex.h"

namespace hone {

// What shaders take for granted of a buffer's begin: they read and write small elements by four.
inline constexpr size_t kVulkanAlignment = 4;

struct VulkanDeviceMemory : DeviceMemory {
  explicit VulkanDeviceMemory(VulkanMemory owned) : memory(std::move(owned)) {}
  VulkanMemory memory;
};
inline const VulkanMemory& MemoryOf(const DeviceMemory& memory) {
  return static_cast<const VulkanDeviceMemory&>(memory).memory;
}

// What shaders have been compiled to: the same code at other places is compiled once, for as long as it is loaded.
// Thread-safe. The device outlives it.
class VulkanPipelines {
 public:
  struct Pipeline {
    VulkanOwned<VkPipelineLayout> layout;
    VulkanOwned<VkPipeline> pipeline;
  };

  explicit VulkanPipelines(VulkanDevice& device) : device_(device) {}
  Result<std::shared_ptr<const Pipeline>> Find(const std::string& module);

 private:
  Result<Pipeline> Make(const std::string& module) const;

  VulkanDevice& device_;
  SharedCode<Pipeline> known_;
};

// Memory that launches read the addresses of their buffers from: pieces of a few allocations, of which devices have no
// more than some thousands. Thread-safe. The device outlives it, and it whoever has a piece.
class VulkanArguments {
 public:
  struct Piece {
    VkDeviceAddress address = 0;
    std::byte* mapped = nullptr;
    size_t bytes = 0;
  };

  explicit VulkanArguments(VulkanDevice& device) : device_(device) {}
  Result<Piece> Take(size_t bytes) HONE_EXCLUDES(mutex_);
  void GiveBack(const Piece& piece) HONE_EXCLUDES(mutex_);

 private:
  VulkanDevice& device_;
  Mutex mutex_;
  std::vector<VulkanMemory> blocks_ HONE_GUARDED_BY(mutex_);
  std::map<size_t, std::vector<Piece>> free_ HONE_GUARDED_BY(mutex_);  // by size
};

class VulkanKernel : public BorrowedKernel {
 public:
  // What it is on, which outlives it.
  struct Home {
    VulkanDevice& device;
    VulkanPipelines& pipelines;
    VulkanArguments& arguments;
  };
  enum class Guards : uint8_t { kBothSides, kNone };  // of memory of the kernel's own

  static Result<std::unique_ptr<VulkanKernel>> Make(const Home& home, const DeviceArtifact& artifact, Operands operands,
                                                    Guards guards);
  ~VulkanKernel() override;

  Result<void> Place(size_t buffer, const DeviceMemory& memory, size_t offset) override;
  Result<void> Enqueue() override;
  Result<void> Write(size_t buffer, std::span<const std::byte> data) override;
  Result<void> Read(size_t buffer, std::span<std::byte> data) override;
  Result<int64_t> Pack() override { return Run(pack_, 1); }
  Result<int64_t> Call(int calls) override { return Run(entries_, calls); }
  Result<std::optional<size_t>> FindOverrun() override;

  Result<std::unique_ptr<BorrowedKernel>> Another() override;
  Result<void> PlaceBorrowed(size_t buffer, const BorrowedBuffer& memory) override;
  Result<std::unique_ptr<EnqueuedWork>> EnqueueOn(const BorrowedQueue& queue, EnqueuedWork* after) override;

 private:
  // A launch: its code, its blocks, its arguments and where they lie.
  struct Entry {
    std::shared_ptr<const VulkanPipelines::Pipeline> code;
    std::array<uint32_t, 3> grid{};
    std::vector<int32_t> buffers;
    size_t arguments = 0;  // offset
  };
  // What all of one code have in common.
  struct Plan {
    std::vector<DeviceBuffer> buffers;
    std::vector<DeviceLaunch> launches;
    std::vector<std::shared_ptr<const VulkanPipelines::Pipeline>> code;  // by launch
    Operands operands = Operands::kOwned;
    Guards guards = Guards::kBothSides;

    size_t guard_bytes() const { return guards == Guards::kBothSides ? kDeviceGuardBytes : 0; }
  };

  VulkanKernel(const Home& home, std::shared_ptr<const Plan> plan) : home_(home), plan_(std::move(plan)) {}
  // `packed`: has the constants; nullptr: to be packed.
  Result<void> Fill(const VulkanKernel* packed);
  Result<VulkanMemory> Allocate(size_t bytes);
  void Put(size_t buffer, VkDeviceAddress address);
  void Pass(const Entry& entry);
  void Record(VkCommandBuffer commands, const std::vector<Entry>& entries) const;
  Result<int64_t> Run(const std::vector<Entry>& entries, int calls);

  const Home home_;
  const std::shared_ptr<const Plan> plan_;
  std::vector<std::shared_ptr<const VulkanMemory>> memory_;  // with guards; nullptr: somebody else's
  std::vector<VkDeviceAddress> addresses_;                   // of what kernels see
  VulkanArguments::Piece arguments_;
  std::vector<Entry> pack_, entries_;
};

}  // namespace hone
