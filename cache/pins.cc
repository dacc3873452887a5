// How much may be pinned: pinned kernels are never evicted, so without a bound the cap on the cache would be none.
#include <fmt/format.h>

#include <algorithm>

#include "cache/cache_impl.h"

namespace hone {
namespace {

constexpr double kPinnedShare = 0.5;  // of the cap: the rest is left to what is served and refined now

std::string Mebibytes(uint64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

// What a record takes while it cannot be evicted, before compression; of the system layer's, its copy.
uint64_t CacheImpl::PinnedCost(const Record& record, CacheLayer layer) {
  return EncodeRecord(record).size() + (layer == CacheLayer::kSystem ? 0 : record.artifact_bytes);
}

// Counted once, by a walk through all records, and kept up from then on.
uint64_t CacheImpl::PinnedBytes() {
  if (!pinned_bytes_) {
    uint64_t bytes = 0;
    ScanRecords("", [&](Found&& found) {
      if (found.record.pinned && found.layer != CacheLayer::kSystem) bytes += PinnedCost(found.record, found.layer);
      return true;
    });
    pinned_bytes_ = bytes;
  }
  return *pinned_bytes_;
}

Result<void> CacheImpl::CheckRoomForPinned(uint64_t more, const std::string& label) {
  if (options_.size_cap == 0 || options_.directory.empty() || more == 0) return {};
  const auto limit = static_cast<uint64_t>(static_cast<double>(options_.size_cap) * kPinnedShare);
  const uint64_t pinned = PinnedBytes();
  if (pinned + more <= limit) return {};
  return Error{ErrorKind::kLimit,
               fmt::format("pinned kernels take {} already, and this one would take {} more: at most half of the "
                           "cache's {} may be pinned; `hone unpin` others, or raise cache.size",
                           Mebibytes(pinned), Mebibytes(more), Mebibytes(options_.size_cap)),
               label};
}

void CacheImpl::NotePinned(uint64_t more, uint64_t less) {
  if (pinned_bytes_) pinned_bytes_ = *pinned_bytes_ + more - std::min(*pinned_bytes_ + more, less);
}

}  // namespace hone
