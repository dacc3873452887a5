// The schedule that a kernel gets when nothing better is known. Derived from the stage graph and the target, by rules,
// not tabulated: what a user gets in the first 50 ms.
#pragma once

#include "base/result.h"
#include "ir/kernel.h"
#include "ir/schedule.h"
#include "ir/target.h"

namespace hone {

// Always applies to and lowers for the kernel. REQUIRES: the kernel passed VerifyKernel.
Result<Schedule> DefaultSchedule(const Kernel& kernel, const Target& target);

}  // namespace hone
