// An artifact on a CUDA device, and the memory that it works on.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/drivers/borrowed_context.h"
#include "backends/drivers/cuda_queue.h"

namespace hone {

// What our code takes for granted of a buffer's begin: it reads and writes vectors of 16 bytes.
inline constexpr size_t kCudaAlignment = 16;

struct CudaDeviceMemory : DeviceMemory {
  explicit CudaDeviceMemory(CudaMemory owned) : memory(std::move(owned)) {}
  CudaMemory memory;
};
inline const CudaMemory& CudaMemoryOf(const DeviceMemory& memory) {
  return static_cast<const CudaDeviceMemory&>(memory).memory;
}

class CudaModule {
 public:
  CudaModule(CudaQueue& queue, cuda::Module module) : queue_(queue), module_(module) {}
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;
  ~CudaModule() {
    if (const Result<CudaQueue::Inside> inside = queue_.Enter()) queue_.cu().cuModuleUnload(module_);
  }
  cuda::Module get() const { return module_; }

 private:
  CudaQueue& queue_;
  const cuda::Module module_;
};

class CudaKernel : public BorrowedKernel {
 public:
  enum class Guards : uint8_t { kBothSides, kNone };  // of memory of the kernel's own

  static Result<std::unique_ptr<CudaKernel>> Make(CudaQueue& queue, std::shared_ptr<const CudaModule> module,
                                                  const DeviceArtifact& artifact, Operands operands, Guards guards);

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
  struct Entry {
    std::string name;
    cuda::Function function = nullptr;
    std::array<unsigned, 3> grid{}, block{};
    unsigned shared_bytes = 0;  // that are said with the launch
    std::vector<int32_t> buffers;
  };
  // What all of one code have in common.
  struct Plan {
    std::vector<DeviceBuffer> buffers;
    std::vector<DeviceLaunch> launches;
    Operands operands = Operands::kOwned;
    Guards guards = Guards::kBothSides;

    size_t guard_bytes() const { return guards == Guards::kBothSides ? kDeviceGuardBytes : 0; }
  };

  CudaKernel(CudaQueue& queue, std::shared_ptr<const CudaModule> module, std::shared_ptr<const Plan> plan)
      : queue_(queue), module_(std::move(module)), plan_(std::move(plan)) {}
  // `packed`: has the constants; nullptr: to be packed.
  Result<void> Fill(const CudaKernel* packed);
  Result<CudaMemory> Allocate(size_t bytes);
  Result<void> EnqueueAll(const std::vector<Entry>& entries, cuda::Stream stream);
  Result<int64_t> Run(const std::vector<Entry>& entries, int calls);

  CudaQueue& queue_;
  const std::shared_ptr<const CudaModule> module_;
  const std::shared_ptr<const Plan> plan_;
  std::vector<std::shared_ptr<const CudaMemory>> memory_;  // with guards; nullptr: somebody else's
  std::vector<cuda::Address> addresses_;                   // of what kernels see
  std::vector<Entry> pack_, entries_;
};

}  // namespace hone
