// A network as calls of kernels that honed serves: what it refuses is written in another way, in smaller kernels, and
// in the end evaluated on the host.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "network/run/executor.h"

namespace hone {

using Refusals = std::map<std::string, Error>;  // by the kernels' text

// Lowers until nothing is refused any more. `ask` says which kernels of a plan are. Where weights of whole numbers are
// not supported, they become floats first. The first error where that is all
// of them, which is no kernel's fault, but for a kernel that is the only one and wrong or too large itself.
Result<CallPlan> LowerServed(Graph& graph, LowerOptions options, const std::function<Refusals(const CallPlan&)>& ask);

// The same, with honed having made every kernel. What fails for another reason than the kernel itself is asked for
// again, and said, when the executor is created. Errors of ModelFile::Map, too.
Result<CallPlan> LowerServed(Client& client, Graph& graph, const LowerOptions& options,
                             const ExecutorOptions& executor);

// Whether an error of Client::Fetch or PredictRequest says that a kernel cannot be had, however often it is asked for.
bool IsRefusal(const Error& error);

}  // namespace hone
