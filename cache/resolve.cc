// Fingerprints as people type them, of any cache.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cache/schedule_cache.h"

namespace hone {

Result<Fingerprint> ScheduleCache::Resolve(std::string_view hex_digits) {
  constexpr size_t kShown = 4;
  std::vector<Fingerprint> found = HONE_TRY(FindByPrefix(hex_digits, kShown + 1));
  if (found.size() == 1) return found[0];
  if (found.empty())
    return Error{ErrorKind::kNotFound, fmt::format("no kernel's fingerprint begins with {}; see `hone ls`", hex_digits),
                 ""};
  std::vector<std::string> names;
  for (const Fingerprint& fingerprint : found) names.push_back(names.size() < kShown ? fingerprint.Hex() : "…");
  return Error{ErrorKind::kInvalid,
               fmt::format("{} is the beginning of several fingerprints: {}; give more digits", hex_digits,
                           fmt::join(names, ", ")),
               ""};
}

}  // namespace hone
