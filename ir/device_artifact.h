// Artifacts of devices that are handed text and buffers: the manifest, the source of the launches in the device's
// language (of Vulkan: SPIR-V modules; of CUDA: code for one architecture), and the plan: which buffers there are, and
// which launches one call makes with them, in order. Of a text or a SPIR-V module the device's own compiler makes code
// where it runs, so such an artifact is good for any driver.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/manifest.h"

namespace hone {

// Languages that are not text.
inline constexpr std::string_view kSpirv = "spirv", kCubin = "cubin";

struct DeviceBuffer {
  int64_t bytes = 0;
  int32_t operand = -1;  // of the manifest; -1: scratch, which lives as long as the kernel is loaded
  bool is_written = false;
};

// Of block storage: what CUDA gives to arrays of a kernel's text. Beyond it all of the storage is one array, whose size
// is said with each launch.
inline constexpr int64_t kCudaStaticBytes = 48 << 10;

struct DeviceLaunch {
  std::string entry;  // a function of sources[source]
  int32_t source = 0;
  bool packs = false;                     // once, when constants are known; before those that do not
  std::array<int64_t, 3> grid{1, 1, 1};   // blocks
  std::array<int64_t, 3> block{1, 1, 1};  // threads of one
  int64_t shared_bytes = 0;               // of one
  std::vector<int32_t> buffers;           // its arguments, by index into DeviceArtifact::buffers
};

struct DeviceArtifact {
  Manifest manifest;
  std::string language;  // "opencl": a dialect of codegen/gpu; kSpirv, kCubin
  std::vector<std::string> sources;
  std::vector<DeviceBuffer> buffers;
  std::vector<DeviceLaunch> launches;
};

std::string EncodeDeviceArtifact(const DeviceArtifact& artifact);

// kCorrupt (no such artifact, or its parts contradict each other), kUnsupported (a newer hone's), kInvalid (`size`, if
// not 0, is another). An accepted one names buffers and sources that are there, has a buffer for each operand with
// exactly its bytes, and writes no input.
Result<DeviceArtifact> DecodeDeviceArtifact(std::span<const std::byte> bytes, uint64_t size = 0);

}  // namespace hone
