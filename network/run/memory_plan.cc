#include "network/run/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace hone {

ArenaPlan PlanArena(std::span<const Lifetime> lifetimes) {
  ArenaPlan plan;
  plan.offsets.assign(lifetimes.size(), 0);
  auto aligned = [](int64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; };
  std::vector<size_t> order(lifetimes.size()), placed;
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::pair(-lifetimes[a].bytes, a) < std::pair(-lifetimes[b].bytes, b); });
  for (size_t index : order) {
    const Lifetime& own = lifetimes[index];
    int64_t bytes = aligned(own.bytes), end = 0, best = -1, smallest = INT64_MAX;
    for (size_t other : placed) {  // by offset
      const Lifetime& there = lifetimes[other];
      if (there.last < own.first || own.last < there.first) continue;
      int64_t gap = plan.offsets[other] - end;
      if (gap >= bytes && gap < smallest) {
        best = end;
        smallest = gap;
      }
      end = std::max(end, plan.offsets[other] + aligned(there.bytes));
    }
    plan.offsets[index] = best >= 0 ? best : end;
    plan.sum += bytes;
    plan.bytes = std::max(plan.bytes, plan.offsets[index] + bytes);
    auto after = std::upper_bound(placed.begin(), placed.end(), plan.offsets[index],
                                  [&](int64_t offset, size_t other) { return offset < plan.offsets[other]; });
    placed.insert(after, index);
  }
  return plan;
}

}  // namespace hone
