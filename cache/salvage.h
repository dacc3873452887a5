// Saving what can be read of a damaged store.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cache/store.h"

namespace hone {

struct SalvageReport {
  uint64_t mended = 0;            // flipped bits and files that were set right
  uint64_t copied = 0;            // entries, if the store had to be written anew
  uint64_t lost_writes = 0;       // that stood in a damaged stretch of the log, and may be in no table yet
  uint64_t damaged_ranges = 0;    // stretches of keys that could not be read: a block each, mostly
  uint64_t unreadable_files = 0;  // tables that could not be opened at all
  bool artifacts_lost = false;    // the list of blob files was damaged: schedules are kept, code is compiled again
  bool lossless() const { return lost_writes == 0 && damaged_ranges == 0 && unreadable_files == 0 && !artifacts_lost; }
  void Add(const SalvageReport& other);
  std::string Text(std::string_view reason) const;  // "kept 1200 entries; lost … (reason)", one line
};

// Copies every readable entry of a family, in batches. Fails only if `to` cannot be written, or with kBusy when
// stopped.
Result<void> CopyReadable(const Store& from, Store& to, Family family, SalvageReport& report,
                          const std::stop_token& stop = {});

// The same for entries of any source. `keep_present`: what `to` has already stays.
class ResilientIterator;
Result<void> CopyEntries(ResilientIterator& entries, Store& to, Family family, bool keep_present, SalvageReport& report,
                         const std::stop_token& stop = {});

}  // namespace hone
