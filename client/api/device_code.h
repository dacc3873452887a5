// Code for another kind of device than the CPU, as it was served: no process can map and call it.
#pragma once

#include <string_view>

#include "base/result.h"
#include "base/sealed_memfd.h"
#include "client/api/client.h"
#include "ir/device_artifact.h"

namespace hone {

// Whether that is what was served.
bool IsForDevice(const Served& served);

// Checked: it is whole, and the kernel's that was asked for (`canonical`; "" if the caller does not know). kCorrupt.
Result<DeviceArtifact> OpenDeviceCode(const Served& served);
Result<DeviceArtifact> OpenDeviceCode(const SealedMemfd& file, const GetReply& reply, std::string_view canonical);

}  // namespace hone
