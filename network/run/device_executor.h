// Networks on a device with a driver, which is opened in this process. What flows between kernels stays there; where no
// kernel is written, values go to the host and back.
#pragma once

#include <memory>

#include "network/run/executor.h"

namespace hone {

// Executor::Create, kernels fetched. kNotFound: the device's driver is not here.
Result<std::unique_ptr<Executor>> MakeDeviceExecutor(Client& client, Graph& graph, const CallPlan& plan,
                                                     const ExecutorOptions& options);

}  // namespace hone
