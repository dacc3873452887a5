// How the parts of a bundle are compressed, and how much they may grow when they are unpacked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hone {

// Stored: never reuse a number.
enum class Packing : uint8_t { kNone = 0, kZstd = 1 };

// What zstd makes of a part may be this many times as long when unpacked. A part that would compress further is stored
// as it is, so that nothing sound looks like a bomb.
inline constexpr uint64_t kMostGrowth = 256;

struct Packed {
  Packing packing = Packing::kNone;
  std::string stored;
};
// Equal bytes give equal bytes, with one version of zstd.
Packed Pack(std::string_view bytes);

// `size`: what comes out, as the manifest says. kCorrupt if it does not; kLimit if that is more than kMostGrowth
// allows. Allocates `size` bytes, once that is known to be allowed.
Result<std::string> Unpack(Packing packing, std::string_view stored, uint64_t size);
// Whether it may be that long: what Unpack checks first.
Result<void> CheckGrowth(Packing packing, uint64_t stored, uint64_t size);

}  // namespace hone
