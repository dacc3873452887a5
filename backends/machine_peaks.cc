#include "backends/machine_peaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "codegen/machine_model.h"

namespace hone {

std::string_view MemoryLevelName(int level) {
  constexpr std::string_view kNames[kMemoryLevels] = {"L1", "L2", "L3", "memory"};
  return kNames[static_cast<size_t>(std::clamp(level, 0, kMemoryLevels - 1))];
}

MachinePeaks Highest(const MachinePeaks& a, const MachinePeaks& b) {
  MachinePeaks highest;
  highest.gflops = std::max(a.gflops, b.gflops);
  for (size_t i = 0; i < highest.read_gb_s.size(); ++i) highest.read_gb_s[i] = std::max(a.read_gb_s[i], b.read_gb_s[i]);
  return highest;
}

std::string PrintPeaks(const MachinePeaks& peaks) {
  const auto& read = peaks.read_gb_s;
  return fmt::format("{:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", peaks.gflops, read[0], read[1], read[2], read[3]);
}

Result<MachinePeaks> ParsePeaks(std::string_view text) {
  MachinePeaks peaks;
  auto& read = peaks.read_gb_s;
  int used = 0;
  const std::string copy(text);
  bool is_read = std::sscanf(copy.c_str(), "%lf %lf %lf %lf %lf%n", &peaks.gflops, &read[0], &read[1], &read[2],
                             &read[3], &used) == 5 &&
                 used == static_cast<int>(copy.size());
  auto sound = [](double value) { return std::isfinite(value) && value >= 0; };
  if (!is_read || !sound(peaks.gflops) || !std::all_of(read.begin(), read.end(), sound))
    return Error{ErrorKind::kCorrupt, "not the roofs of a machine", ""};
  return peaks;
}

int LevelOf(double bytes, const Target& target, int threads) {
  const MachineModel machine = ModelMachine(target);
  const double cores = std::max(1, threads);
  if (bytes <= static_cast<double>(machine.l1_bytes) * cores) return 0;
  if (bytes <= static_cast<double>(machine.l2_bytes) * cores) return 1;
  return bytes <= static_cast<double>(machine.l3_bytes) ? 2 : 3;
}

}  // namespace hone
