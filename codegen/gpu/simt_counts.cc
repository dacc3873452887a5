#include "codegen/gpu/simt_counts.h"

#include <algorithm>
#include <set>

namespace hone::simt {
namespace {

constexpr int64_t kBanks = 32, kBankBytes = 4, kSectorBytes = 32;

}  // namespace

void AccessCounts::AddTo(SimtReport& report) {
  for (const auto& [key, ranges] : touched_) {
    const bool is_shared = std::get<3>(key);
    std::set<int64_t> units;  // sectors, or words of banks
    for (const auto& [begin, end] : ranges) {
      const int64_t unit = is_shared ? kBankBytes : kSectorBytes;
      for (int64_t at = begin / unit; at * unit < end; ++at) units.insert(at);
    }
    if (!is_shared) {
      ++report.global_accesses;
      report.global_sectors += static_cast<int64_t>(units.size());
      continue;
    }
    std::map<int64_t, int64_t> banks;
    int64_t passes = 0;
    for (int64_t word : units) passes = std::max(passes, ++banks[word % kBanks]);
    ++report.shared_accesses;
    report.shared_passes += passes;
  }
  touched_.clear();
}

}  // namespace hone::simt
