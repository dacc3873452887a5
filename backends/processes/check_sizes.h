// Checking code for a range of sizes: it is run at several, and none may fail.
#pragma once

#include <functional>
#include <string_view>

#include "backends/processes/runner_pool.h"
#include "base/result.h"
#include "ir/graph/kernel.h"

namespace hone {

// `check` runs one check, at options.sizes. Of a kernel without dynamic sizes its report; else one for all sizes of
// SizesToCheck: the first failure, with the sizes it was at, or the largest error, all compared elements, and the times
// of the largest sizes. `schedule`: that the code was built by. Errors as `check` and SizesToCheck.
Result<CheckReport> CheckAllSizes(const Kernel& kernel, std::string_view schedule, const CheckOptions& options,
                                  const std::function<Result<CheckReport>(const CheckOptions&)>& check);

// "M=17", "B=2 M=17".
std::string SizesText(const Kernel& kernel, const std::vector<int64_t>& sizes);

}  // namespace hone
