// The CPU's launcher: the fork server of a runner. It is forked off before the runner has seen any kernel, so the
// candidates that it forks in turn hold nothing of the runner's memory, whatever they do.
#pragma once

#include <memory>

#include "backends/runner/launcher.h"
#include "base/result.h"

namespace hone {

// Forks the server, which locks itself in. kIo. REQUIRES: the process has one thread.
Result<std::unique_ptr<Launcher>> StartForkServer();

}  // namespace hone
