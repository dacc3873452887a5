#include "base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace hone {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

// tables[k][b]: the remainder of byte b with k zero bytes after it.
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest & 1 ? rest >> 1 ^ kPolynomial : rest >> 1;
    tables[0][byte] = rest;
  }
  for (size_t k = 1; k < tables.size(); ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 255];
  return tables;
}();

// Which byte's remainder begins with these eight bits: each value is one's.
constexpr auto kByteOfTop = [] {
  std::array<uint8_t, 256> bytes{};
  for (size_t byte = 0; byte < 256; ++byte) bytes[kTables[0][byte] >> 24] = static_cast<uint8_t>(byte);
  return bytes;
}();

static_assert(std::endian::native == std::endian::little);

}  // namespace

uint32_t Crc32c(std::string_view bytes, uint32_t so_far) {
  uint32_t rest = ~so_far;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof(word));
    word ^= rest;
    rest = 0;
    for (size_t i = 0; i < 8; ++i) rest ^= kTables[7 - i][word >> (8 * i) & 255];
  }
  for (char byte : bytes) rest = rest >> 8 ^ kTables[0][(rest ^ static_cast<uint8_t>(byte)) & 255];
  return ~rest;
}

// The checksum is linear: the difference of two depends on the difference of the texts alone, and a zero byte at the
// end multiplies it by a constant that has an inverse. So the difference is taken back byte by byte from the end, until
// it is a single bit.
std::optional<BitPosition> FindFlippedBit(uint32_t wanted, uint32_t seen, size_t size) {
  uint32_t difference = wanted ^ seen;
  if (difference == 0) return std::nullopt;
  for (size_t byte = size; byte-- > 0;) {
    uint8_t last = kByteOfTop[difference >> 24];
    difference = (difference ^ kTables[0][last]) << 8 | last;
    if (difference < 256 && std::has_single_bit(difference)) return BitPosition{byte, static_cast<uint8_t>(difference)};
  }
  return std::nullopt;
}

}  // namespace hone
