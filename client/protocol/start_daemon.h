// Starting honed when nothing listens, as ccache and sccache do: by the command line always, by libraries when asked.
#pragma once

#include <string>

#include "base/result.h"
#include "client/protocol/channel.h"

namespace hone {

// Starts honed in the background on this socket and returns once it listens. Several programs may try at once: a lock
// beside the socket lets one of them. `cache`: honed's --cache, "" for its default. kNotFound: no honed beside this
// program, beside the library or in PATH; kUnavailable: it ended, with its last words; kTimeout: it is left to start,
// and its process, which ends then, to ReapLateStarts.
Result<void> StartDaemon(const std::string& socket, const std::string& cache, Deadline deadline);

// Takes back what has ended of the processes that StartDaemon left to themselves. Never waits.
void ReapLateStarts();

// Where honed is: beside the running program, in ../bin of the library that this code is in, or in PATH. kNotFound.
Result<std::string> FindDaemon();

}  // namespace hone
