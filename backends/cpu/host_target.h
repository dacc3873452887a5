// The machine we run on, as a Target.
#pragma once

#include "base/result.h"
#include "ir/target.h"

namespace hone {

// ISA and features from CPUID or the auxiliary vector, caches from sysfs, cores from the affinity mask. The environment
// variable HONE_TARGET (PrintTarget's text; ignored in set-uid programs) replaces all of it, for tests and for building
// on behalf of another machine. kUnsupported: a CPU without AVX2 and FMA, or of another architecture.
Result<Target> HostTarget();

}  // namespace hone
