#include "cache/bundle/ed25519.h"

#include <sodium.h>

#include "base/check.h"

namespace hone {
namespace {

struct KeyPair {
  PublicKey open;
  std::array<uint8_t, crypto_sign_SECRETKEYBYTES> secret;
  explicit KeyPair(const SigningSeed& seed) {
    HONE_CHECK(sodium_init() >= 0);
    HONE_CHECK(crypto_sign_seed_keypair(open.data(), secret.data(), seed.data()) == 0);
  }
  ~KeyPair() { sodium_memzero(secret.data(), secret.size()); }
};

static_assert(sizeof(SigningSeed) == crypto_sign_SEEDBYTES && sizeof(PublicKey) == crypto_sign_PUBLICKEYBYTES &&
              sizeof(Signature) == crypto_sign_BYTES);

const unsigned char* Bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

SigningSeed RandomSigningSeed() {
  HONE_CHECK(sodium_init() >= 0);
  SigningSeed seed;
  randombytes_buf(seed.data(), seed.size());
  return seed;
}

PublicKey PublicKeyOf(const SigningSeed& seed) { return KeyPair(seed).open; }

Signature Sign(const SigningSeed& seed, std::string_view message) {
  const KeyPair pair(seed);
  Signature signature;
  HONE_CHECK(crypto_sign_detached(signature.data(), nullptr, Bytes(message), message.size(), pair.secret.data()) == 0);
  return signature;
}

bool IsSignedBy(const PublicKey& key, const Signature& signature, std::string_view message) {
  HONE_CHECK(sodium_init() >= 0);
  return crypto_sign_verify_detached(signature.data(), Bytes(message), message.size(), key.data()) == 0;
}

}  // namespace hone
