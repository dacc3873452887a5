// hone run of a kernel with dynamic sizes: its code at many sizes, each beside the kernel for that size alone.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "client/cli/command.h"
#include "client/cli/context.h"
#include "ir/graph/kernel.h"
#include "ir/schedule/schedule_cases.h"

namespace hone::cli {

// Whether the text is a kernel with a size that is a range.
bool HasDynamicSizes(const std::string& kernel);

// --sizes: "M=1,7,64"; of several dynamic sizes "B=1 M=7,B=2 M=9", where those that are not named go along from one end
// of their ranges to the other. The values of the dynamic sizes, in order, for each. kInvalid.
Result<std::vector<std::vector<int64_t>>> ParseSizes(const Kernel& kernel, const std::string& text);

// Sizes to run when nobody chose: spread evenly over the range, and the ends of the ranges that have a schedule of
// their own.
std::vector<std::vector<int64_t>> SpreadSizes(const Kernel& kernel, const ScheduleCases& cases);

// Shares of the range that the values stand for, each the half of the way to its neighbours; of one value 1. Ascending
// values of one size.
std::vector<double> SharesOf(const std::vector<int64_t>& values, int64_t lo, int64_t hi);

// The command, for one such kernel.
int RunAtSizes(Context& context, const NamedKernel& kernel, const GetOptions& options, int samples,
               const Arguments& arguments);

extern const Option kSizesOption;
extern const Option kTuneEachOption;

}  // namespace hone::cli
