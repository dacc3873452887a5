// A reduction in independent lanes.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "ir/graph/kernel.h"

namespace hone {

// Reduces axis in `lanes` independent lanes: result[…, l] over the axis' quotient, then the stage over l alone. A lane
// takes `width` elements side by side at each step, which become a reduced axis of their own: lane l those from
// (q·lanes + l)·width on.
Result<Kernel> Rfactor(Kernel kernel, StageId stage, const std::string& axis, int64_t lanes, const std::string& result,
                       int64_t width = 1);

}  // namespace hone
