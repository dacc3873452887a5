// A driver on handles of somebody else's: an application's context, queues and buffers, in its driver's own words. What
// the application enqueues and what is enqueued here for it are in one order. libhone_opencl, libhone_cuda and
// libhone_vulkan are this with kernels from honed (client/device).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backends/drivers/gpu_context.h"
#include "base/result.h"
#include "ir/device_artifact.h"
#include "ir/target.h"

namespace hone {

struct BorrowedBuffer {
  uint64_t handle = 0;  // cl_mem, CUdeviceptr, VkDeviceAddress; 0: none
  uint64_t bytes = 0;   // as the application says: OpenCL knows by itself, and this is 0
};

// Where a buffer's bytes are: of equal roots, ranges that meet share memory.
struct MemoryRange {
  uint64_t root = 0, begin = 0, bytes = 0;

  bool Meets(const MemoryRange& other, uint64_t own_bytes, uint64_t other_bytes) const {
    return root == other.root && begin < other.begin + other_bytes && other.begin < begin + own_bytes;
  }
};

// Where work goes, and what tells of its end.
struct BorrowedQueue {
  void* queue = nullptr;              // cl_command_queue; CUstream; a VkCommandBuffer that is being recorded
  std::span<void* const> waits = {};  // cl_event: what has to end before
  void** done = nullptr;              // gets a cl_event for the end, which is the application's to release
  uint64_t timeline = 0;              // VkSemaphore, which says at least …
  uint64_t timeline_value = 0;        // … this when the commands have run for the last time
};

// Scratch that launches that pack write, by buffer: it lives as long as anybody calls the code, other scratch for a
// call.
std::vector<bool> PackedBuffers(std::span<const DeviceBuffer> buffers, std::span<const DeviceLaunch> launches);

// Work that was enqueued. Thread-safe.
class EnqueuedWork {
 public:
  virtual ~EnqueuedWork() = default;
  virtual bool HasEnded() = 0;  // in whatever way
  virtual void Wait() = 0;
};

// An artifact in a borrowed context. Its scratch has no guards: such code was checked before it was served. What is
// placed and enqueued is one thread's at a time, whichever that is; of several kernels several threads' at once.
class BorrowedKernel : public LoadedKernel {
 public:
  // Another one of the same code, with the same packed constants and other scratch. kLimit: no memory.
  virtual Result<std::unique_ptr<BorrowedKernel>> Another() = 0;
  // From now on a buffer is there. REQUIRES: BorrowedContext::Find was content with it.
  virtual Result<void> PlaceBorrowed(size_t buffer, const BorrowedBuffer& memory) = 0;
  // One call, after what the queue says and after `after` (which may be null, and is where contexts cannot Order).
  // kRunFailed: nothing of it is enqueued any more.
  virtual Result<std::unique_ptr<EnqueuedWork>> EnqueueOn(const BorrowedQueue& queue, EnqueuedWork* after) = 0;
};

// Load, Find, Check and Order may be called by any thread at any time. What GpuContext has besides goes by a queue of
// its own, beside the application's: one thread at a time.
class BorrowedContext : public GpuContext {
 public:
  const DeviceTarget& target() const { return target_; }

  // GpuContext::Load for operands that are placed.
  virtual Result<std::unique_ptr<BorrowedKernel>> LoadBorrowed(const DeviceArtifact& artifact) = 0;
  // kInvalid: no buffer of this context, or one that kernels cannot read (or write) `bytes` bytes of in elements of
  // `element_bytes`.
  virtual Result<MemoryRange> Find(const BorrowedBuffer& buffer, uint64_t bytes, bool is_written,
                                   uint64_t element_bytes) const = 0;
  // kInvalid: another context's, or another device's; kUnsupported: nothing may be enqueued there.
  virtual Result<void> Check(const BorrowedQueue& queue) const = 0;
  // Whether work can be told to begin after other work, so that two calls may have the same scratch.
  virtual bool CanOrder() const = 0;

 protected:
  explicit BorrowedContext(DeviceTarget target) : target_(std::move(target)) {}

 private:
  const DeviceTarget target_;
};

}  // namespace hone
