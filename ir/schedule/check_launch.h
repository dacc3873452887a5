// Whether the bound loops of a schedule for a GPU make launches that mean what the kernel means: no two threads write
// the same element, and what a block shares is there for all its threads.
#pragma once

#include "base/result.h"
#include "ir/schedule/apply.h"

namespace hone {

// A part of CheckScheduled. Nothing to refuse where no loop is bound and nothing is stored per block.
Result<void> CheckLaunches(const ScheduledKernel& scheduled);

}  // namespace hone
