// SHA-256, which other formats name content by; hone's own are by BLAKE2 (base/hash.h).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hone {

std::array<uint8_t, 32> Sha256(std::string_view bytes);

}  // namespace hone
