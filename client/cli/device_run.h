// Running a kernel for a device with a driver: on that device, in this process.
#pragma once

#include "base/result.h"
#include "client/api/client.h"
#include "client/cli/trial_run.h"

namespace hone::cli {

// As TrialRun. Times are the device's own, without copies. kNotFound: its driver is not here any more.
Result<RunReport> RunOnDevice(const Served& served, int samples);

}  // namespace hone::cli
