// Seedable, splittable random numbers: the same seed gives the same numbers on every machine and standard library.
// xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number generators"), seeded through splitmix64.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

namespace hone {

// Not thread-safe: each thread takes a Fork.
class Rng {
 public:
  using result_type = uint64_t;

  explicit Rng(uint64_t seed);

  uint64_t Next();
  uint64_t Below(uint64_t bound);                // 0 … bound-1, unbiased. REQUIRES: bound > 0
  int64_t Between(int64_t first, int64_t last);  // inclusive. REQUIRES: first <= last
  double Uniform();                              // [0, 1), 53 bits
  double Normal();                               // mean 0, deviation 1
  bool Chance(double probability) { return Uniform() < probability; }
  template <typename T>
  void Shuffle(std::span<T> items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[Below(i)]);
  }

  // The n-th child: depends on this generator's seed and n alone, not on how much was drawn, so that work split among
  // threads stays reproducible.
  Rng Fork(uint64_t n) const;
  uint64_t seed() const { return seed_; }  // for the log

  // UniformRandomBitGenerator; the distributions of <random> differ between libraries, so prefer the members above.
  uint64_t operator()() { return Next(); }
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }

 private:
  uint64_t seed_;
  std::array<uint64_t, 4> state_;
};

}  // namespace hone
