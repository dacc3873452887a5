#include "cache/salvage.h"

#include <fmt/format.h>

#include "cache/scan.h"

namespace hone {
namespace {

constexpr size_t kBatchBytes = 4 << 20;

}  // namespace

std::string SalvageReport::Text() const {
  std::string text = fmt::format("kept {} entries", copied);
  if (lossless()) return text + "; nothing was lost";
  if (damaged_ranges > 0) text += fmt::format("; lost the entries of {} damaged stretches", damaged_ranges);
  if (unreadable_files > 0) text += fmt::format("; {} tables could not be opened", unreadable_files);
  if (artifacts_lost) text += "; compiled code was lost and will be compiled again from its schedules";
  return text;
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
