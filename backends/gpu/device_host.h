// The launcher for devices with drivers. Between the runner and the process with the driver stands one that never loads
// it: it ends a device process that hangs and starts another one, and starts more of them where candidates are
// rehearsed side by side. What is checked and timed is so in one of them, while the others wait.
#pragma once

#include <memory>

#include "backends/processes/child_channel.h"
#include "backends/runner/launcher.h"
#include "base/result.h"

namespace hone {

// Forks the host, which locks itself and its device processes in. kIo. REQUIRES: the process has one thread.
Result<std::unique_ptr<Launcher>> StartDeviceHost();

// ListDevices and MeasureCopies (device_process.h) in a process that is locked in as those with drivers are; or kError:
// it could not be.
[[noreturn]] void ListDevicesLockedIn(ChildChannel channel, const char* kind);
[[noreturn]] void MeasureCopiesLockedIn(ChildChannel channel, const char* target);

}  // namespace hone
