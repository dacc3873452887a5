#include "cache/bundle/sha256.h"

#include <sodium.h>

namespace hone {

std::array<uint8_t, 32> Sha256(std::string_view bytes) {
  std::array<uint8_t, 32> digest{};
  static_assert(crypto_hash_sha256_BYTES == std::tuple_size_v<decltype(digest)>);
  crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return digest;
}

}  // namespace hone
