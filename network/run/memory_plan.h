// One piece of memory for all that flows through a network: values that are not alive at the same time share bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hone {

// Alive from step `first`, which writes it, to step `last`, which reads it last.
struct Lifetime {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct ArenaPlan {
  std::vector<int64_t> offsets;  // one a lifetime, multiples of kArenaAlignment
  int64_t bytes = 0;             // of the arena
  int64_t sum = 0;               // of all values, had each its own memory
};

inline constexpr int64_t kArenaAlignment = 64;  // a cache line, and the widest vector

// Largest first, each into the smallest gap between those placed before that are alive with it ("greedy by size",
// Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
ArenaPlan PlanArena(std::span<const Lifetime> lifetimes);

}  // namespace hone
