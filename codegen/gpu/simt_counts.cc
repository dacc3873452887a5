#include "codegen/gpu/simt_counts.h"

#include <algorithm>
#include <array>

namespace hone::simt {
namespace {

constexpr int64_t kBanks = 32, kBankBytes = 4, kSectorBytes = 32;

// Each once, in order.
std::vector<int64_t> UnitsOf(std::span<const Bytes> touched, int64_t unit) {
  std::vector<int64_t> units;
  for (const auto& [begin, end] : touched)
    for (int64_t at = begin / unit; at * unit < end; ++at) units.push_back(at);
  std::ranges::sort(units);
  units.erase(std::unique(units.begin(), units.end()), units.end());
  return units;
}

}  // namespace

int64_t SectorsOf(std::span<const Bytes> touched) {
  return static_cast<int64_t>(UnitsOf(touched, kSectorBytes).size());
}

int64_t PassesOf(std::span<const Bytes> touched) {
  std::array<int64_t, kBanks> words = {};
  for (int64_t word : UnitsOf(touched, kBankBytes)) ++words[static_cast<size_t>(word % kBanks)];
  return *std::ranges::max_element(words);
}

void AccessCounts::AddTo(SimtReport& report) {
  for (const auto& [key, touched] : touched_) {
    const bool is_shared = std::get<3>(key);
    ++(is_shared ? report.shared_accesses : report.global_accesses);
    (is_shared ? report.shared_passes : report.global_sectors) += is_shared ? PassesOf(touched) : SectorsOf(touched);
  }
  touched_.clear();
}

}  // namespace hone::simt
