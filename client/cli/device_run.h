// Running a kernel for a device with a driver: on that device, in this process.
#pragma once

#include "base/result.h"
#include "client/api/client.h"
#include "client/cli/trial_run.h"

namespace hone::cli {

// Whether what was served is code for another kind of device than the CPU, which no process can map and call.
bool IsForDevice(const Served& served);

// The manifest of such code, checked: it is whole, and the kernel's. kCorrupt.
Result<Manifest> CheckServed(const Served& served);

// As TrialRun. Times are the device's own, without copies. kNotFound: its driver is not here any more.
Result<RunReport> RunOnDevice(const Served& served, int samples);

}  // namespace hone::cli
