#include "cache/salvage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "cache/scan.h"

namespace hone {
namespace {

constexpr size_t kBatchBytes = 4 << 20;

}  // namespace

void SalvageReport::Add(const SalvageReport& other) {
  mended += other.mended;
  copied += other.copied;
  lost_writes += other.lost_writes;
  damaged_ranges += other.damaged_ranges;
  unreadable_files += other.unreadable_files;
  artifacts_lost |= other.artifacts_lost;
}

std::string SalvageReport::Text(std::string_view reason) const {
  std::vector<std::string> parts;
  if (mended > 0) parts.push_back(fmt::format("set right what flipped in {} place{}", mended, mended == 1 ? "" : "s"));
  if (copied > 0) parts.push_back(fmt::format("kept {} entries", copied));
  if (lost_writes > 0) parts.push_back(fmt::format("lost {} of the last writes, from the log", lost_writes));
  if (damaged_ranges > 0) parts.push_back(fmt::format("lost the entries of {} damaged stretches", damaged_ranges));
  if (unreadable_files > 0) parts.push_back(fmt::format("{} tables could not be opened", unreadable_files));
  if (artifacts_lost) parts.push_back("compiled code was lost and will be compiled again from its schedules");
  if (lossless()) parts.push_back("nothing was lost");
  return fmt::format("{} ({})", fmt::join(parts, "; "), reason);
}

Result<void> CopyEntries(ResilientIterator& entries, Store& to, Family family, bool keep_present, SalvageReport& report,
                         const std::stop_token& stop) {
  StoreBatch batch;
  for (; entries.Valid(); entries.Next()) {
    if (keep_present && HONE_TRY(to.Get(family, entries.key()))) continue;
    batch.Put(family, std::string(entries.key()), std::string(entries.value()));
    ++report.copied;
    if (batch.bytes() < kBatchBytes) continue;
    if (stop.stop_requested()) return Error{ErrorKind::kBusy, "stopped on the way", ""};
    HONE_TRY(to.Write(batch, SyncMode::kNoSync));
    batch = StoreBatch();
  }
  report.damaged_ranges += entries.damaged_ranges();
  return to.Write(batch, SyncMode::kNoSync);
}

Result<void> CopyReadable(const Store& from, Store& to, Family family, SalvageReport& report,
                          const std::stop_token& stop) {
  ResilientIterator entries([&] { return from.Iterate(family); }, "");
  return CopyEntries(entries, to, family, /*keep_present=*/false, report, stop);
}

}  // namespace hone
