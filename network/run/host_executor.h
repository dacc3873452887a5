// Networks on the CPU: kernels are called in this process.
#pragma once

#include <memory>

#include "network/run/executor.h"

namespace hone {

// Executor::Create, kernels fetched.
Result<std::unique_ptr<Executor>> MakeHostExecutor(Client& client, Graph& graph, const CallPlan& plan,
                                                   const ExecutorOptions& options);

}  // namespace hone
