// The roofs of this machine's CPU, measured: no table knows the clock, the memory or the neighbours of a machine.
#pragma once

#include "backends/machine_peaks.h"
#include "ir/target.h"

namespace hone {

// All of `threads` together, each on data of its own; the best of several short runs. About 0.1 s, and up to 256 MiB
// for that time. `host`: this machine. A roof of 0 could not be measured.
MachinePeaks MeasurePeaks(const Target& host, int threads);

}  // namespace hone
