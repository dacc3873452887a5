// 128-bit names for canonical texts. A collision is possible and harmless: whoever looks up compares the text too.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/language/canonical.h"

namespace hone {

struct Fingerprint {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const Fingerprint&) const = default;
  std::string Hex() const;  // 32 lower-case digits
};

std::optional<Fingerprint> ParseFingerprint(std::string_view hex);  // exactly 32 hex digits

// BLAKE2b-128 of the canonical text (class + shape + dtypes + options). The target is the cache key's other half.
Fingerprint FingerprintOf(const Canonical& canonical);
// BLAKE2b-128 of the class text.
Fingerprint ClassFingerprintOf(const Canonical& canonical);

}  // namespace hone
