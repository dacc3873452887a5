// A tensor that a stage reads through a copy, which may be packed, closer, or made ahead of time.
#pragma once

#include <string>

#include "base/result.h"
#include "ir/graph/kernel.h"

namespace hone {

// stage reads `tensor` through a copy: a new stage, result[i…] = tensor[i…], placed just before it.
Result<Kernel> CacheRead(Kernel kernel, TensorId tensor, StageId stage, const std::string& result);

}  // namespace hone
