#include "base/rng.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace hone {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

uint64_t Mix(uint64_t z) {  // splitmix64's output function
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

Rng::Rng(uint64_t seed) : seed_(seed) {
  uint64_t z = seed;
  for (uint64_t& word : state_) word = Mix(z += kGolden);
}

uint64_t Rng::Next() {
  uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

uint64_t Rng::Below(uint64_t bound) {
  HONE_CHECK(bound > 0);
  // Lemire's multiply-shift; draws again in the few cases that would be uneven.
  uint64_t threshold = -bound % bound;
  for (;;) {
    unsigned __int128 product = static_cast<unsigned __int128>(Next()) * bound;
    if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
  }
}

int64_t Rng::Between(int64_t first, int64_t last) {
  HONE_CHECK(first <= last);
  uint64_t span = static_cast<uint64_t>(last) - static_cast<uint64_t>(first);
  uint64_t offset = span == max() ? Next() : Below(span + 1);
  return static_cast<int64_t>(static_cast<uint64_t>(first) + offset);
}

double Rng::Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

double Rng::Normal() {  // Box–Muller, one of the two: no state to carry, so a Fork needs none either
  double radius = std::sqrt(-2 * std::log(1 - Uniform()));
  return radius * std::cos(2 * std::numbers::pi * Uniform());
}

Rng Rng::Fork(uint64_t n) const { return Rng(Mix(Mix(seed_ + kGolden) ^ Mix(~n))); }

}  // namespace hone
