// GPUs as kinds of devices: those whose drivers compile text. Code is made by hone-builder like a CPU's, and run by
// hone-device-runner, which has the driver; honed has none.
#pragma once

#include "backends/backend.h"

namespace hone {

const Backend& OpenClBackend();
const Backend& VulkanBackend();

}  // namespace hone
