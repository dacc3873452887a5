// CRC-32C (Castagnoli), the checksum of RocksDB's files, and what it is good for besides finding damage: it says which
// bit of a text was flipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hone {

// `so_far`: the checksum of what came before.
uint32_t Crc32c(std::string_view bytes, uint32_t so_far = 0);

struct BitPosition {
  size_t byte;
  uint8_t mask;  // of the bit in the byte
};

// The one bit of a text of `size` bytes whose flip changes its checksum from `wanted` to `seen`; nullopt if no single
// bit does. Unique below 2^31 bits. Other damage seems to be one flipped bit with a chance of size * 8 in 2^32: what
// was set right has to pass a check of its own.
std::optional<BitPosition> FindFlippedBit(uint32_t wanted, uint32_t seen, size_t size);

}  // namespace hone
