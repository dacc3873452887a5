// GPUs as kinds of devices. Code is made by hone-builder like a CPU's, and run by hone-device-runner, which has the
// driver; honed has none.
#pragma once

#include "backends/backend.h"

namespace hone {

const Backend& OpenClBackend();
const Backend& VulkanBackend();
const Backend& CudaBackend();

}  // namespace hone
