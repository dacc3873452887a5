#include "ir/language/fingerprint.h"

#include "base/hash.h"

namespace hone {

std::string Fingerprint::Hex() const { return HexOf(bytes); }

std::optional<Fingerprint> ParseFingerprint(std::string_view hex) {
  Fingerprint fingerprint;
  if (!ParseHex(hex, fingerprint.bytes)) return std::nullopt;
  return fingerprint;
}

Fingerprint FingerprintOf(const Canonical& canonical) { return Fingerprint{Hash128(canonical.text)}; }

Fingerprint ClassFingerprintOf(const Canonical& canonical) { return Fingerprint{Hash128(canonical.class_text)}; }

}  // namespace hone
