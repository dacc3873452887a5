// Where the time of a network's runs goes, as a table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "client/cli/json.h"
#include "network/run/work_shares.h"

namespace hone::cli {

// The largest twenty, what runs on the host with the reason, and the rest in one line.
std::string SharesText(const std::vector<WorkShare>& shares);
std::vector<Json> SharesJson(const std::vector<WorkShare>& shares);

}  // namespace hone::cli
