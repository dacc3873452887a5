// An artifact on an OpenCL device, and the memory that it works on. Needs OpenCL's headers; includers ask for them
// first (opencl_context.cc).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/drivers/borrowed_context.h"
#include "backends/drivers/opencl_driver.h"

namespace hone {

struct OpenClMemory : DeviceMemory {
  explicit OpenClMemory(OpenClOwned<cl_mem> owned) : memory(std::move(owned)) {}
  OpenClOwned<cl_mem> memory;
};
inline cl_mem HandleOf(const DeviceMemory& memory) { return static_cast<const OpenClMemory&>(memory).memory.get(); }

class OpenClKernel : public BorrowedKernel {
 public:
  // What it is on, which outlives it; `queue` is for what is not enqueued elsewhere.
  struct Home {
    const OpenCl& cl;
    cl_context context;
    cl_command_queue queue;
  };
  enum class Guards : uint8_t { kBothSides, kNone };  // of memory of the kernel's own
  using Program = std::shared_ptr<const OpenClOwned<cl_program>>;

  // `programs`: of the artifact's sources.
  static Result<std::unique_ptr<OpenClKernel>> Make(const Home& home, std::vector<Program> programs,
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
  // With guards and without; of memory that is somebody else's, the part alone, or nothing.
  struct Memory {
    OpenClOwned<cl_mem> whole, inside;
    cl_mem argument = nullptr;  // what launches get
    size_t bytes = 0;
  };
  struct Entry {
    OpenClOwned<cl_kernel> kernel;
    std::vector<int32_t> buffers;
    std::array<size_t, 3> global{}, local{};
  };
  // What all of one code have in common.
  struct Plan {
    std::vector<Program> programs;
    std::vector<DeviceBuffer> buffers;
    std::vector<DeviceLaunch> launches;
    Operands operands = Operands::kOwned;
    Guards guards = Guards::kBothSides;
  };

  OpenClKernel(const Home& home, std::shared_ptr<const Plan> plan)
      : cl_(home.cl), home_(home), plan_(std::move(plan)) {}
  // `packed`: has the constants; nullptr: to be packed.
  Result<void> Fill(const OpenClKernel* packed);
  Result<Memory> Allocate(size_t bytes) const;
  Result<Entry> MakeEntry(const DeviceLaunch& launch) const;
  Result<void> Put(size_t buffer, OpenClOwned<cl_mem> part, cl_mem argument);
  Result<void> Pass(const Entry& entry, int32_t buffer) const;  // a buffer as an argument of a launch that has it
  Result<int64_t> Run(const std::vector<Entry>& entries, int calls);

  const OpenCl& cl_;
  const Home home_;
  const std::shared_ptr<const Plan> plan_;
  std::vector<std::shared_ptr<Memory>> memory_;
  std::vector<Entry> pack_, entries_;
};

}  // namespace hone
