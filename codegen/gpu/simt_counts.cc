#include "codegen/gpu/simt_counts.h"

#include <algorithm>
#include <array>

#include "base/arithmetic.h"

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

// What threads touch at a time: of 16 bytes each eight of them, of 8 bytes sixteen.
template <typename Visit>
void ForEachPhase(std::span<const Bytes> touched, const Visit& visit) {
  int64_t widest = kBankBytes;
  for (const auto& [begin, end] : touched) widest = std::max(widest, end - begin);
  const auto threads = static_cast<size_t>(std::max<int64_t>(1, kBanks * kBankBytes / widest));
  for (size_t at = 0; at < touched.size(); at += threads)
    visit(touched.subspan(at, std::min(threads, touched.size() - at)));
}

}  // namespace

int64_t SectorsOf(std::span<const Bytes> touched) {
  return static_cast<int64_t>(UnitsOf(touched, kSectorBytes).size());
}

int64_t PassesOf(std::span<const Bytes> touched) {
  int64_t passes = 0;
  ForEachPhase(touched, [&](std::span<const Bytes> phase) {
    std::array<int64_t, kBanks> words = {};
    for (int64_t word : UnitsOf(phase, kBankBytes)) ++words[static_cast<size_t>(word % kBanks)];
    passes += *std::ranges::max_element(words);
  });
  return passes;
}

int64_t LeastPassesOf(std::span<const Bytes> touched) {
  int64_t passes = 0;
  ForEachPhase(touched, [&](std::span<const Bytes> phase) {
    passes += CeilDiv(static_cast<int64_t>(UnitsOf(phase, kBankBytes).size()), kBanks);
  });
  return passes;
}

void AccessCounts::AddTo(SimtReport& report) {
  for (const auto& [key, touched] : touched_) {
    const bool is_shared = std::get<3>(key);
    ++(is_shared ? report.shared_accesses : report.global_accesses);
    (is_shared ? report.shared_passes : report.global_sectors) += is_shared ? PassesOf(touched) : SectorsOf(touched);
    if (is_shared) report.least_passes += LeastPassesOf(touched);
  }
  touched_.clear();
}

}  // namespace hone::simt
