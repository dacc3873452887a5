#include "client/cli/shares_text.h"

#include <fmt/format.h>

#include "client/cli/print_values.h"
#include "client/cli/text_layout.h"

namespace hone::cli {
namespace {

constexpr size_t kShownShares = 20;
constexpr size_t kLabelColumns = 90;

}  // namespace

std::string SharesText(const std::vector<WorkShare>& shares) {
  double total = 0, rest_us = 0;
  int64_t rest_calls = 0;
  for (const WorkShare& share : shares) total += share.time_us;
  Table table(
      {{"share", Table::Align::kRight}, {"time", Table::Align::kRight}, {"calls", Table::Align::kRight}, {"kernel"}});
  auto add = [&](double us, int64_t calls, std::string label) {
    table.Add({fmt::format("{:.1f} %", total > 0 ? 100 * us / total : 0), TimeText(us), std::to_string(calls),
               std::move(label)});
  };
  for (size_t i = 0; i < shares.size(); ++i) {
    const WorkShare& share = shares[i];
    if (i < kShownShares) {
      const std::string why = share.why_host.empty() ? "" : ", on the host: " + share.why_host;
      add(share.time_us, share.calls, Cut(OneLine(share.label) + why, kLabelColumns));
    } else {
      rest_us += share.time_us;
      rest_calls += share.calls;
    }
  }
  if (rest_calls > 0) add(rest_us, rest_calls, fmt::format("{} more kernels", shares.size() - kShownShares));
  return table.Text();
}

std::vector<Json> SharesJson(const std::vector<WorkShare>& shares) {
  std::vector<Json> rows;
  for (const WorkShare& share : shares) {
    Json row;
    row.Set("kernel", share.label).Set("calls", share.calls).Set("time_us", share.time_us);
    if (!share.kernel.empty() && share.kernel != share.label) row.Set("text", share.kernel);
    if (!share.why_host.empty()) row.Set("no_kernel", share.why_host);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace hone::cli
