// What a device can do at most: the roofs that a kernel's time is held against. Its backend measures them.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ir/target.h"

namespace hone {

inline constexpr int kMemoryLevels = 4;

struct MachinePeaks {
  double gflops = 0;                              // single-precision FMAs from registers, two operations each
  std::array<double, kMemoryLevels> read_gb_s{};  // sequential reads from L1, L2, L3, memory
  bool operator==(const MachinePeaks&) const = default;
};
std::string_view MemoryLevelName(int level);  // "L1" … "memory"

// What was measured under load is too low, never too high.
MachinePeaks Highest(const MachinePeaks& a, const MachinePeaks& b);

// "214.3 380 150 80 12"; kCorrupt.
std::string PrintPeaks(const MachinePeaks& peaks);
Result<MachinePeaks> ParsePeaks(std::string_view text);

// The nearest level that holds as many bytes on so many cores.
int LevelOf(double bytes, const Target& target, int threads);

}  // namespace hone
