// What a driver does for us, behind one face for all kinds of GPUs: finds devices, compiles and loads artifacts,
// copies, launches and times. For honed it lives in processes that nobody else's work is in
// (backends/gpu/device_process.h): a driver may hang, crash, or leave its context unusable. Programs that run networks
// on a device have it themselves (network/run/device_executor.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/device_artifact.h"
#include "ir/target.h"

namespace hone {

// Bytes on both sides of a buffer that nobody may write. A multiple of what any device wants buffers aligned to.
inline constexpr size_t kDeviceGuardBytes = 4096;
inline constexpr auto kDeviceGuardByte = std::byte{0xc3};

// Of a device's; must not outlive its context.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
};

// An artifact on a device: its code, its buffers with guards on both sides, its scratch. Must not outlive its context.
// One thread.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  // From now on a buffer lies there, in memory that lives as long as this. kUnsupported: the device's kernels take no
  // buffer that begins at this offset.
  virtual Result<void> Place(size_t buffer, const DeviceMemory& memory, size_t offset) = 0;
  // One call, after all that was enqueued in this context before it; waits for nothing.
  virtual Result<void> Enqueue() = 0;
  // All bytes of a buffer of the artifact.
  virtual Result<void> Write(size_t buffer, std::span<const std::byte> data) = 0;
  virtual Result<void> Read(size_t buffer, std::span<std::byte> data) = 0;
  // Runs the launches that pack, or `calls` times the others, and waits. Nanoseconds of the device from the first one's
  // begin to the last one's end. kRunFailed: the context may be good for nothing any more.
  virtual Result<int64_t> Pack() = 0;
  virtual Result<int64_t> Call(int calls) = 0;
  // A buffer beside which something was written; nullopt: none.
  virtual Result<std::optional<size_t>> FindOverrun() = 0;
};

// Where the buffers of an artifact's operands are.
enum class Operands : uint8_t {
  kOwned,   // in memory of the kernel's own
  kPlaced,  // where LoadedKernel::Place says: nowhere before
};

class GpuContext {
 public:
  virtual ~GpuContext() = default;
  // kBuildFailed with the compiler's log, kLimit (memory), kRunFailed.
  virtual Result<std::unique_ptr<LoadedKernel>> Load(const DeviceArtifact& artifact, Operands operands) = 0;

  // kLimit: the device has no such memory.
  virtual Result<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes) = 0;
  // Both wait for what was enqueued before.
  virtual Result<void> Write(const DeviceMemory& to, size_t offset, std::span<const std::byte> data) = 0;
  virtual Result<void> Read(const DeviceMemory& from, size_t offset, std::span<std::byte> data) = 0;
  // Enqueued, as launches are.
  virtual Result<void> Copy(const DeviceMemory& from, size_t from_offset, const DeviceMemory& to, size_t to_offset,
                            size_t bytes) = 0;
  // Waits for everything. kRunFailed.
  virtual Result<void> Finish() = 0;
};

// Loads the driver of a kind ("opencl"), once in a process, and describes its devices in the driver's order. kNotFound:
// there is no driver; kUnsupported: built without what the kind needs.
Result<std::vector<DeviceTarget>> FindDevices(std::string_view kind);
// Opens the first device with exactly these facts. kNotFound: there is none any more.
Result<std::unique_ptr<GpuContext>> OpenDevice(const DeviceTarget& target);

}  // namespace hone
