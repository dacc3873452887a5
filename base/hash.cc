#include "base/hash.h"

#include <blake2.h>

#include "base/check.h"

namespace hone {
namespace {

blake2b_state* StateOf(std::span<std::byte> storage) { return reinterpret_cast<blake2b_state*>(storage.data()); }

int DigitValue(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

}  // namespace

template <size_t N>
Hasher<N>::Hasher(std::span<const uint8_t> key) {
  static_assert(sizeof(blake2b_state) <= sizeof(state_) && N <= BLAKE2B_OUTBYTES);
  const int begun =
      key.empty() ? blake2b_init(StateOf(state_), N) : blake2b_init_key(StateOf(state_), N, key.data(), key.size());
  HONE_CHECK(begun == 0);
}

template <size_t N>
void Hasher<N>::Update(std::span<const std::byte> bytes) {
  HONE_CHECK(blake2b_update(StateOf(state_), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()) == 0);
}

template <size_t N>
std::array<uint8_t, N> Hasher<N>::Finish() {
  std::array<uint8_t, N> digest;
  HONE_CHECK(blake2b_final(StateOf(state_), digest.data(), N) == 0);
  return digest;
}

template class Hasher<8>;
template class Hasher<16>;
template class Hasher<32>;

std::string HexOf(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (uint8_t byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

bool ParseHex(std::string_view hex, std::span<uint8_t> bytes) {
  if (hex.size() != bytes.size() * 2) return false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    int high = DigitValue(hex[2 * i]), low = DigitValue(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

}  // namespace hone
