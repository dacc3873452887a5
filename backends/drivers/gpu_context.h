// What a driver does for us, behind one face for all kinds of GPUs: finds devices, compiles and loads artifacts,
// copies, launches and times. Lives in processes that nobody else's work is in (backends/gpu/device_process.h): a
// driver may hang, crash, or leave its context unusable.
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

// A fact's value: what a driver says, in one word.
std::string FactWord(std::string text);
Error DeviceIsGone(const DeviceTarget& target);

// An artifact on a device: its code, its buffers with guards on both sides, its scratch. One thread.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
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

class GpuContext {
 public:
  virtual ~GpuContext() = default;
  // kBuildFailed with the compiler's log, kLimit (memory), kRunFailed.
  virtual Result<std::unique_ptr<LoadedKernel>> Load(const DeviceArtifact& artifact) = 0;
};

// Loads the driver of a kind ("opencl"), once in a process, and describes its devices in the driver's order. kNotFound:
// there is no driver; kUnsupported: built without what the kind needs.
Result<std::vector<DeviceTarget>> FindDevices(std::string_view kind);
// Opens the first device with exactly these facts. kNotFound: there is none any more.
Result<std::unique_ptr<GpuContext>> OpenDevice(const DeviceTarget& target);

}  // namespace hone
