// A tuning curve: the best time so far over a kernel's trials.
#pragma once

#include "client/cli/report/markup.h"
#include "client/cli/report/report_data.h"

namespace hone::cli {

// False: it was never searched, or no trial was timed.
bool HasCurve(const ReportKernel& kernel);

// An <svg> for a panel among many: the time axis begins at zero and ends a little above the default's time, so that all
// panels show the share of the default's time that is left in the same height. REQUIRES: HasCurve(kernel).
void DrawCurve(Markup& out, const ReportKernel& kernel);

}  // namespace hone::cli
