#include "network/run/work_shares.h"

#include <algorithm>

namespace hone {

void WorkShares::Add(const std::string& label, const std::string& kernel, const std::string& why_host, double us) {
  WorkShare& share = shares_[kernel.empty() ? label + "\n" + why_host : kernel];
  share.label = label;
  share.kernel = kernel;
  share.why_host = why_host;
  ++share.calls;
  share.time_us += us;
}

double WorkShares::total_us() const {
  double total = 0;
  for (const auto& [_, share] : shares_) total += share.time_us;
  return total;
}

std::vector<WorkShare> WorkShares::Sorted() const {
  std::vector<WorkShare> all;
  for (const auto& [_, share] : shares_) all.push_back(share);
  std::sort(all.begin(), all.end(), [](const WorkShare& a, const WorkShare& b) { return a.time_us > b.time_us; });
  return all;
}

}  // namespace hone
