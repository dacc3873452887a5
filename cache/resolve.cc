// Fingerprints as people type them, of any cache.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>

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

Result<std::string> ScheduleCache::BeginningOfFingerprint(std::string_view hex_digits) {
  if (hex_digits.empty() || hex_digits.size() > 32 ||
      hex_digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
    return Error{ErrorKind::kInvalid,
                 fmt::format("\"{}\" is not the beginning of a fingerprint: wanted 1 to 32 hex digits",
                             hex_digits.substr(0, 40)),
                 ""};
  std::string digits(hex_digits);
  for (char& digit : digits) digit = static_cast<char>(std::tolower(static_cast<unsigned char>(digit)));
  return digits;
}

}  // namespace hone
