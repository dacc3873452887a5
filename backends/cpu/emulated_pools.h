// Worker pools that also check code for processors that are not here: an emulated runner does. It tells whether code is
// right, never how fast it is.
#pragma once

#include <memory>

#include "backends/processes/worker_pools.h"

namespace hone {

// `own`: for this machine's processor, and what builds. `options`: those it was started with.
std::unique_ptr<WorkerPools> WithEmulatedRunners(std::unique_ptr<WorkerPools> own, WorkerPoolsOptions options);

}  // namespace hone
