#include "backends/processes/check_sizes.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/schedule/schedule_cases.h"

namespace hone {

std::string SizesText(const Kernel& kernel, const std::vector<int64_t>& sizes) {
  std::string text;
  size_t next = 0;
  for (const Size& size : kernel.sizes)
    if (!size.is_constant() && next < sizes.size())
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", size.name, sizes[next++]);
  return text;
}

Result<CheckReport> CheckAllSizes(const Kernel& kernel, std::string_view schedule, const CheckOptions& options,
                                  const std::function<Result<CheckReport>(const CheckOptions&)>& check) {
  if (IsStatic(kernel)) return check(options);
  CheckReport all;
  CheckOptions each = options;
  bool is_first = true;
  const std::vector<std::vector<int64_t>> lists = HONE_TRY(SizesToCheck(kernel, schedule));
  for (const std::vector<int64_t>& sizes : lists) {
    each.sizes = sizes;
    CheckReport report = HONE_TRY(check(each));
    if (report.failure) {
      report.failure = std::move(*report.failure).Context("at " + SizesText(kernel, sizes));
      return report;
    }
    if (is_first) {
      all = std::move(report);
      is_first = false;
      each.timed_runs = 0;
      continue;
    }
    all.max_rel_err = std::max(all.max_rel_err, report.max_rel_err);
    all.samples += report.samples;
    all.full &= report.full;
    all.check_us += report.check_us;
    all.prepare_us += report.prepare_us;
  }
  return all;
}

}  // namespace hone
