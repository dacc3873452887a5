// Worker pools of a device on another machine: code is built here, and checked and timed there. To whoever searches
// they are worker pools like any others.
#pragma once

#include <memory>

#include "backends/processes/remote_runner.h"
#include "backends/processes/worker_pools.h"

namespace hone {

struct RemotePoolsOptions {
  std::shared_ptr<WorkerPools> own;  // that build, and check what runs here
  std::shared_ptr<RemoteRunner> runner;
  // This machine runs code for the device's target, so it may be handed to programs here: then the device's word is not
  // enough, and what it calls right is checked here as well. If it is wrong here, the device is given up.
  bool runs_here = false;
  int builders = 1;  // of `own`: so many builds at once
};

std::unique_ptr<WorkerPools> MakeRemotePools(RemotePoolsOptions options);

}  // namespace hone
