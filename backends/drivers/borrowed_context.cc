#include "backends/drivers/borrowed_context.h"

namespace hone {

std::vector<bool> PackedBuffers(std::span<const DeviceBuffer> buffers, std::span<const DeviceLaunch> launches) {
  std::vector<bool> packed(buffers.size());
  for (const DeviceLaunch& launch : launches)
    for (const int32_t buffer : launch.buffers)
      if (launch.packs && buffers[static_cast<size_t>(buffer)].operand < 0) packed[static_cast<size_t>(buffer)] = true;
  return packed;
}

}  // namespace hone
