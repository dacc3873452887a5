// GPUs as kinds of devices. Code is made by hone-builder like a CPU's, and run by hone-device-runner, which has the
// driver; honed has none.
#pragma once

#include <span>
#include <string_view>

#include "backends/backend.h"

namespace hone {

// One for each of kGpuKinds.
std::span<const Backend* const> GpuBackends();
// REQUIRES: it is one of them.
const Backend& GpuBackend(std::string_view kind);

}  // namespace hone
