#include "backends/copy_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace hone {

CopySpeed Fastest(const CopySpeed& a, const CopySpeed& b) {
  if (a.IsFree() || b.IsFree()) return a.IsFree() ? b : a;
  return {std::max(a.to_gb_s, b.to_gb_s), std::max(a.from_gb_s, b.from_gb_s), std::min(a.to_us, b.to_us),
          std::min(a.from_us, b.from_us)};
}

std::string PrintCopySpeed(const CopySpeed& speed) {
  return fmt::format("{:.4g} {:.4g} {:.4g} {:.4g}", speed.to_gb_s, speed.from_gb_s, speed.to_us, speed.from_us);
}

Result<CopySpeed> ParseCopySpeed(std::string_view text) {
  CopySpeed speed;
  int used = 0;
  const std::string copy(text);
  const bool is_read = std::sscanf(copy.c_str(), "%lf %lf %lf %lf%n", &speed.to_gb_s, &speed.from_gb_s, &speed.to_us,
                                   &speed.from_us, &used) == 4 &&
                       used == static_cast<int>(copy.size());
  for (const double value : {speed.to_gb_s, speed.from_gb_s, speed.to_us, speed.from_us})
    if (!is_read || !std::isfinite(value) || value < 0) return Error{ErrorKind::kCorrupt, "no speed of copies", ""};
  return speed;
}

}  // namespace hone
