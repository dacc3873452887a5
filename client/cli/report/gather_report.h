// Asks honed, record by record, for what `hone report` shows.
#pragma once

#include <functional>

#include "client/cli/report/report_data.h"
#include "client/protocol/channel.h"

namespace hone::cli {

struct GatherOptions {
  size_t most_estimates = 64;  // kernels, the heaviest first, whose times the cost model is asked for
  std::function<void(size_t done, size_t all)> on_progress = [](size_t, size_t) {};
};

// A record that vanishes meanwhile is there as a removed one; one that honed cannot explain, with its problem. Fails if
// the daemon is gone or does not answer by `deadline`.
Result<ReportData> GatherReport(Channel& channel, const GatherOptions& options, Deadline deadline);

}  // namespace hone::cli
