// A reduction in independent lanes.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "ir/graph/kernel.h"

namespace hone {

// Reduces axis in `lanes` independent lanes: result[…, l] over the axis' quotient, then the stage over l alone.
Result<Kernel> Rfactor(Kernel kernel, StageId stage, const std::string& axis, int64_t lanes, const std::string& result);

}  // namespace hone
