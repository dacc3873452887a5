// BLAKE2b, the one hash of hone: fingerprints, checksums and digests of artifacts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace hone {

using Digest64 = std::array<uint8_t, 8>;    // checksums: against accidents, not against people
using Digest128 = std::array<uint8_t, 16>;  // fingerprints
using Digest256 = std::array<uint8_t, 32>;  // artifacts, bundles

// BLAKE2b with a digest of N bytes (not a truncation of a longer one), fed piece by piece. Not thread-safe.
template <size_t N>
class Hasher {
 public:
  // With a key (1 to 64 bytes), a code that only who has the key can make: BLAKE2b's own keyed mode.
  explicit Hasher(std::span<const uint8_t> key = {});
  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text) { Update(std::as_bytes(std::span(text))); }
  // REQUIRES: called once, last.
  std::array<uint8_t, N> Finish();

 private:
  alignas(64) std::array<std::byte, 384> state_;  // libb2's blake2b_state
};

using Hasher64 = Hasher<8>;
using Hasher128 = Hasher<16>;
using Hasher256 = Hasher<32>;

template <size_t N>
std::array<uint8_t, N> HashOf(std::span<const std::byte> bytes) {
  Hasher<N> hasher;
  hasher.Update(bytes);
  return hasher.Finish();
}
inline Digest64 Hash64(std::span<const std::byte> bytes) { return HashOf<8>(bytes); }
inline Digest64 Hash64(std::string_view text) { return HashOf<8>(std::as_bytes(std::span(text))); }
inline Digest128 Hash128(std::span<const std::byte> bytes) { return HashOf<16>(bytes); }
inline Digest128 Hash128(std::string_view text) { return HashOf<16>(std::as_bytes(std::span(text))); }
inline Digest256 Hash256(std::span<const std::byte> bytes) { return HashOf<32>(bytes); }
inline Digest256 Hash256(std::string_view text) { return HashOf<32>(std::as_bytes(std::span(text))); }

inline Digest256 Mac256(std::span<const uint8_t> key, std::string_view text) {
  Hasher<32> hasher(key);
  hasher.Update(text);
  return hasher.Finish();
}

// Lower-case, two digits a byte.
std::string HexOf(std::span<const uint8_t> bytes);
inline std::string HexOf(std::string_view bytes) {
  return HexOf(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}
// Exactly size × 2 hex digits of either case; false (and `bytes` unspecified) otherwise.
bool ParseHex(std::string_view hex, std::span<uint8_t> bytes);

}  // namespace hone
