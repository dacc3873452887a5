// Signatures: Ed25519 (RFC 8032), by libsodium, which is included by this file's source alone.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hone {

using SigningSeed = std::array<uint8_t, 32>;  // the secret: everything else follows from it
using PublicKey = std::array<uint8_t, 32>;
using Signature = std::array<uint8_t, 64>;

// From the system's source of randomness.
SigningSeed RandomSigningSeed();
PublicKey PublicKeyOf(const SigningSeed& seed);
// The same message and key always give the same signature.
Signature Sign(const SigningSeed& seed, std::string_view message);
// False also for public keys that are no points of the curve, or of small order.
bool IsSignedBy(const PublicKey& key, const Signature& signature, std::string_view message);

}  // namespace hone
