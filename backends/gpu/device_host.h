// The launcher for devices with drivers. Between the runner and the process with the driver stands one that never loads
// it: it ends a device process that hangs and starts another one.
#pragma once

#include <memory>

#include "backends/runner/launcher.h"
#include "base/result.h"

namespace hone {

// Forks the host, which locks itself and its device processes in. kIo. REQUIRES: the process has one thread.
Result<std::unique_ptr<Launcher>> StartDeviceHost();

}  // namespace hone
